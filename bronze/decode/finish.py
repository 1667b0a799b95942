"""What each column's slots mean: from numbers and offsets to the column's Arrow array, one function a type.

`cell` says how a column is walked; `finish` turns what the walk found into the type that `Column.arrow` promises.
Where a column is registered wider than it is on the wire, it is converted when that is exact, and refused when not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bronze.binlog.columns import WireColumn
from bronze.decode import decimals, geometry, network, temporal
from bronze.decode.arrays import Bytes, Int64s, binary, boolean, fixed, gather, unsigned64
from bronze.decode.charsets import text
from bronze.decode.json_kernel import json_texts
from bronze.decode.walk import BIG_ENDIAN, FIXED, SIGNED, UNSIGNED, VARIABLE, Cell
from lakeward.errors import FailClosedError
from lakeward.schema import BYTES

_INTEGERS = {1: 1, 2: 2, 9: 3, 3: 4, 8: 8}  # type code to bytes
_FLOAT, _DOUBLE, _YEAR, _BIT, _ENUM, _SET = 4, 5, 13, 16, 247, 248
_DATE, _NEWDATE, _TIMESTAMP, _TIME, _DATETIME = 10, 14, 7, 11, 12
_TIMESTAMP2, _DATETIME2, _TIME2, _NEWDECIMAL = 17, 18, 19, 246
_VARCHAR, _VAR_STRING, _STRING, _VECTOR, _JSON, _GEOMETRY = 15, 253, 254, 242, 245, 255
_BLOBS = (249, 250, 251, 252, _VECTOR, _JSON, _GEOMETRY)
_LITTLE = {_FLOAT: 4, _DOUBLE: 8, _YEAR: 1, _DATE: 3, _NEWDATE: 3, _TIMESTAMP: 4, _DATETIME: 8}


class Finished(NamedTuple):
    """A column's values; how many became NULL for want of a real date; how many held unreadable bytes."""

    array: pa.Array
    zero_dates: int = 0
    replaced: int = 0


@dataclass(frozen=True)
class Found:
    """One column of one side, as the walk left it."""

    wire: WireColumn
    data: Bytes
    value: Int64s
    length: Int64s
    absent: Bytes


