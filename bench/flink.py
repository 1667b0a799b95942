"""Flink CDC into Iceberg, as the peer for the whole way of a change: its jars from Maven Central, one JVM.

It begins at a binlog file and writes upserts (equality deletes and new rows), which is how its rows reach Iceberg: what
a merge has done, its readers do each time they look. Flink CDC 3.5 asks for SHOW MASTER STATUS, which MySQL 8.4 and
later refuse, so the source is MariaDB.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.workloads import SCHEMA, Workload
from lakeward.artifacts import resolve
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.server import EmbeddedServer
from lakeward.java import java_home

VERSION, CDC_VERSION = "1.20.3", "3.5.0"
FLINK = (
    f"org.apache.flink:flink-clients:{VERSION}",
    f"org.apache.flink:flink-table-api-java-bridge:{VERSION}",
    f"org.apache.flink:flink-table-planner-loader:{VERSION}",
    f"org.apache.flink:flink-table-runtime:{VERSION}",
    f"org.apache.flink:flink-connector-base:{VERSION}",
)
CONNECTORS = (
    f"org.apache.flink:flink-sql-connector-mysql-cdc:{CDC_VERSION}",
    "com.mysql:mysql-connector-j:8.0.33",
    "org.apache.iceberg:iceberg-flink-runtime-1.20:1.10.0",
    "org.apache.hadoop:hadoop-client-api:3.4.2",
    "org.apache.hadoop:hadoop-client-runtime:3.4.2",
)
CHECKPOINT = "3 s"
TIMEOUT_S = 1200
COLUMNS = (
    "id INT NOT NULL, customer BIGINT, `views` DECIMAL(20,0), stock SMALLINT, price DECIMAL(12,2), state STRING, "
    "name STRING, created TIMESTAMP(6), updated TIMESTAMP_LTZ(3), doc STRING"
)
# Of https://nightlies.apache.org/flink/flink-docs-release-1.20/docs/deployment/java_compatibility/
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.net", "java.io", "java.nio", "java.text", "java.time", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "java.util.concurrent.locks", "sun.nio.ch"),
)


def available() -> bool:
    """Whether there is a Java compiler, which the page that starts the job needs."""
    return (java_home() / "bin" / "javac").exists()


def stream(server: EmbeddedServer, workload: Workload, rounds: Sequence[tuple[str, int]], cores: int) -> list[float]:
    """Seconds from a job's start to the commit of each round's last change: (binlog file, that change's key)."""
    jars = [
        str(jar) for jar in (*resolve(FLINK, name="flink"), *resolve(CONNECTORS, name="flink-cdc", transitive=False))
    ]
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        path = os.pathsep.join([folder, *map(str, jars)])
        bin_ = java_home() / "bin"
        source = str(Path(__file__).with_name("FlinkToIceberg.java"))
        subprocess.run([str(bin_ / "javac"), "-cp", path, "-d", folder, source], check=True, capture_output=True)
        settings = Path(folder) / "job.properties"
        settings.write_text("\n".join(f"{k}={v}" for k, v in _properties(server, workload, folder, cores).items()))
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
        asked = [word for file, last in rounds for word in (file, str(last))]
        command = [str(bin_ / "java"), "-Xmx4g", *opened, "-cp", path, "FlinkToIceberg", str(settings), *asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    found = [float(line) for line in done.stdout.splitlines() if line.replace(".", "", 1).isdigit()]
    if done.returncode or len(found) != len(rounds):
        raise RuntimeError(f"Flink failed: {(done.stderr or done.stdout)[-4000:]}")
    return found


def _properties(server: EmbeddedServer, workload: Workload, folder: str, cores: int) -> dict[str, object]:
    return {
        "port": server.port,
        "user": "replicator",
        "password": ensure_replicator(server, [EVERY_SCHEMA]),
        "database": SCHEMA,
        "table": workload.table,
        "columns": COLUMNS,
        "warehouse": f"{folder}/warehouse",
        "parallelism": cores,
        "checkpoint.interval": CHECKPOINT,
    }
