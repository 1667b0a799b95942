"""What stands in a Delta table, asked of Delta itself and not of the folder, and how one is made.

A writer killed while it made a table leaves a log folder without a commit. There is no table then, but
`DeltaTable.isDeltaTable` looks for the folder and says that there is one, and so do the builders, which make nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakeward.jvm import java_class
from lakeward.names import spark_identifier

MAPPED: Final = {"delta.columnMapping.mode": "name"}
_NTZ: Final = "timestampNtz"
_WIDENED: Final = "delta.enableTypeWidening"
_AWKWARD: Final = frozenset(" ,;{}()\n\t=")


def snapshot(spark: SparkSession, location: str) -> Any:
    """Delta's own view of the table as it is now (a JVM object)."""
    none = java_class(spark, "scala.Option").empty()
    return log_of(spark, location).update(False, none, none)


def snapshot_at(spark: SparkSession, location: str, version: int) -> Any:
    """Delta's own view of the table as it was at `version` (a JVM object)."""
    log, none = log_of(spark, location), java_class(spark, "scala.Option").empty()
    return log.getSnapshotAt(version, none, none, getattr(log, "getSnapshotAt$default$4")())


def log_of(spark: SparkSession, location: str) -> Any:
    """The table's DeltaLog (a JVM object)."""
    return java_class(spark, "org.apache.spark.sql.delta.DeltaLog").forTable(spark._jsparkSession, location)


def version(spark: SparkSession, location: str) -> int:
    """The table's version; -1 where there is no table."""
    return int(snapshot(spark, location).version())


def exists(spark: SparkSession, location: str) -> bool:
    """Whether a table has been committed at `location`."""
    return version(spark, location) >= 0


def create(spark: SparkSession, location: str, columns: StructType, properties: Mapping[str, str]) -> None:
    """Make a table where there is none."""
    context: Any = spark._jsc
    log = java_class(spark, "org.apache.hadoop.fs.Path")(location, "_delta_log")
    log.getFileSystem(context.hadoopConfiguration()).delete(log, True)  # of a maker that was killed
    _build(DeltaTable.createIfNotExists(spark), location, columns, properties)


def replace(spark: SparkSession, location: str, columns: StructType, properties: Mapping[str, str]) -> None:
    """Put an empty table in the place of the one there, in one commit that follows what `admit` has to do first."""
    admit(spark, location, ((field.name, field.dataType.simpleString()) for field in columns))
    _build(DeltaTable.replace(spark), location, columns, properties)


def awkward(names: Iterable[str]) -> bool:
    """Whether Delta can hold some of the column names only by column mapping."""
    return any(_AWKWARD & set(name) for name in names)


def mapped(metadata: Any) -> bool:
    """Whether a table with this metadata (of its `snapshot`) has column mapping."""
    return bool(metadata.columnMappingMode().name() == "name")


def admit(spark: SparkSession, location: str, columns: Iterable[tuple[str, str]]) -> None:
    """Enable in the table what new columns, (name, Spark SQL type), need: column mapping, times without a zone.

    Delta enables the latter by itself only where it makes a table (DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT).
    """
    now, wanted = snapshot(spark, location), {}
    for name, kind in columns:
        if awkward([name]) and not mapped(now.metadata()):
            wanted.update(MAPPED)
        if "timestamp_ntz" in kind.lower() and not now.protocol().readerAndWriterFeatureNames().contains(_NTZ):
            wanted[f"delta.feature.{_NTZ}"] = "supported"
    if wanted:
        _set(spark, location, wanted)


def _map(spark: SparkSession, location: str) -> None:
    if not mapped(snapshot(spark, location).metadata()):
        _set(spark, location, MAPPED)


def _set(spark: SparkSession, location: str, properties: Mapping[str, str]) -> None:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"ALTER TABLE delta.{spark_identifier(location)} SET TBLPROPERTIES ({listed})")


def rename_column(spark: SparkSession, location: str, path: Sequence[str], new: str) -> None:
    """Call the column at `path` (names of structs, then its own) otherwise. By column mapping: no file is touched."""
    _map(spark, location)
    spark.sql(f"ALTER TABLE delta.{spark_identifier(location)} RENAME COLUMN {_path(path)} TO {spark_identifier(new)}")


def drop_columns(spark: SparkSession, location: str, names: Sequence[str]) -> None:
    """Let go of columns. By column mapping: no file is touched."""
    _map(spark, location)
    listed = ", ".join(spark_identifier(name) for name in names)
    spark.sql(f"ALTER TABLE delta.{spark_identifier(location)} DROP COLUMNS ({listed})")


def widen_column(spark: SparkSession, location: str, path: Sequence[str], kind: str) -> None:
    """Let the column at `path` be of the wider type `kind` (PROTOCOL.md, 'Type Widening'). No file is touched."""
    admit(spark, location, [(path[-1], kind)])
    if not snapshot(spark, location).metadata().configuration().contains(_WIDENED):
        _set(spark, location, {_WIDENED: "true"})
    spark.sql(f"ALTER TABLE delta.{spark_identifier(location)} ALTER COLUMN {_path(path)} TYPE {kind}")


def _path(names: Sequence[str]) -> str:
    return ".".join(spark_identifier(name) for name in names)


def struct(ddl: str) -> StructType:
    """The columns that `name TYPE, …` says."""
    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)
    return parsed


def simple_type(kind: str) -> str:
    """A Spark type's DDL as Spark prints the type."""
    return struct(f"c {kind}")["c"].dataType.simpleString()


def _build(builder: Any, location: str, columns: StructType, properties: Mapping[str, str]) -> None:
    builder = builder.location(location).addColumns(columns)
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()
