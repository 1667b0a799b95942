"""Schema changes of the followed tables, in a bronze table of their own: `<root>/bronze/lakeward/schema_changes`.

One row for each change of each table it concerns, committed with its batch, once. Columns: `schema`, `table`, `change`
(truncate, alter table, create table, rename table, drop table, drop schema, unknown), `done` (what bronze did about
it: followed, read again, stopped, ignored), `statement`, `ts_ms`, `source` (server, epoch, file, pos, gtid) and
`transaction_id`.

The statement is the source's text. Where columns of the table are masked or left out, its comments are dropped and its
strings and numbers replaced by `?`, since they may hold values of those columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from bronze.binlog.effects import Alter, Create, Drop, DropSchema, Effect, Rename, Truncate, Unknown
from bronze.binlog.items import Statement
from bronze.binlog.sqltext import tokens
from bronze.commit import PROPERTIES, commit
from bronze.stamp import Origin
from bronze.writer import EnvelopeWriter, Target
from lakeward.delta import create, exists, struct
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.schema import TableSchema, spark_fields

Done = Literal["followed", "read again", "stopped", "ignored"]
TABLE: Final = TableName("lakeward", "schema_changes")
_NAMES: Final[dict[type, str]] = {
    Alter: "alter table",
    Create: "create table",
    Drop: "drop table",
    DropSchema: "drop schema",
    Rename: "rename table",
    Truncate: "truncate",
    Unknown: "unknown",
}
_SHAPE: Final = pa.schema(
    [
        *(pa.field(n, pa.string()) for n in ("schema", "table", "change", "done", "statement")),
        pa.field("ts_ms", pa.int64()),
        pa.field(
            "source",
            pa.struct(
                [
                    pa.field("server", pa.string()),
                    pa.field("epoch", pa.int32()),
                    pa.field("file", pa.int64()),
                    pa.field("pos", pa.int64()),
                    pa.field("gtid", pa.string()),
                ]
            ),
        ),
        pa.field("transaction_id", pa.string()),
    ]
)


def described(
    statement: Statement, effect: Effect, schema: TableSchema, done: Done, origin: Origin, *, hide: bool
) -> dict[str, Any]:
    """The row for one table that `statement` changes. `hide`: some of its columns are left out."""
    hide = hide or any(c.masked for c in schema.columns)
    return {
        "schema": schema.name.schema,
        "table": schema.name.table,
        "change": _NAMES[type(effect)],
        "done": done,
        "statement": _without_values(statement.sql) if hide else statement.sql,
        "ts_ms": statement.ts_ms,
        "source": {
            "server": origin.server,
            "epoch": origin.epoch,
            "file": statement.file,
            "pos": statement.pos,
            "gtid": statement.transaction.gtid,
        },
        "transaction_id": statement.transaction.id,
    }


def _without_values(sql: str) -> str | None:
    found = tokens(sql)
    if found is None:  # what is a value and what is not cannot be told
        return None
    return " ".join("?" if t.kind == "string" or t.raw[0].isdigit() else t.raw for t in found)


def land(spark: SparkSession, lake: Lake, changes: Sequence[Mapping[str, Any]], *, batch: int) -> None:
    """Append the changes of batch number `batch`, once."""
    location = lake.table("bronze", TABLE)
    ensure(spark, location)
    with EnvelopeWriter(lake, {TABLE.folder: Target(f"bronze/{TABLE.folder}")}) as writer:
        for rows in pa.Table.from_pylist(list(changes), _SHAPE).to_batches():
            writer.write(TABLE.folder, rows)
        files = writer.close()[TABLE.folder]
    commit(spark, location, files, batch=batch)


def ensure(spark: SparkSession, location: str) -> None:
    """Create the table where it is missing."""
    if not exists(spark, location):
        create(spark, location, struct(spark_fields(_SHAPE)), PROPERTIES)
