"""Commits data files to a bronze Delta table, through Delta's own transaction, exactly once.

Executors write Parquet files straight into a table's folder (see `bronze/writer.py`); nothing reads them until the
driver adds them to the table's log here, by Delta Kernel, Delta's library for engines that write files of their own:
conflict checks, protocol, statistics, checkpoints. It reads a log without a Spark job, of which Delta on Spark starts
four a commit. The batch's number is the transaction identifier, so committing a batch again after a crash changes
nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from bronze.envelope import envelope_ddl
from lakeward import delta
from lakeward.jvm import java_class
from lakeward.kernel import engine as engine_of
from lakeward.kernel import kernel_class, nested_column
from lakeward.lake import disk_full
from lakeward.names import spark_identifier
from lakeward.schema import Column, TableSchema

APP_ID = "lakeward-bronze"
PROPERTIES = {
    "delta.appendOnly": "true",
    # Only `op`, `ts_ms` and `source.*` are worth statistics; the images are read whole or not at all.
    "delta.dataSkippingStatsColumns": "source.epoch,source.file,source.pos",
    "delta.checkpointInterval": "50",
}


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of envelopes that lies in a table's folder. `path` is relative to it; sizes in bytes."""

    path: str
    size: int
    rows: int
    modified_ms: int
    stats: Mapping[str, Any]  # {"rows": n, "min": {struct: {field: [kind, value]}}, "max": …}, physical names

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


Names = Mapping[str, Any]
"""Logical → physical column names of a table with column mapping, nested: {name: (physical, Names of its fields)}."""


def ensure_table(
    spark: SparkSession, location: str, schema: TableSchema, properties: Mapping[str, str] = PROPERTIES
) -> Literal["created", "widened", "replaced"]:
    """Create the bronze table, or widen its images by the columns that it does not have yet. Says which was done.

    A column that is there with another type replaces the table (one commit; the earlier shape stays in its history):
    that happens only with a new snapshot, which every later stage reads from afresh.
    """
    if not delta.exists(spark, location):
        _make(delta.create, spark, location, schema, properties)
        return "created"
    present = image_fields(spark, location)
    wanted = {c.name: c for c in schema.columns}
    lower = {name.lower(): name for name in present}
    if any(n.lower() in lower and present[lower[n.lower()]] != delta.simple_type(c.spark) for n, c in wanted.items()):
        table = f"delta.{spark_identifier(location)}"
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
        _make(delta.replace, spark, location, schema, properties)
        return "replaced"
    add_columns(spark, location, [c for n, c in wanted.items() if n.lower() not in lower])
    return "widened"


def add_columns(spark: SparkSession, location: str, columns: Sequence[Column]) -> None:
    """Append fields to `before` and `after`."""
    if not columns:
        return
    delta.admit(spark, location, ((c.name, c.spark) for c in columns))
    fields = ", ".join(
        f"{image}.{spark_identifier(c.name)} {c.spark}" for c in columns for image in ("before", "after")
    )
    spark.sql(f"ALTER TABLE delta.{spark_identifier(location)} ADD COLUMNS ({fields})")


def reshape_images(spark: SparkSession, location: str, schema: TableSchema, renamed: Sequence[Sequence[str]]) -> None:
    """Give `before` and `after` the names and types of `schema`; what was done already is not done again.

    Files stay as they are. A column that `schema` lacks stays too: earlier events have it.
    """
    for image in ("before", "after"):
        for old, new in renamed:
            present = image_fields(spark, location, image)
            if old in present and new not in present:
                delta.rename_column(spark, location, (image, old), new)
        present = image_fields(spark, location, image)
        for column in schema.columns:
            if present.get(column.name, delta.simple_type(column.spark)) != delta.simple_type(column.spark):
                delta.widen_column(spark, location, (image, column.name), column.spark)


