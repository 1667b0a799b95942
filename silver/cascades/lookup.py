"""Reads what a play needs: the events of parents that can cascade, and the rows of children that they may reach.

All values come as text, so that tables of any types share one frame and one job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward.lake import Lake
from lakeward.names import spark_identifier as quoted
from lakeward.names import sql_literal
from lakeward.position import Position
from lakeward.schema import BYTES, Column, TableSchema
from silver.cascades.collate import Fold
from silver.cascades.play import Change, Edge, Emptied, Table, Trigger
from silver.columns import DELETED
from silver.events import changes, place
from silver.fill import names_of, whole_events
from silver.plan import TablePlan

_AT = ("epoch", "file", "pos", "row", "cascade")
_TEXTS = "ARRAY<STRING>"
_OF_SOURCE = (
    "NOT coalesce(startswith(transaction.id, 'repair:'), false)"  # a repair mends rows, and nothing cascades from it
)


@dataclass(frozen=True)
class Member:
    """A table that a foreign key of the run joins."""

    schema: TableSchema
    plan: TablePlan | None  # None where it has no events of its own in the run
    table: Table
    soft: bool
    reads: TablePlan | None  # the events that may cascade to others, None where none are wanted

    @property
    def name(self) -> str:
        return str(self.schema.name)


def as_text(column: Column, expression: str) -> str:
    """SQL for a column's value as text, another text for every value."""
    if column.masked:
        return expression
    if column.kind in BYTES:
        return f"hex({expression})"
    if column.kind == "geometry":
        return f"concat({expression}.srid, ' ', hex({expression}.wkb))"
    return f"CAST({expression} AS STRING)"


def from_text(column: Column, expression: str) -> str:
    """SQL for the column's value of that text. No geometry can be part of a key."""
    if not column.masked and column.kind in BYTES:
        return f"unhex({expression})"
    return f"CAST({expression} AS {column.spark})"


def triggers(
    spark: SparkSession, lake: Lake, members: Iterable[Member], edges: Sequence[Edge], cut: Position
) -> pa.Table:
    """The parents' events that can cascade, of all tables in one job: table, place, old, new, source, transaction,
    ts_ms."""
    frames = []
    for member in members:
        mine = [e for e in edges if e.parent == member.name]
        if member.reads is None or not mine:
            continue
        events = whole_events(spark, lake, member.reads, cut)
        old, new = (_texts(member, f"{side}.{{}}") for side in ("before", "after"))
        deletes = any(e.key.on_delete for e in mine)
        updated = {member.table.kept[i] for e in mine if e.key.on_update for i in e.referenced}
        names = [quoted(member.schema.columns[i].name) for i in sorted(updated)]
        moves = [f"NOT (before.{n} <=> after.{n})" for n in names]
        wanted = [*(["op = 'd'"] if deletes else []), *([f"op = 'u' AND ({' OR '.join(moves)})"] if moves else [])]
        frames.append(
            events.where(
                f"NOT source.snapshot AND source.unchecked IS NULL AND {_OF_SOURCE} AND ({' OR '.join(wanted)})"
            ).selectExpr(
                f"{sql_literal(member.name)} AS table",
                *(f"source.{n}" for n in _AT[:-1]),
                "coalesce(source.cascade, 0L) AS cascade",
                f"{old} AS old",
                f"IF(op = 'd', CAST(NULL AS {_TEXTS}), {new}) AS new",
                *("source", "transaction", "ts_ms"),
            )
        )
    if not frames:
        return pa.table({"table": pa.array([], pa.string())})
    return reduce(DataFrame.unionAll, frames).toArrow()


def of_triggers(found: pa.Table) -> list[Trigger]:
    """As a play takes them; `origin` numbers the rows of `found`."""
    plain = found.drop_columns([n for n in ("source", "transaction", "ts_ms") if n in found.column_names])
    return [
        Trigger(r["table"], tuple(r[n] for n in _AT), tuple(r["old"]), None if r["new"] is None else tuple(r["new"]), i)
        for i, r in enumerate(plain.to_pylist())
    ]


def reached(
    spark: SparkSession,
    lake: Lake,
    member: Member,
    keys: Mapping[Edge, Iterable[tuple[str, ...]]],
    cut: Position,
) -> pa.Table:
    """Every state in the run of each row that at some time has one of the `keys`.

    Columns: kind (base, change, empty), op, place, half, kept, image."""
    states, frames = _states(spark, lake, member, cut), []
    for edge, wanted in keys.items():
        told = spark.createDataFrame([(list(k),) for k in wanted], f"wanted {_TEXTS}")
        texts = [f"kept[{i}]" for i in edge.columns]
        # A Python function stands in no join's condition.
        folded = [
            F.udf(_or_null(of), "string")(F.expr(text)) if of else F.expr(text)
            for text, of in zip(texts, edge.folds, strict=True)
        ]
        with_key = states.withColumn("key", F.array(*folded))
        some = with_key.where(" AND ".join(f"{t} IS NOT NULL" for t in texts))
        frames.append(some.join(F.broadcast(told), F.expr("key = wanted"), "left_semi").select("name"))
    names = reduce(DataFrame.unionAll, frames).distinct()
    found = states.join(names, on="name", how="left_semi").drop("name")
    if member.plan is not None and member.plan.truncated:
        found = found.unionByName(_emptied(spark, lake, member, cut), allowMissingColumns=True)
    return found.toArrow()


