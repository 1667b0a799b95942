"""A landed file: an event a line, closed at bounds that fall alike on every attempt, and never other bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, DecimalType, FloatType, StructType

from lakeward import crash
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName, encode_path, spark_identifier, sql_literal

LINE_BYTES_MAX = 16 << 20  # that Snowflake takes as one VARIANT
_POSITION = "format_string('%010d:%012d:%020d:%010d', source.epoch, source.file, source.pos, source.row)"
# Microseconds, which the default pattern cuts off, NULLs, which it leaves out, and UTC whatever the session's zone.
_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}


@dataclass
class Group:
    """Commits of one bronze table that are landed together, and the files written so far."""

    table: TableName
    tag: str  # hex digits of the table's own: another one that is made in its folder counts its commits from 0, too
    first: int
    last: int
    rows_max: int
    bytes_max: int
    files: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)

    def place(self, prefix: str, number: int | None = None) -> str:
        """The path of a file of events or, without a number, of a manifest; below the lake's root, with no suffix."""
        name = f"{self.tag}-{self.first:012d}-{self.last:012d}" + (f"-{number:06d}" if number is not None else "")
        return f"{prefix}/{partition(self.table)}/{name}"


def partition(table: TableName) -> str:
    """`TableName=shop.order-20-items`: each part as in the lake's paths, so the dot between them is the only one."""
    return f"TableName={encode_path(table.schema)}.{encode_path(table.table)}"


def lines(frame: DataFrame, table: TableName) -> Iterator[tuple[str, str]]:
    """(position, JSON) of each event, in an order that is the same whenever it is asked for."""
    options = ", ".join(f"{sql_literal(k)}, {sql_literal(v)}" for k, v in _OPTIONS.items())
    before, after = (_image(frame, image) for image in ("before", "after"))
    event = (
        f"to_json(named_struct('table', {sql_literal(str(table))}, 'position', {_POSITION}, 'op', op, 'ts_ms', ts_ms,"
        f" 'source', source, 'transaction', transaction, 'before', {before}, 'after', {after}), map({options}))"
    )
    made = frame.selectExpr(f"{_POSITION} AS position", f"{event} AS event").orderBy("position", "event")
    for row in made.toLocalIterator():
        yield row["position"], row["event"]


def _image(frame: DataFrame, image: str) -> str:
    """An image with each of its values as JSON can hold it unaltered."""
    kind = frame.schema[image].dataType
    assert isinstance(kind, StructType)
    values = [f"{sql_literal(f.name)}, {_exact(f'{image}.{spark_identifier(f.name)}', f.dataType)}" for f in kind]
    return f"IF({image} IS NULL, NULL, named_struct({', '.join(values)}))"


def _exact(value: str, kind: DataType) -> str:
    """A decimal as text with all its digits: as a number, small ones would have an exponent, and whoever reads that,
    Snowflake too, makes a double of it. A float as the double of the same value, not as the shortest text for it."""
    if isinstance(kind, DecimalType):  # unlike a CAST, which writes exponents or not by the session's setting
        return f"format_number({value}, {sql_literal('0.' + '0' * kind.scale if kind.scale else '0')})"
    if isinstance(kind, FloatType):
        return f"CAST({value} AS DOUBLE)"
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, FloatType):
        return f"CAST({value} AS ARRAY<DOUBLE>)"
    return value


def write(lake: Lake, prefix: str, group: Group, events: Iterable[tuple[str, str]]) -> None:
    """Write the files of a group and note them in it. Raises TerminalError where other events are under its names."""
    part, errors = _Part(), _Part()
    for position, event in events:
        data = event.encode()
        if len(data) > LINE_BYTES_MAX:
            said = {"table": str(group.table), "position": position, "bytes": len(data)}
            said["reason"] = f"larger than the {LINE_BYTES_MAX:,} bytes of a VARIANT"
            errors.add(position, json.dumps(said, ensure_ascii=False).encode())
            continue
        if part.rows and (part.rows >= group.rows_max or part.bytes + len(data) > group.bytes_max):
            group.files.append(part.close(lake, group.place(prefix, len(group.files))))
            part = _Part()
        part.add(position, data)
    if part.rows:
        group.files.append(part.close(lake, group.place(prefix, len(group.files))))
    if errors.rows:
        group.errors.append(errors.close(lake, group.place(f"{prefix}-errors", 0)))


class _Part:
    """A file in the making; held compressed."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        self._first = self._last = ""
        self._data = io.BytesIO()
        # No name and no time in it: the same events are the same bytes.
        self._gzip = gzip.GzipFile(filename="", fileobj=self._data, mode="wb", compresslevel=6, mtime=0)

    def add(self, position: str, line: bytes) -> None:
        self._gzip.write(line + b"\n")
        self.rows, self.bytes = self.rows + 1, self.bytes + len(line) + 1
        self._first, self._last = self._first or position, position

    def close(self, lake: Lake, place: str) -> dict[str, Any]:
        """Write it whole, where it is not there yet; what the manifest says of it."""
        self._gzip.close()
        place, data = f"{place}.json.gz", self._data.getvalue()
        there = _read(lake, place)
        if there is None or (len(there) < len(data) and data.startswith(there)):  # a store may keep a torn write
            lake.replace(place, data)
        elif there != data:
            _require_same(lake.path(place), there, data)
            data = there  # another zlib made it
        crash.point("landing.after_file")
        return {
            "path": place,
            "rows": self.rows,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "first": self._first,
            "last": self._last,
        }


def _read(lake: Lake, place: str) -> bytes | None:
    fs, base = lake.filesystem()
    path = f"{base}/{place}"
    if fs.get_file_info(path).type == pafs.FileType.NotFound:
        return None
    with fs.open_input_stream(path, compression=None) as stream:
        return bytes(stream.read())


def _require_same(path: str, there: bytes, data: bytes) -> None:
    try:
        if gzip.decompress(there) == gzip.decompress(data):
            return
    except (EOFError, OSError):
        pass
    raise TerminalError(
        f"{path} is there with other events, and a pipe may have read it; nothing was written over it",
        hint="remove it if nobody has read it; else choose another [landing] prefix",
    )
