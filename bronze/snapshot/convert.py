"""Columns of printed values to Arrow arrays of the types of `lakeward.schema`. What cannot be read is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bronze.decode import charsets
from bronze.snapshot import kernels
from lakeward.errors import FailClosedError, LakewardError
from lakeward.schema import BYTES, GEOMETRY_ARROW, INTEGERS, Column, TableSchema

_MOST_BYTES = (1 << 31) - 1


class Converter:
    """Turns `offsets` and `lengths` (columns x rows, int64, -1 for NULL) over a buffer into one struct array a call."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        self.zero_dates = 0
        self.replaced = 0

    def __call__(self, buffer: Any, offsets: Any, lengths: Any) -> pa.StructArray:
        arrays = [self._column(column, buffer, offsets[i], lengths[i]) for i, column in enumerate(self._schema.columns)]
        return pa.StructArray.from_arrays(arrays, fields=list(self._schema.image()))

    def _column(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        kind, arrow = column.kind, column.arrow
        if kind in INTEGERS or kind in ("year", "bit"):
            if pa.types.is_decimal(arrow):
                return self._decimals(column, buffer, offsets, lengths)
            return self._integers(column, buffer, offsets, lengths)
        if kind == "decimal" and pa.types.is_decimal(arrow):
            return self._decimals(column, buffer, offsets, lengths)
        if kind in ("float", "double"):
            return self._floats(column, buffer, offsets, lengths)
        if kind in ("date", "datetime", "timestamp"):
            return self._times(column, buffer, offsets, lengths)
        if kind == "geometry":
            return self._geometries(column, buffer, offsets, lengths)
        if kind == "vector":
            return self._vectors(column, buffer, offsets, lengths)
        found = self._bytes(column, buffer, offsets, lengths)
        return found if kind in BYTES else self._utf8(column, found)

    def _integers(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        values = np.empty(lengths.size, np.int64)
        self._check(column, kernels.parse_integers(buffer, offsets, lengths, values))
        arrow = column.arrow
        if arrow == pa.bool_():
            return pa.array(values != 0, mask=lengths < 0)
        if arrow == pa.int32():
            small = values.astype(np.int32)
            if (small != values).any():
                raise self._unreadable(column, int(np.argmax(small != values)))
            values = small
        return pa.Array.from_buffers(arrow, values.size, [*_valid(lengths), pa.py_buffer(values)])

    def _decimals(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        values = np.empty((lengths.size, 2), np.uint64)
        scale = column.arrow.scale
        self._check(column, kernels.parse_decimals(buffer, offsets, lengths, scale, values))
        return pa.Array.from_buffers(column.arrow, lengths.size, [*_valid(lengths), pa.py_buffer(values)])

    def _floats(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        doubles = pc.cast(self._utf8(column, self._bytes(column, buffer, offsets, lengths)), pa.float64())
        # A FLOAT printed as a double is a double with a short mantissa: narrowing it gives its own bits back.
        return pc.cast(doubles, pa.float32(), safe=False) if column.kind == "float" else doubles

    def _times(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        days = np.empty(lengths.size, np.int64)
        bad, unreal = kernels.parse_days(buffer, offsets, lengths, days)
        self._check(column, bad)
        self.zero_dates += unreal
        if column.kind == "date":
            data = pa.py_buffer(days.astype(np.int32))
        else:
            micros = np.empty(lengths.size, np.int64)
            self._check(column, kernels.add_time(buffer, offsets, lengths, days, micros))
            data = pa.py_buffer(micros)
        return pa.Array.from_buffers(column.arrow, lengths.size, [*_valid(lengths), data])

    def _bytes(self, column: Column, buffer: Any, offsets: Any, lengths: Any, skip: int = 0) -> pa.Array:
        size = kernels.total_length(lengths)
        if size > _MOST_BYTES:
            raise LakewardError(f"{self._schema.name}: one batch of {column.name!r} is above 2 GiB")
        ends, data = np.empty(lengths.size + 1, np.int32), np.empty(size, np.uint8)
        self._check(column, kernels.gather_bytes(buffer, offsets, lengths, skip, ends, data))
        buffers = [*_valid(lengths), pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), lengths.size, buffers)

    def _utf8(self, column: Column, found: pa.Array) -> pa.Array:
        try:
            return pc.cast(found, pa.string())
        except pa.ArrowInvalid:
            # The server sends utf8mb4 as it is stored; what is malformed there becomes what it becomes from the binlog.
            _, ends, data = found.buffers()
            offsets = np.frombuffer(ends, np.int32)[: len(found) + 1].astype(np.int64)
            absent = np.asarray(found.is_null()).astype(np.uint8)
            raw = np.frombuffer(data, np.uint8)
            mended = charsets.text(raw, offsets[:-1], np.diff(offsets), absent, "utf8mb4")
            self.replaced += mended.replaced
            return mended.array

    def _geometries(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        """As stored: four bytes of SRID, little-endian, then the WKB ('Internal Geometry Storage Format')."""
        wkb = self._bytes(column, buffer, offsets, lengths, skip=4)
        there = lengths >= 0
        at = np.where(there, offsets, 0)
        srid = sum(buffer[at + i].astype(np.uint32) << np.uint32(8 * i) for i in range(4)).astype(np.uint32)
        srids = pa.array(srid.view(np.int32), mask=~there)
        return pa.StructArray.from_arrays([srids, wkb], fields=list(GEOMETRY_ARROW), mask=pa.array(~there))

    def _vectors(self, column: Column, buffer: Any, offsets: Any, lengths: Any) -> pa.Array:
        """As stored: IEEE 754 single precision, little-endian, end to end."""
        self._check(
            column, int(np.argmax((lengths > 0) & (lengths % 4 != 0))) if (lengths % 4 > 0)[lengths > 0].any() else -1
        )
        found = self._bytes(column, buffer, offsets, lengths)
        _, ends, data = found.buffers()
        ends = np.frombuffer(ends, np.int32)[: lengths.size + 1] // 4
        values = pa.Array.from_buffers(pa.float32(), int(ends[-1]), [None, data])
        return pa.Array.from_buffers(
            column.arrow, lengths.size, [*_valid(lengths), pa.py_buffer(ends)], children=[values]
        )

    def _check(self, column: Column, bad_row: int) -> None:
        if bad_row >= 0:
            raise self._unreadable(column, bad_row)

    def _unreadable(self, column: Column, row: int) -> FailClosedError:
        # The value is not shown: the column may be a masked one.
        return FailClosedError(
            f"{self._schema.name}: a value of {column.name!r} is not what a {column.kind} prints as",
            hint="the table was changed while it was read, or this is a fault: read it again, then report it",
            row_of_batch=row,
        )


def _valid(lengths: Any) -> list[pa.Buffer | None]:
    bits = np.zeros((lengths.size + 7) // 8, np.uint8)
    return [pa.py_buffer(bits) if kernels.validity(lengths, bits) else None]
