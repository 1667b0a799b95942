"""Bronze's events as changes: which row each touches and what it leaves there, in the order of the source.

A change is `op` ('upsert' or 'delete'), `image` (the row, STRUCT<c0, c1, …>: what it is now, or was before it went),
`ts_ms`, `tx_id`, `tx_order` and `at`, its place. Places order as (epoch, file, pos, stream after snapshot, row,
cascade, half): an update that moves a row to another key is two changes, the old key's delete and then the new key's
upsert; what foreign keys did to other rows follows the event that set them off, in the order of `cascade`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward.lake import Lake
from lakeward.names import spark_identifier as quoted
from lakeward.names import sql_literal
from lakeward.position import Position
from lakeward.schema import TableSchema
from silver.columns import image, key_numbers, same
from silver.plan import TablePlan

CASCADES = "__cascades"  # suffix of a child's table of what foreign keys did to it, see `silver.cascades`
PLACE = (
    "struct(source.epoch AS epoch, source.file AS file, source.pos AS pos, "
    "NOT source.snapshot AS stream, source.row AS row, coalesce(source.cascade, 0L) AS cascade, {half} AS half)"
)


def place(epoch: int, file: int, pos: int, *, half: int) -> str:
    """A place that is no event of the stream, as `at` is one: a snapshot's, or one before everything."""
    return (
        f"struct(CAST({epoch} AS INT) AS epoch, CAST({file} AS BIGINT) AS file, CAST({pos} AS BIGINT) AS pos,"
        f" false AS stream, CAST(0 AS BIGINT) AS row, 0L AS cascade, CAST({half} AS INT) AS half)"
    )


def position(at: str) -> str:
    """The place `at` as text, which orders as places do."""
    fields = f"{at}.epoch, {at}.file, {at}.pos, CAST({at}.stream AS INT), {at}.row, {at}.cascade, {at}.half + 2"
    return f"format_string('%06d-%010d-%014d-%d-%010d-%08d-%d', {fields})"


@dataclass(frozen=True)
class Truncation:
    """The last TRUNCATE of a batch: what stood in the table before it is gone."""

    at: Position
    ts_ms: int
    tx_id: str | None
    tx_order: int | None


def read(spark: SparkSession, lake: Lake, plan: TablePlan, cut: Position) -> DataFrame:
    """The plan's events with the cascades among them, in bronze's envelope.

    Plain comparisons, so that Delta skips the files of other ranges."""
    bronze, planned = lake.table("bronze", plan.schema.name), wanted(plan, cut)
    frame = spark.read.format("delta").option("versionAsOf", plan.bronze_version).load(bronze).where(planned)
    if plan.cascades < 0:
        return frame
    cascades = spark.read.format("delta").option("versionAsOf", plan.cascades)
    stored = cascades.load(lake.table("silver", plan.schema.name, CASCADES)).where(planned)
    return frame.unionByName(stored, allowMissingColumns=True)


def wanted(plan: TablePlan, cut: Position) -> str:
    """Which of a table's events are the plan's."""
    found = f"source.snapshot = false AND {not_before(plan.since or plan.start)} AND NOT {not_before(cut)}"
    if plan.since is None:
        found = f"({found}) OR (source.snapshot = true AND source.generation = {plan.generation})"
    return found


def not_before(position: Position) -> str:
    """Whether an event stands at `position` or after it."""
    epoch, file, pos, row = position
    from_here = f"source.pos >= {pos}"
    if row:  # behind what a repair added there
        from_here = f"(source.pos > {pos} OR (source.pos = {pos} AND source.row >= {row}))"
    return (
        f"(source.epoch > {epoch} OR (source.epoch = {epoch} AND "
        f"(source.file > {file} OR (source.file = {file} AND {from_here}))))"
    )


def truncations(frames: Mapping[str, DataFrame]) -> dict[str, Truncation]:
    """The last TRUNCATE in each table's events, where there is one. One Spark job for all tables, without a shuffle."""
    if not frames:
        return {}
    rows = (
        frame.where("op = 't'").selectExpr(
            f"{sql_literal(name)} AS name",
            *("source.epoch", "source.file", "source.pos", "source.row", "ts_ms"),
            "transaction.id AS tx_id",
            "transaction.total_order AS tx_order",
        )
        for name, frame in frames.items()
    )
    found: dict[str, Truncation] = {}
    for name, epoch, file, pos, row, *rest in reduce(DataFrame.unionAll, rows).collect():
        one = Truncation(Position(epoch, file, pos, row), *rest)
        if name not in found or found[name].at < one.at:
            found[name] = one
    return found


def after(truncation: Truncation) -> str:
    """Whether a change stands after a TRUNCATE. A snapshot's rows stand before it."""
    epoch, file, pos, row = truncation.at
    return f"(at.stream AND struct(at.epoch, at.file, at.pos, at.row) > {_struct(epoch, file, pos, row)})"


def changes(events: DataFrame, schema: TableSchema, *, halves: bool = False) -> DataFrame:
    """The changes that `events` make. With `halves` every update is two, whether it moves the key or not.

    Columns: op, image, ts_ms, tx_id, tx_order, at.
    """
    columns = [schema.columns[i] for i in key_numbers(schema)]
    if halves or not columns:
        moved = "true"
    else:
        stays = [same(c, f"before.{quoted(c.name)}", f"after.{quoted(c.name)}") for c in columns]
        moved = f"NOT ({' AND '.join(stays)})"
    gone = f"struct('delete' AS op, 0 AS half, {image(schema, 'before')} AS image)"
    here = f"struct('upsert' AS op, 1 AS half, {image(schema, 'after')} AS image)"
    made = (
        f"CASE WHEN op = 'd' THEN array({gone}) "
        f"WHEN op = 'u' AND {moved} THEN array({gone}, {here}) ELSE array({here}) END"
    )
    return (
        events.where("op <> 't'")
        .select("source", "ts_ms", "transaction", F.explode(F.expr(made)).alias("made"))
        .selectExpr(
            "made.op AS op",
            "made.image AS image",
            "ts_ms",
            "transaction.id AS tx_id",
            "transaction.total_order AS tx_order",
            f"{PLACE.format(half='made.half')} AS at",
        )
    )


def _struct(epoch: int, file: int, pos: int, row: int) -> str:
    return (
        f"struct(CAST({epoch} AS INT) AS epoch, CAST({file} AS BIGINT) AS file, "
        f"CAST({pos} AS BIGINT) AS pos, CAST({row} AS BIGINT) AS row)"
    )
