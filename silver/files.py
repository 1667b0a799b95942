"""Delta tables whose files Arrow reads and writes, and Delta's own transaction commits.

What a MERGE of Delta costs is not its commit but the queries before it. Where the driver knows a table's rows, their
new files and their change feed are written here, and go into the log in one commit with the run's number.
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from bronze.writer import GROUP_ROWS
from lakeward import crash
from lakeward.delta import log_of
from lakeward.jvm import java_class
from lakeward.kernel import Listing, listing
from lakeward.lake import Lake, lake_error
from silver.delta import APP_ID
from silver.local import FILES_MAX

# What a writer has to know of a table that is written here: of these, all. What a user adds is left to Delta.
FEATURES: Final = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "invariants", "timestampNtz"})
BOUNDED_MAX = 32  # columns whose bounds the log has, as Delta does it
_ROWS, _FEED = "part", "_change_data/cdc"  # how the names of the files begin
_CHANGE = "_change_type"


@dataclass(frozen=True)
class Files:
    """A table's files at the version that `transaction` has read."""

    session: SparkSession
    lake: Lake
    location: str
    listing: Listing
    transaction: Any

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return to_arrow_schema(self.listing.columns)

    def writer(self) -> Writer:
        return Writer(self)

    def commit(self, removed: Iterable[str], written: Sequence[Writer], *, run: int) -> None:
        """Have what was written in the place of the files `removed`, once for `run`."""
        now = time.time_ns() // 1_000_000
        shared: dict[str, Any] = {"partitionValues": {}, "dataChange": True}
        actions: list[dict[str, Any]] = [{"txn": {"appId": APP_ID, "version": run, "lastUpdated": now}}]
        for name in removed:
            about: dict[str, Any] = {"path": name, "size": self.listing.files[name], **shared}
            if name in self.listing.vectors:
                about["deletionVector"] = self.listing.vectors[name].to_json()
            actions.append({"remove": about | {"deletionTimestamp": now, "extendedFileMetadata": True}})
        for file in (f for writer in written for f in writer.files):
            about = {"path": file.name, "size": file.size, **shared}
            if file.kind == _ROWS:
                actions.append({"add": about | {"modificationTime": now, "stats": json.dumps(file.statistics())}})
            else:
                actions.append({"cdc": about | {"dataChange": False}})
        crash.point("silver.before_commit")
        parse = getattr(java_class(self.session, "org.apache.spark.sql.delta.actions.Action$"), "MODULE$").fromJson
        none = java_class(self.session, "scala.Option").empty()
        mode = java_class(self.session, "org.apache.spark.sql.SaveMode").Overwrite
        write = java_class(self.session, "org.apache.spark.sql.delta.DeltaOperations$Write")
        operation = write(mode, *(none for _ in range(8)))
        self.transaction.commit(_scala(self.session, (parse(json.dumps(action)) for action in actions)), operation)


def take(session: SparkSession, lake: Lake, location: str, *, bytes_max: int) -> Files | None:
    """The table that is there, where it has no more than `bytes_max` of files and all is known that a writer has to
    know of it. Its files may have deletion vectors."""
    transaction = log_of(session, location).startTransaction()
    found = listing(session, location, int(transaction.readVersion()), None, most=FILES_MAX)
    if found is None or found.size > bytes_max or not found.plain:
        return None
    if not found.features or not found.features <= FEATURES:  # a protocol without them says nothing of constraints
        return None
    if any(field.metadata or not field.nullable for field in found.columns.fields):  # such as a constraint
        return None
    transaction.readWholeTable()  # so that Delta refuses the commit where another program's came before it
    return Files(session, lake, location, found, transaction)


class Writer:
    """Writes rows of a table into one data file, and their changes into one file of its change feed.

    Entered, it has `files` when the block is left; left with an error, or abandoned, it leaves nothing. A run that is
    killed leaves files behind that no table knows, and VACUUM finds them.
    """

    def __init__(self, table: Files) -> None:
        self._table = table
        self._open: dict[str, _File] = {}
        self.files: list[_File] = []

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.abandon()
        try:
            for file in self._open.values():
                file.close()
        except BaseException:
            self.abandon()
            raise
        self.files = list(self._open.values())

    def write(self, rows: pa.Table, feed: pa.Table) -> None:
        """`feed` as `told` gives it. Raises as `lake_error` says."""
        for kind, each in ((_ROWS, rows), (_FEED, feed)):
            if each.num_rows:
                if kind not in self._open:
                    self._open[kind] = _File(self._table, kind, each.schema)
                self._open[kind].write(each)

    def abandon(self) -> None:
        """Remove what was written, as far as that goes."""
        for file in self._open.values():
            file.remove()
        self._open = {}


