"""Puts rows in the place of those with the same keys: copy-on-write by the files that hold them, in one snapshot.

Iceberg's own MERGE joins every row of a file that it touches with the batch as the outer side, which Spark can only do
by shuffling and sorting them all. Here the batch is broadcast: once over the key columns, to find the files; once over
those files' rows, of which the keys that are not in the batch are written again. A batch of keys that the table does
not hold rewrites nothing. The files are staged and fetched as Iceberg's own `rewrite_data_files` does it, and
committed through its API, which refuses when another program has committed meanwhile. What was written is counted
before that: readers of a file skip what they take for unwanted, and a row that is not read is a row that is lost.
Where columns are altered, that is part of the same Iceberg transaction, so that no reader sees the columns of one cut
and the rows of another.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gold import columns, iceberg
from lakeward.errors import TerminalError
from lakeward.jvm import java_class
from lakeward.names import spark_identifier
from silver.prune import ranges

BROADCAST_ROWS_MAX = 100_000
BROADCAST_BYTES_MAX = 64 << 20  # of text and binary values: the key of a table without one is the whole row
_STAGED = "gold_staged"  # a catalog whose tables are the sets of files that are staged
_KEY = "__lakeward_key"
FILE = "_file"  # the column that Iceberg tells a row's data file in
Same = Callable[[DataFrame, Sequence[str]], list[Column]]
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


def _quoted(column: str) -> Column:
    return F.col(spark_identifier(column))


class Overwrite:
    """One commit that puts rows in the place of those of a table whose columns equal a row of `keys`.

    `keys` has some of the columns of the table `name`, no row twice, and is read several times, so it is held
    (`localCheckpoint`). Rows are equal where the expressions `same` of their columns are, NULL like NULL. With
    `change` the same commit alters the table's columns; keys and rows have those that it makes.
    """

    def __init__(
        self,
        keys: DataFrame,
        name: str,
        same: Same = lambda _, columns: [*map(_quoted, columns)],
        change: columns.Change | None = None,
    ) -> None:
        self._session, self._change = keys.sparkSession, change
        self._table = iceberg.load(self._session, name)
        self._altered, self._transaction = self._table, None
        if change:
            self._transaction = altering(self._session, self._table, change)
            self._altered = self._transaction.table()
        self._name, self._same, self._columns = name, same, keys.columns
        self._kinds = {field.name: field.dataType for field in keys.schema.fields}
        own = self.keyed(keys).select(*self.key)
        self._count, size = _measured(own)
        self._few = self._count <= BROADCAST_ROWS_MAX and size <= BROADCAST_BYTES_MAX
        self._spans = _spans(own, keys) if self._few else {}
        self._keys = F.broadcast(own) if self._few else own
        pairs = zip(same(keys, keys.columns), self.key, strict=True)
        self._on = reduce(lambda a, b: a & b, (e.eqNullSafe(F.col(k)) for e, k in pairs))

    @property
    def key(self) -> list[str]:
        """The names of the columns that `keyed` adds."""
        return [f"{_KEY}{i}" for i in range(len(self._columns))]

    def keyed(self, frame: DataFrame) -> DataFrame:
        """`frame` with one more column for each of `keys`, by which equal rows are found."""
        expressions = self._same(frame, self._columns)
        return frame.select("*", *[e.alias(k) for e, k in zip(expressions, self.key, strict=True)])

    def found(self) -> DataFrame:
        """The table's rows with these keys: the columns `key`, and the file that the row is in."""
        current = self._table.currentSnapshot()
        if current is None or self._count == 0:
            return self._keys.withColumn(FILE, F.lit("")).limit(0)
        held = self._session.read.option("versionAsOf", str(current.snapshotId())).table(self._name)
        if self._change:
            held = self._change.rows(held, FILE)
        # A snapshot has the columns of its own time: in one that was added since, each of its rows reads NULL.
        there = [_quoted(c) if c in held.columns else F.lit(None).cast(k).alias(c) for c, k in self._kinds.items()]
        held = held.select(*there, FILE).where(_within(self._spans))
        return held.join(self._keys, on=self._on).select(*self.key, FILE)

    def commit(self, rows: DataFrame, found: Mapping[str, int]) -> None:
        """Write the files anew in which `found` has rows, so many in each, with `rows` in the place of those.

        `rows` has the table's columns, and is held, too. Raises TerminalError, and commits nothing, where what was
        written is not what it has to be, by its number of rows.
        """
        former = self._change.former if self._change else {c: c for c in self._spans}
        spans = {former[c]: span for c, span in self._spans.items() if c in former}
        tasks = [t for t in _tasks(self._session, self._table, spans) if t.file().location() in found]
        assert len(tasks) == len(found), "a data file that was read is not in the table"
        size = sum(task.length() for task in tasks)
        with _staged(self._session, self._altered, tasks) as staged:
            frame = rows.coalesce(1) if self._few else rows
            if tasks:
                read = self._session.read.option("split-size", iceberg.FILE_BYTES).table(staged.name)
                frame = read.join(self._keys, on=self._on, how="left_anti").unionByName(frame)
                if self._few:
                    frame = frame.coalesce(max(1, -(-size // iceberg.FILE_BYTES)))
            writer = frame.writeTo(staged.name).option("distribution-mode", "none")
            # A file that grows by the batch is not to be cut into itself and a crumb.
            writer.option("target-file-size-bytes", str(2 * iceberg.FILE_BYTES)).append()
            gone, new = [task.file() for task in tasks], staged.written()
            self._count_written(gone, new, rows.count() - sum(found.values()))
            iceberg.commit_files(self._session, self._table, gone, new, self._transaction)

    def _count_written(self, gone: Sequence[Any], new: Sequence[Any], more: int) -> None:
        wanted, written = (sum(file.recordCount() for file in files) for files in (gone, new))
        if written != wanted + more:
            raise TerminalError(
                f"gold wrote {written:,} rows of {self._name} anew where {wanted + more:,} are due; none is published",
                hint="`lakeward gold --rebuild TABLE` makes it anew from silver; please report this",
            )


def altering(session: SparkSession, table: Any, change: columns.Change) -> Any:
    """A transaction of the Iceberg table (both of the JVM) that has altered its columns, and is to be committed."""
    transaction = table.newTransaction()
    columns.alter(session, transaction, change)
    return transaction


def alter(session: SparkSession, name: str, change: columns.Change) -> None:
    """Alter the columns of the table in one snapshot that has the same files, with `iceberg.summary`'s properties."""
    table = iceberg.load(session, name)
    iceberg.commit_files(session, table, (), (), altering(session, table, change))


def _measured(own: DataFrame) -> tuple[int, int]:
    """The number of rows, and the bytes of their text and binary values."""
    sized = [F.coalesce(F.octet_length(c), F.lit(0)) for c, kind in own.dtypes if kind in ("string", "binary")]
    found = own.agg(F.count("*"), F.coalesce(F.sum(reduce(lambda a, b: a + b, sized, F.lit(0))), F.lit(0))).first()
    assert found is not None
    return int(found[0]), int(found[1])


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
    # What is written anew is the whole file: a reader that has the ranges leaves out row groups that lie beyond them.
    scan = table.newScan().ignoreResiduals()
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
