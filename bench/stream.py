"""`python -m bench.stream`: a million changes from the source to merged silver, beside Flink CDC into Iceberg.

    python -m bench.stream --rows 1000000 --changes 1000000 --rounds 3

MariaDB holds a table of `--rows` rows that Lakeward has in silver. Each round writes `--changes` (40 % updates, 40 %
inserts, 20 % deletes, in transactions of 1,000 rows), of which Lakeward's bronze and silver stages then make silver,
gates included, in a process that is up. Flink then reads the same rounds, each from its beginning, in a JVM of its own.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections import deque
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers.running import running

from bench import flink
from bench.lakes import lake_of
from bench.machine import shape
from bench.workloads import ROWS, SCHEMA, WORKLOADS, fill, prepare
from lakeward.cli.stages import bronze_stage, silver_stage
from lakeward.embedded.server import EmbeddedServer
from lakeward.names import TableName

WORKLOAD = WORKLOADS["a"]
PATTERN = "uiuid"  # a transaction a letter
SETTLED_S, HISTORY = 60, 100  # at most so long, until so many transactions are unpurged


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stream", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="the best of each way counts")
    options = parser.parse_args()
    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {shape()}")
    with running("mariadb", {"innodb_buffer_pool_size": "1G"}) as server:
        prepare(server, [WORKLOAD])
        fill(server, WORKLOAD, options.rows)
        app = lake_of(server, TableName(SCHEMA, WORKLOAD.table))
        bronze_stage(app)
        silver_stage(app)
        live, rounds, ours = deque(range(0, options.rows, ROWS)), [], []
        # The first round says what one costs by itself.
        sizes = [ROWS * len(PATTERN), *[options.changes] * options.rounds]
        for n, changes in enumerate(sizes):
            file = _new_file(server)
            _write(server, live, options.rows + n * options.changes, changes, last=-1 - n)
            rounds.append((file, -1 - n))
            _settled(server)
            began = time.monotonic()
            bronze_stage(app)
            between = time.monotonic()
            silver_stage(app)
            ours.append(time.monotonic() - began)
            print(f"Lakeward, {changes:,} changes: {ours[-1]:.1f} s, {between - began:.1f} of it bronze", flush=True)
        app.close()
        if not flink.available():
            print("Flink's part needs a JDK's javac")
            return
        theirs = flink.stream(server, WORKLOAD, rounds, os.cpu_count() or 1)
    for changes, seconds in zip(sizes, theirs, strict=True):
        print(f"Flink CDC {flink.CDC_VERSION}, {changes:,} changes: {seconds:.1f} s")
    best = [options.changes / min(seconds[1:]) for seconds in (ours, theirs)]
    print("\n| changes | into rows | Lakeward, changes a second | Flink CDC into Iceberg | ratio |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| {options.changes:,} | {options.rows:,} | {best[0]:,.0f} | {best[1]:,.0f} | {best[0] / best[1]:.2f} |")


def _settled(server: EmbeddedServer) -> None:
    """Wait until the server has purged what it wrote: Flink's rounds come after all of it."""
    until = time.monotonic() + SETTLED_S
    with server.admin() as connection, connection.cursor() as cursor:
        while time.monotonic() < until:
            cursor.execute("SHOW STATUS LIKE 'Innodb_history_list_length'")
            if int(cursor.fetchall()[0][1]) < HISTORY:
                return
            time.sleep(1)


def _new_file(server: EmbeddedServer) -> str:
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        return str(cursor.fetchall()[-1][0])


def _write(server: EmbeddedServer, live: deque[int], first: int, changes: int, *, last: int) -> None:
    """`changes` changes, by blocks of ROWS rows: `live` are the blocks' first ids. Then a row with the id `last`."""
    table, made = WORKLOAD.table, first
    with server.admin(SCHEMA) as connection, connection.cursor() as cursor:
        for n in range(changes // ROWS):
            kind = PATTERN[n % len(PATTERN)]
            if kind == "i":
                values = WORKLOAD.values(f"({made} + i)")
                cursor.execute(f"INSERT INTO {table} SELECT {values} FROM bench_tools.n ORDER BY i")
                live.append(made)
                made += ROWS
                continue
            block = live.popleft()
            where = f"id BETWEEN {block} AND {block + ROWS - 1}"
            if kind == "u":
                cursor.execute(f"UPDATE {table} SET {WORKLOAD.changed} WHERE {where}")
                live.append(block)
            else:
                cursor.execute(f"DELETE FROM {table} WHERE {where}")
        others = (value.replace("{i}", "0") for name, (_, value) in WORKLOAD.columns.items() if name != "id")
        cursor.execute(f"INSERT INTO {table} SELECT {last}, {', '.join(others)}")


if __name__ == "__main__":
    main()
