"""Completes partial row images: what an event does not say of its row is what the row was before.

A session may write with binlog_row_image MINIMAL or NOBLOB; such an event names in `source.absent` and
`source.before_absent` the columns that it lacks (see `bronze.presence`, which sorts out what no event tells: a table
with an insert without all its columns, or with an update that lacks columns and moves the key, is read again). Here
they get the last value that an earlier event of the row bears, or the row as it was before the batch. It is done
before the gate, so that everything after it sees whole rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakeward.delta import simple_type
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.names import spark_identifier as quoted
from lakeward.names import sql_literal
from lakeward.position import Position
from lakeward.schema import TableSchema
from silver.columns import image, key_numbers
from silver.events import PLACE, place, read
from silver.plan import TablePlan

_PARTIAL = "(op IN ('u', 'd') AND (source.absent IS NOT NULL OR source.before_absent IS NOT NULL))"
_EVENT = ("source.epoch", "source.file", "source.pos", "source.row", "source.snapshot", "source.generation")


def whole_events(spark: SparkSession, lake: Lake, plan: TablePlan, cut: Position) -> DataFrame:
    """The plan's events in bronze's envelope, with whole images. Errors as `fill`."""
    events = read(spark, lake, plan, cut)
    if not plan.partial:
        return events
    base = None
    if plan.since is not None:
        # By its version, so that a run that is done again after a crash fills in the same values.
        reader = spark.read.format("delta").option("versionAsOf", plan.version)
        base = reader.load(lake.table("silver", plan.schema.name))
    return fill(events, base, plan.schema, plan.renamed)


def fill(
    events: DataFrame, base: DataFrame | None, schema: TableSchema, renamed: Sequence[tuple[str, str]] = ()
) -> DataFrame:
    """`events` with whole images. `base` holds the silver rows from before them, None where they begin with a snapshot.
    `base`, and what events call absent, may still have the names that columns had before they were `renamed`.

    Raises TerminalError for a row whose missing values are nowhere.
    """
    if not schema.keys:  # the server logs whole before images of a table without a key
        return events
    halves = _halves(events, schema)
    if base is not None:
        halves = halves.unionByName(_rows(base, schema, renamed))
    keys = [f"k{i}" for i in key_numbers(schema)]
    wanted = halves.where("partial").select(*(F.col(k).alias(f"w{k}") for k in keys)).distinct()
    states = halves.join(wanted, [F.expr(f"{k} <=> w{k}") for k in keys], "left_semi")
    order = Window.partitionBy(*keys).orderBy("at").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    rest = Window.partitionBy(*keys).orderBy("at").rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    known = [
        F.last(F.expr(f"IF({_absent(c.name, renamed)}, NULL, struct(image.c{i} AS v))"), True)
        .over(order)
        .alias(f"f{i}")
        for i, c in enumerate(schema.columns)
    ]
    filled = states.select(
        "*", *known, F.expr("last(op = 'd' OR (op = 'u' AND half = 0))").over(rest).alias("goes")
    ).where("partial")
    filled = filled.localCheckpoint()
    _refuse_unknown(filled, schema)
    return events.where(f"NOT {_PARTIAL}").unionByName(_whole(filled, events, schema))


def _halves(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Each image of an event: `op`, `half` (0: before, 1: after), `image`, `absent`, `at`, `partial`, key, `event`."""
    gone = f"struct(0 AS half, {image(schema, 'before')} AS image, source.before_absent AS absent)"
    here = f"struct(1 AS half, {image(schema, 'after')} AS image, source.absent AS absent)"
    made = f"CASE WHEN op = 'd' THEN array({gone}) WHEN op = 'u' THEN array({gone}, {here}) ELSE array({here}) END"
    whole = f"struct({', '.join(quoted(c) for c in events.columns)})"
    return (
        events.where("op <> 't'")
        .selectExpr("op", "source", f"IF({_PARTIAL}, {whole}, NULL) AS event", f"explode({made}) AS made")
        .selectExpr(
            *("op", "made.half", "made.image", "coalesce(made.absent, array()) AS absent"),
            f"{PLACE.format(half='made.half')} AS at",
            f"{_PARTIAL} AS partial",
            *(f"made.image.c{i} AS k{i}" for i in key_numbers(schema)),
            "event",
        )
    )


def names_of(name: str, renamed: Sequence[tuple[str, str]]) -> list[str]:
    """What a column is and was called. No name is another column's in one generation (`bronze.reshape`)."""
    found = [name]
    for old, new in reversed(renamed):
        if new == found[-1]:
            found.append(old)
    return found


def _absent(name: str, renamed: Sequence[tuple[str, str]]) -> str:
    return " OR ".join(f"array_contains(absent, {sql_literal(n)})" for n in names_of(name, renamed))


def _rows(base: DataFrame, schema: TableSchema, renamed: Sequence[tuple[str, str]]) -> DataFrame:
    """The rows from before the batch in the shape of `_halves`; a column that is new since is NULL there."""
    present = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in base.schema.fields}
    columns = []
    for c in schema.columns:
        there = next((present[n.lower()] for n in names_of(c.name, renamed) if n.lower() in present), None)
        wanted = simple_type(c.spark)
        value = "NULL" if there is None else quoted(there[0])
        columns.append(value if there is not None and there[1] == wanted else f"CAST({value} AS {c.spark})")
    fields = ", ".join(f"'c{i}', {column}" for i, column in enumerate(columns))
    return base.selectExpr(
        *("'r' AS op", "1 AS half", f"named_struct({fields}) AS image", "CAST(array() AS ARRAY<STRING>) AS absent"),
        *(f"{place(-1, 0, 0, half=0)} AS at", "false AS partial"),
        *(f"{columns[i]} AS k{i}" for i in key_numbers(schema)),
        "NULL AS event",
    )


def _refuse_unknown(filled: DataFrame, schema: TableSchema) -> None:
    unknown = " OR ".join(f"f{i} IS NULL" for i in range(len(schema.columns)))
    # A row that is gone by the end of the batch may be in neither the snapshot nor silver.
    lost = filled.where(f"({unknown}) AND NOT goes").count()
    if lost:
        raise TerminalError(
            f"{schema.name}: {lost} row images lack columns, and the rows they belong to are not in silver",
            hint=f"lakeward resnapshot {schema.name}",
        )


def _whole(filled: DataFrame, events: DataFrame, schema: TableSchema) -> DataFrame:
    """The partial events again, in bronze's envelope, with whole images."""
    kinds = {f.name: f.dataType for f in events.schema.fields}
    # In the order of bronze's images, which a reordered table does not have: a struct is cast place by place, so that
    # another order would put values under the names of their neighbours. What a table has dropped is still in images.
    here = {c.name.lower(): f"f{i}.v" for i, c in enumerate(schema.columns)}
    told = kinds["after"]
    assert isinstance(told, StructType)
    fields = ", ".join(f"{here.get(f.name.lower(), 'NULL')} AS {quoted(f.name)}" for f in told.fields)
    grouped = filled.groupBy(*(F.expr(f"event.{c}").alias(f"g{n}") for n, c in enumerate(_EVENT))).agg(
        F.expr("first(event) AS event"),
        F.expr(f"max_by(struct({fields}), half) FILTER (WHERE half = 0) AS made_before"),
        F.expr(f"max_by(struct({fields}), half) FILTER (WHERE half = 1) AS made_after"),
    )
    made = {"before": "made_before", "after": "made_after"}
    return grouped.select(*(F.expr(made.get(c, f"event.{quoted(c)}")).cast(kinds[c]).alias(c) for c in events.columns))
