"""An Iceberg table by its own metadata: `check_table(lake, table)` reads what Snowflake will read, through PyIceberg.

Files are read through the lake's own file system, so what is checked is what lies there, under the name it has there.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pafs
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampNanoType,
    TimestamptzNanoType,
)

from lakeward.errors import TerminalError
from lakeward.lake import Lake
from snowflake.lakehouse.conformance.rules import RESERVED, Finding
from snowflake.lakehouse.storage import relative

SUB_COLUMNS_MAX = 1000
DIGITS_MAX = 38
_DECIMAL = re.compile(r'"decimal\((\d+),')


@dataclass(frozen=True)
class LiveTable:
    """A table's metadata and the data files of its current snapshot."""

    name: str
    metadata: TableMetadata
    files: list[DataFile]


class LakeFiles(FileIO):
    """PyIceberg's way to the lake's files. Raises TerminalError for a file that is not in the lake."""

    def __init__(self, lake: Lake) -> None:
        super().__init__()
        self._lake = lake
        self._fs, self._base = lake.filesystem()

    def at(self, location: str) -> tuple[pafs.FileSystem, str]:
        return self._fs, f"{self._base}/{relative(self._lake, location)}"

    def new_input(self, location: str) -> InputFile:
        fs, path = self.at(location)
        return PyArrowFile(location=location, path=path, fs=fs)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError("a check writes nothing")

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError("a check deletes nothing")


def read_table(files: LakeFiles, name: str, metadata_file: str) -> tuple[LiveTable | None, list[Finding]]:
    """The table, and what already reading it says. None where it cannot be read at all."""
    try:
        with files.new_input(metadata_file).open() as stream:
            raw = stream.read()
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None, [Finding("utf-8", name, "the metadata file is not UTF-8")]
    except (OSError, TerminalError) as error:
        return None, [Finding("paths", name, f"the metadata file cannot be read: {error}")]
    version = json.loads(text).get("format-version")
    if version != 2:
        return None, [Finding("format-version", name, f"it has format version {version}")]
    digits = max((int(n) for n in _DECIMAL.findall(text)), default=0)
    if digits > DIGITS_MAX:  # PyIceberg would not read it either
        return None, [Finding("width", name, f"a column has {digits} digits")]
    try:
        metadata = TableMetadataUtil.parse_raw(text)
    except (ValueError, ValidationError) as error:
        return None, [Finding("format-version", name, f"its metadata is not that of a table: {error}")]
    snapshot = metadata.current_snapshot()
    live: list[DataFile] = []
    try:
        for manifest in snapshot.manifests(files) if snapshot else []:
            live += [entry.data_file for entry in manifest.fetch_manifest_entry(files, discard_deleted=True)]
    except (OSError, TerminalError) as error:
        return None, [Finding("paths", name, f"a manifest cannot be read: {error}")]
    return LiveTable(name, metadata, live), []


def check_table(files: LakeFiles, table: LiveTable) -> Iterator[Finding]:
    """The rules that metadata alone decides."""
    yield from _delete_files(table)
    yield from _columns(table)
    yield from _paths(files, table)


def _delete_files(table: LiveTable) -> Iterator[Finding]:
    kinds = collections.Counter(
        "no Parquet" if file.content == DataFileContent.DATA else file.content.name.lower().replace("_", " ")
        for file in table.files
        if file.content != DataFileContent.DATA or file.file_format.value.upper() != "PARQUET"
    )
    for kind, count in kinds.items():
        yield Finding("delete-files", table.name, f"{count} of its files: {kind}")


def _columns(table: LiveTable) -> Iterator[Finding]:
    fields = table.metadata.schema().fields
    yield from _names(table, "", fields)
    for field in fields:
        name = field.name
        if name.lower() in RESERVED:
            yield Finding("names", table.name, f"column {name!r} bears a name that Snowflake reserves")
        below = list(_types(field.field_type))
        if len(below) - 1 > SUB_COLUMNS_MAX:
            yield Finding("width", table.name, f"column {name!r} has {len(below) - 1:,} sub-columns")
        for kind in below:
            if isinstance(kind, (TimestampNanoType, TimestamptzNanoType)):
                yield Finding("timestamps", table.name, f"column {name!r} holds nanoseconds")


def _names(table: LiveTable, above: str, fields: Iterable[NestedField]) -> Iterator[Finding]:
    """Fields of one level, and of those below: a struct's fields are columns of their own to Snowflake."""
    spelled: dict[str, str] = {}
    for field in fields:
        name = f"{above}{field.name}"
        if field.name != field.name.lower():
            yield Finding("names", table.name, f"column {name!r} is not in lower case")
        other = spelled.setdefault(field.name.lower(), field.name)
        if other != field.name:
            yield Finding("names", table.name, f"columns {above + other!r} and {name!r} differ in case alone")
        if field.required:
            yield Finding("statistics", table.name, f"column {name!r} is required, not optional")
        yield from _names(table, f"{name}.", _within(field.field_type))


def _within(kind: IcebergType) -> list[NestedField]:
    if isinstance(kind, StructType):
        return list(kind.fields)
    if isinstance(kind, ListType):
        return [kind.element_field]
    return [kind.value_field] if isinstance(kind, MapType) else []  # a map's keys are never NULL


def _types(kind: IcebergType) -> Iterator[IcebergType]:
    yield kind
    inner: list[Any] = []
    if isinstance(kind, StructType):
        inner = [f.field_type for f in kind.fields if isinstance(f, NestedField)]
    elif isinstance(kind, ListType):
        inner = [kind.element_type]
    elif isinstance(kind, MapType):
        inner = [kind.key_type, kind.value_type]
    for one in inner:
        yield from _types(one)


def _paths(files: LakeFiles, table: LiveTable) -> Iterator[Finding]:
    seen = collections.Counter(file.file_path for file in table.files)
    for path, count in seen.items():
        if count > 1:
            yield Finding("paths", table.name, f"{path} is {count} times in the snapshot")
    sizes = {file.file_path: file.file_size_in_bytes for file in table.files}
    places: dict[str, str] = {}
    for path in seen:
        try:
            fs, places[path] = files.at(path)
        except TerminalError:
            yield Finding("paths", table.name, f"{path} is not in the lake")
    if places:
        infos = fs.get_file_info(list(places.values()))
        for path, info in zip(places, infos, strict=True):
            if info.type != pafs.FileType.File:
                yield Finding("paths", table.name, f"{path} is not there")
            elif info.size != sizes[path]:
                yield Finding("paths", table.name, f"{path} has {info.size:,} bytes, its manifest says {sizes[path]:,}")
