"""All columns of whole images in one pass, a block of rows at a time: what `walk` and `finish` do, compiled as one.

A column at a time, a wide row has left the cache before its next column is read; here a block's rows are walked into
slots that stay there, and each column's values go from those straight to where Arrow will have them. The usual types
are done here (`_STEPS`, DECIMAL); the others are left as slots for `finish`.

Only what is sound is taken. Where an image is cut short or a value is not of its type, nothing is said, and the caller
goes over the images again with `walk` and `finish`, which know all errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from bronze.binlog.columns import WireColumn
from bronze.decode import decimals, temporal
from bronze.decode.arrays import binary, fixed
from bronze.decode.charsets import UTF8, utf8
from bronze.decode.finish import Finished, Found, cell, finish, meaning
from bronze.decode.walk import CUT, DONE, FULL, VARIABLE, Bytes, Images, Int64s, walk_rows
from bronze.memory import borrowed, move

_BLOCK: Final = 128  # rows whose slots stay in the cache, 2 kB a column
_FIRST_ROWS: Final = 8 * _BLOCK  # that there is room for at first
_MORE: Final = 1.125  # than expected
_DATA_MAX: Final = 2**31 - 1  # bytes, so that no column's text needs more than Arrow's 32-bit offsets
_NUMBER, _SPAN, _TEXT, _DECIMAL, _DATETIME, _TIMESTAMP = range(6)
_ODD: Final = -1
_NO_LAYOUTS = np.zeros(0, np.int64)
_STEPS: Final = {  # by finisher: the step, and the type that the column has to have
    "text": (_TEXT, pa.string()),
    "bytes": (_TEXT, pa.binary()),
    "datetime2": (_DATETIME, pa.timestamp("us")),
    "timestamp2": (_TIMESTAMP, pa.timestamp("us", "UTC")),
}


@dataclass
class _Out:
    """Where values go: [side, column of the step, row], a decimal's two halves side by side. See `_blocks`."""

    numbers: Int64s
    lengths: Int64s
    halves: npt.NDArray[np.uint64]
    offsets: npt.NDArray[np.int32]
    absent: Bytes
    segments: Int64s
    event: npt.NDArray[np.int32]
    op: Bytes

    @classmethod
    def of(cls, room: int, columns: int, count: Sequence[int]) -> _Out:
        plain = count[_NUMBER] + count[_SPAN] + count[_DATETIME] + count[_TIMESTAMP]
        new = cls(
            np.empty((2, plain, room), np.int64),
            np.empty((2, count[_SPAN], room), np.int64),
            np.empty((2, count[_DECIMAL], 2 * room), np.uint64),
            np.empty((2, count[_TEXT], room + 1), np.int32),
            np.empty((2, columns, room), np.uint8),
            np.empty((2, count[_TEXT], room // _BLOCK + 2), np.int64),
            np.empty(room, np.int32),
            np.empty(room, np.uint8),
        )
        new.offsets[:, :, 0] = 0
        return new

    def arrays(self) -> tuple[npt.NDArray[np.generic], ...]:
        return (self.numbers, self.lengths, self.halves, self.offsets, self.absent, self.segments, self.event, self.op)

    def take(self, other: _Out) -> None:
        """The values of a smaller one."""
        for mine, theirs in zip(self.arrays(), other.arrays(), strict=True):
            mine[..., : theirs.shape[-1]] = theirs


@dataclass(frozen=True)
class Fused:
    """The rows of images, of which `finished` gives each column. `event` and `op` are as those of `walk.Slots`."""

    columns: Sequence[WireColumn]
    data: Bytes
    rows: int
    step: Int64s
    place: Int64s  # in its step's array
    span: Int64s
    zeros: Int64s
    heap: Bytes
    out: _Out

    @property
    def event(self) -> npt.NDArray[np.int32]:
        return self.out.event[: self.rows]

    @property
    def op(self) -> Bytes:
        return self.out.op[: self.rows]

    def finished(self, side: int, n: int) -> Finished:
        """A column's values. Raises as `finish`."""
        wire, step, k, rows = self.columns[n], int(self.step[n]), int(self.place[n]), self.rows
        absent = self.out.absent[side, n, :rows]
        if step == _TEXT:
            offsets = self.out.offsets[side, k, : rows + 1]
            raw = np.empty(offsets[-1], np.uint8)
            _assemble(self.heap, self.out.segments[side, k], offsets, raw)
            if meaning(wire) == "bytes":
                return Finished(binary(offsets, raw, absent))
            text = utf8(offsets, raw, absent, str(wire.column.charset))
            return Finished(text.array, 0, text.replaced)
        if step == _DECIMAL:
            return Finished(fixed(wire.column.arrow, self.out.halves[side, k, : 2 * rows], absent))
        numbers = self.out.numbers[side, k, :rows]
        if step in (_DATETIME, _TIMESTAMP):
            return Finished(fixed(wire.column.arrow, numbers, absent), int(self.zeros[side, n]))
        length = self.out.lengths[side, self.span[n], :rows] if step == _SPAN else numbers[:0]
        return finish(Found(wire, self.data, numbers, length, absent))


def fuse(columns: Sequence[WireColumn], images: Images) -> Fused | None:
    """All rows of `images`, which have every column; None where anything is unusual."""
    if images.data.size > _DATA_MAX:
        return None
    cells = [cell(c) for c in columns]
    op = np.array([c.op for c in cells], np.int64)
    size = np.array([c.size for c in cells], np.int64)
    step = np.array([_step(c, o) for c, o in zip(columns, op.tolist(), strict=True)], np.int64)
    plain = (step != _TEXT) & (step != _DECIMAL)
    place = np.empty(step.size, np.int64)
    for of in (plain, step == _TEXT, step == _DECIMAL):
        place[of] = np.arange(np.count_nonzero(of))
    span = np.cumsum(step == _SPAN) - 1
    more = np.zeros((step.size, 8), np.int64)  # of a DECIMAL the digits of its groups, of a time its fraction
    for n, c in enumerate(columns):
        found: Sequence[int] = ()
        if step[n] == _DECIMAL:
            found = decimals.widths(c.meta >> 8, c.meta & 0xFF).tolist()
        elif step[n] in (_DATETIME, _TIMESTAMP):
            found = temporal.fraction(c.meta)
        more[n, : len(found)] = found
    count = np.bincount(step, minlength=6).tolist()
    out = _Out.of(_FIRST_ROWS, len(columns), count)
    heap = np.empty(images.data.size, np.uint8)  # no more than is in the images, and only what is used is ever touched
    zeros = np.zeros((2, step.size), np.int64)
    slots = [np.zeros((2, step.size, _BLOCK), kind) for kind in (np.int64, np.int64, np.uint8)]
    state = np.zeros(8, np.int64)  # five of `walk_rows`; rows, blocks and bytes of text that are done
    while True:
        code = _blocks(
            images.data, images.ends, images.ops, op, size, state, *slots, step, place, span, more, *out.arrays(), heap,
            zeros,
        )  # type: ignore[call-arg]  # fmt: skip
        rows = int(state[5])
        if code == DONE:
            return Fused(columns, images.data, rows, step, place, span, zeros, heap, out)
        if code != FULL:
            return None
        # Memory that is not used costs as much as what is, so the rows so far say how many there will be.
        room = max(int(_MORE * rows * images.data.size / max(int(state[1]), 1)), int(_MORE * rows)) + 2 * _BLOCK
        larger = _Out.of(room, len(columns), count)
        larger.take(out)
        out = larger


def _step(wire: WireColumn, op: int) -> int:
    name, arrow = meaning(wire), wire.column.arrow
    if name == "decimal" and wire.meta >> 8 <= 38 and arrow == pa.decimal128(wire.meta >> 8, wire.meta & 0xFF):
        return _DECIMAL
    step, usual = _STEPS.get(name, (_NUMBER, None))
    if arrow == usual and (name != "text" or wire.column.charset in UTF8):
        return step
    return _SPAN if op == VARIABLE else _NUMBER


@njit(cache=True, nogil=True)
def _blocks(  # type: ignore[no-untyped-def]
    data, ends, kinds, op, size, state, value, length, lacks, step, place, span, more, numbers, lengths, halves,
    offsets, absent, segments, event, row_op, heap, zeros,
):  # fmt: skip
    """Values of text go to `heap` in the order of block, side and column; `segments` says where each begins."""
    columns = op.size
    has = np.zeros(2, np.bool_)
    data, heap, value = borrowed(data), borrowed(heap), borrowed(value)
    length, lacks = borrowed(length), borrowed(lacks)
    numbers, lengths, halves = borrowed(numbers), borrowed(lengths), borrowed(halves)
    offsets, absent, more = borrowed(offsets), borrowed(absent), borrowed(more)
    while True:
        row = state[5]
        if row + _BLOCK > event.size:
            return FULL
        lacks[:] = 1
        state[2] = 0
        code = walk_rows(
            data, ends, kinds, op, size, state, value, length, lacks, event[row : row + _BLOCK],
            row_op[row : row + _BLOCK], None, _NO_LAYOUTS,
        )  # fmt: skip
        if code == CUT:
            return CUT
        end = row + state[2]
        has[:] = False
        for i in range(row, end):
            has[0] |= row_op[i] != 0
            has[1] |= row_op[i] != 2
        for side in range(2):
            for c in range(columns):
                k = place[c]
                a = lacks[side, c, : end - row]
                v = value[side, c, : end - row]
                if step[c] == _TEXT:
                    segments[side, k, state[6]] = state[7]
                    state[7] = _put_text(
                        data, v, length[side, c], a, offsets[side, k, row : end + 1], heap, state[7]
                    )  # fmt: skip
                else:
                    found = np.int64(0)
                    # Nothing else is written where a value is absent.
                    if step[c] == _DECIMAL:
                        halves[side, k, 2 * row : 2 * end] = 0
                    else:
                        numbers[side, k, row:end] = 0
                        if step[c] == _SPAN:
                            lengths[side, span[c], row:end] = 0
                    if not has[side]:
                        pass
                    elif step[c] == _DECIMAL:
                        groups = 0
                        while more[c, groups]:
                            groups += 1
                        if not decimals.put_numbers(data, v, a, more[c, :groups], halves[side, k, 2 * row : 2 * end]):
                            return _ODD
                    elif step[c] == _DATETIME:
                        found = temporal.put_datetimes(v, a, more[c, 0], more[c, 1], numbers[side, k, row:end])
                    elif step[c] == _TIMESTAMP:
                        found = temporal.put_timestamps(v, a, more[c, 0], more[c, 1], numbers[side, k, row:end])
                    else:
                        _put_numbers(v, a, numbers[side, k, row:end])
                        if step[c] == _SPAN:
                            _put_numbers(length[side, c], a, lengths[side, span[c], row:end])
                    if found < 0:
                        return _ODD
                    zeros[side, c] += found
                absent[side, c, row:end] = a
        state[5] = end
        state[6] += 1
        if code == DONE:
            return DONE


@njit(cache=True, nogil=True)
def _put_numbers(values, absent, out):  # type: ignore[no-untyped-def]
    for i in range(absent.size):
        out[i] = 0 if absent[i] else values[i]


@njit(cache=True, nogil=True)
def _put_text(data, offset, length, absent, ends, heap, at):  # type: ignore[no-untyped-def]
    """Append values to `heap` at `at`, and their ends to `ends`, which go on from its first. Where the heap ends."""
    for i in range(absent.size):
        n = np.int64(0)
        if not absent[i]:
            n = length[i]
            move(data, offset[i], n, heap, at)
            at += n
        ends[i + 1] = ends[i] + n
    return at


@njit(cache=True, nogil=True)
def _assemble(heap, segments, ends, out):  # type: ignore[no-untyped-def]
    """One column's text from all its blocks."""
    for n in range((ends.size + _BLOCK - 2) // _BLOCK):
        begin = ends[n * _BLOCK]
        move(heap, segments[n], ends[min((n + 1) * _BLOCK, ends.size - 1)] - begin, out, begin)
