"""Row events: of which table they are, and that their images are whole.

A row event says no more than a table's number, which the TABLE_MAP before it explains. Tables that nobody wants cost
one look at their name, whatever their types are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bronze.binlog import bodies, events
from bronze.binlog.events import Op, Place
from bronze.binlog.gtid import Flavour
from bronze.binlog.tablemap import TableMap, parse_table_map, table_name
from lakeward.names import TableName

_MAPS_MAX: Final = 4096
_NO_TABLE: Final = frozenset((0xFFFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFF))  # of the empty event that ends a statement


@dataclass(slots=True)
class _Known:
    """A wanted table's map with what its row events are checked against."""

    table_map: TableMap
    width: int
    all_present: bytes  # the bitmap of an image that has every column, unused bits set

    @classmethod
    def of(cls, table_map: TableMap) -> _Known:
        width = len(table_map.columns)
        return cls(table_map, width, b"\xff" * ((width + 7) // 8))

    def all_in(self, present: bytes) -> bool:
        """Whether every column is there. MySQL sets the last byte's unused bits, MariaDB does not."""
        if present == self.all_present:
            return True
        unused = 0xFF & ~((1 << (self.width - 1) % 8 + 1) - 1)
        return present[:-1] == self.all_present[1:] and present[-1] | unused == 0xFF


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

    def rows(self, kind: int, body: memoryview, place: Place) -> tuple[TableMap, Op, bytes | memoryview] | None:
        """A row event's table, what it did, and its images; None where the table is not wanted or no row is there.

        Raises FailClosedError for images that lack a column: what is not there is not NULL.
        """
        known = self._known(body, place)
        if known is None:
            return None
        op, version, compressed = events.ROWS[kind]
        at = 8 + (int.from_bytes(body[8:10], "little") if version == 2 else 0)
        width, at = bodies.packed(body, at)
        size = len(known.all_present)
        for _ in range(2 if op == "u" else 1):
            present = bytes(body[at : at + size])
            at += size
            if width != known.width or not known.all_in(present):
                raise place.error(
                    "the row images of an event lack columns: a session wrote with binlog_row_image MINIMAL or NOBLOB",
                    hint="SET GLOBAL binlog_row_image='FULL', let no session change it, "
                    f"then `lakeward resnapshot {known.table_map.name}`",
                    table=known.table_map.name,
                )
        images: bytes | memoryview = body[at:]
        if compressed:
            images = bodies.inflate(images)
        return (known.table_map, op, images) if images else None

    def refuse_partial(self, body: memoryview, place: Place) -> None:
        """Raises FailClosedError for a PARTIAL_UPDATE_ROWS event of a wanted table."""
        known = self._known(body, place)
        if known is not None:
            raise place.error(
                "an update is in the binlog with only the changed part of a JSON value",
                hint="SET GLOBAL binlog_row_value_options='', reconnect the writers, "
                f"then `lakeward resnapshot {known.table_map.name}`",
                table=known.table_map.name,
            )

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
