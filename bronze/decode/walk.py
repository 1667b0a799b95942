"""The one pass over raw row images: where each value stands, without looking at what it means.

MySQL packs every type in one of five ways, so five operations walk any table (MySQL source: `Field::pack` and
`libs/mysql/binlog/event/rows_event.h`). Numbers of up to eight bytes are read into an int64 slot here; everything else
becomes an offset, and a length where it varies. Types are `bronze.decode.finish`'s business.

Where some images lack columns, or hold changes of JSON values, a `Layout` for each event says so. The same pass is
compiled a second time for that, so that whole images do not pay for it.

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

from bronze.memory import borrowed, move, swapped, word

SIGNED, UNSIGNED, BIG_ENDIAN, FIXED, VARIABLE = range(5)
BEFORE, AFTER = 0, 1
DONE, FULL, CUT = range(3)  # what `walk_rows` says: all done, no room, an event that is cut off
_INSERT, _UPDATE, _DELETE = range(3)

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cell:
    """How one column's values are walked: an operation and its size (bytes of the value, or of its length)."""

    op: int
    size: int


@dataclass(frozen=True)
class Layout:
    """What stands in an event's images: the columns' numbers. `documents` is the number of the table's JSON columns
    where its after images begin with value options (PARTIAL_UPDATE_ROWS), -1 where they do not."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    documents: int = -1


@dataclass(frozen=True)
class Slots:
    """What the walk found. `value`, `length` and `absent` are indexed [side, column, row].

    `value` holds the number, or the value's offset in `data`; `length` is filled for VARIABLE alone. `absent` is 1
    where the value is NULL, not in the image, or the row has no image on that side; `value` and `length` are 0 there.
    `op` per row: 0 c, 1 u, 2 d. `partial` per row: where the bits stand that say which JSON values are changes, 0 for
    none; empty without layouts.
    """

    data: Bytes
    value: npt.NDArray[np.int64]
    length: npt.NDArray[np.int64]
    absent: npt.NDArray[np.uint8]
    event: npt.NDArray[np.int32]
    op: npt.NDArray[np.uint8]
    partial: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cut:
    """Where the walk had to stop: the event's index, and the column (len(cells): the null bitmap)."""

    event: int
    column: int


@dataclass(frozen=True)
class Images:
    """The row images of events, one after another: event i's end at `ends[i]` of `data`; its op is 0 c, 1 u, 2 d."""

    data: Bytes
    ends: Int64s
    ops: npt.NDArray[np.uint8]

    @classmethod
    def of(cls, events: Sequence[tuple[str, Any]]) -> Images:
        """Of pairs of op ("c", "u" or "d") and bytes-like images."""
        ends = np.cumsum(np.fromiter((len(images) for _, images in events), np.int64, len(events)), dtype=np.int64)
        ops = np.fromiter(("cud".index(op) for op, _ in events), np.uint8, len(events))
        return cls(np.frombuffer(b"".join(images for _, images in events), np.uint8), ends, ops)

    @classmethod
    def gathered(cls, parts: Sequence[tuple[Bytes, Int64s, Int64s, npt.NDArray[np.uint8]]]) -> Images:
        """From parts of data, where each event's images begin and end in it, and the events' ops."""
        lengths = [end - start for _, start, end, _ in parts]
        ends = np.cumsum(np.concatenate(lengths), dtype=np.int64)
        data = np.empty(ends[-1] if ends.size else 0, np.uint8)
        at = 0
        for part, start, end, _ in parts:
            at = _gather(part, start, end, data, at)
        return cls(data, ends, np.concatenate([ops for _, _, _, ops in parts]))


def walk(cells: Sequence[Cell], images: Images, layouts: Sequence[Layout] | None = None) -> Slots | Cut:
    """All rows of `images`, or the place where a length does not add up.

    Every image has every column, unless `layouts` (one per event) says otherwise.
    """
    data, ends, kinds = images.data, images.ends, images.ops
    op = np.array([cell.op for cell in cells], np.int64)
    size = np.array([cell.size for cell in cells], np.int64)
    room = int(data.size / (len(cells) * 6 + 1)) + ends.size + 8
    tables = _tables(layouts, len(cells))
    slots = _slots(data, len(cells), room, tables is not None)
    state = np.zeros(5, np.int64)  # event, offset in data, row, side, failing column
    while True:
        code = walk_rows(data, ends, kinds, op, size, state, slots.value, slots.length, slots.absent, slots.event,
                         slots.op, tables, slots.partial)  # fmt: skip
        rows = int(state[2])
        if code == CUT:
            return Cut(int(state[0]), int(state[4]))
        if code == DONE:
            return _resized(slots, rows)
        slots = _resized(slots, rows, room=rows * 2)


def _tables(layouts: Sequence[Layout] | None, columns: int) -> tuple[Int64s, Int64s, Int64s, Int64s] | None:
    """Per event its layout's number; per layout and side the columns and their count; per layout its documents."""
    if layouts is None:
        return None
    distinct = {layout: n for n, layout in enumerate(dict.fromkeys(layouts))}
    chosen = np.zeros((len(distinct), 2, columns), np.int64)
    count = np.zeros((len(distinct), 2), np.int64)
    for layout, n in distinct.items():
        for side, numbers in enumerate((layout.before, layout.after)):
            chosen[n, side, : len(numbers)] = numbers
            count[n, side] = len(numbers)
    documents = np.array([layout.documents for layout in distinct], np.int64)
    return np.array([distinct[layout] for layout in layouts], np.int64), chosen, count, documents


