"""A manifest's bounds as values that compare with a column's: what Snowflake prunes files by."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

# Floats have NaN, which bounds leave out, and bytes are ordered in more than one way.
_EXACT = (BooleanType, DateType, DecimalType, IntegerType, LongType, StringType, TimestampType, TimestamptzType)


@dataclass(frozen=True)
class Bounds:
    """None where the manifest says nothing. Of a long string they are a prefix, and one that is greater than it."""

    lower: Any = None
    upper: Any = None
    readable: bool = True


def bounds(of: DataFile, schema: Schema) -> Mapping[int, Bounds]:
    """By the column's id, for columns of the table's own top level whose order all writers agree on."""
    found: dict[int, Bounds] = {}
    for field in schema.fields:
        if not isinstance(field.field_type, _EXACT):
            continue
        said = [(side or {}).get(field.field_id) for side in (of.lower_bounds, of.upper_bounds)]
        if all(value is None for value in said):
            continue
        try:
            found[field.field_id] = Bounds(*(_value(field.field_type, value) for value in said))
        except (struct.error, ValueError, OverflowError):
            found[field.field_id] = Bounds(readable=False)
    return found


def _value(kind: PrimitiveType, said: bytes | None) -> Any:
    if said is None:
        return None
    # A file that was written before the column was widened keeps its bounds as they were.
    return from_bytes(IntegerType() if isinstance(kind, LongType) and len(said) == 4 else kind, said)


def beyond(stated: Bounds, column: pa.ChunkedArray) -> bool:
    """Whether a reader that prunes by the bounds would miss a row of `column`."""
    if column.null_count == len(column):
        return False
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    there = pc.min_max(column).as_py()
    low = stated.lower is not None and there["min"] < stated.lower
    return bool(low or (stated.upper is not None and there["max"] > stated.upper))


def comparable(kind: pa.DataType, of: IcebergType) -> bool:
    """Whether a Parquet column is of the table's type, so that its values compare with the bounds."""
    pairs: list[tuple[Any, Callable[[pa.DataType], bool]]] = [
        (BooleanType, pa.types.is_boolean),
        (DateType, pa.types.is_date32),
        (DecimalType, pa.types.is_decimal),
        ((IntegerType, LongType), pa.types.is_integer),
        (StringType, pa.types.is_string),
        ((TimestampType, TimestamptzType), pa.types.is_timestamp),
    ]
    return any(isinstance(of, type_) and check(kind) for type_, check in pairs)
