"""What changed in a silver table between two of its versions, as rows that one MERGE can apply.

Promise: the change feed reduced to one row a key (its last state, or that it is gone), or, for tables whose rows may
be equal, to one row a value with how many more or fewer of it there are now. Applied to a copy of the first version
this gives the second, row for row.

Frames are cut off from Delta (`localCheckpoint`) before anybody writes them: a Delta scan with deletion vectors
cannot be planned into a write to Iceberg ("Cannot work with a non-pinned table snapshot"), and a feed whose files
are gone is found out here, before a commit, and not within one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from gold.columns import Field
from lakeward.names import spark_identifier

CHANGE = "_change_type"
VERSION = "_commit_version"
NET = "__lakeward_net"
_FEED = (CHANGE, VERSION, "_commit_timestamp")
_GONE = ("delete", "update_preimage")
_FEED_FAULTS = (
    "DELTA_CHANGE_DATA",
    "DELTA_MISSING_CHANGE_DATA",
    "DELTA_CHANGE_TABLE_FEED",
    "DELTA_CDC_",
    "DELTA_FILE_NOT_FOUND",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSION",
    "DELTA_CANNOT_RECONSTRUCT",
    "FILE_NOT_EXIST",
    "PARQUET_COLUMN_DATA_TYPE_MISMATCH",
    "FileNotFoundException",
)


_ALTERED = "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE"
_ACROSS = {
    # Delta reads each file by the names and types of the last version, in its data files' own terms: rows from before a
    # rename, a drop or a wider type read as that ALTER has made them. It asks whether that is meant.
    "spark.databricks.delta.changeDataFeed.unsafeBatchReadOnIncompatibleSchemaChanges.enabled": "true",
    "spark.databricks.delta.changeDataFeed.defaultSchemaModeForColumnMappingTable": "endVersion",
}


class FeedGoneError(Exception):
    """The change feed of these versions cannot be read any more (vacuumed, or the table was replaced)."""


class FeedAlteredError(FeedGoneError):
    """Columns were renamed, dropped or widened within these versions."""


@contextmanager
def across(session: SparkSession) -> Iterator[None]:
    """Within it, feeds of `session` are read over such versions, too: each row as it is after the last of them.

    A column that went has no values, and one that came again under its name none from before. The caller sees to it
    that the columns of the last version are known to be of the same data, or of wider types.
    """
    for name, value in _ACROSS.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in _ACROSS:
            session.conf.unset(name)


def state_at(session: SparkSession, path: str, version: int) -> DataFrame:
    """Every row of the Delta table at `version`; spilled to the executors' disks when it is first read."""
    frame = session.read.format("delta").option("versionAsOf", version).load(path)
    return frame.localCheckpoint(eager=False, storageLevel=StorageLevel.DISK_ONLY)


def last_per_key(
    session: SparkSession,
    path: str,
    versions: tuple[int, int],
    keys: Sequence[str],
    fields: Sequence[Field] | None = None,
) -> DataFrame:
    """The last change of each key in the versions (from, to), both included.

    The table's columns, or those `fields` of it, then CHANGE (`insert`, `update_postimage`: this is the row now;
    `delete`, `update_preimage`: the key is gone) and VERSION. Raises FeedGoneError.

    An update's preimage takes part as a delete that comes before the commit's new rows: silver may write a key anew
    in another spelling ("a" → "A" are one key to the source), and then the old spelling has to go.
    """
    feed = _feed(session, path, versions, fields)
    order = (F.col(VERSION).desc(), F.when(F.col(CHANGE).isin(*_GONE), 0).otherwise(1).desc())
    window = Window.partitionBy(*[F.col(spark_identifier(k)) for k in keys]).orderBy(*order)
    ranked = feed.withColumn("__lakeward_rank", F.row_number().over(window))
    return _held(ranked.where("__lakeward_rank = 1").drop("__lakeward_rank"))


def net_per_value(
    session: SparkSession, path: str, versions: tuple[int, int], fields: Sequence[Field] | None = None
) -> DataFrame:
    """How often each row value came (NET above zero) or went (below) in the versions (from, to), both included.

    The table's columns, or those `fields` of it, then CHANGE (`insert` or `delete`, by NET's sign) and NET. Raises
    FeedGoneError.
    """
    feed = _feed(session, path, versions, fields)
    columns = [f.name for f in feed.schema.fields if f.name not in _FEED]
    by = [key.alias(f"__lakeward_{i}") for i, key in enumerate(value_keys(feed, columns))]
    row = F.struct(*[F.col(spark_identifier(c)) for c in columns]).alias("__lakeward_row")
    sign = F.when(F.col(CHANGE).isin(*_GONE), -1).otherwise(1)
    counted = feed.groupBy(*by).agg(F.first(row).alias("__lakeward_row"), F.sum(sign).alias(NET)).where(f"{NET} <> 0")
    kind = F.when(F.col(NET) > 0, "insert").otherwise("delete").alias(CHANGE)
    return _held(counted.select("__lakeward_row.*", kind, F.col(NET)))


def value_keys(frame: DataFrame, columns: Sequence[str]) -> list[Column]:
    """Expressions that are equal exactly when the columns' values are the same, NULL like NULL.

    Spark groups and joins 0.0 with -0.0; as text they differ, and the text of a float is exact.
    """
    kinds = {f.name: f.dataType for f in frame.schema.fields}
    inexact = (T.FloatType, T.DoubleType, T.ArrayType)
    quoted = {c: F.col(spark_identifier(c)) for c in columns}
    return [quoted[c].cast("string") if isinstance(kinds[c], inexact) else quoted[c] for c in columns]


def _feed(session: SparkSession, path: str, versions: tuple[int, int], fields: Sequence[Field] | None) -> DataFrame:
    first, last = versions
    reader = session.read.format("delta").option("readChangeFeed", "true")
    try:
        feed = reader.option("startingVersion", first).option("endingVersion", last).load(path)
        if fields is None:
            return feed.drop("_commit_timestamp")
        # A table without column mapping is read by its newest columns, which may be ahead of these versions.
        kinds = dict(feed.dtypes)
        found = ((F.col(spark_identifier(f.name)), f) for f in fields)
        shown = [(c if kinds[f.name] == f.kind else c.cast(f.kind)).alias(f.name) for c, f in found]
        return feed.select(*shown, CHANGE, VERSION)
    except (PySparkException, Py4JJavaError) as error:
        if (told := _translated(error)) is None:
            raise
        raise told from error


def _held(frame: DataFrame) -> DataFrame:
    try:
        return frame.localCheckpoint(eager=True)
    except (PySparkException, Py4JJavaError) as error:
        if (told := _translated(error)) is None:
            raise
        raise told from error


def _translated(error: Exception) -> FeedGoneError | None:
    text = str(error)
    if _ALTERED in text:
        return FeedAlteredError(text)
    return FeedGoneError(text) if any(fault in text for fault in _FEED_FAULTS) else None
