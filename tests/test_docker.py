"""What `docker compose` and Kubernetes would find: the stack's file, its configuration, and the image's entry point."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lakeward import catalog
from lakeward.config import load

DOCKER = Path(__file__).resolve().parents[1] / "docker"
# Of compose's own schema (compose-spec.json): what a service may say here, and what the file may.
SERVICE = {
    *("image", "build", "command", "entrypoint", "environment", "ports", "volumes", "depends_on", "healthcheck"),
    "restart",
}
TOP = {"name", "services", "volumes"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load((DOCKER / "compose.yaml").read_text())
    return found


def has_compose() -> bool:
    docker = shutil.which("docker")
    return docker is not None and subprocess.run([docker, "compose", "version"], capture_output=True).returncode == 0


def test_the_stack_has_every_part_and_each_says_what_compose_knows(compose):
    assert {key for key in compose if not key.startswith("x-")} == TOP
    services = compose["services"]
    assert set(services) == {"mysql", "adminer", "s3", "catalog", "lakeward"}
    for name, service in services.items():
        assert set(service) <= SERVICE, name
        assert ":" in service["image"] or "build" in service, f"{name} is of no stated version"
        for needed, condition in service.get("depends_on", {}).items():
            wanted = condition["condition"]
            assert wanted in ("service_healthy", "service_started")
            assert wanted == "service_started" or "healthcheck" in services[needed], (name, needed)
        assert all(isinstance(v, str) for v in service.get("environment", {}).values()), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            assert source in compose["volumes"] or (DOCKER / source).is_file(), (name, volume)
    build = services["lakeward"]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).is_file()


def test_the_stacks_configuration_names_its_services_and_their_ports(compose, monkeypatch):
    config = load(DOCKER / "lakeward.toml")
    services = compose["services"]
    assert config.source.address() == ("replicator", "mysql", 3306)
    assert config.source.password is not None
    assert config.source.password.where.removeprefix("env:") in services["lakeward"]["environment"]
    assert config.lake.endpoint == services["catalog"]["environment"]["CATALOG_S3_ENDPOINT"] == "http://s3:9000"
    assert config.gold.uri == "http://catalog:8181"
    settings = catalog.settings(config.gold, config.root)
    assert settings[catalog.LOCATION] == services["catalog"]["environment"]["CATALOG_WAREHOUSE"]
    key = services["lakeward"]["environment"]["AWS_ACCESS_KEY_ID"]
    assert key == services["s3"]["environment"]["MINIO_ROOT_USER"]


def test_docker_itself_accepts_the_stack():
    if not has_compose():
        pytest.skip("docker compose is not here; the structure is checked above")
    done = subprocess.run(
        ["docker", "compose", "--file", str(DOCKER / "compose.yaml"), "config", "--quiet"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_scripts_are_programs_that_their_shells_can_read():
    for script in DOCKER.glob("*.sh"):
        assert script.stat().st_mode & stat.S_IXUSR, script
        assert subprocess.run(["bash", "-n", str(script)]).returncode == 0


def test_the_entry_point_runs_commands_and_becomes_an_executor_of_spark_on_kubernetes():
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "SPARK_DRIVER_URL": "spark://nowhere:7078",  # it lacks the endpoint's name, which Spark finds out at once
        "SPARK_EXECUTOR_ID": "3",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_MEMORY": "128m",
        "SPARK_APPLICATION_ID": "app-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
        "SPARK_EXECUTOR_POD_NAME": "exec-3",
        "SPARK_JAVA_OPT_0": "-Dfirst=1",
        "SPARK_JAVA_OPT_1": "-Dwith=a space",
    }

    def start(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(DOCKER / "entrypoint.sh"), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)

    assert "usage: lakeward" in start("--help").stdout
    assert start("python", "-c", "print('as it stands')").stdout == "as it stands\n"
    # Spark's own backend runs, has understood its options, and looks for the driver.
    executor = start("executor")
    assert executor.returncode == 1
    assert "KubernetesExecutorBackend" in executor.stderr
    assert "Invalid Spark URL: spark://nowhere:7078" in executor.stderr
