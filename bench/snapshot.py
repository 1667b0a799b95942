"""`python -m bench.snapshot`: how fast a table's snapshot is in bronze, beside two loaders, and who alters values.

The table is the ten-column one of `bench.workloads`. Each loader reads it from the same server, in turn, and writes
Delta on the same disk; each begins anew in every round, and its best round counts. Values are compared with what
`lakeward verify` holds equal to the source: Lakeward's own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers.running import running

from bench import jdbc
from bench.landing import land
from bench.machine import shape
from bench.workloads import SCHEMA, WORKLOADS, fill, prepare
from lakeward.embedded.replicator import EVERY_SCHEMA, USER, ensure_replicator
from lakeward.embedded.server import EmbeddedServer

PEERS = Path(__file__).resolve().parent.parent / ".venv-peers" / "bin" / "python"
WORKLOAD = WORKLOADS["a"]
_SETTINGS = {"innodb_buffer_pool_size": "2G"}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.snapshot", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="of each, the first one cold; the best counts")
    options = parser.parse_args()
    if not PEERS.exists():
        raise SystemExit("the loaders to compare with are not there: run `make peers` first")
    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {shape()}")
    with running("mysql", _SETTINGS) as server:
        prepare(server, [WORKLOAD])
        fill(server, WORKLOAD, options.rows)
        folder = Path(server.folder) / "loads"
        seconds = {
            "Lakeward, into bronze": _lakeward(server, folder / "lakeward", options.rows, options.rounds),
            "dlt with connectorx": _dlt(server, folder / "dlt", options.rounds),
            "Spark's JDBC reader": jdbc.load(
                server, SCHEMA, WORKLOAD.table, options.rows, folder / "jdbc", options.rounds
            ),
        }
        print("\n| loader | rows a second, best | first round | Lakeward's ratio | columns whose values differ |")
        print("| --- | --- | --- | --- | --- |")
        altered = _altered(folder)
        best = options.rows / min(seconds["Lakeward, into bronze"])
        for name, times in seconds.items():
            rate = options.rows / min(times)
            ratio = "" if rate == best else f"{best / rate:.2f}"
            print(f"| {name} | {rate:,.0f} | {options.rows / times[0]:,.0f} | {ratio} | {altered.get(name, '')} |")
    print(f"load at the end: {shape()}")


def _lakeward(server: EmbeddedServer, folder: Path, rows: int, rounds: int) -> list[float]:
    """The last round's lake stays, at `folder`/kept."""
    empty = folder / "empty"
    empty.mkdir(parents=True)
    include = [f"{SCHEMA}.{WORKLOAD.table}"]
    found = land(server, empty, include, rounds=rounds)
    kept = land(server, folder / "kept", include)
    for events in (found.events, kept.events):
        if events != rows:
            raise RuntimeError(f"{events} rows landed of {rows}")
    return found.seconds


def _dlt(server: EmbeddedServer, folder: Path, rounds: int) -> list[float]:
    password = ensure_replicator(server, [EVERY_SCHEMA])
    request = {
        "url": f"mysql+pymysql://{USER}:{password}@{server.host}:{server.port}/{SCHEMA}",
        "schema": SCHEMA,
        "table": WORKLOAD.table,
        "folder": str(folder),
        "rounds": rounds,
    }
    script = Path(__file__).with_name("peers") / "load_with_dlt.py"
    command = [str(PEERS), str(script)]
    done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"dlt failed: {done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def _altered(folder: Path) -> Mapping[str, str]:
    """Of each peer, the columns that hold other values than Lakeward's, with the number of rows."""
    from lakeward.spark import session

    spark = session(str(folder), app="bench")
    (bronze,) = (p.parent for p in (folder / "lakeward" / "kept" / "bronze" / SCHEMA).glob("*/_delta_log"))
    mine = spark.read.format("delta").load(str(bronze)).select("after.*")
    (dlt,) = (p.parent for p in sorted(folder.glob("dlt/0/**/_delta_log")) if p.parent.name == WORKLOAD.table)
    found = {}
    # dlt's as files, which one load wrote: the log that delta-rs wrote names a feature that Spark's Delta refuses.
    loads = {
        "dlt with connectorx": spark.read.parquet(str(dlt)),
        "Spark's JDBC reader": spark.read.format("delta").load(str(folder / "jdbc" / "table")),
    }
    for name, theirs in loads.items():
        joined = mine.alias("m").join(theirs.alias("t"), "id", "full")
        counts = joined.selectExpr(
            *(
                f"count_if(NOT (m.{c} <=> try_cast(t.{c} AS {mine.schema[c].dataType.simpleString()}))) AS {c}"
                for c in mine.columns
                if c != "id"
            ),
            "count_if(m.stock IS NULL OR t.stock IS NULL) AS rows",
        ).first()
        assert counts is not None
        found[name] = ", ".join(f"{c} {n:,}" for c, n in counts.asDict().items() if n) or "none"
    return found


if __name__ == "__main__":
    main()
