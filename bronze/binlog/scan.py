"""Plain transactions of MySQL, many at once: what `transactions` does event by event, compiled, for the usual case.

Only a transaction that is plain to its last byte is taken: GTID, BEGIN, table maps that are known already, rows
events with every column, XID; each follows the last one, is as long as it says and has the CRC32 that it bears.
Anything else, sound or not, ends the scan before its transaction begins, and is left to the reader that knows all
events and all errors. So this file accepts and never judges.

Source: as `transactions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from bronze.binlog.blocks import Block, Bytes, Int64s
from bronze.binlog.crc import TABLES, crc32
from bronze.binlog.frame import WRAP
from bronze.memory import borrowed

ANYWHERE: Final = 1 << 62
_SLOTS: Final = 1 << 14  # of the table from a TABLE_MAP's number to its place in the catalogue
_MAPS_OF_ONE: Final = 64  # table maps of one transaction; one with more is left


class Plain(NamedTuple):
    """What was taken: `taken` events of the block, up to `pos`, as columns of row events and of transactions.

    `start` and `end` are of a row event's images in the block's data, `table` its map's place in the catalogue, `op`
    0 c, 1 u, 2 d. `uuid` is where a transaction's UUID stands in the data, -1 for an anonymous one. `short` says that
    the block ended inside a transaction that was plain so far.
    """

    taken: int
    pos: int
    short: bool
    table: npt.NDArray[np.int32]
    op: Bytes
    start: Int64s
    end: Int64s
    at: Int64s
    transaction: Int64s
    begin: Int64s
    ts_ms: Int64s
    number: Int64s
    uuid: Int64s


@dataclass
class Catalogue:
    """The TABLE_MAP bodies that the reader has understood, by their bytes."""

    maximum: int

    def __post_init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.texts = np.empty(1 << 16, np.uint8)
        self.used = 0
        self.count = 0
        self.facts = np.zeros((self.maximum, 5), np.int64)  # wanted, width, place in texts, length, table number
        self.slots = np.full(_SLOTS, -1, np.int32)

    def put(self, body: bytes, *, wanted: bool, width: int) -> int:
        """Enter a map. Its place, which holds until `clear`. There is room for `maximum`."""
        place, self.count = self.count, self.count + 1
        while self.used + len(body) > self.texts.size:
            self.texts = np.concatenate([self.texts, np.empty_like(self.texts)])
        self.texts[self.used : self.used + len(body)] = np.frombuffer(body, np.uint8)
        number = int.from_bytes(body[:6], "little")
        self.facts[place] = wanted, width, self.used, len(body), number
        self.used += len(body)
        self.slots[number % _SLOTS] = place  # the newest map of a number, or of one that falls on the same slot
        return place


def scan(block: Block, first: int, pos: int, stop: int, checksum: bool, known: Catalogue) -> Plain:
    """Plain transactions from the event `first` on, which starts at `pos` of its file.

    Ends behind the first transaction that ends at `stop` or later.
    """
    room = len(block) - first
    table, op = np.empty(room, np.int32), np.empty(room, np.uint8)
    columns = np.empty((4, room), np.int64)  # start, end, at, transaction
    transactions = np.empty((4, room), np.int64)  # begin, ts_ms, number, uuid
    taken, pos, rows, count, short = _scan(
        block.data, block.starts, block.ends, first, pos, stop, 4 if checksum else 0, known.texts, known.facts,
        known.slots, TABLES, table, op, columns, transactions,
    )  # fmt: skip
    return Plain(
        int(taken), int(pos), bool(short), table[:rows], op[:rows], *columns[:, :rows], *transactions[:, :count]
    )


@njit(cache=True, nogil=True)
def _little(data, at, width):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for k in range(width):
        value |= np.int64(data[at + k]) << (8 * k)
    return value


@njit(cache=True, nogil=True)
def _is_begin(data, at, end):  # type: ignore[no-untyped-def]
    """Whether the body of a QUERY says BEGIN."""
    if at + 13 > end:
        return False
    text = at + 13 + _little(data, at + 11, 2) + np.int64(data[at + 8]) + 1
    if end - text != 5 or data[text - 1] != 0:
        return False
    return (
        data[text] == 66
        and data[text + 1] == 69
        and data[text + 2] == 71
        and data[text + 3] == 73
        and data[text + 4] == 78
    )


@njit(cache=True, nogil=True)
def _lookup(data, at, end, texts, facts, slots):  # type: ignore[no-untyped-def]
    """The place of the TABLE_MAP with this body, -1 where it is not known."""
    if end - at < 8:
        return -1
    place = slots[_little(data, at, 6) % slots.size]
    if place < 0 or facts[place, 3] != end - at:
        return -1
    text = facts[place, 2]
    for k in range(end - at):
        if data[at + k] != texts[text + k]:
            return -1
    return place


@njit(cache=True, nogil=True)
def _images(data, at, end, update, width):  # type: ignore[no-untyped-def]
    """Where the images of a rows event (version 2) begin, -1 unless it has all `width` columns."""
    if at + 11 > end:
        return -1
    extra = _little(data, at + 8, 2)
    at += 8 + extra
    if extra < 2 or at + 1 > end:
        return -1
    said = np.int64(data[at])
    at += 1
    if said == 252:
        if at + 2 > end:
            return -1
        said = _little(data, at, 2)
        at += 2
    elif said > 250:
        return -1
    size = (width + 7) // 8
    if said != width or at + size * (2 if update else 1) > end:
        return -1
    for _ in range(2 if update else 1):
        for k in range(size):
            if data[at + k] != 255:
                return -1
        at += size
    return at


@njit(cache=True, nogil=True)
def _scan(  # type: ignore[no-untyped-def]
    data, starts, ends, first, pos, stop, tail, texts, facts, slots, tables, table, op, columns, transactions
):
    data, tables, texts, facts, slots = (
        borrowed(data), borrowed(tables), borrowed(texts), borrowed(facts), borrowed(slots),
    )  # fmt: skip
    seen = np.empty((_MAPS_OF_ONE, 2), np.int64)
    taken = first
    taken_pos = pos
    taken_rows = 0
    count = 0
    maps = 0
    rows = 0
    state = 0  # 0: a GTID is next, 1: BEGIN, 2: the rest
    for i in range(first, starts.size):
        head = starts[i]
        size = ends[i] - head
        body = head + 19
        end = ends[i] - tail
        if end < body or pos + size >= WRAP or _little(data, head + 9, 4) != size:
            return taken, taken_pos, taken_rows, count, False
        # 0x20: made by the server for this connection.
        if _little(data, head + 13, 4) != pos + size or data[head + 17] & 0x20:
            return taken, taken_pos, taken_rows, count, False
        if tail and crc32(data, head, end, tables) != np.uint32(_little(data, end, 4)):
            return taken, taken_pos, taken_rows, count, False
        kind = data[head + 4]
        plain = False
        if state == 0:
            if (kind == 33 or kind == 34) and end - body >= 42:
                transactions[0, count] = pos
                ts = np.int64(0)
                if end - body >= 49:
                    ts = _little(data, body + 42, 7)
                    if ts >> 55:  # another server's commit time follows that of this one
                        ts = _little(data, body + 49, 7) if end - body >= 56 else np.int64(-1)
                    ts //= 1000
                if ts == 0:
                    ts = _little(data, head, 4) * 1000
                transactions[1, count] = ts
                transactions[2, count] = _little(data, body + 17, 8)
                transactions[3, count] = body + 1 if kind == 33 else -1
                maps = 0
                state = 1
                if ts >= 0 and transactions[2, count] >= 0:
                    plain = True
        elif state == 1:
            plain = kind == 2 and _is_begin(data, body, end)
            state = 2
        elif kind == 19:
            place = _lookup(data, body, end, texts, facts, slots)
            if place >= 0 and maps < _MAPS_OF_ONE:
                seen[maps, 0] = facts[place, 4]
                seen[maps, 1] = place
                maps += 1
                plain = True
        elif kind >= 30 and kind <= 32:
            number = _little(data, body, 6) if end - body >= 6 else np.int64(-1)
            place = np.int64(-1)
            for k in range(maps - 1, -1, -1):
                if seen[k, 0] == number:
                    place = seen[k, 1]
                    break
            if place >= 0:
                if facts[place, 0] == 0:
                    plain = True
                else:
                    at = _images(data, body, end, kind == 31, facts[place, 1])
                    plain = bool(at >= 0)
                    if plain and at < end:
                        table[rows] = place
                        op[rows] = kind - 30
                        columns[0, rows] = at
                        columns[1, rows] = end
                        columns[2, rows] = pos
                        columns[3, rows] = count
                        rows += 1
        elif kind == 29 or kind == 16:  # ROWS_QUERY: the statement behind the rows, as a comment
            plain = True
        if not plain:
            return taken, taken_pos, taken_rows, count, False
        pos += size
        if state == 2 and kind == 16:
            state = 0
            count += 1
            taken = i + 1
            taken_pos = pos
            taken_rows = rows
            if pos >= stop:
                break
    return taken, taken_pos, taken_rows, count, state != 0
