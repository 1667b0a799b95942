"""The frame around every binlog event: its header, its checksum, its type, and what a file says about itself.

Nothing here trusts a length it has not checked: an event shorter than its header says, or whose CRC32 differs, stops
the run. So does a type that is not in this list, unless its writer marked it as one that may be ignored.

Source: MySQL, libs/mysql/binlog/event/binlog_event.h and control_events.h; MariaDB, sql/log_event.h.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, Literal, NamedTuple

from bronze.binlog.gtid import Flavour
from lakeward.errors import FailClosedError

Raw = bytes | bytearray | memoryview
Op = Literal["c", "u", "d"]

HEADER: Final = struct.Struct("<IBIIIH")  # timestamp, type, server id, event size, end position, flags
HEADER_SIZE: Final = 19
CHECKSUM_SIZE: Final = 4
MAGIC: Final = b"\xfebin"

NO_FOREIGN_KEY_CHECKS: Final = 0x2  # flag of a row event (rows_event.h): its session had them off
IN_USE: Final = 0x1  # flag of a format description whose file is not closed
ARTIFICIAL: Final = 0x20  # made by the server for this connection, in no file
IGNORABLE: Final = 0x80

QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
INTVAR: Final = 5
APPEND_BLOCK: Final = 9
DELETE_FILE: Final = 11
RAND: Final = 13
USER_VAR: Final = 14
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
BEGIN_LOAD_QUERY: Final = 17
EXECUTE_LOAD_QUERY: Final = 18
TABLE_MAP: Final = 19
INCIDENT: Final = 26
HEARTBEAT: Final = 27
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
HEARTBEAT_V2: Final = 41
GTID_TAGGED: Final = 42
MARIADB_GTID: Final = 162
MARIADB_GTID_LIST: Final = 163
MARIADB_START_ENCRYPTION: Final = 164
MARIADB_QUERY_COMPRESSED: Final = 165

# type → (op, version of its header, whether MariaDB compressed its images)
# fmt: off
ROWS: Final[dict[int, tuple[Op, int, bool]]] = {
    23: ("c", 1, False), 24: ("u", 1, False), 25: ("d", 1, False),
    30: ("c", 2, False), 31: ("u", 2, False), 32: ("d", 2, False),
    166: ("c", 1, True), 167: ("u", 1, True), 168: ("d", 1, True),
    169: ("c", 2, True), 170: ("u", 2, True), 171: ("d", 2, True),
    PARTIAL_UPDATE_ROWS: ("u", 2, False),
}
# fmt: on

# They say nothing about rows: STOP, what only statement format uses beside the statement itself (INTVAR, RAND,
# USER_VAR, the blocks of a LOAD DATA), IGNORABLE, ROWS_QUERY, group replication's TRANSACTION_CONTEXT and VIEW_CHANGE,
# MariaDB's ANNOTATE_ROWS and BINLOG_CHECKPOINT.
PASSED_OVER: Final = frozenset(
    (STOP, INTVAR, APPEND_BLOCK, DELETE_FILE, RAND, USER_VAR, BEGIN_LOAD_QUERY, 28, 29, 36, 37, 160, 161)
)
HEARTBEATS: Final = frozenset((HEARTBEAT, HEARTBEAT_V2))
# A server repeats them for a reader that begins inside a file, without a position.
OPENING: Final = frozenset((FORMAT_DESCRIPTION, ROTATE, MARIADB_GTID_LIST))


class Place(NamedTuple):
    """Where an event stands, for what is said about it."""

    file: int
    pos: int

    def error(self, message: str, *, hint: str, **facts: object) -> FailClosedError:
        return FailClosedError(message, hint=hint, **facts, binlog_file_number=self.file, position=self.pos)


class FormatDescription(NamedTuple):
    """What the writer of a file says about it."""

    server_version: str
    flavour: Flavour
    checksum: bool  # each event ends with a CRC32


def parse_format_description(raw: Raw, place: Place) -> FormatDescription:
    """The FORMAT_DESCRIPTION event `raw`, checksum and all. Raises FailClosedError if it is of an unknown format."""
    body = bytes(raw[HEADER_SIZE:])
    if len(body) < 57 + TABLE_MAP + CHECKSUM_SIZE + 1 or body[:2] != b"\x04\x00" or body[56] != HEADER_SIZE:
        raise place.error(
            "the binlog is not of version 4, which every server since MySQL 5.0 writes",
            hint="start from a file that the present server wrote: `lakeward resnapshot`",
        )
    version = body[2:52].rstrip(b"\0").decode("ascii", "replace")
    algorithm = body[-CHECKSUM_SIZE - 1]
    if algorithm not in (0, 1):
        raise place.error(
            f"the binlog's checksum algorithm {algorithm} is unknown",
            hint="SET GLOBAL binlog_checksum = 'CRC32', then `lakeward resnapshot`",
        )
    lengths = body[57 : -CHECKSUM_SIZE - 1]
    if lengths[TABLE_MAP - 1] != 8:
        raise place.error("the binlog is of a server before MySQL 5.1", hint="replicate from a later server")
    flavour: Flavour = "mariadb" if "mariadb" in version.lower() else "mysql"
    described = FormatDescription(version, flavour, algorithm == 1)
    if described.checksum:
        # The flag is cleared in place when the file is closed, so the checksum is that of the event without it.
        closed = bytearray(raw)
        closed[17] &= 0xFF ^ IN_USE
        check_crc(closed, place)
    return described


def check_size(raw: Raw, place: Place) -> None:
    """Raises FailClosedError unless the event is as long as its header says."""
    if len(raw) < HEADER_SIZE or HEADER.unpack_from(raw)[3] != len(raw):
        said = HEADER.unpack_from(raw)[3] if len(raw) >= HEADER_SIZE else HEADER_SIZE
        raise place.error(
            f"the binlog event is cut off: {len(raw)} bytes of {said}",
            hint="run again; if it stays so the server's binlog is damaged: `lakeward resnapshot` of all tables",
        )


def has_crc(raw: Raw) -> bool:
    """Whether the last four bytes are the CRC32 of those before them."""
    end = len(raw) - CHECKSUM_SIZE
    return end >= HEADER_SIZE and zlib.crc32(raw[:end]) == int.from_bytes(raw[end:], "little")


def check_crc(raw: Raw, place: Place) -> None:
    """Raises FailClosedError if the event's bytes are not those that were written."""
    if not has_crc(raw):
        raise place.error(
            "the binlog event's CRC32 does not match its bytes: it was damaged on disk or on the way",
            hint="run again; if it stays so the server's binlog is damaged: `lakeward resnapshot` of all tables",
        )


def refused(kind: int, place: Place) -> FailClosedError:
    """The error for an event that the run cannot go past."""
    if kind == INCIDENT:
        return place.error(
            "the server says that it lost changes here (an INCIDENT event)",
            hint="`lakeward resnapshot` of all tables",
            event_type=kind,
        )
    if kind == MARIADB_START_ENCRYPTION:
        return place.error(
            "the binlog file is encrypted", hint="read it through the server, which decrypts it", event_type=kind
        )
    return place.error(
        f"the binlog event type {kind} is unknown to Lakeward, so what it changed is too",
        hint="use a version of Lakeward that knows it, or `lakeward resnapshot` of all tables to start after it",
        event_type=kind,
    )
