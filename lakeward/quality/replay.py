"""The way out of quarantine: held events are judged again by the suites as they are now, and those that pass
go on.

Promise: a released event reaches silver even when the replay is killed half-way. The moment of release is
written down (`_lakeward/replay.json`) before any event is marked, and the next replay first finishes what it
finds there.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward import state
from lakeward.config import Config
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.quality.evaluate import prepare
from lakeward.quality.frame import ENVELOPE, of_events
from lakeward.quality.gates import rules_of
from lakeward.quality.quarantine import PLACE, mark_replayed, pending, read
from lakeward.schema import TableSchema

Recompute = Callable[[SparkSession, Lake, Config, TableSchema, DataFrame], None]
"""silver's part of a replay: bring the rows with these keys (a frame of the key columns; of all columns for a
table without a key) up to date from bronze."""


def replay(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    tables: Iterable[TableName],
    recompute: Recompute,
) -> list[dict[str, Any]]:
    """Judge held events by the suites as they are now, release those that pass, and let silver take them up.

    Returns a document a table: table, released, still_held. A replay that was killed after it had released is
    finished by the next one: the moment of release is written down first.
    """
    begun = lake.read("replay")
    if begun is not None:
        _finish(spark, lake, config, begun, recompute)
    known = state.load_bronze(lake).tables
    reports, released = [], {}
    at = datetime.datetime.now(datetime.UTC)
    for name in tables:
        held = pending(spark, lake, name)
        if held is None or str(name) not in known:
            continue
        schema = known[str(name)].schema
        total = held.count()
        free = passing(held.select(*ENVELOPE), schema, config)
        positions = free.select(*[F.col(f"source.{c}").alias(c) for c in PLACE]).localCheckpoint()
        count = positions.count()
        reports.append({"table": str(name), "released": count, "still_held": total - count})
        if count:
            released[name] = positions
    if released:
        lake.write("replay", {"at": at.isoformat(), "tables": [str(n) for n in released]})
        for name, positions in released.items():
            mark_replayed(spark, lake, name, positions, at)
        _finish(spark, lake, config, {"at": at.isoformat(), "tables": [str(n) for n in released]}, recompute)
    return reports


def _finish(spark: SparkSession, lake: Lake, config: Config, begun: dict[str, Any], recompute: Recompute) -> None:
    if not begun.get("tables"):
        return
    known = state.load_bronze(lake).tables
    at = datetime.datetime.fromisoformat(begun["at"])
    for name in begun["tables"]:
        table = known.get(name)
        held = read(spark, lake, table.name) if table else None
        if table is None or held is None:
            continue
        rows = held.where(F.col("replayed_at") == F.lit(at).cast("timestamp"))
        names = table.schema.keys or tuple(c.name for c in table.schema.columns)
        images = [
            rows.where(F.col(side).isNotNull()).select(*[F.col(side).getField(n).alias(n) for n in names])
            for side in ("before", "after")  # a changed key has two rows to bring up to date
        ]
        recompute(spark, lake, config, table.schema, images[0].unionAll(images[1]).distinct())
    lake.write("replay", {"tables": []})


def passing(held: DataFrame, schema: TableSchema, config: Config) -> DataFrame:
    """The events of `held` (the envelope) that fail no rule of severity quarantine as the suites are now."""
    batch = of_events(held, schema)
    rules = [r for r in rules_of(schema, "silver", config) if r.severity == "quarantine"]
    fails = reduce(lambda a, b: a | b, [prepare(batch, r).fails() for r in rules], F.lit(False))
    return batch.event(batch.flat.where(~fails))
