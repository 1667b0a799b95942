"""Spark's own JDBC reader into Delta, a process of its own: `python -m bench.jdbc`, the request on its input.

Connector/J streams row by row (a fetch size of -2147483648), in four partitions of the key: its best here. Prints the
seconds of each round; each overwrites the table that the one before wrote.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from lakeward.artifacts import resolve
from lakeward.embedded.replicator import EVERY_SCHEMA, USER, ensure_replicator
from lakeward.embedded.server import EmbeddedServer

CONNECTOR = "com.mysql:mysql-connector-j:9.5.0"
PARTITIONS = 4
_ROW_BY_ROW = -2147483648


def load(server: EmbeddedServer, schema: str, table: str, keys: int, folder: Path, rounds: int) -> list[float]:
    """Seconds of each round, the first one cold, for `table`, whose integer key `id` runs from 0 to below `keys`."""
    options = {
        "url": f"jdbc:mysql://{server.host}:{server.port}/{schema}?sslMode=PREFERRED&allowPublicKeyRetrieval=true",
        "user": USER,
        "password": ensure_replicator(server, [EVERY_SCHEMA]),
        "dbtable": table,
        "partitionColumn": "id",
        "lowerBound": "0",
        "upperBound": str(keys),
        "numPartitions": str(PARTITIONS),
        "fetchsize": str(_ROW_BY_ROW),
        "preferTimestampNTZ": "true",
    }
    request = {"options": options, "folder": str(folder), "rounds": rounds}
    # The request holds a throw-away server's password, so it goes by the standard input.
    command = [sys.executable, "-m", "bench.jdbc"]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"Spark's JDBC reader failed: {done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    from lakeward.spark import jars, session

    request = json.load(sys.stdin)
    path = os.pathsep.join(map(str, [*jars(), *resolve([CONNECTOR], name="connector-j", transitive=False)]))
    extra = {"spark.driver.extraClassPath": path}
    spark = session(request["folder"], app="bench", extra=extra)
    seconds = []
    for _ in range(request["rounds"]):
        began = time.perf_counter()
        rows = spark.read.format("jdbc").options(**request["options"], driver="com.mysql.cj.jdbc.Driver").load()
        rows.write.format("delta").mode("overwrite").save(f"{request['folder']}/table")
        seconds.append(time.perf_counter() - began)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
