"""Where each raw event stands, that none is missing, and that its bytes are whole."""

from __future__ import annotations

from typing import Final

from bronze.binlog import bodies, events
from bronze.binlog.events import CHECKSUM_SIZE, HEADER, HEADER_SIZE, FormatDescription, Place, Raw
from bronze.binlog.gtid import Flavour
from lakeward.errors import WrongServerError
from lakeward.position import FIRST, binlog_number

WRAP: Final = 1 << 32  # the header's position starts again there, and a dump cannot be asked for from beyond
_START_ENCRYPTION_BYTES_MAX: Final = 64


class Frame:
    """The place in the log while it is read. `file` and `pos` are those of the next event."""

    def __init__(self, file: int) -> None:
        self.file = file
        self.pos = FIRST
        self.described: FormatDescription | None = None
        self.just_described = False

    @property
    def flavour(self) -> Flavour | None:
        return self.described.flavour if self.described else None

    def place(self, raw: Raw) -> tuple[Place, bool]:
        """Where the event starts, and whether the server made it for this connection, so that it stands nowhere.

        Moves on behind it. Raises FailClosedError for an event that is cut off or does not follow the last one.
        """
        events.check_size(raw, Place(self.file, self.pos))
        _, kind, _, size, log_pos, flags = HEADER.unpack_from(raw)
        if flags & events.ARTIFICIAL or kind in events.HEARTBEATS or (log_pos == 0 and kind in events.OPENING):
            return Place(self.file, self.pos), True
        # From 11.4 on MariaDB writes no position into the events of a transaction.
        gap = (log_pos - self.pos - size) % WRAP if log_pos else 0
        # It keeps the event that says how a file is encrypted, which follows the description, to itself.
        if gap and not (self.just_described and self.flavour == "mariadb" and gap <= _START_ENCRYPTION_BYTES_MAX):
            raise Place(self.file, self.pos).error(
                f"the next binlog event ends at {log_pos}, not at {(self.pos + size) % WRAP}: events are missing",
                hint="run again; if it stays so, `lakeward resnapshot` of all tables",
            )
        self.just_described = kind == events.FORMAT_DESCRIPTION
        self.pos += size + gap
        return Place(self.file, self.pos - size), False

    def body(self, raw: Raw, place: Place) -> memoryview:
        """What stands between the header and the checksum, which is verified."""
        if self.described is None:
            raise place.error(
                "the binlog does not begin with its format description",
                hint="run again; a read has to begin at a boundary",
            )
        if not self.described.checksum:
            return memoryview(raw)[HEADER_SIZE:]
        events.check_crc(raw, place)
        return memoryview(raw)[HEADER_SIZE:-CHECKSUM_SIZE]

    def describe(self, raw: Raw, place: Place) -> Flavour:
        """Take a FORMAT_DESCRIPTION."""
        self.described = events.parse_format_description(raw, place)
        return self.described.flavour

    def rotate(self, raw: Raw, place: Place, artificial: bool) -> None:
        """Take a ROTATE: the next event stands where it says.

        Raises WrongServerError when that is in an earlier file.
        """
        if artificial:
            # The first one comes before the format description, which says whether there are checksums.
            body = memoryview(raw)[HEADER_SIZE : -CHECKSUM_SIZE if events.has_crc(raw) else None]
        else:
            body = self.body(raw, place)
        name, pos = bodies.parse_rotate(bytes(body))
        number = binlog_number(name)
        if number < self.file:
            raise WrongServerError(
                f"the server's binlog went back from file number {self.file} to {name}",
                hint="its binlog was reset: `lakeward resnapshot` of all tables",
            )
        self.file, self.pos = number, pos
