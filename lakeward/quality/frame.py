"""A batch as the gate reads it: one row an event, the row's columns flat beside it, the event itself kept
whole.

The flat columns are the after image's for c, u and r, so that an expectation names a column as the source
does. What the envelope says comes under names that no source column may bear (`__op`, `__key id`). Everything
is projections: an event that passes leaves the gate as the very struct that came in.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.names import spark_identifier
from lakeward.position import Position
from lakeward.quality.derived import CASCADE, KEY, OP, PLACE
from lakeward.quality.rules import GateLayer, Scope, plain
from lakeward.schema import TableSchema

EVENT = "__event"
IN_SCOPE = "__in "  # and a scope; an event that the table's newest snapshot supersedes is in none but `event`
VERSIONED = ("_commit_version", "_change_type")
ENVELOPE = ("op", "before", "after", "ts_ms", "source", "transaction")


@dataclass(frozen=True)
class Batch:
    """The flat frame of one table's batch and how to name what it holds."""

    schema: TableSchema
    layer: GateLayer
    flat: DataFrame  # __event STRUCT, __in row, __in keyed, __op, __key …, then the source's columns under `names`
    names: dict[str, str]  # the source's column → the flat frame's
    few: bool = False  # rows, so that what each says can be looked at here

    def within(self, scope: Scope) -> Column | None:
        """Whether a row of `flat` belongs to `scope`, never NULL; None where each does."""
        return None if scope == "event" else F.col(IN_SCOPE + scope)

    def shown(self, column: str) -> str:
        """The source's name of a flat column, or of the key that it holds."""
        back = {v: k for k, v in self.names.items()}
        return back.get(column.removeprefix(KEY), column)

    def event(self, frame: DataFrame) -> DataFrame:
        """The columns that came in."""
        return frame.select(F.expr(f"{EVENT}.*"))


def of_events(
    frame: DataFrame, schema: TableSchema, start: Position | None = None, generation: int = 0, *, few: bool = False
) -> Batch:
    """A batch of the envelope. `generation` is the table's newest snapshot, and `start` where it stands: rows
    of older ones and stream events from before it are superseded, so they are not judged by today's
    schema."""
    columns = _flat(frame.sparkSession._jvm, schema, start, generation)
    return Batch(schema, "silver", frame.select(*columns), _names(schema), few)


@lru_cache(maxsize=1000)
def _flat(jvm: object, schema: TableSchema, start: Position | None, generation: int) -> list[Column]:
    """The columns of the flat frame, kept from batch to batch: they belong to no frame, and cost calls into the JVM."""
    names = _names(schema)
    op, source = F.coalesce(F.col("op"), F.lit("")), F.col("source")
    has_after = op.isin("c", "u", "r")
    keys = [
        F.when(has_after, F.col("after").getField(k)).when(op == "d", F.col("before").getField(k)).alias(KEY + names[k])
        for k in schema.keys
    ]
    place = [source.getField(p.removeprefix("__")).alias(p) for p in PLACE if p != CASCADE]
    place.append(F.coalesce(source.getField("cascade"), F.lit(0)).alias(CASCADE))
    values = [F.when(has_after, F.col("after").getField(n)).alias(shown) for n, shown in names.items()]
    scopes = _scopes(op, _judged(start, generation))
    return [F.struct("*").alias(EVENT), *scopes, op.alias(OP), *place, *keys, *values]


def of_rows(frame: DataFrame, schema: TableSchema) -> Batch:
    """A batch of silver rows on their way to gold. Deleted rows and the state before an update are not
    judged."""
    names = _names(schema)
    gone = [F.col("_change_type").isin("delete", "update_preimage")] if "_change_type" in frame.columns else []
    gone += [F.coalesce(F.col("__deleted"), F.lit(False))] if "__deleted" in frame.columns else []
    op = F.lit("u")
    for condition in gone:
        op = F.when(condition, F.lit("d")).otherwise(op)
    # A delete's key is no matter of the gold gate, so such a row belongs to no scope but `event`.
    values = [_top(n).alias(shown) for n, shown in names.items()]
    extra = [F.col(c) for c in VERSIONED if c in frame.columns and c not in names.values()]
    columns = [F.struct(*[_top(c) for c in frame.columns]).alias(EVENT), *_scopes(op, None)]
    return Batch(schema, "gold", frame.select(*columns, op.alias(OP), *extra, *values), names)


def envelope_of_row(row: Column, schema: TableSchema, image: T.StructType) -> list[Column]:
    """A silver row in the envelope's shape, for quarantine: op u, the row as `after`, no place of its own."""
    after = F.struct(*[row.getField(c.name).alias(c.name) for c in schema.columns]).cast(image)
    source = (
        "STRUCT<server: STRING, epoch: INT, file: BIGINT, pos: BIGINT, row: BIGINT, gtid: STRING,"
        " snapshot: BOOLEAN, generation: INT, absent: ARRAY<STRING>, before_absent: ARRAY<STRING>,"
        " unchecked: BOOLEAN, cascade: BIGINT>"
    )
    transaction = "STRUCT<id: STRING, total_order: BIGINT, data_collection_order: BIGINT>"
    return [
        F.lit("u").alias("op"),
        F.lit(None).cast(image).alias("before"),
        after.alias("after"),
        row.getField("__ts_ms").cast("bigint").alias("ts_ms"),
        F.lit(None).cast(source).alias("source"),
        F.lit(None).cast(transaction).alias("transaction"),
    ]


def _scopes(op: Column, judged: Column | None) -> list[Column]:
    row, keyed = op.isin("c", "u", "r"), op.isin("c", "u", "r", "d")
    if judged is not None:
        row, keyed = row & judged, keyed & judged
    return [row.alias(IN_SCOPE + "row"), keyed.alias(IN_SCOPE + "keyed")]


def _judged(start: Position | None, generation: int) -> Column | None:
    if start is None:
        return None
    source = F.col("source")
    place = F.struct(*[source.getField(p) for p in ("epoch", "file", "pos")])
    since = place >= F.struct(
        F.lit(start.epoch).cast("int"), F.lit(start.file).cast("bigint"), F.lit(start.pos).cast("bigint")
    )
    newest = F.coalesce(source.getField("generation"), F.lit(0)) >= generation
    snapshot = F.coalesce(source.getField("snapshot"), F.lit(False))
    return F.when(snapshot, newest).otherwise(F.coalesce(since, F.lit(True)))


def _names(schema: TableSchema) -> dict[str, str]:
    taken = frozenset(c.name for c in schema.columns)
    return {c.name: plain(c.name, taken) for c in schema.columns}


def _top(name: str) -> Column:
    return F.col(spark_identifier(name))
