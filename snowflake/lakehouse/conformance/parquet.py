"""A table's Parquet files: `check_file` reads the footer, and the values too where it is asked to.

The footer says the types, the null counts and the bounds that Snowflake prunes by; only the values say whether these
are true and whether strings are UTF-8. A file never changes, so `snowflake.lakehouse.conformance.run` reads it once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType

from snowflake.lakehouse.conformance.bounds import Bounds, beyond, bounds, comparable
from snowflake.lakehouse.conformance.rules import Finding

_INEXACT = (pa.types.is_floating, pa.types.is_nested, pa.types.is_null)


def check_footer(fs: pafs.FileSystem, path: str, table: str) -> Iterator[Finding]:
    """What breaks a rule in a file that no manifest of Iceberg's describes: an export's, or one of silver as Delta."""
    try:
        with fs.open_input_file(path) as stream, pq.ParquetFile(stream) as file:
            yield from _types(file.schema, table)
    except UnicodeDecodeError:
        yield Finding("utf-8", table, f"a name in {path} is not UTF-8")
    except (OSError, pa.ArrowInvalid) as error:
        yield Finding("paths", table, f"{path} cannot be read: {error}")


def check_file(
    fs: pafs.FileSystem, path: str, of: DataFile, table: str, schema: Schema, *, values: bool
) -> Iterator[Finding]:
    """What breaks a rule in the file at `path` of `fs`, which its manifest describes as `of`."""
    try:
        with fs.open_input_file(path) as stream, pq.ParquetFile(stream) as file:
            yield from _types(file.schema, table)
            yield from _counts(file, of, table)
            if values:
                yield from _values(file, table, bounds(of, schema), schema)
    except UnicodeDecodeError:
        yield Finding("utf-8", table, f"a name in {of.file_path} is not UTF-8")
    except pa.ArrowInvalid as error:
        yield Finding("delete-files", table, f"{of.file_path} is no Parquet file that can be read: {error}")


def _types(schema: Any, table: str) -> Iterator[Finding]:
    for i in range(len(schema)):
        column = schema.column(i)
        logical = json.loads(column.logical_type.to_json())
        if logical.get("Type") == "Int" and not logical.get("isSigned", True):
            yield Finding("parquet-types", table, f"column {column.path!r} is an unsigned integer in Parquet")
        if column.physical_type == "INT96" or logical.get("timeUnit") == "nanoseconds":
            yield Finding("timestamps", table, f"column {column.path!r} holds {column.physical_type} or nanoseconds")
        # A column may be required here: a mart's count is. What Snowflake takes for non-nullable is the table's schema.
        # Each level that repeats is one of a list's or a map's, in the names that the format asks for.
        levels = column.path.count(".list.element") + column.path.count(".key_value.")
        if column.max_repetition_level > levels:
            yield Finding("parquet-types", table, f"the list {column.path!r} is not of three levels with `element`")


def _counts(file: pq.ParquetFile, of: DataFile, table: str) -> Iterator[Finding]:
    if file.metadata.num_rows != of.record_count:
        what = f"{of.file_path} holds {file.metadata.num_rows:,} rows, its manifest says {of.record_count:,}"
        yield Finding("statistics", table, what)
    manifest = of.null_value_counts or {}
    for i in range(file.metadata.num_columns):
        column = file.schema.column(i)
        if column.max_repetition_level:
            continue  # of a list's elements, which manifests and footers count in ways of their own
        groups = [file.metadata.row_group(g).column(i).statistics for g in range(file.metadata.num_row_groups)]
        if not all(s is not None and s.has_null_count for s in groups):
            continue  # a large value drops them; that is harmless where the column is optional
        nulls, field = sum(s.null_count for s in groups), _field_id(file, column.path)
        if field in manifest and manifest[field] != nulls:
            what = f"column {column.path!r} has {nulls:,} nulls by its footer, {manifest[field]:,} by its manifest"
            yield Finding("statistics", table, what)


def _field_id(file: pq.ParquetFile, path: str) -> int | None:
    """Iceberg's id of a column that is in no list."""
    fields: Any = file.schema_arrow
    found: pa.Field | None = None
    for part in path.split("."):
        index = fields.get_field_index(part)
        if index < 0:
            return None
        found = fields.field(index)
        fields = found.type
    said = (found.metadata or {}).get(b"PARQUET:field_id") if found is not None else None
    return int(said) if said is not None else None


def _values(file: pq.ParquetFile, table: str, stated_for: Mapping[int, Bounds], schema: Schema) -> Iterator[Finding]:
    """The values against the footer, and against the bounds that the manifest states for a column's id."""
    for group in range(file.metadata.num_row_groups):
        for place, field in enumerate(file.schema_arrow):
            column = file.read_row_group(group, columns=[field.name], use_threads=False).column(0)
            try:
                column.validate(full=True)
            except pa.ArrowInvalid:
                yield Finding("utf-8", table, f"column {field.name!r} holds text that is not UTF-8")
                continue
            known = int((field.metadata or {}).get(b"PARQUET:field_id", -1))
            if known in stated_for and _misses(stated_for[known], column, schema.find_type(known)):
                yield Finding("statistics", table, f"column {field.name!r} has values beyond its manifest's bounds")
            leaves = [
                c
                for c in range(file.metadata.num_columns)
                if file.schema.column(c).path == field.name and not pa.types.is_nested(field.type)
            ]
            for leaf in leaves:
                stated = file.metadata.row_group(group).column(leaf).statistics
                if stated is not None and _lies(stated, column, field.type):
                    yield Finding("statistics", table, f"column {field.name!r} (number {place}) is not as stated")


def _misses(stated: Bounds, column: pa.ChunkedArray, of: IcebergType) -> bool:
    return not stated.readable or (comparable(column.type, of) and beyond(stated, column))


def _lies(stated: Any, column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether a reader that prunes by the statistics would miss a row."""
    if stated.has_null_count and stated.null_count != column.null_count:
        return True
    if not stated.has_min_max or any(check(kind) for check in _INEXACT) or column.null_count == len(column):
        return False
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return False  # order of bytes is not stated alike by all writers
    found = pc.min_max(column).as_py()
    return bool(found["min"] < stated.min or found["max"] > stated.max)
