"""Row events: of which table they are, and which columns stand in their images.

A row event says no more than a table's number, which the TABLE_MAP before it explains. Tables that nobody wants cost
one look at their name, whatever their types are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bronze.binlog import events
from bronze.binlog.compressed import inflate, packed
from bronze.binlog.events import Op, Place
from bronze.binlog.gtid import Flavour
from bronze.binlog.items import Presence
from bronze.binlog.tablemap import TableMap, parse_table_map, table_name
from lakeward.names import TableName

_MAPS_MAX: Final = 4096
_PRESENCES_MAX: Final = 1024  # of one table
_NO_TABLE: Final = frozenset((0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF))  # of the empty event that ends a statement


@dataclass(slots=True)
class _Known:
    """A wanted table's map with what its row events are checked against."""

    table_map: TableMap
    width: int
    all_present: bytes  # the bitmap of an image that has every column, unused bits set
    presences: dict[
        tuple[bytes | None, bytes | None, bool], Presence | None
    ]  # by the bitmaps, so that the same is the same object

    @classmethod
    def of(cls, table_map: TableMap) -> _Known:
        width = len(table_map.columns)
        return cls(table_map, width, b"\xff" * ((width + 7) // 8), {})

    def presence(self, before: bytes | None, after: bytes | None, diffs: bool) -> Presence | None:
        """What the bitmaps of an event say (None: no such image); None where every column is there, as nearly always.

        MySQL sets the last byte's unused bits, MariaDB does not.
        """
        whole = self.all_present
        if (before is None or before == whole) and (after is None or after == whole) and not diffs:
            return None
        key = (before, after, diffs)
        if key not in self.presences:
            if len(self.presences) >= _PRESENCES_MAX:
                self.presences.clear()
            first, second = self._columns(before), self._columns(after)
            all_there = all(len(side) == self.width for side in (first, second) if side is not None)
            self.presences[key] = None if all_there and not diffs else Presence(first or (), second or (), diffs)
        return self.presences[key]

    def _columns(self, bitmap: bytes | None) -> tuple[int, ...] | None:
        if bitmap is None:
            return None
        return tuple(n for n in range(self.width) if bitmap[n >> 3] >> (n & 7) & 1)


class Tables:
    """The tables described so far in a binlog file."""

    def __init__(self, wants: Callable[[TableName], bool]) -> None:
        self._wants = wants
        self._by_number: dict[int, _Known | None] = {}  # None for a table that is not wanted
        self._by_text: dict[bytes, _Known | None] = {}  # by the TABLE_MAP's bytes: the same map is the same object

    def forget(self) -> None:
        """Table numbers hold in one file only: a restarted server gives them out anew."""
        self._by_number.clear()

    def describe(self, body: bytes, flavour: Flavour) -> None:
        """Take a TABLE_MAP. Errors as `parse_table_map`, for a wanted table."""
        try:
            known = self._by_text[body]
        except KeyError:
            known = _Known.of(parse_table_map(body, flavour)) if self._wants(table_name(body)) else None
            if len(self._by_text) >= _MAPS_MAX:
                self._by_text.clear()
            self._by_text[body] = known
        self._by_number[int.from_bytes(body[:6], "little")] = known

    def described(self, body: bytes) -> TableMap | None:
        """The wanted table that a TABLE_MAP taken before is of; None for any other."""
        known = self._by_text.get(body)
        return known.table_map if known else None

    def rows(
        self, kind: int, body: memoryview, place: Place
    ) -> tuple[TableMap, Op, bytes | memoryview, Presence | None] | None:
        """A row event's table, what it did, its images and what stands in them.

        None where the table is not wanted or no row is there. Images without a column in them are given out: there was
        a row, of which the event says nothing.
        """
        known = self._known(body, place)
        if known is None:
            return None
        op, version, compressed = events.ROWS[kind]
        at = 8
        if version == 2:
            at += int.from_bytes(body[8:10], "little")
            if at < 10:
                raise ValueError("extra data shorter than its own length")
        width, at = packed(body, at)
        size = len(known.all_present)
        before = after = None
        if op != "c":
            before = bytes(body[at : at + size])
            at += size
        if op != "d":
            after = bytes(body[at : at + size])
            at += size
        if width != known.width or at > len(body):
            raise ValueError(f"a row event of {width} columns under a table map of {known.width}")
        presence = known.presence(before, after, kind == events.PARTIAL_UPDATE_ROWS)
        images: bytes | memoryview = body[at:]
        if compressed:
            images = inflate(images)
        return (known.table_map, op, images, presence) if images or presence else None

    def _known(self, body: memoryview, place: Place) -> _Known | None:
        number = int.from_bytes(body[:6], "little")
        try:
            return self._by_number[number]
        except KeyError:
            if number in _NO_TABLE:
                return None
            raise place.error(
                f"a row event is of the table number {number}, which was not described before it",
                hint="run again; a read has to begin at a boundary",
            ) from None