def _slots(data: Bytes, columns: int, room: int, layouts: bool) -> Slots:
    return Slots(
        data,
        np.zeros((2, columns, room), np.int64),
        np.zeros((2, columns, room), np.int64),
        np.ones((2, columns, room), np.uint8),
        np.empty(room, np.int32),
        np.empty(room, np.uint8),
        np.zeros(room if layouts else 0, np.int64),
    )


def _resized(slots: Slots, rows: int, room: int | None = None) -> Slots:
    """The first `rows` rows: as views, or with `room` in new arrays of that many."""
    if room is None:
        cut = (slice(None), slice(None), slice(0, rows))
        return Slots(
            slots.data, slots.value[cut], slots.length[cut], slots.absent[cut], slots.event[:rows], slots.op[:rows],
            slots.partial[:rows],
        )  # fmt: skip
    new = _slots(slots.data, slots.value.shape[1], room, slots.partial.size > 0)
    new.value[:, :, :rows] = slots.value[:, :, :rows]
    new.length[:, :, :rows] = slots.length[:, :, :rows]
    new.absent[:, :, :rows] = slots.absent[:, :, :rows]
    new.event[:rows] = slots.event[:rows]
    new.op[:rows] = slots.op[:rows]
    new.partial[:rows] = slots.partial[:rows]
    return new


@njit(cache=True, nogil=True)
def _gather(data, start, end, out, at):  # type: ignore[no-untyped-def]
    data, out = borrowed(data), borrowed(out)
    for i in range(start.size):
        n = end[i] - start[i]
        move(data, start[i], n, out, at)
        at += n
    return at


@njit(cache=True, nogil=True)
def walk_rows(data, ends, kinds, op, size, state, value, length, absent, event, row_op, layouts, partial):  # type: ignore[no-untyped-def]
    """Fill the slots, from their first row on, from where `state` stands: `walk` says what each is."""
    data = borrowed(data)
    columns = op.size
    room = event.size
    e = state[0]
    at = state[1]
    row = state[2]
    side = state[3]
    begin = at
    while e < ends.size:
        end = ends[e]
        kind = kinds[e]
        while at < end or (side == AFTER and kind == _UPDATE):
            if row == room:
                state[0] = e
                state[1] = at
                state[2] = row
                state[3] = side
                return FULL
            if kind == _INSERT:
                side = AFTER
            if side == BEFORE or kind == _INSERT:
                begin = at
            present = columns
            if layouts is not None:
                layout = layouts[0][e]
                present = layouts[2][layout, side]
                documents = layouts[3][layout]
                if documents >= 0 and side == AFTER:
                    # Value options: 0, or 1 for PARTIAL_JSON, whose bits for all JSON columns follow.
                    if at >= end or data[at] > 1:
                        at = end
                    elif data[at] == 1:
                        partial[row] = at + 1
                        at += (documents + 7) // 8
                    at += 1
            bitmap = (present + 7) // 8
            if at + bitmap > end:
                state[0] = e
                state[2] = row
                state[4] = columns
                return CUT
            nulls = at
            at += bitmap
            for k in range(present):
                c = k
                if layouts is not None:
                    c = layouts[1][layout, side, k]
                if data[nulls + (k >> 3)] >> (k & 7) & 1:
                    absent[side, c, row] = 1
                    continue
                n = size[c]
                o = op[c]
                if at + n > end:
                    state[0] = e
                    state[2] = row
                    state[4] = c
                    return CUT
                v = np.int64(at)
                if o != FIXED:
                    bits = np.uint64(0)
                    if at + 8 <= data.size:
                        bits = word(data, at)
                    else:
                        for i in range(n):
                            bits |= np.uint64(data[at + i]) << np.uint64(8 * i)
                    rest = np.uint64(64 - 8 * n)
                    if o == BIG_ENDIAN:
                        v = np.int64(swapped(bits) >> rest)
                    elif o == SIGNED:
                        v = np.int64(bits << rest) >> np.int64(rest)
                    else:
                        v = np.int64(bits << rest >> rest)
                at += n
                if o == VARIABLE:
                    if v < 0 or at + v > end:
                        state[0] = e
                        state[2] = row
                        state[4] = c
                        return CUT
                    length[side, c, row] = v
                    value[side, c, row] = at
                    at += v
                else:
                    value[side, c, row] = v
                absent[side, c, row] = 0
            if kind == _UPDATE and side == BEFORE:
                side = AFTER
                continue
            if layouts is not None and at == begin and at < end:
                # Images without a byte would have no end.
                state[0] = e
                state[2] = row
                state[4] = columns
                return CUT
            side = BEFORE
            event[row] = e
            row_op[row] = kind
            row += 1
        e += 1
    state[2] = row
    return DONE
