"""The one pass over raw row images: where each value stands, without looking at what it means.

MySQL packs every type in one of five ways, so five operations walk any table (MySQL source: `Field::pack` and
`libs/mysql/binlog/event/rows_event.h`). Numbers of up to eight bytes are read into an int64 slot here; everything else
becomes an offset, and a length where it varies. Types are `bronze.decode.finish`'s business.

Every read is checked against the end of its own event first: a damaged length ends the walk with a code and the
column, never with a read outside the event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

SIGNED, UNSIGNED, BIG_ENDIAN, FIXED, VARIABLE = range(5)
BEFORE, AFTER = 0, 1
_DONE, _FULL, _CUT = range(3)
_INSERT, _UPDATE, _DELETE = range(3)

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cell:
    """How one column's values are walked: an operation and its size (bytes of the value, or of its length)."""

    op: int
    size: int


@dataclass(frozen=True)
class Slots:
    """What the walk found. `value`, `length` and `absent` are indexed [side, column, row].

    `value` holds the number, or the value's offset in `data`; `length` is filled for VARIABLE alone. `absent` is 1
    where the value is NULL or the row has no image on that side; `value` and `length` are 0 there. `op` per row:
    0 c, 1 u, 2 d.
    """

    data: Bytes
    value: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    absent: npt.NDArray[np.uint8]
    event: npt.NDArray[np.int32]
    op: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cut:
    """Where the walk had to stop: the event's index, and the column (len(cells): the null bitmap)."""

    event: int
    column: int


def walk(cells: Sequence[Cell], ops: Sequence[str], images: Sequence[Any]) -> Slots | Cut:
    """All rows of `images` (bytes-like, one per event), or the place where a length does not add up."""
    data = np.frombuffer(b"".join(images), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, images), np.int64, len(images)), dtype=np.int64)
    kinds = np.fromiter(("cud".index(op) for op in ops), np.uint8, len(ops))
    op = np.array([cell.op for cell in cells], np.int64)
    size = np.array([cell.size for cell in cells], np.int64)
    room = int(data.size / (len(cells) * 6 + 1)) + len(images) + 8
    slots = _slots(data, len(cells), room)
    state = np.zeros(5, np.int64)  # event, offset in data, row, side, failing column
    while True:
        code = _walk(data, ends, kinds, op, size, state, slots.value, slots.length, slots.absent, slots.event, slots.op)
        rows = int(state[2])
        if code == _CUT:
            return Cut(int(state[0]), int(state[4]))
        if code == _DONE:
            return _resized(slots, rows)
        slots = _resized(slots, rows, room=rows * 2)


def _slots(data: Bytes, columns: int, room: int) -> Slots:
    return Slots(
        data,
        np.zeros((2, columns, room), np.int64),
        np.zeros((2, columns, room), np.int64),
        np.ones((2, columns, room), np.uint8),
        np.empty(room, np.int32),
        np.empty(room, np.uint8),
    )


def _resized(slots: Slots, rows: int, room: int | None = None) -> Slots:
    """The first `rows` rows: as views, or with `room` in new arrays of that many."""
    if room is None:
        cut = (slice(None), slice(None), slice(0, rows))
        return Slots(
            slots.data, slots.value[cut], slots.length[cut], slots.absent[cut], slots.event[:rows], slots.op[:rows]
        )
    new = _slots(slots.data, slots.value.shape[1], room)
    new.value[:, :, :rows] = slots.value[:, :, :rows]
    new.length[:, :, :rows] = slots.length[:, :, :rows]
    new.absent[:, :, :rows] = slots.absent[:, :, :rows]
    new.event[:rows] = slots.event[:rows]
    new.op[:rows] = slots.op[:rows]
    return new


@njit(cache=True, nogil=True)
def _walk(data, ends, kinds, op, size, state, value, length, absent, event, row_op):  # type: ignore[no-untyped-def]
    columns = op.size
    bitmap = (columns + 7) // 8
    room = event.size
    e = state[0]
    at = state[1]
    row = state[2]
    side = state[3]
    while e < ends.size:
        end = ends[e]
        kind = kinds[e]
        while at < end or (side == AFTER and kind == _UPDATE):
            if row == room:
                state[0] = e
                state[1] = at
                state[2] = row
                state[3] = side
                return _FULL
            if kind == _INSERT:
                side = AFTER
            if at + bitmap > end:
                state[0] = e
                state[2] = row
                state[4] = columns
                return _CUT
            nulls = at
            at += bitmap
            for c in range(columns):
                if data[nulls + (c >> 3)] >> (c & 7) & 1:
                    absent[side, c, row] = 1
                    continue
                n = size[c]
                o = op[c]
                if at + n > end:
                    state[0] = e
                    state[2] = row
                    state[4] = c
                    return _CUT
                v = np.int64(0)
                if o == FIXED:
                    v = at
                elif o == BIG_ENDIAN:
                    for i in range(n):
                        v = v << 8 | np.int64(data[at + i])
                else:
                    for i in range(n):
                        v |= np.int64(data[at + i]) << (8 * i)
                    if o == SIGNED and n < 8:
                        v = v << (64 - 8 * n) >> (64 - 8 * n)
                at += n
                if o == VARIABLE:
                    if v < 0 or at + v > end:
                        state[0] = e
                        state[2] = row
                        state[4] = c
                        return _CUT
                    length[side, c, row] = v
                    value[side, c, row] = at
                    at += v
                else:
                    value[side, c, row] = v
                absent[side, c, row] = 0
            if kind == _UPDATE and side == BEFORE:
                side = AFTER
                continue
            side = BEFORE
            event[row] = e
            row_op[row] = kind
            row += 1
        e += 1
    state[2] = row
    return _DONE
