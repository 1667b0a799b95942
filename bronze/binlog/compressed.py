"""What is compressed in the binlog, and what may go wrong with it: MariaDB's events and MySQL's whole transactions.

Nothing is believed of the size of what comes out but what comes out, and never more than a server could have written.

Source: MySQL, libs/mysql/binlog/event/compression; MariaDB, sql/log_event.cc (row_log_event_uncompress).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import zstandard

from bronze.binlog.events import HEADER, HEADER_SIZE, Raw

# Far more than a server writes: a row is at most max_allowed_packet, which goes to 1 GiB.
EVENT_BYTES_MAX = (1 << 30) + (1 << 20)
MALFORMED = (IndexError, ValueError, LookupError, struct.error, zlib.error, zstandard.ZstdError, EOFError)
_PAYLOAD_SIZE, _PAYLOAD_ALGORITHM, _PAYLOAD_WHOLE = 1, 2, 3


def inflate(data: Raw) -> bytes:
    """MariaDB's compressed part of an event: a byte with the number of length bytes, the length, zlib."""
    head = data[0]
    if head & 0x70:
        raise ValueError(f"MariaDB compression algorithm {head >> 4 & 7}")
    width = head & 0x07
    length = int.from_bytes(data[1 : 1 + width], "big")
    if length > EVENT_BYTES_MAX:
        raise ValueError(f"{length} bytes in one compressed event")
    stream = zlib.decompressobj()
    text = stream.decompress(data[1 + width :], length + 1)
    if len(text) != length or not stream.eof or stream.unused_data:
        raise ValueError(f"a compressed part that is not the {length} bytes it says")
    return text


def payload_events(body: bytes) -> Iterator[bytes]:
    """The events inside a TRANSACTION_PAYLOAD, headers and all, without checksums.

    They are read from the decompressor one by one, so a transaction of any size costs the memory of its largest event.
    """
    at = 0
    fields: dict[int, int] = {}
    while True:
        kind, at = packed(body, at)
        if kind == 0:
            break
        length, at = packed(body, at)
        fields[kind], end = packed(body, at)
        if end != at + length:
            raise ValueError("a field of a compressed transaction whose length does not add up")
        at = end
    data = memoryview(body)[at:]
    if len(data) != fields.get(_PAYLOAD_SIZE, len(data)):
        raise EOFError("the compressed transaction is not as long as it says")
    algorithm = fields.get(_PAYLOAD_ALGORITHM)
    if algorithm not in (0, 255):
        raise ValueError(f"compression algorithm {algorithm}")
    whole = 0
    for event in _zstd_events(data) if algorithm == 0 else _plain_events(data):
        whole += len(event)
        yield event
    if whole != fields.get(_PAYLOAD_WHOLE, whole):
        raise EOFError("the compressed transaction does not hold as much as it says")


def _plain_events(data: memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = HEADER.unpack_from(data, at)[3]
        if size < HEADER_SIZE or at + size > len(data):
            raise EOFError("an event in the transaction is cut off")
        yield bytes(data[at : at + size])
        at += size


def _zstd_events(data: memoryview) -> Iterator[bytes]:
    with zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True) as stream:
        while head := _read(stream, HEADER_SIZE):
            if len(head) < HEADER_SIZE:
                raise EOFError("an event in the compressed transaction is cut off")
            size = HEADER.unpack(head)[3] - HEADER_SIZE
            if not 0 <= size <= EVENT_BYTES_MAX:
                raise ValueError(f"an event of {size} bytes in the compressed transaction")
            rest = _read(stream, size)
            if len(rest) != size:
                raise EOFError("an event in the compressed transaction is cut off")
            yield head + rest


def _read(stream: Any, size: int) -> bytes:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            break
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def packed(data: Raw, at: int) -> tuple[int, int]:
    """A length-encoded integer and the place after it (MySQL's net_field_length)."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    if at + 1 + width > len(data):
        raise EOFError("an integer is cut off")
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width
