"""Delta Kernel, Delta's library for engines that read and write files of their own: a log read without a Spark job.

The first look of Delta on Spark at a table is a query or two over its log, each planned and run as any other: a
quarter of a second, where Kernel takes a few milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from py4j.java_gateway import get_field
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from lakeward.jvm import java_class
from lakeward.position import Position


@dataclass(frozen=True)
class DeletionVector:
    """Which rows of a data file are the table's no more."""

    _spark: SparkSession
    _location: str
    _descriptor: Any

    def to_json(self) -> dict[str, Any]:
        """As a log has it."""
        of = self._descriptor
        found: dict[str, Any] = {"storageType": of.getStorageType(), "pathOrInlineDv": of.getPathOrInlineDv()}
        if of.getOffset().isPresent():
            found["offset"] = int(of.getOffset().get())
        return {**found, "sizeInBytes": int(of.getSizeInBytes()), "cardinality": int(of.getCardinality())}

    def rows(self) -> np.ndarray:
        """Their numbers in the file, in their order."""
        load = kernel_class(self._spark, "internal.deletionvectors.DeletionVectorUtils").loadNewDvAndBitmap
        numbers = get_field(load(engine(self._spark), self._location, self._descriptor), "_2").toArray()
        # At once: of an array of the JVM each element is a call.
        held = java_class(self._spark, "java.nio.ByteBuffer").allocate(8 * len(numbers))
        held.asLongBuffer().put(numbers)
        return np.frombuffer(held.array(), dtype=">i8").astype(np.int64)


@dataclass(frozen=True)
class Listing:
    """A table's columns and data files at a version."""

    columns: StructType
    files: Mapping[str, int]  # their names in the table's folder, and their sizes in bytes
    features: frozenset[str]  # that a writer has to know
    plain: bool  # the files lie in the folder itself, and have the table's columns under their names
    vectors: Mapping[str, DeletionVector]  # by the files that have one

    @property
    def size(self) -> int:
        """Of the files, in bytes."""
        return sum(self.files.values())


def kernel_class(spark: SparkSession, name: str) -> Any:
    """The class `io.delta.kernel.<name>`."""
    return java_class(spark, f"io.delta.kernel.{name}")


def engine(spark: SparkSession) -> Any:
    """Kernel's own engine, by the session's file systems."""
    context: Any = spark._jsc
    return kernel_class(spark, "defaults.engine.DefaultEngine").create(context.hadoopConfiguration())


def nested_column(spark: SparkSession, outer: str, name: str) -> Any:
    """The field `name` of the struct `outer`, as Kernel calls it."""
    gateway: Any = spark.sparkContext._gateway
    names = gateway.new_array(java_class(spark, "java.lang.String"), 2)
    names[0], names[1] = outer, name
    return kernel_class(spark, "expressions.Column")(names)


def latest_version(spark: SparkSession, location: str) -> int:
    """The version of the table at `location`, which has to be there."""
    used = engine(spark)
    return int(kernel_class(spark, "Table").forPath(used, location).getLatestSnapshot(used).getVersion())


def listing(spark: SparkSession, location: str, version: int, since: Position | None, *, most: int) -> Listing | None:
    """What a table holds at `version`; None where it is more than `most` files, each of which is asked for by itself.
    With `since`, a bronze table's files whose statistics say that all their events stand before it are left out."""
    used = engine(spark)
    table = kernel_class(spark, "Table").forPath(used, location).getSnapshotAsOfVersion(used, version)
    builder = table.getScanBuilder()
    if since is not None:
        builder = builder.withFilter(_from(spark, since))
    with closing(_rows(builder.build().getScanFiles(used))) as rows:
        found = list(islice(rows, most + 1))
    if len(found) > most:
        return None
    of_row = kernel_class(spark, "internal.InternalScanFileUtils")
    statuses = [of_row.getAddFileStatus(row) for row in found]
    folders = {str(status.getPath()).split("/")[-2] for status in statuses}
    names = [str(status.getPath()).rpartition("/")[2] for status in statuses]
    vectors = {name: of_row.getDeletionVectorDescriptorFromRow(row) for name, row in zip(names, found, strict=True)}
    joined = java_class(spark, "java.lang.String").join
    metadata = table.getMetadata()
    mapped = metadata.getConfiguration().get("delta.columnMapping.mode") not in (None, "none")
    return Listing(
        columns=StructType.fromJson(json.loads(metadata.getSchemaString())),
        files={name: int(status.getSize()) for name, status in zip(names, statuses, strict=True)},
        # Joined over there: to go through a set of the JVM takes a call an element, and an error at its end.
        features=frozenset(filter(None, joined(",", table.getProtocol().getWriterFeatures()).split(","))),
        plain=not mapped and folders <= {location.rpartition("/")[2]},
        vectors={name: DeletionVector(spark, location, found) for name, found in vectors.items() if found is not None},
    )


def _rows(batches: Any) -> Generator[Any, None, None]:
    try:
        while batches.hasNext():
            rows = batches.next().getRows()
            while rows.hasNext():
                yield rows.next()
    finally:
        batches.close()


def _from(spark: SparkSession, position: Position) -> Any:
    """Whether an event may stand at `position` or after it: what a file's statistics can tell."""
    predicate, literal = kernel_class(spark, "expressions.Predicate"), kernel_class(spark, "expressions.Literal")

    def compared(name: str, comparison: str, value: Any) -> Any:
        return predicate(comparison, nested_column(spark, "source", name), value)

    epoch, file = literal.ofInt(position.epoch), literal.ofLong(position.file)
    in_file = predicate("AND", compared("file", "=", file), compared("pos", ">=", literal.ofLong(position.pos)))
    in_epoch = predicate("OR", compared("file", ">", file), in_file)
    return predicate("OR", compared("epoch", ">", epoch), predicate("AND", compared("epoch", "=", epoch), in_epoch))