def commit(spark: SparkSession, location: str, files: Sequence[DataFile], *, batch: int) -> bool:
    """Add `files` to the table as batch number `batch`. False where that batch had been committed before."""
    java, kernel, engine = partial(java_class, spark), partial(kernel_class, spark), engine_of(spark)
    table = kernel("Table").forPath(engine, location)
    begun = table.createTransactionBuilder(engine, "Lakeward", kernel("Operation").WRITE)
    try:
        transaction = begun.withTransactionId(engine, APP_ID, batch).build(engine)
    except Py4JJavaError as error:
        if "ConcurrentTransactionException" in str(error.java_exception):
            return False
        raise
    state = transaction.getTransactionState(engine)
    appends, status = kernel("Transaction"), kernel("utils.DataFileStatus")
    optional = java("java.util.Optional")
    written = appends.getWriteContext(engine, state, java("java.util.HashMap")())
    statuses = java("java.util.ArrayList")()
    for f in files:
        statistics = optional.of(_statistics(spark, f.stats))
        statuses.add(status(f"{location}/{f.path}", f.size, f.modified_ms, statistics))
    iterator = kernel("internal.util.Utils").toCloseableIterator(statuses.iterator())
    adds = appends.generateAppendActions(engine, state, iterator, written)
    done = transaction.commit(engine, kernel("utils.CloseableIterable").inMemoryIterable(adds))
    for hook in done.getPostCommitHooks():  # checkpoints and checksums, when they are due
        hook.threadSafeInvoke(engine)
    return True


def _statistics(spark: SparkSession, stats: Mapping[str, Any]) -> Any:
    """`DataFile.stats` (of the form of the Delta protocol's 'Per-file Statistics') as the kernel's."""
    java = partial(java_class, spark)
    literal = kernel_class(spark, "expressions.Literal")

    def bounds(struct: Mapping[str, Any]) -> Any:
        found = java("java.util.HashMap")()
        for outer, inner in struct.items():
            for name, (kind, value) in inner.items():
                number = literal.ofInt(value) if kind == "int" else literal.ofLong(value)
                found.put(nested_column(spark, outer, name), number)
        return found

    low, high, nulls = bounds(stats["min"]), bounds(stats["max"]), java("java.util.HashMap")()
    empty = java("java.util.Optional").empty()
    return kernel_class(spark, "statistics.DataFileStatistics")(stats["rows"], low, high, nulls, empty)


def image_fields(spark: SparkSession, location: str, image: str = "after") -> dict[str, str]:
    """The columns of an image in the table, name → Spark's simple type."""
    schema = StructType.fromJson(json.loads(delta.snapshot(spark, location).metadata().schemaString()))
    found: Any = schema[image].dataType
    return {f.name: f.dataType.simpleString() for f in found.fields}


def physical_names(spark: SparkSession, location: str) -> Names | None:
    """The table's physical column names, or None where they are the logical ones."""
    metadata = delta.snapshot(spark, location).metadata()
    return _physical(json.loads(metadata.schemaString())) if delta.mapped(metadata) else None


def rename(arrow: pa.DataType, names: Names) -> pa.DataType:
    """A struct type with its fields' physical names, as deep as they go."""
    if not pa.types.is_struct(arrow):
        return arrow
    return pa.struct([pa.field(names[f.name][0], rename(f.type, names[f.name][1])) for f in arrow])


def _physical(struct: Mapping[str, Any]) -> Names:
    found = {}
    for f in struct["fields"]:
        inner = f["type"]
        nested = _physical(inner) if isinstance(inner, dict) and inner.get("type") == "struct" else {}
        found[f["name"]] = (f["metadata"]["delta.columnMapping.physicalName"], nested)
    return found


def _make(
    make: Callable[..., None], spark: SparkSession, location: str, schema: TableSchema, properties: Mapping[str, str]
) -> None:
    # What is mapped stays so, also where an empty table takes its place: Delta does not go back.
    awkward = delta.awkward(c.name for c in schema.columns)
    there = delta.exists(spark, location) and delta.mapped(delta.snapshot(spark, location).metadata())
    mapping = delta.MAPPED if awkward or there else {}
    try:
        make(spark, location, delta.struct(envelope_ddl(schema)), {**properties, **mapping})
    except Exception as error:
        if full := disk_full(error):
            raise full from error
        raise
