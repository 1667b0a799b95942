"""What Docker, `docker compose` and Kubernetes would find: the image's recipe, the stack's file and configuration."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from lakeward import catalog
from lakeward.cli import parser
from lakeward.config import load, parse
from lakeward.embedded import binaries

ROOT = Path(__file__).resolve().parents[1]
DOCKER = ROOT / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text()
[WORKDIR] = re.findall(r"^WORKDIR (.+)$", DOCKERFILE, re.MULTILINE)
# Of what the embedded MariaDB is linked to, the packages of a Debian release; libc and libgcc are in every image.
PACKAGES = {
    "bookworm": {
        "libcrypt.so.1": "libcrypt1",
        "libstdc++.so.6": "libstdc++6",
        "libsystemd.so.0": "libsystemd0",
        "ps": "procps",
    }
}
EVERYWHERE = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1", "ld-linux-x86-64.so.2"}
DEVELOPMENT = {"pytest", "hypothesis", "moto", "flask", "fakesnow", "duckdb", "mypy", "ruff", "import-linter"}
# Imports every module of the project where no module of `sys.argv[1]` can be.
IMPORTS = """
import importlib, importlib.abc, json, pkgutil, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

absent = set(json.loads(sys.argv[1]))
sys.meta_path.insert(0, Absent())
for package in ("lakeward", "bronze", "silver", "gold", "snowflake.lakehouse"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""
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
    assert config.gold.export == ("*",)  # it is an object store's lake, and the exports are there, too
    suites = Path(config.quality.suites).relative_to(WORKDIR)
    assert (ROOT / suites).is_dir()
    assert sent(str(suites)), f"{suites} is not in the image"
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


def test_the_documented_command_finds_the_stacks_configuration(compose):
    service = compose["services"]["lakeward"]
    [line] = re.findall(r"exec lakeward (lakeward .+)", (DOCKER / "compose.yaml").read_text())
    inside = service["environment"]["LAKEWARD_CONFIG"]
    assert f"./lakeward.toml:{inside}:ro" in service["volumes"]
    said = "from lakeward.cli import parser; import sys; print(parser().parse_args(sys.argv[1:]).config)"
    for command in (shlex.split(line)[1:], service["command"]):
        for environment, config in (({"LAKEWARD_CONFIG": inside}, inside), ({}, "lakeward.toml")):
            found = subprocess.run(
                [sys.executable, "-c", said, *command],
                env={**os.environ, "LAKEWARD_CONFIG": "", **environment},
                capture_output=True,
                text=True,
            )
            assert found.stdout.strip() == config, found.stderr


def test_what_a_service_keeps_is_on_a_volume(compose):
    services = compose["services"]
    keeps = {
        "mysql": "/var/lib/mysql",
        "s3": services["s3"]["entrypoint"][-1].split("minio server ")[1].split()[0],
        "catalog": services["catalog"]["environment"]["CATALOG_URI"].removeprefix("jdbc:sqlite:"),
    }
    assert set(services) - set(keeps) == {"adminer", "lakeward"}  # the lake is in the S3 server
    assert load(DOCKER / "lakeward.toml").root.startswith("s3a://")
    for name, kept in keeps.items():
        mounted = [v.split(":") for v in services[name]["volumes"] if v.split(":")[0] in compose["volumes"]]
        assert [Path(kept).is_relative_to(target) for _, target in mounted] == [True], name
    used = [v.split(":")[0] for s in services.values() for v in s.get("volumes", ())]
    assert all(used.count(volume) == 1 for volume in compose["volumes"])


def test_the_image_is_of_one_debian_release_and_asks_it_for_packages_that_it_has():
    [base] = re.findall(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    named = re.fullmatch(r"python:(3\.\d+)[\d.]*-slim-(\w+)", base)
    assert named is not None, f"{base} moves to another release of Debian"
    allowed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert named[1] in ("3.11", "3.12", "3.13"), allowed
    asked = re.search(r"apt-get install (?:--\S+ )*([^\\&]+)", DOCKERFILE)
    assert asked is not None
    assert set(asked[1].split()) == set(PACKAGES[named[2]].values())


def test_the_embedded_servers_libraries_are_in_the_image():
    if shutil.which("readelf") is None or sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("readelf, or the server that the image has, is not here")
    program = binaries.mariadb_from_maven().executable
    said = subprocess.run(["readelf", "--dynamic", str(program)], capture_output=True, text=True, check=True).stdout
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", said))
    assert "libstdc++.so.6" in needed
    assert needed - EVERYWHERE <= set(PACKAGES["bookworm"])


def sent(path: str) -> bool:
    """Whether Docker sends `path` to the build: the last pattern that names it, or a folder above it, decides."""
    within = [path, *map(str, Path(path).parents)][:-1]
    found = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!").removeprefix("**/")
            names = [Path(part).name for part in within] if "**/" in line else within
            if any(fnmatch.fnmatchcase(name, pattern) for name in names):
                found = line.startswith("!")
    return found


def test_the_build_gets_the_program_and_nothing_else():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    files = listed.stdout.splitlines()
    packages = {"bronze", "silver", "gold", "snowflake", "lakeward", "expectations"}
    for file in files:
        if file.split("/")[0] in packages:
            assert sent(file), file
    kept = {file for file in files if sent(file) and file.split("/")[0] not in packages}
    built = {"pyproject.toml", "requirements.in", "requirements.lock"}
    assert kept == {*built, "docker/entrypoint.sh", "docker/runtime_lock.py"}
    for copied in re.findall(r"^COPY --chown=lakeward (.+) \./$", DOCKERFILE, re.MULTILINE):
        assert set(copied.split()) <= kept
    # What is beside the program on the machine of whoever builds it; all that git ignores, too.
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()]
    for name in (".git", ".venv-other", "tests", "docs", "lakeward.toml", "docker/.env", "secret.pem", *ignored):
        assert not sent(name), name
        assert not sent(f"{name}/file"), name
    assert not sent("lakeward/__pycache__/names.pyc")


def of_image() -> str:
    """The lock that the image installs, made as the Dockerfile makes it."""
    assert "python runtime_lock.py requirements.in requirements.lock > runtime.lock" in DOCKERFILE
    assert "--require-hashes --no-deps --requirement runtime.lock" in DOCKERFILE
    command = [sys.executable, str(DOCKER / "runtime_lock.py"), "requirements.in", "requirements.lock"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_the_image_has_what_lakeward_runs_on_and_nothing_of_its_tests():
    lock = of_image()
    entries = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in entry for entry in entries)
    assert all(entry in (ROOT / "requirements.lock").read_text() for entry in entries)
    names = {re.split(r"[=; ]", entry)[0] for entry in entries}
    assert {"pyspark", "delta-spark", "pyarrow", "great-expectations", "hatchling"} <= names
    assert not names & DEVELOPMENT
    # Whole: pip, told not to look for what a package needs, would leave it out.
    installed = {canonicalize_name(d.name) for d in metadata.distributions()}
    for name in names & installed:
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                assert canonicalize_name(needed.name) in names, f"{name} needs {needed.name}"
    absent = [
        module
        for module, owners in metadata.packages_distributions().items()
        if not {canonicalize_name(owner) for owner in owners} & {*names, "lakeward"}
    ]
    assert "pytest" in absent
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTS, json.dumps(absent)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_the_manifest_runs_the_image_as_its_own_driver():
    documents = list(YAML(typ="safe").load_all((DOCKER / "kubernetes.yaml").read_text()))
    found = {document["kind"]: document for document in documents}
    assert set(found) == {"ServiceAccount", "Role", "RoleBinding", "ConfigMap", "CronJob"}
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    [subject] = found["RoleBinding"]["subjects"]
    job = found["CronJob"]["spec"]
    pod = job["jobTemplate"]["spec"]["template"]["spec"]
    assert subject["name"] == found["ServiceAccount"]["metadata"]["name"] == pod["serviceAccountName"]
    assert job["concurrencyPolicy"] == "Forbid"
    [container] = pod["containers"]
    [mount] = container["volumeMounts"]
    [volume] = pod["volumes"]
    environment = {each["name"]: each for each in container["env"]}
    files = found["ConfigMap"]["data"]
    assert environment["LAKEWARD_SPARK_MASTER"]["value"].startswith("k8s://https://")
    assert environment["SPARK_CONF_DIR"]["value"] == mount["mountPath"]
    assert environment["LAKEWARD_CONFIG"]["value"] == f"{mount['mountPath']}/lakeward.toml"
    assert (mount["name"], volume["configMap"]) == (volume["name"], found["ConfigMap"]["metadata"])
    config = parse(tomllib.loads(files["lakeward.toml"]))
    assert config.source.password is not None
    assert config.source.password.where.removeprefix("env:") in environment
    defaults = dict(
        line.split(maxsplit=1) for line in files["spark-defaults.conf"].splitlines() if not line.startswith("#")
    )
    assert defaults["spark.kubernetes.container.image"] == container["image"]
    assert set(re.findall(r"\$\{env:(\w+)\}", files["spark-defaults.conf"])) <= set(environment)
    assert {"spark.driver.host", "spark.kubernetes.driver.pod.name"} <= set(defaults)
    assert parser().parse_args(container["args"]).command == "stages.run_command"


def test_what_the_image_runs_unasked_is_a_command():
    [command] = re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)
    assert parser().parse_args(json.loads(command)).command == "stages.run_command"
    [entrypoint] = re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)
    assert json.loads(entrypoint) == ["/app/docker/entrypoint.sh"]


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
        "SPARK_CLASSPATH": "/extra/one.jar",  # spark.executor.extraClassPath
        "JDK_JAVA_OPTIONS": "-XshowSettings:properties",
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
    assert "/extra/one.jar" in executor.stderr
    # In cluster mode Spark would start this image as a driver, whose class path and settings it had made itself.
    driver = start("driver", "--class", "org.apache.spark.deploy.PythonRunner", "local:///app/main.py")
    assert (driver.returncode, driver.stdout) == (2, "")
    assert "LAKEWARD_SPARK_MASTER=k8s://" in driver.stderr
