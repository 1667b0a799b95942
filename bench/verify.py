"""`python -m bench.verify`: what a proof costs, as ratios to the least that a server can be asked of all its rows."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers.running import running

from bench.lakes import lake_of
from bench.machine import shape
from bench.workloads import ROWS, SCHEMA, WORKLOADS, prepare
from bronze.snapshot.read import read_exact
from bronze.source.connection import connect
from lakeward.cli.app import App
from lakeward.cli.proof import prove
from lakeward.cli.stages import bronze_stage, silver_stage
from lakeward.embedded.server import EmbeddedServer
from lakeward.names import TableName
from lakeward.state import load_bronze

WORKLOAD = WORKLOADS["a"]
TABLE = TableName(SCHEMA, WORKLOAD.table)
_BLOCK = 1000 * ROWS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.verify", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--server", choices=("mysql", "mariadb"), default="mysql")
    parser.add_argument("--rounds", type=int, default=2, help="of each, in turn; the best counts")
    options = parser.parse_args()
    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {shape()}")
    with running(options.server, {"innodb_buffer_pool_size": "1G"}) as server:
        print(
            f"{options.server} {'.'.join(map(str, server.version))}, {options.rows:,} rows of ten columns", flush=True
        )
        prepare(server, [WORKLOAD])
        _fill(server, options.rows)
        app = lake_of(server, TABLE)
        bronze_stage(app)
        silver_stage(app)
        _measure(server, app, options.rounds)
        app.close()
    print(f"load at the end: {shape()}")


def _measure(server: EmbeddedServer, app: App, rounds: int) -> None:
    columns = ", ".join(f"COALESCE({c}, '')" for c in WORKLOAD.columns)
    text = f"CONCAT_WS('#', {columns})"
    peers: dict[str, Callable[[], object]] = {
        "SELECT COUNT(*)": lambda: _query(server, "SELECT COUNT(*)"),
        "checksum by the server, CRC32": lambda: _query(server, f"SELECT BIT_XOR(CRC32({text}))"),
        "checksum by the server, 64 bits of SHA-256": lambda: _query(
            server, f"SELECT SUM(CAST(CONV(LEFT(SHA2({text}, 256), 16), 16, 10) AS UNSIGNED))"
        ),
        "plain full read to Arrow": lambda: _read(app),
        "lakeward verify, Spark up": lambda: _proved(app, True),
    }
    best = dict.fromkeys(peers, float("inf"))
    for _ in range(rounds):
        for name, run in peers.items():
            best[name] = min(best[name], _seconds(run))
    count, read = best["SELECT COUNT(*)"], best["plain full read to Arrow"]
    _row("what", "seconds", "x COUNT(*)", "x full read")
    _row(*["---"] * 4)
    for name, seconds in best.items():
        _row(name, f"{seconds:.2f}", f"{seconds / count:.1f}", f"{seconds / read:.2f}")
    location = app.lake.table("silver", TABLE)
    app.spark().sql(f"UPDATE delta.`{location}` SET stock = stock + 1 WHERE id % 333331 = 7")
    for name, run in {
        "verify, three rows a million differ": lambda: _proved(app, False),
        "verify --repair of them": lambda: prove(app, [], repair=True),
    }.items():
        seconds = _seconds(run)
        _row(name, f"{seconds:.2f}", f"{seconds / count:.1f}", f"{seconds / read:.2f}")
    _proved(app, True)


def _seconds(run: Callable[[], object]) -> float:
    began = time.monotonic()
    run()
    return time.monotonic() - began


def _query(server: EmbeddedServer, select: str) -> Any:
    with server.admin(SCHEMA) as connection, connection.cursor() as cursor:
        cursor.execute(f"{select} FROM {WORKLOAD.table}")
        return cursor.fetchall()


def _read(app: App) -> int:
    config, password = app.source
    with contextlib.closing(connect(config.source, password)) as connection:
        schema = load_bronze(app.lake).tables[str(TABLE)].schema
        return sum(len(rows) for rows in read_exact(connection, schema))


def _proved(app: App, expected: bool) -> None:
    if prove(app, []).equal is not expected:
        raise RuntimeError("the proof says the wrong thing")


def _fill(server: EmbeddedServer, rows: int) -> None:
    with server.admin(SCHEMA) as connection, connection.cursor() as cursor:
        for first in range(0, rows, _BLOCK):
            i = f"({first} + a.i * {ROWS} + b.i)"
            cursor.execute(
                f"INSERT INTO {WORKLOAD.table} SELECT {WORKLOAD.values(i)} FROM bench_tools.n a, bench_tools.n b "
                f"WHERE {i} < {rows} ORDER BY a.i, b.i"
            )


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
