"""Binlog events made by hand, for what no server can be made to write at will."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence

import zstandard

from bronze.binlog.events import FORMAT_DESCRIPTION, HEADER, HEADER_SIZE
from lakeward.position import FIRST

TABLE_ID = 77
XID, GTID, TABLE_MAP, PAYLOAD = 16, 33, 19, 40
NAME = ("hand", "made")
UUID = bytes(range(16))


class Writer:
    """Events one after the other, as they stand in a file; positions and checksums are right unless made otherwise."""

    def __init__(
        self, *, version: str = "9.7.0", checksum: bool = True, pos: int = FIRST, seconds: int = 1_700_000_000
    ) -> None:
        self.checksum = checksum
        self.pos = pos
        self.seconds = seconds
        self.events: list[bytes] = []
        lengths = bytes(8 if number == TABLE_MAP else 13 for number in range(1, 172))
        body = struct.pack("<H50sIB", 4, version.encode(), seconds, HEADER_SIZE) + lengths + bytes([checksum])
        # It ends with a checksum, or the room for one.
        self.put(FORMAT_DESCRIPTION, body if checksum else body + bytes(4))

    def put(self, kind: int, body: bytes, *, flags: int = 0, placed: bool = True, server: int = 1) -> None:
        """Append an event. One that is not placed was made for the connection, and stands nowhere."""
        size = HEADER_SIZE + len(body) + 4 * self.checksum
        if placed:
            self.pos += size
        self.events.append(
            sealed(HEADER.pack(self.seconds, kind, server, size, self.pos % 2**32 if placed else 0, flags) + body)
            if self.checksum
            else HEADER.pack(self.seconds, kind, server, size, self.pos % 2**32 if placed else 0, flags) + body
        )

    def begin(self, number: int) -> None:
        """A GTID and a BEGIN."""
        self.put(GTID, b"\1" + UUID + struct.pack("<Q", number) + b"\2" + bytes(16))
        self.put(2, query(b"BEGIN"))

    def transaction(self, number: int, *events: tuple[int, bytes]) -> None:
        """GTID, BEGIN, the events, XID."""
        self.begin(number)
        for kind, body in events:
            self.put(kind, body)
        self.put(XID, struct.pack("<Q", number))


def sealed(event: bytes) -> bytes:
    """The event with its CRC32 behind it."""
    return event + zlib.crc32(event).to_bytes(4, "little")


def query(sql: bytes, *, schema: bytes = b"") -> bytes:
    return struct.pack("<IIBHH", 1, 0, len(schema), 0, 0) + schema + b"\0" + sql


def table_map(
    types: Sequence[tuple[int, bytes]], optional: Iterable[tuple[int, bytes]] = (), *, table_id: int = TABLE_ID
) -> bytes:
    """A TABLE_MAP of columns c0, c1, … of these types, each with its metadata. FULL, but for what `optional` adds."""
    schema, table = (name.encode() for name in NAME)
    names = b"".join(bytes([len(n)]) + n for n in (b"c%d" % i for i in range(len(types))))
    numeric = sum(code in (1, 2, 3, 4, 5, 8, 9, 13, 246) for code, _ in types)
    metadata = b"".join(meta for _, meta in types)
    fields = [(1, bytes((numeric + 7) // 8)), (4, names), *optional]
    tail = b"".join(bytes([number, len(data)]) + data for number, data in fields)
    return (
        struct.pack("<IHH", table_id, 0, 1)
        + bytes([len(schema)]) + schema + b"\0" + bytes([len(table)]) + table + b"\0"
        + bytes([len(types)]) + bytes(code for code, _ in types)
        + bytes([len(metadata)]) + metadata
        + b"\xff" * ((len(types) + 7) // 8)
        + tail
    )  # fmt: skip


def rows(columns: int, images: bytes, *, version: int = 2, extra: bytes = b"", update: bool = False) -> bytes:
    """A row event's body with every column present."""
    head = struct.pack("<IHH", TABLE_ID, 0, 1)
    if version == 2:
        head += struct.pack("<H", 2 + len(extra)) + extra
    return head + bytes([columns]) + b"\xff" * ((columns + 7) // 8 * (2 if update else 1)) + images


def inner(kind: int, body: bytes) -> bytes:
    """An event as it stands in a compressed transaction: without a checksum."""
    return HEADER.pack(1_700_000_000, kind, 1, HEADER_SIZE + len(body), 0, 0) + body


def payload(events: Iterable[bytes], *, whole: int | None = None, level: int = 1) -> bytes:
    """A TRANSACTION_PAYLOAD's body."""
    packer = zstandard.ZstdCompressor(level=level).compressobj()
    parts, size = [], 0
    for event in events:
        parts.append(packer.compress(event))
        size += len(event)
    parts.append(packer.flush())
    data = b"".join(parts)

    def field(number: int, value: int) -> bytes:
        return bytes([number, 9, 254]) + struct.pack("<Q", value)

    return field(1, len(data)) + bytes([2, 1, 0]) + field(3, size if whole is None else whole) + b"\0" + data
