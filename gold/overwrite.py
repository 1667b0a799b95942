"""Puts rows in the place of those with the same keys: copy-on-write by the files that hold them, in one snapshot.

Iceberg's own MERGE joins every row of a file that it touches with the batch as the outer side, which Spark can only do
by shuffling and sorting them all. Here the batch is broadcast: once over the key columns, to find the files; once over
those files' rows, of which the keys that are not in the batch are written again. A batch of keys that the table does
not hold rewrites nothing. The files are staged and fetched as Iceberg's own `rewrite_data_files` does it, and
committed through its API, which refuses when another program has committed meanwhile.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gold import iceberg
from lakeward.jvm import java_class
from lakeward.names import spark_identifier
from silver.prune import ranges

BROADCAST_ROWS_MAX = 100_000  # of keys, of at most 3,072 bytes each in MySQL
_STAGED = "gold_staged"  # a catalog whose tables are the sets of files that are staged
_KEY = "__lakeward_key"
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def overwrite(keys: DataFrame, rows: DataFrame, name: str) -> None:
    """Let the table `name` hold `rows`, and no other row whose columns equal a row of `keys` (NULL like NULL).

    Both frames are read several times, so they are held (`localCheckpoint`); `rows` has the table's columns.
    """
    session = keys.sparkSession
    table = iceberg.load(session, name)
    own = keys.select(*[F.col(spark_identifier(k)).alias(f"{_KEY}{i}") for i, k in enumerate(keys.columns)])
    few = own.count() <= BROADCAST_ROWS_MAX
    spans = _spans(own, keys) if few else {}
    on = reduce(
        lambda a, b: a & b,
        (F.col(spark_identifier(k)).eqNullSafe(F.col(f"{_KEY}{i}")) for i, k in enumerate(keys.columns)),
    )
    narrow = F.broadcast(own) if few else own
    paths: set[str] = set()
    if (current := table.currentSnapshot()) is not None:
        held = session.read.option("versionAsOf", str(current.snapshotId())).table(name).where(_within(spans))
        found = held.select(*map(_quoted, keys.columns), "_file").join(narrow, on=on, how="left_semi")
        paths = {row[0] for row in found.select("_file").distinct().collect()}
    tasks = [task for task in _tasks(session, table, spans) if task.file().location() in paths] if paths else []
    assert len(tasks) == len(paths), "a data file that was read is not in the table"
    size = sum(task.length() for task in tasks)
    with _staged(session, table, tasks) as staged:
        frame = rows.coalesce(1) if few else rows
        if tasks:
            read = session.read.option("split-size", iceberg.FILE_BYTES).table(staged.name)
            frame = read.join(narrow, on=on, how="left_anti").unionByName(frame)
            if few:
                frame = frame.coalesce(max(1, -(-size // iceberg.FILE_BYTES)))
        writer = frame.writeTo(staged.name).option("distribution-mode", "none")
        # A file that grows by the batch is not to be cut into itself and a crumb.
        writer.option("target-file-size-bytes", str(2 * iceberg.FILE_BYTES)).append()
        iceberg.commit_files(session, table, [task.file() for task in tasks], staged.written())


def _quoted(column: str) -> Column:
    return F.col(spark_identifier(column))


def _spans(own: DataFrame, keys: DataFrame) -> dict[str, list[tuple[int, int]]]:
    """The ranges that the keys are in, by column; whole numbers only."""
    kinds = [kind for _, kind in keys.dtypes]
    numbers = [i for i, kind in enumerate(kinds) if kind in _INTEGERS]
    if not numbers:
        return {}
    held: pa.Table = own.select(*[f"{_KEY}{i}" for i in numbers]).toArrow()
    found = {}
    for i in numbers:
        values = held[f"{_KEY}{i}"].unique()
        if len(values) and not values.null_count:
            found[keys.columns[i]] = ranges(sorted(values.to_pylist()))
    return found


def _within(spans: dict[str, list[tuple[int, int]]]) -> Column:
    each = [reduce(lambda a, b: a | b, (_quoted(c).between(*s) for s in found)) for c, found in spans.items()]
    return reduce(lambda a, b: a & b, each, F.lit(True))


def _tasks(session: SparkSession, table: Any, spans: dict[str, list[tuple[int, int]]]) -> Iterator[Any]:
    """Iceberg's scan tasks of the data files that may hold keys within the ranges."""
    says = java_class(session, "org.apache.iceberg.expressions.Expressions")
    scan = table.newScan()
    for column, found in spans.items():
        at_least, at_most = says.greaterThanOrEqual, says.lessThanOrEqual
        either = [getattr(says, "and")(at_least(column, low), at_most(column, high)) for low, high in found]
        scan = scan.filter(reduce(getattr(says, "or"), either))
    planned = scan.planFiles()
    try:
        found = planned.iterator()
        while found.hasNext():
            yield found.next()
    finally:
        planned.close()


class _Staged:
    """A set of files that Spark reads and writes as a table of the catalog _STAGED."""

    def __init__(self, session: SparkSession, table: Any) -> None:
        self.session, self.table, self.id = session, table, str(uuid.uuid4())
        self.name = f"{_STAGED}.{spark_identifier(self.id)}"
        self.written_by = java_class(session, "org.apache.iceberg.spark.FileRewriteCoordinator").get()

    def written(self) -> list[Any]:
        return list(self.written_by.fetchNewFiles(self.table, self.id))


@contextmanager
def _staged(session: SparkSession, table: Any, tasks: Sequence[Any]) -> Iterator[_Staged]:
    session.conf.set(f"spark.sql.catalog.{_STAGED}", "org.apache.iceberg.spark.SparkRewriteTableCatalog")
    tables = java_class(session, "org.apache.iceberg.spark.SparkTableCache").get()
    reads = java_class(session, "org.apache.iceberg.spark.ScanTaskSetManager").get()
    staged = _Staged(session, table)
    listed = java_class(session, "java.util.ArrayList")()
    for task in tasks:
        listed.add(task)
    tables.add(staged.id, table)
    if tasks:
        reads.stageTasks(table, staged.id, listed)
    try:
        yield staged
    finally:
        tables.remove(staged.id)
        if tasks:
            reads.removeTasks(table, staged.id)
        staged.written_by.clearRewrite(table, staged.id)
