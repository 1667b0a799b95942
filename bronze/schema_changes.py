"""Schema changes of the followed tables, in a bronze table of their own: `<root>/bronze/lakeward/schema_changes`.

One row for each change of each table it concerns, committed with its batch, once. Columns: `schema`, `table`, `change`
(truncate, alter table, create table, rename table, drop table, drop schema, unknown), `done` (what bronze did about
it: followed, read again, stopped, ignored), `statement`, `ts_ms`, `source` (server, epoch, file, pos, gtid) and
`transaction_id`.

The statement is the source's text. Where columns of the table are masked or left out, its comments are dropped and its
strings and numbers replaced by `?`, since they may hold values of those columns.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from bronze.binlog.effects import Alter, Create, Drop, DropSchema, Effect, Rename, Truncate, Unknown
from bronze.binlog.items import Statement
from bronze.binlog.sqltext import tokens
from bronze.commit import DataFile, commit
from bronze.stamp import Origin
from lakeward.lake import Lake, lake_error
from lakeward.names import TableName, spark_identifier
from lakeward.schema import TableSchema, spark_type

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
_PLACE: Final = {"epoch": "int", "file": "long", "pos": "long"}
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
    filesystem, base = lake.filesystem()
    name = f"part-{uuid.uuid4()}.parquet"
    path = f"{base}/bronze/{TABLE.folder}/{name}"
    try:
        filesystem.create_dir(path.rpartition("/")[0], recursive=True)
        with filesystem.open_output_stream(path) as stream:
            pq.write_table(pa.Table.from_pylist(list(changes), _SHAPE), stream)
        size = filesystem.get_file_info(path).size
    except OSError as error:
        raise lake_error(error, path) from error
    places = {n: [c["source"][n] for c in changes] for n in _PLACE}
    low, high = ({"source": {n: [k, pick(places[n])] for n, k in _PLACE.items()}} for pick in (min, max))
    stats = {"rows": len(changes), "min": low, "max": high}
    commit(spark, location, [DataFile(name, size, len(changes), int(time.time() * 1000), stats)], batch=batch)


def ensure(spark: SparkSession, location: str) -> None:
    """Create the table where it is missing."""
    if DeltaTable.isDeltaTable(spark, location):
        return
    ddl = ", ".join(f"{spark_identifier(f.name)} {spark_type(f.type)}" for f in _SHAPE)
    builder = DeltaTable.createIfNotExists(spark).location(location).property("delta.appendOnly", "true")
    builder.property("delta.dataSkippingStatsColumns", "source.epoch,source.file,source.pos").addColumns(
        spark.createDataFrame([], ddl).schema
    ).execute()
