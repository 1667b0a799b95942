"""What stands in a Delta table, asked of Delta itself and not of the folder, and how one is made.

A writer killed while it made a table leaves a log folder without a commit. There is no table then, but
`DeltaTable.isDeltaTable` looks for the folder and says that there is one, and so do the builders, which make nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType


def snapshot(spark: SparkSession, location: str) -> Any:
    """Delta's own view of the table as it is now (a JVM object)."""
    jvm: Any = spark._jvm
    log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, location)
    none = jvm.scala.Option.empty()
    return log.update(False, none, none)


def version(spark: SparkSession, location: str) -> int:
    """The table's version; -1 where there is no table."""
    return int(snapshot(spark, location).version())


def exists(spark: SparkSession, location: str) -> bool:
    """Whether a table has been committed at `location`."""
    return version(spark, location) >= 0


def create(spark: SparkSession, location: str, columns: StructType, properties: Mapping[str, str]) -> None:
    """Make a table where there is none."""
    jvm: Any = spark._jvm
    context: Any = spark._jsc
    log = jvm.org.apache.hadoop.fs.Path(location, "_delta_log")
    log.getFileSystem(context.hadoopConfiguration()).delete(log, True)  # of a maker that was killed
    _build(DeltaTable.createIfNotExists(spark), location, columns, properties)


def replace(spark: SparkSession, location: str, columns: StructType, properties: Mapping[str, str]) -> None:
    """Put an empty table in the place of the one there, in one commit."""
    _build(DeltaTable.replace(spark), location, columns, properties)


def struct(ddl: str) -> StructType:
    """The columns that `name TYPE, …` says."""
    parsed = StructType.fromDDL(ddl)
    assert isinstance(parsed, StructType)
    return parsed


def _build(builder: Any, location: str, columns: StructType, properties: Mapping[str, str]) -> None:
    builder = builder.location(location).addColumns(columns)
    for key, value in properties.items():
        builder = builder.property(key, value)
    builder.execute()
