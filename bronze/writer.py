"""Writes envelopes into data files of bronze tables, on an executor, in bounded memory.

The files are whole but nobody's until the driver commits them; a task that dies leaves files that no table knows, and
`VACUUM` removes them. Written with Arrow rather than through the JVM because each row would otherwise cross from
Python to the JVM and back into columns: see docs/adr/0002.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bronze.commit import DataFile, Names, rename
from lakeward.lake import Lake, lake_error

BUFFER_BYTES = 96 << 20  # of all tables together, before the largest is written out
GROUP_ROWS = 1 << 17  # of a row group, the least that a task reads of a file
FILE_BYTES = 512 << 20  # of Arrow data, before a file is closed and the next one begun
_BOUNDS = ("epoch", "file", "pos")


@dataclass(frozen=True)
class Target:
    """Where a table's files go. `folder` is relative to the lake's root."""

    folder: str
    names: Names | None = None


@dataclass
class _Open:
    name: str
    stream: Any
    writer: pq.ParquetWriter
    schema: pa.Schema
    rows: int = 0
    arrow_bytes: int = 0
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)


class EnvelopeWriter:
    """Takes record batches of the envelope's schema, a table at a time in any order, and ends in data files.

    Entered, it is abandoned when an error leaves the block.
    """

    def __init__(self, lake: Lake, targets: Mapping[str, Target], *, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._filesystem, self._base = lake.filesystem()
        self._targets = targets
        self._limit = buffer_bytes
        self._pending: dict[str, list[pa.RecordBatch]] = {}
        self._sizes: dict[str, int] = {}
        self._open: dict[str, _Open] = {}
        self._done: dict[str, list[DataFile]] = {}

    def __enter__(self) -> EnvelopeWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            self.abandon()

    def write(self, table: str, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        self._pending.setdefault(table, []).append(batch)
        self._sizes[table] = self._sizes.get(table, 0) + batch.get_total_buffer_size()
        while sum(self._sizes.values()) > self._limit:
            self._flush(max(self._sizes, key=lambda t: self._sizes[t]))

    def close(self) -> dict[str, list[DataFile]]:
        """Write what is left. The files of each table, in the order of their first rows."""
        for table in list(self._pending):
            self._flush(table)
        for table in list(self._open):
            self._finish(table)
        return self._done

    def abandon(self) -> None:
        """Close what is open and remove every file written, as far as that goes: the task has failed."""
        for table, opened in self._open.items():
            with contextlib.suppress(OSError):  # the disk that failed may fail again
                opened.writer.close()
                opened.stream.close()
            self._remove(table, opened.name)
        for table, files in self._done.items():
            for f in files:
                self._remove(table, f.path)

    def _remove(self, table: str, name: str) -> None:
        try:
            self._filesystem.delete_file(f"{self._base}/{self._targets[table].folder}/{name}")
        except OSError:
            return  # VACUUM removes what is left behind

    def _flush(self, table: str) -> None:
        batches = self._pending.pop(table)
        size = self._sizes.pop(table)
        start = 0
        for i in range(1, len(batches) + 1):  # a widened schema in mid-task needs a file of its own
            if i == len(batches) or batches[i].schema != batches[start].schema:
                self._append(table, pa.Table.from_batches(batches[start:i]))
                start = i
        if table in self._open:
            self._open[table].arrow_bytes += size
            if self._open[table].arrow_bytes > FILE_BYTES:
                self._finish(table)

    def _append(self, table: str, rows: pa.Table) -> None:
        opened = self._open.get(table)
        if opened is not None and opened.schema != rows.schema:
            self._finish(table)
            opened = None
        try:
            if opened is None:
                opened = self._open[table] = self._begin(table, rows.schema)
            names = self._targets[table].names
            physical = rows if names is None else _renamed(rows, names)
            opened.writer.write_table(physical, row_group_size=GROUP_ROWS)
        except OSError as error:
            raise lake_error(error, f"{self._base}/{self._targets[table].folder}") from error
        opened.rows += rows.num_rows
        source = rows["source"].combine_chunks()
        source = source.chunk(0) if isinstance(source, pa.ChunkedArray) else source
        for name in _BOUNDS:
            found = pc.min_max(source.field(name))
            low, high = found["min"].as_py(), found["max"].as_py()
            before = opened.bounds.get(name, (low, high))
            opened.bounds[name] = (min(before[0], low), max(before[1], high))

    def _begin(self, table: str, schema: pa.Schema) -> _Open:
        folder = f"{self._base}/{self._targets[table].folder}"
        name = f"part-{uuid.uuid4()}.parquet"
        if self._filesystem.type_name == "local":  # an object store has no folders
            self._filesystem.create_dir(folder, recursive=True)
        stream = self._filesystem.open_output_stream(f"{folder}/{name}")
        names = self._targets[table].names
        physical = schema if names is None else pa.schema(rename(pa.struct(list(schema)), names))
        writer = pq.ParquetWriter(
            stream, physical, compression="zstd", compression_level=1, version="2.6", write_statistics=["op", "ts_ms"]
        )
        return _Open(name, stream, writer, schema)

    def _finish(self, table: str) -> None:
        opened = self._open.pop(table)
        target = self._targets[table]
        path = f"{self._base}/{target.folder}/{opened.name}"
        try:
            opened.writer.close()
            opened.stream.close()
            self._sync(path)
            size = self._filesystem.get_file_info(path).size
        except OSError as error:
            raise lake_error(error, path) from error
        physical = target.names or {}
        outer, inner = physical.get("source", ("source", {}))
        kinds = {"epoch": "int", "file": "long", "pos": "long"}
        low, high = ({outer: {inner.get(n, (n,))[0]: [kinds[n], opened.bounds[n][i]] for n in _BOUNDS}} for i in (0, 1))
        stats = {"rows": opened.rows, "min": low, "max": high}
        done = DataFile(opened.name, size, opened.rows, int(time.time() * 1000), stats)
        self._done.setdefault(table, []).append(done)

    def _sync(self, path: str) -> None:
        # The checkpoint moves only after the data is durable: a local file is not before its fsync.
        if "://" in self._base or self._filesystem.type_name != "local":
            return
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _renamed(rows: pa.Table, names: Names) -> pa.Table:
    """The same buffers under the fields' physical names."""
    physical = rename(pa.struct(list(rows.schema)), names)
    columns = []
    for chunked, logical in zip(rows.columns, physical, strict=True):
        columns.append(pa.chunked_array([_relabel(c, logical.type) for c in chunked.chunks], type=logical.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(physical))


def _relabel(array: pa.Array, to: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(to) or array.type == to:
        return array
    children = [_relabel(array.field(i), to[i].type) for i in range(to.num_fields)]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(to), mask=mask)
