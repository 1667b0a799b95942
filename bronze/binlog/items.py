"""What reading a binlog yields: the rows, statements and resumable places of its transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from bronze.binlog.events import Op
from bronze.binlog.tablemap import TableMap


@dataclass(slots=True)
class Transaction:
    """One transaction of the source. The counters belong to whoever numbers its rows; they start at zero."""

    id: str  # its GTID, or "<file number>:<position>" of its begin where there is none
    gtid: str  # "" where there is none
    ts_ms: int  # commit time, milliseconds since 1970 UTC
    total_order: int = 0
    counters: dict[str, int] = field(default_factory=dict)  # rows so far, by table


@dataclass(frozen=True, slots=True)
class Presence:
    """What stands in an event's images: the columns' numbers in the table map, in order; () for an image it has not.

    `diffs`: it is a PARTIAL_UPDATE_ROWS, whose after images may hold changes of a JSON value in the value's place.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    diffs: bool = False


@dataclass(slots=True)
class RowsEvent:
    """The row images of one event of a table that is wanted. Every image has every column where `presence` is None.

    `pos` is where the event starts in the file numbered `file`. Where `in_payload` is set several events share one
    `pos` (that of the compressed transaction they came in, or of the XA COMMIT that made them effective), so the number
    of a row goes on from the previous event of that `pos`.
    """

    table_map: TableMap
    op: Op
    images: bytes | memoryview  # begins with the first row's first image
    file: int
    pos: int
    in_payload: bool
    transaction: Transaction
    presence: Presence | None = None
    unchecked: bool = False  # by a session with foreign_key_checks = 0: nothing cascaded from it

    @property
    def weight(self) -> int:
        """The bytes that its images would have with all columns, about: decoding costs as much memory either way."""
        if self.presence is None:
            return len(self.images)
        there = len(self.presence.before) + len(self.presence.after)
        return len(self.images) * len(self.table_map.columns) * (2 if self.op == "u" else 1) // max(1, there)


@dataclass(slots=True)
class Statement:
    """A statement that is in the binlog as text, transaction control left out. It may hold secrets: never log it."""

    schema: str  # the default schema it ran in, "" for none
    sql: str
    file: int
    pos: int
    end_pos: int
    ts_ms: int
    transaction: Transaction


@dataclass(slots=True)
class Boundary:
    """A resumable place: everything before it is complete, nothing after it has been yielded."""

    file: int
    pos: int
    gtid: str  # GTID set (MySQL) or position (MariaDB) executed up to here; "" where GTIDs are off
    ts_ms: int  # commit time of the last transaction before it, 0 where none was seen