def cell(wire: WireColumn) -> Cell:
    """How the column is walked. Raises FailClosedError for a type code that is not known, or of a size it has not."""
    code, meta = wire.type_code, wire.meta
    found = None
    if code in _INTEGERS:
        found = Cell(UNSIGNED if wire.column.unsigned else SIGNED, _INTEGERS[code])
    elif code == _TIME:
        found = Cell(SIGNED, 3)
    elif code in _LITTLE:
        found = Cell(UNSIGNED, _LITTLE[code])
    elif code in (_ENUM, _SET) and 1 <= meta <= (2 if code == _ENUM else 8):
        found = Cell(UNSIGNED, meta)
    elif code == _BIT and 1 <= meta <= 64:
        found = Cell(BIG_ENDIAN, (meta + 7) // 8)
    elif code in (_TIMESTAMP2, _DATETIME2, _TIME2) and meta <= 6:
        found = Cell(BIG_ENDIAN, {_TIMESTAMP2: 4, _DATETIME2: 5, _TIME2: 3}[code] + (meta + 1) // 2)
    elif code == _NEWDECIMAL and 1 <= meta >> 8 <= 65 and meta & 0xFF <= min(meta >> 8, 38):
        found = Cell(FIXED, decimals.size(meta >> 8, meta & 0xFF))
    elif code in (_VARCHAR, _VAR_STRING, _STRING):
        found = Cell(VARIABLE, 2 if meta > 255 else 1)
    elif code in _BLOBS and 1 <= meta <= 4:
        found = Cell(VARIABLE, meta)
    if found is None:
        raise FailClosedError(
            f"column {wire.column.name!r} is of MySQL's type {code} (size {meta}), which Lakeward does not know",
            hint="name it in exclude_columns of its table",
            column=wire.column.name,
        )
    return found


def finish(found: Found) -> Finished:
    """The column's array, of the type `found.wire.column.arrow`. Raises FailClosedError with the column's name."""
    column = found.wire.column
    try:
        done = _FINISHERS[meaning(found.wire)](found)
        if done.array.type != column.arrow:
            done = done._replace(array=done.array.cast(column.arrow, safe=True))
    except (ValueError, IndexError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        why = "" if isinstance(error, pa.ArrowException) else f": {error}"  # Arrow quotes the value; it may be masked
        raise FailClosedError(
            f"column {column.name!r} holds a value that is not a {column.kind}{why}",
            hint="if the source has other values there, `lakeward resnapshot` the table",
            column=column.name,
        ) from error
    return done


def meaning(wire: WireColumn) -> str:
    """The finisher's name: the type on the wire, and the column's kind where bytes may mean several things."""
    code, kind = wire.type_code, wire.column.kind
    if code in _INTEGERS:
        return "integer"
    if code in _NAMES:
        return _NAMES[code]
    if kind in network.WIDTHS or kind == "vector":
        return kind
    if kind in BYTES:
        return "fixed bytes" if code == _STRING and kind == "binary" else "bytes"
    return "text"


def _integer(found: Found) -> Finished:
    column, values, absent = found.wire.column, found.value, found.absent
    if column.boolean:
        return Finished(boolean(values, absent))
    if found.wire.type_code == 8 and column.unsigned:
        return Finished(unsigned64(values, absent))
    if column.arrow == pa.int32() and _INTEGERS[found.wire.type_code] + column.unsigned <= 4:
        return Finished(fixed(pa.int32(), values.astype(np.int32), absent))
    return Finished(fixed(pa.int64(), values, absent))


def _bit(found: Found) -> Finished:
    if found.wire.meta == 1:
        return Finished(boolean(found.value, found.absent))
    if found.wire.meta == 64:
        return Finished(unsigned64(found.value, found.absent))
    return Finished(fixed(pa.int64(), found.value, found.absent))


def _float(found: Found) -> Finished:
    return Finished(fixed(pa.float32(), found.value.astype(np.uint32), found.absent))


def _double(found: Found) -> Finished:
    return Finished(fixed(pa.float64(), found.value, found.absent))


def _decimal(found: Found) -> Finished:
    meta = found.wire.meta
    return Finished(decimals.decimal(found.data, found.value, found.absent, meta >> 8, meta & 0xFF))


def _of_time(convert: Callable[..., temporal.Temporal], *, fraction: bool = False) -> Callable[[Found], Finished]:
    def finisher(found: Found) -> Finished:
        more = (found.wire.meta,) if fraction else ()
        return Finished(*convert(found.value, found.absent, *more))

    return finisher


def _timestamp_old(found: Found) -> Finished:
    return Finished(*temporal.timestamp2(found.value, found.absent, 0))


def _time2(found: Found) -> Finished:
    return Finished(temporal.time2(found.value, found.absent, found.wire.meta))


def _time_old(found: Found) -> Finished:
    return Finished(temporal.time_old(found.value, found.absent))


def _year(found: Found) -> Finished:
    return Finished(temporal.year(found.value, found.absent))


def _enum(found: Found) -> Finished:
    labels = found.wire.column.labels
    if found.value.size and int(found.value.max()) > len(labels):
        raise ValueError(f"label {int(found.value.max())} of {len(labels)}")
    chosen = fixed(pa.int64(), found.value, found.absent)
    return Finished(pa.array(["", *labels], pa.string()).take(chosen))


def _set(found: Found) -> Finished:
    labels = found.wire.column.labels
    masks, which = np.unique(found.value.view(np.uint64), return_inverse=True)
    if masks.size and int(masks[-1]) >> len(labels):
        raise ValueError(f"members beyond the {len(labels)} it has")
    texts = [",".join(label for n, label in enumerate(labels) if mask >> n & 1) for mask in masks.tolist()]
    chosen = pa.array(which.astype(np.int64), mask=found.absent == 1)
    return Finished(pa.array(texts, pa.string()).take(chosen))


def _text(found: Found) -> Finished:
    charset = found.wire.column.charset
    return Finished(*_zero_apart(text(found.data, found.value, found.length, found.absent, charset)))


def _zero_apart(done: Any) -> tuple[pa.Array, int, int]:
    return done.array, 0, done.replaced


def _bytes(found: Found) -> Finished:
    offsets, raw = gather(found.data, found.value, found.length, found.absent)
    return Finished(binary(offsets, raw, found.absent))


def _fixed_bytes(found: Found) -> Finished:
    """The server leaves trailing zeros out; the value has them."""
    offsets, raw = gather(found.data, found.value, found.length, found.absent, pad=found.wire.meta)
    return Finished(binary(offsets, raw, found.absent))


def _of_bytes(convert: Callable[..., pa.Array]) -> Callable[[Found], Finished]:
    def finisher(found: Found) -> Finished:
        return Finished(convert(found.data, found.value, found.length, found.absent))

    return finisher


_NAMES = {
    _FLOAT: "float",
    _DOUBLE: "double",
    _NEWDECIMAL: "decimal",
    _BIT: "bit",
    _YEAR: "year",
    _DATE: "date",
    _NEWDATE: "date",
    _DATETIME2: "datetime2",
    _TIMESTAMP2: "timestamp2",
    _TIME2: "time2",
    _DATETIME: "old datetime",
    _TIMESTAMP: "old timestamp",
    _TIME: "old time",
    _ENUM: "enum",
    _SET: "set",
    _JSON: "json",
    _GEOMETRY: "geometry",
    _VECTOR: "vector",
}
_FINISHERS: dict[str, Callable[[Found], Finished]] = {
    "integer": _integer,
    "bit": _bit,
    "float": _float,
    "double": _double,
    "decimal": _decimal,
    "date": _of_time(temporal.date),
    "datetime2": _of_time(temporal.datetime2, fraction=True),
    "timestamp2": _of_time(temporal.timestamp2, fraction=True),
    "old datetime": _of_time(temporal.datetime_old),
    "old timestamp": _timestamp_old,
    "time2": _time2,
    "old time": _time_old,
    "year": _year,
    "enum": _enum,
    "set": _set,
    "text": _text,
    "bytes": _bytes,
    "fixed bytes": _fixed_bytes,
    "json": _of_bytes(json_texts),
    "geometry": _of_bytes(geometry.geometry),
    "vector": _of_bytes(geometry.vector),
    **{name: _of_bytes(getattr(network, name)) for name in network.WIDTHS},
}
