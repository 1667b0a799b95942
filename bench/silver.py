"""`python -m bench.silver`: what silver costs, and that its cost follows the changes and not the tables.

Events are written as bronze writes them (`bench.ledger`); silver runs its normal path, gates included, over them.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from bench.ledger import Ledger, mixed, schema_of
from bench.machine import processor_seconds, shape
from lakeward.config import Config, LakeConfig
from lakeward.jvm import java_class
from lakeward.lake import Lake
from lakeward.schema import TableSchema
from lakeward.spark import session
from silver.run import SilverReport, run

TABLE_ROWS = 1000  # of each of the many small tables
TABLE_CHANGES = 10
FEW = 10_000
TABLES_TARGET_S = 60
GROWTH_TARGET = 2.0
GATE_TARGET = 0.25
PARTS = ("tables", "growth", "merge")


@dataclass(frozen=True)
class Taken:
    """One run of silver, or of a peer: seconds, and processor seconds of all processes."""

    seconds: float
    processor: float


@dataclass
class Passing:
    """A gate that looks at nothing."""

    passed: DataFrame
    held: int = 0

    def hold(self) -> None:
        pass


def main() -> None:
    options = _options()
    print(f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}, {shape()}", flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        spark = session(folder, app="bench")
        for part in PARTS:
            if part in options.parts:
                globals()[f"_{part}"](spark, Path(folder), options)
        spark.stop()
    print(f"load and time at the end: {shape()}; {time.monotonic() - began:.0f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.silver", description=__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--tables", type=int, default=100, help=f"of {TABLE_ROWS} rows, {TABLE_CHANGES} changed in each"
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000], help="of the large tables")
    parser.add_argument("--changes", type=int, default=1_000_000, help="of the merge part")
    parser.add_argument("--rounds", type=int, default=3, help="of tables and merge; the best of each way counts")
    parser.add_argument("--folder", help="where the lakes are made; default: the system's")
    return parser.parse_args()


def _tables(spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
    print(f"\n## {options.tables} tables of {TABLE_ROWS:,} rows, {TABLE_CHANGES} changed rows in each\n")
    root = folder / "tables"
    ledger = Ledger(spark, root)
    schemas = [schema_of(f"t{n:03d}") for n in range(options.tables)]
    for schema in schemas:
        ledger.follow(schema, TABLE_ROWS)
    ledger.flush()
    first = _timed(partial(_silver, spark, root))
    for schema in schemas:
        ledger.change(schema, mixed(TABLE_ROWS, TABLE_CHANGES))
    ledger.flush()
    _row("run", "seconds", "processor seconds", "jobs a table")
    _row(*["---"] * 4)
    _row("first load", f"{first.seconds:.1f}", f"{first.processor:.1f}", "")
    found: dict[str, Taken] = {}
    each: dict[str, float] = {}
    for _ in range(options.rounds):  # in turns: Delta's checkpoints and the machine's noise fall on both
        for name, gate in (("without a gate", Passing), ("as it is", None)):
            lake = _copy(root, folder / "copy")
            _forget(spark)
            jobs = _jobs(spark)
            taken = _timed(partial(_silver, spark, lake, gate))
            each[name] = (_jobs(spark) - jobs) / options.tables
            found[name] = min(found.get(name, taken), taken, key=lambda t: t.processor)
            shutil.rmtree(lake)
    for name, taken in found.items():
        _row(name, f"{taken.seconds:.1f}", f"{taken.processor:.1f}", f"{each[name]:.1f}")
    whole, bare = found["as it is"], found["without a gate"]
    _target("seconds", whole.seconds, TABLES_TARGET_S)
    _target("the gate adds, of processor time", whole.processor / bare.processor - 1, GATE_TARGET)
    shutil.rmtree(root)


def _growth(spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
    print(f"\n## {FEW:,} changes into tables of several sizes\n")
    _row("rows", "changed rows are", "seconds", "processor seconds", "ratio to the smallest table")
    _row(*["---"] * 5)
    base: dict[int | None, Taken] = {}
    for rows in options.rows:
        root, schema, ledger = _loaded(spark, folder, rows)
        there = rows
        for recent, where in ((None, "anywhere"), (5 * FEW, f"among the last {5 * FEW:,}")):
            found = []
            for _ in range(3):  # the first warms up
                ledger.change(schema, mixed(there, FEW, recent=recent))
                ledger.flush()
                there += FEW * 2 // 5
                found.append(_timed(partial(_silver, spark, root)))
            best = min(found[1:], key=lambda t: t.processor)
            ratio = best.processor / base.setdefault(recent, best).processor
            cells = (f"{best.seconds:.1f}", f"{best.processor:.1f}", f"{ratio:.1f} (target {GROWTH_TARGET:.0f})")
            _row(f"{rows:,}", where, *cells)
        shutil.rmtree(root)


def _merge(spark: SparkSession, folder: Path, options: argparse.Namespace) -> None:
    print(f"\n## {options.changes:,} changes (40 % updates, 40 % inserts, 20 % deletes), changes a second\n")
    _row("into rows", "Lakeward, gated, with change feed", "without a gate", "MERGE by hand", "ratio to it")
    _row(*["---"] * 5)
    for rows in options.rows:
        root, schema, ledger = _loaded(spark, folder, rows)
        hand = folder / f"hand{rows}"
        _by_hand_load(spark, Lake(str(root)), schema, hand)
        ledger.change(schema, mixed(rows, options.changes))
        ledger.flush()
        rates = [0.0, 0.0, 0.0]
        for _ in range(options.rounds):  # in turns, since the first in a process compiles what the others run
            for n, way in enumerate((partial(_silver, gate=None), partial(_silver, gate=Passing), None)):
                copied = _copy(hand if way is None else root, folder / "copy")
                work = partial(_by_hand, spark, Lake(str(root)), schema, copied)
                taken = _timed(work if way is None else partial(way, spark, copied))
                rates[n] = max(rates[n], options.changes / taken.seconds)
                shutil.rmtree(copied)
        _row(f"{rows:,}", *(f"{rate:,.0f}" for rate in rates), f"{rates[0] / rates[2]:.2f}")
        shutil.rmtree(root)
        shutil.rmtree(hand)


def _loaded(spark: SparkSession, folder: Path, rows: int) -> tuple[Path, TableSchema, Ledger]:
    """A lake whose one table has gone through silver once. At a path of its own: Delta remembers tables by theirs."""
    root, schema = folder / f"large{time.monotonic_ns()}", schema_of("large")
    ledger = Ledger(spark, root)
    ledger.follow(schema, rows)
    ledger.flush()
    _silver(spark, root)
    return root, schema, ledger


def _by_hand_load(spark: SparkSession, lake: Lake, schema: TableSchema, location: Path) -> None:
    bronze = spark.read.format("delta").load(lake.table("bronze", schema.name))
    bronze.where("op = 'r'").select("after.*").write.format("delta").save(str(location))


def _by_hand(spark: SparkSession, lake: Lake, schema: TableSchema, location: Path) -> None:
    """What one writes without Lakeward: the last event per key by a window, and one MERGE of the whole batch."""
    bronze = spark.read.format("delta").load(lake.table("bronze", schema.name)).where("op <> 'r'")
    last = bronze.selectExpr(
        "op",
        "coalesce(after.id, before.id) AS key",
        "after",
        "row_number() OVER (PARTITION BY coalesce(after.id, before.id) ORDER BY source.file DESC, source.pos DESC,"
        " source.row DESC) AS n",
    ).where("n = 1")
    source = last.selectExpr("op", "key", "after.*").alias("s")
    columns = {c.name: f"s.{c.name}" for c in schema.columns}
    (
        DeltaTable.forPath(spark, str(location))
        .alias("t")
        .merge(source, "t.id = s.key")
        .whenMatchedDelete("s.op = 'd'")
        .whenMatchedUpdate(set=columns)  # type: ignore[arg-type]
        .whenNotMatchedInsert("s.op <> 'd'", values=columns)  # type: ignore[arg-type]
        .execute()
    )


def _silver(spark: SparkSession, root: Path, gate: Any = None) -> SilverReport:
    config = Config(lake=LakeConfig(root=str(root)), folder=root)
    judge = None if gate is None else lambda frame, _plan, _run: gate(frame)
    return run(spark, Lake(str(root)), config, gate=judge)


def _timed(work: Callable[[], object]) -> Taken:
    seconds, processor = time.perf_counter(), processor_seconds(os.getpid())
    work()
    return Taken(time.perf_counter() - seconds, processor_seconds(os.getpid()) - processor)


def _copy(root: Path, to: Path) -> Path:
    where = to.with_name(f"{to.name}{time.monotonic_ns()}")
    shutil.copytree(root, where)
    return where


def _forget(spark: SparkSession) -> None:
    """What Delta holds of the tables of other lakes: hundreds of snapshots fill a heap of 2 GiB."""
    java_class(spark, "org.apache.spark.sql.delta.DeltaLog").clearCache()
    java_class(spark, "java.lang.System").gc()


def _jobs(spark: SparkSession) -> int:
    context: Any = spark._jsc
    return int(context.sc().dagScheduler().numTotalJobs())


def _target(what: str, found: float, target: float) -> None:
    print(f"{what}: {found:.2f} (target {target:g}{'' if found <= target else ', missed'})", flush=True)


def _row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
