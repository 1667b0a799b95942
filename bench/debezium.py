"""Debezium's engine without a sink, as the peer for reading a binlog: its jars from Maven Central, one JVM.

It begins at a binlog file by preset offsets, takes the tables' shapes from the server (`snapshot.mode=recovery`), and
keeps offsets and schema history in memory. Batches are of 2048, its default and its best here.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from bench.workloads import SCHEMA, Start, Workload
from lakeward.artifacts import resolve
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.server import EmbeddedServer
from lakeward.java import java_home

VERSION = "3.6.1.Final"
COORDINATES = (f"io.debezium:debezium-embedded:{VERSION}", f"io.debezium:debezium-connector-mysql:{VERSION}")
TIMEOUT_S = 600


def available() -> bool:
    """Whether there is a Java compiler, which the reader of two pages needs."""
    return (java_home() / "bin" / "javac").exists()


def read(server: EmbeddedServer, workload: Workload, start: Start, changes: int, rounds: int) -> list[float]:
    """Changes a second of each round from `start` on, all in one JVM: the first round is cold."""
    jars = [str(jar) for jar in resolve(COORDINATES, name="debezium")]
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        path = os.pathsep.join([folder, *jars])
        sources = [str(Path(__file__).with_name(name)) for name in ("DebeziumReader.java", "PresetOffsets.java")]
        bin_ = java_home() / "bin"
        subprocess.run([str(bin_ / "javac"), "-cp", path, "-d", folder, *sources], check=True, capture_output=True)
        settings = Path(folder) / "engine.properties"
        settings.write_text(
            "\n".join(f"{name}={value}" for name, value in _properties(server, workload, start).items())
        )
        topic = f"bench.{SCHEMA}.{workload.table}"
        command = [str(bin_ / "java"), "-Xmx2g", "-cp", path, "DebeziumReader", str(settings), topic, str(changes),
                   str(rounds)]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    rates = []
    for line in done.stdout.splitlines():
        words = line.split()
        if len(words) == 2 and words[0].isdigit():
            rates.append(int(words[0]) / float(words[1]))
    if done.returncode or len(rates) != rounds:
        raise RuntimeError(f"Debezium failed: {(done.stderr or done.stdout)[-2000:]}")
    return rates


def _properties(server: EmbeddedServer, workload: Workload, start: Start) -> dict[str, str]:
    return {
        "name": "bench",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": "bench",
        "database.hostname": server.host,
        "database.port": str(server.port),
        "database.user": "replicator",
        "database.password": ensure_replicator(server, [EVERY_SCHEMA]),
        "database.server.id": "4730",
        "database.ssl.mode": "preferred",
        "database.include.list": SCHEMA,
        "table.include.list": f"{SCHEMA}.{workload.table}",
        "snapshot.mode": "recovery",
        "snapshot.locking.mode": "none",
        "include.schema.changes": "false",
        "schema.history.internal": "io.debezium.relational.history.MemorySchemaHistory",
        "offset.storage": "PresetOffsets",
        "bench.file": start.file,
        "bench.gtids": start.gtids,
        "offset.flush.interval.ms": "60000",
        "max.batch.size": "2048",
        "max.queue.size": "8192",
    }
