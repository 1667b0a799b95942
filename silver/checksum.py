"""A checksum of rows that is the same wherever it is computed: over Arrow, column by column, from the stored bits.

Each row gets a 64-bit hash of all its columns, NULLs and lengths included; a chunk's checksum is the number of rows and
the sum of their hashes, so it does not depend on their order and two equal rows do not cancel out (as they would under
XOR). The sum is exact: its halves of 32 bits are summed apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

_SEED = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0xA0761D6478BD642F)


@njit(cache=True, nogil=True)
def _mix(h: Any) -> Any:  # the finaliser of MurmurHash3
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xFF51AFD7ED558CCD)
    h ^= h >> np.uint64(33)
    h *= np.uint64(0xC4CEB9FE1A85EC53)
    return h ^ (h >> np.uint64(33))


@njit(cache=True, nogil=True)
def _fixed(rows: Any, words: Any, width: int, valid: Any) -> None:
    for i in range(len(rows)):
        h = rows[i]
        if valid[i]:
            for w in range(width):
                h = _mix(h * np.uint64(0x100000001B3) + words[i * width + w])
        else:
            h = _mix(h ^ _NULL)
        rows[i] = h


@njit(cache=True, nogil=True)
def _bytes(rows: Any, offsets: Any, data: Any, valid: Any) -> None:
    for i in range(len(rows)):
        h = rows[i]
        if valid[i]:
            low, high = offsets[i], offsets[i + 1]
            h = _mix(h + np.uint64(high - low))
            at = low
            while at + 8 <= high:
                word = np.uint64(0)
                for k in range(8):
                    word |= np.uint64(data[at + k]) << np.uint64(8 * k)
                h = _mix(h * np.uint64(0x100000001B3) + word)
                at += 8
            word = np.uint64(0)
            for k in range(high - at):
                word |= np.uint64(data[at + k]) << np.uint64(8 * k)
            h = _mix(h * np.uint64(0x100000001B3) + word)
        else:
            h = _mix(h ^ _NULL)
        rows[i] = h


def row_hashes(rows: pa.StructArray, chosen: Sequence[int] | None = None) -> np.ndarray:
    """uint64 per row, over the struct's fields in order, or over those with the numbers `chosen`."""
    hashes = np.full(len(rows), _SEED, dtype=np.uint64)
    columns = rows.flatten()
    for i in range(len(columns)) if chosen is None else chosen:
        _column(hashes, columns[i])
    return hashes


@njit(cache=True, nogil=True)
def _accumulate(chunks: Any, hashes: Any, rows: Any, low: Any, high: Any) -> None:
    for i in range(len(chunks)):
        chunk = chunks[i]
        rows[chunk] += 1
        low[chunk] += np.int64(hashes[i] & np.uint64(0xFFFFFFFF))
        high[chunk] += np.int64(hashes[i] >> np.uint64(32))


class Sums:
    """The checksums of a table's chunks: int64 arrays `rows`, `low` and `high`, a place each."""

    def __init__(self, chunks: int) -> None:
        self.rows, self.low, self.high = (np.zeros(chunks, np.int64) for _ in range(3))

    def add(self, chunks: np.ndarray, hashes: np.ndarray) -> None:
        """Count rows in: the chunk and the hash of each."""
        _accumulate(chunks, hashes, self.rows, self.low, self.high)

    def differing(self, other: Sums) -> np.ndarray:
        """The numbers of the chunks that are not the same."""
        same = (self.rows == other.rows) & (self.low == other.low) & (self.high == other.high)
        return np.flatnonzero(~same)

    def total(self) -> int:
        """The sum of all hashes, exactly."""
        return sum(map(int, self.low)) + (sum(map(int, self.high)) << 32)


def _column(hashes: np.ndarray, array: pa.Array) -> None:
    kind = array.type
    valid = np.asarray(array.is_valid())
    if pa.types.is_struct(kind):
        _fixed(hashes, np.zeros(len(array), dtype=np.uint64), 1, valid)
        for child in array.flatten():
            _column(hashes, child)
    elif pa.types.is_list(kind):
        # A vector's floats are its bytes.
        floats = np.ascontiguousarray(array.values.to_numpy(zero_copy_only=False), dtype=np.float32)
        offsets = array.offsets.to_numpy().astype(np.int64) * 4
        _bytes(hashes, offsets, floats.view(np.uint8), valid)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        _variable(hashes, array, np.int32, valid)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        _variable(hashes, array, np.int64, valid)
    elif pa.types.is_decimal(kind):
        words = np.frombuffer(array.buffers()[1], dtype=np.uint64)[2 * array.offset :][: 2 * len(array)]
        _fixed(hashes, words, 2, valid)
    elif pa.types.is_boolean(kind):
        _fixed(hashes, array.cast(pa.int8()).fill_null(0).to_numpy().astype(np.uint64), 1, valid)
    else:
        width = kind.bit_width // 8
        raw = np.frombuffer(array.buffers()[1], dtype=f"u{width}")[array.offset :][: len(array)]
        _fixed(hashes, raw.astype(np.uint64), 1, valid)


def _variable(hashes: np.ndarray, array: pa.Array, width: type, valid: np.ndarray) -> None:
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, dtype=width)[array.offset :][: len(array) + 1].astype(np.int64)
    held = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    _bytes(hashes, ends, held, valid)