def of_states(member: Member, found: pa.Table, first: int) -> tuple[list[Change], list[Change | Emptied]]:
    """As a play takes them: the rows to begin with, and the events. `first` is the number of the first image."""
    base, events = [], list[Change | Emptied]()
    began: dict[tuple[Any, ...], tuple[Any, int]] = {}
    rows = found.drop_columns(["image"]).to_pylist()
    for i, row in enumerate(rows):
        at = tuple(row[n] for n in _AT)
        if row["kind"] == "empty":
            events.append(Emptied(member.name, at))
            continue
        change = Change(member.name, at, row["half"], row["op"] == "delete", tuple(row["kept"]), first + i)
        if row["kind"] == "base":
            base.append(change)
            continue
        events.append(change)
        name = member.table.named(change.values)
        if name not in began or (at, change.half) < began[name][0]:
            began[name] = (at, change.half), i
    if member.plan is None or member.plan.since is not None or member.table.counted:
        return base, events
    # A snapshot may have read a row after events of it: its first event tells what it was before, if it was.
    late = [c for c in base if member.table.named(c.values) not in began]
    for (at, half), i in began.values():
        if rows[i]["op"] == "delete":
            late.append(Change(member.name, at, half, False, tuple(rows[i]["kept"]), first + i))
    return late, events


def _or_null(of: Fold) -> Callable[..., str | None]:
    return lambda text: None if text is None else of(text)  # without type hints, which Spark would take for pandas'


def _texts(member: Member, of: str) -> str:
    columns = [member.schema.columns[i] for i in member.table.kept]
    return f"array({', '.join(as_text(c, of.format(quoted(c.name))) for c in columns)})"


def _states(spark: SparkSession, lake: Lake, member: Member, cut: Position) -> DataFrame:
    frames = []
    if member.plan is None or member.plan.since is not None:
        frames.append(_rows(spark, lake, member))
    if member.plan is not None:
        changed = changes(whole_events(spark, lake, member.plan, cut), member.schema, halves=True)
        kind = "IF(at.stream, 'change', 'base') AS kind"
        frames.append(changed.selectExpr(kind, "op", "image", *(f"at.{n}" for n in _AT), "at.half"))
    kept = [as_text(member.schema.columns[i], f"image.c{i}") for i in member.table.kept]
    names = [kept[n] for n in member.table.name]
    return reduce(DataFrame.unionByName, frames).selectExpr(
        "*", f"array({', '.join(kept)}) AS kept", f"to_json(array({', '.join(names)})) AS name"
    )


def _rows(spark: SparkSession, lake: Lake, member: Member) -> DataFrame:
    """Silver's rows from before the run; a column that is new since is NULL there."""
    rows = spark.read.format("delta").load(lake.table("silver", member.schema.name))
    if member.soft:
        rows = rows.where(f"NOT {DELETED}")
    present = {name.lower(): name for name in rows.columns}
    renamed = member.plan.renamed if member.plan is not None else ()
    columns = []
    for c in member.schema.columns:  # silver's columns are renamed and widened by the run itself
        there = next((present[n.lower()] for n in names_of(c.name, renamed) if n.lower() in present), None)
        columns.append(f"CAST({quoted(there) if there else 'NULL'} AS {c.spark})")
    fields = ", ".join(f"'c{i}', {column}" for i, column in enumerate(columns))
    before = place(-1, 0, 0, half=0)
    told = rows.selectExpr(f"named_struct({fields}) AS image", f"{before} AS at")
    return told.selectExpr("'base' AS kind", "'upsert' AS op", "image", *(f"at.{n}" for n in _AT), "at.half")


def _emptied(spark: SparkSession, lake: Lake, member: Member, cut: Position) -> DataFrame:
    assert member.plan is not None
    events = whole_events(spark, lake, member.plan, cut).where("op = 't'")
    nothing = f"CAST(NULL AS STRUCT<{', '.join(f'c{i}: {c.spark}' for i, c in enumerate(member.schema.columns))}>)"
    return events.selectExpr(
        "'empty' AS kind", f"{nothing} AS image", *(f"source.{n}" for n in _AT[:-1]), "0L AS cascade", "0 AS half"
    )
