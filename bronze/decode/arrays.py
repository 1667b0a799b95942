"""Arrow arrays from raw buffers, without a Python object per value.

`absent` is always a uint8 array, 1 where the value is NULL. Values under NULL are whatever the caller left there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from lakeward.errors import TerminalError

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
_OFFSETS_MAX = 2**31 - 1


def validity(absent: Bytes) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity bitmap (None where nothing is NULL) and the number of NULLs."""
    nulls = int(np.count_nonzero(absent))
    if nulls == 0:
        return None, 0
    return pa.py_buffer(np.packbits(absent == 0, bitorder="little")), nulls


def fixed(arrow: pa.DataType, values: npt.NDArray[Any], absent: Bytes) -> pa.Array:
    """An array of a fixed-width type; `values` has the type's width."""
    bitmap, nulls = validity(absent)
    return pa.Array.from_buffers(arrow, absent.size, [bitmap, pa.py_buffer(np.ascontiguousarray(values))], nulls)


def boolean(values: Int64s, absent: Bytes) -> pa.Array:
    """True where the value is not 0."""
    bitmap, nulls = validity(absent)
    packed = pa.py_buffer(np.packbits(values != 0, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), absent.size, [bitmap, packed], nulls)


def unsigned64(values: Int64s, absent: Bytes) -> pa.Array:
    """DECIMAL(20,0) from int64 slots that hold the bits of unsigned numbers."""
    halves = np.zeros((absent.size, 2), np.int64)
    halves[:, 0] = values
    return fixed(pa.decimal128(20, 0), halves, absent)


def gather(
    data: Bytes, offset: Int64s, length: Int64s, absent: Bytes, pad: int = 0
) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Arrow offsets and bytes of values that stand at `offset` in `data`; shorter ones padded with 0x00 to `pad`.

    Raises TerminalError above 2 GiB, which one Arrow array cannot hold.
    """
    ends = np.where(absent == 0, np.maximum(length, pad), 0).cumsum()
    check_size(int(ends[-1]) if ends.size else 0)
    offsets = np.zeros(absent.size + 1, np.int32)
    offsets[1:] = ends
    out = np.empty(offsets[-1], np.uint8)
    _copy(data, offset, length, absent, offsets, out)
    return offsets, out


def check_size(size: int) -> None:
    """Refuse what Arrow's 32-bit offsets cannot address."""
    if size > _OFFSETS_MAX:
        raise TerminalError(
            f"one batch holds {size} bytes of a single column, and an Arrow array holds {_OFFSETS_MAX}",
            hint="lower the batch size",
        )


def binary(offsets: npt.NDArray[np.int32], data: Bytes, absent: Bytes) -> pa.Array:
    """A binary array."""
    return _variable(pa.binary(), offsets, data, absent)


def string(offsets: npt.NDArray[np.int32], data: Bytes, absent: Bytes) -> pa.Array:
    """A string array of bytes that are known to be UTF-8."""
    return _variable(pa.string(), offsets, data, absent)


def _variable(arrow: pa.DataType, offsets: npt.NDArray[np.int32], data: Bytes, absent: Bytes) -> pa.Array:
    bitmap, nulls = validity(absent)
    buffers = [bitmap, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(arrow, absent.size, buffers, nulls)


@njit(cache=True, nogil=True)
def _copy(data, offset, length, absent, offsets, out):  # type: ignore[no-untyped-def]
    for i in range(absent.size):
        if absent[i]:
            continue
        at = offsets[i]
        start = offset[i]
        n = length[i]
        if n > 48:
            out[at : at + n] = data[start : start + n]
        else:
            for j in range(n):
                out[at + j] = data[start + j]
        for j in range(at + n, offsets[i + 1]):
            out[j] = 0