class _File:
    def __init__(self, table: Files, kind: str, schema: pa.Schema) -> None:
        self.kind, self.size, self._rows = kind, 0, 0
        self.name = f"{kind}-00000-{uuid.uuid4()}-c000.snappy.parquet"
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}
        self._nulls: dict[str, int] = {}
        self._filesystem, root = table.lake.filesystem()
        self._path = f"{root}{table.location.removeprefix(table.lake.root)}/{self.name}"
        try:
            if table.lake.local:
                self._filesystem.create_dir(self._path.rpartition("/")[0])
            self._stream = self._filesystem.open_output_stream(self._path)
            self._writer = pq.ParquetWriter(self._stream, schema, version="2.6")
        except OSError as error:
            raise lake_error(error, self._path) from error

    def write(self, rows: pa.Table) -> None:
        try:
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        except OSError as error:
            raise lake_error(error, self._path) from error
        self._rows += rows.num_rows
        for field in list(rows.schema)[:BOUNDED_MAX] if self.kind == _ROWS else ():
            whole = pa.types.is_integer(field.type) or (pa.types.is_decimal(field.type) and field.type.scale == 0)
            if whole or pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
                self._widen(field.name, rows[field.name])

    def close(self) -> None:
        try:
            self._writer.close()
            self.size = int(self._stream.tell())
            self._stream.close()
        except OSError as error:
            raise lake_error(error, self._path) from error

    def remove(self) -> None:
        for each in (self._writer.close, self._stream.close):
            with contextlib.suppress(OSError):  # the disk that failed may fail again
                each()
        with contextlib.suppress(OSError):
            self._filesystem.delete_file(self._path)

    def statistics(self) -> dict[str, Any]:
        """Of the form of the Delta protocol's Per-file Statistics: bounds of whole numbers, dates and times, by which
        files are skipped."""
        low = {name: _stated(value) for name, value in self._low.items()}
        high = {name: _stated(value, up=True) for name, value in self._high.items()}
        bounds = {"minValues": low, "maxValues": high, "nullCount": self._nulls}
        return {"numRecords": self._rows, **bounds, "tightBounds": True}

    def _widen(self, name: str, values: pa.ChunkedArray) -> None:
        self._nulls[name] = self._nulls.get(name, 0) + values.null_count
        found = pc.min_max(values)
        if found["min"].is_valid:
            low, high = found["min"].as_py(), found["max"].as_py()
            self._low[name] = min(self._low.get(name, low), low)
            self._high[name] = max(self._high.get(name, high), high)


def _stated(value: Any, *, up: bool = False) -> int | str:
    """A bound as a log has it. A time has whole milliseconds there."""
    if isinstance(value, datetime):
        if up and value.microsecond % 1000:
            with contextlib.suppress(OverflowError):  # readers of the log allow for a millisecond of their own
                value += timedelta(milliseconds=1)
        return f"{value.replace(tzinfo=None).isoformat(timespec='milliseconds')}{'Z' if value.tzinfo else ''}"
    return str(value) if isinstance(value, date) else int(value)


def told(
    schema: pa.Schema,
    *,
    inserted: pa.Table | None = None,
    before: pa.Table | None = None,
    after: pa.Table | None = None,
    deleted: pa.Table | None = None,
) -> pa.Table:
    """The change feed of rows that were inserted, updated (`before`, `after`) and deleted."""
    kinds = {"insert": inserted, "update_preimage": before, "update_postimage": after, "delete": deleted}
    parts = [schema.empty_table().append_column(_CHANGE, pa.array([], pa.string()))]
    for kind, rows in kinds.items():
        if rows is not None:
            parts.append(rows.append_column(_CHANGE, pa.repeat(pa.scalar(kind, pa.string()), rows.num_rows)))
    return pa.concat_tables(parts)


def _scala(session: SparkSession, each: Iterable[Any]) -> Any:
    listed = java_class(session, "java.util.ArrayList")()
    for one in each:
        listed.add(one)
    return java_class(session, "scala.jdk.javaapi.CollectionConverters").asScala(listed).toSeq()
