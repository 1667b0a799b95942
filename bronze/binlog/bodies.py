"""The bodies of the events that are no rows: GTIDs, statements, rotations.

Pure functions over the bytes after an event's header and before its checksum. A body that ends too early raises one
of `compressed.MALFORMED`, which the reader turns into a FailClosedError with the event's position.

Source: MySQL, libs/mysql/binlog/event/*.h and libs/mysql/serialization/readme.md; MariaDB, sql/log_event.cc.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from bronze.binlog.collations import collation
from bronze.binlog.compressed import inflate
from bronze.binlog.gtid import GtidPosition, GtidSet
from bronze.decode.charsets import decode


class Gtid(NamedTuple):
    """A transaction's name and its commit time in milliseconds since 1970 UTC, 0 where the event has none.

    On a replica the time is that of the commit on the server where the transaction was first run.
    """

    uuid: str
    tag: str
    number: int
    ts_ms: int

    def __str__(self) -> str:
        return f"{self.uuid}:{self.tag}:{self.number}" if self.tag else f"{self.uuid}:{self.number}"


def parse_gtid(body: bytes) -> Gtid:
    """GTID and ANONYMOUS_GTID. The commit times came with MySQL 8.0."""
    (number,) = struct.unpack_from("<q", body, 17)
    if number < 0:
        raise ValueError("a GTID with a number that no server gives")
    ts_us = 0
    if len(body) >= 49:
        ts_us = int.from_bytes(body[42:49], "little")
        if ts_us >> 55:  # another server's commit time follows that of this one
            ts_us = int.from_bytes(body[49:56], "little")
    return Gtid(_uuid(body[1:17]), "", number, ts_us // 1000)


def parse_gtid_tagged(body: bytes) -> Gtid:
    """GTID_TAGGED (MySQL 8.4): fields by number, integers of varying length (mysql::serialization)."""
    at = 0

    def integer() -> int:
        nonlocal at
        more = _trailing_ones(body[at])
        value = int.from_bytes(body[at : at + more + 1], "little")
        at += more + 1
        return value >> (8 if more == 8 else more + 1)

    def signed() -> int:
        value = integer()
        return (value >> 1) ^ -(value & 1)

    version, size, last_needed = integer(), integer(), integer()
    if version != 1 or size > len(body) or last_needed > _TAGGED_LAST:
        raise ValueError("a GTID of a later format")
    fields: dict[int, Any] = {}
    while at < size:
        number = integer()
        if number == _TAGGED_UUID:
            fields[number] = bytes(integer() for _ in range(16))
        elif number == _TAGGED_TAG:
            length = integer()
            if length > size - at:
                raise EOFError("a tag is cut off")
            fields[number] = body[at : at + length].decode("ascii")
            at += length
        elif number in (_TAGGED_NUMBER, 4, 5):
            fields[number] = signed()
        elif number <= _TAGGED_LAST:
            fields[number] = integer()
        else:
            break  # later fields that a reader may leave out
    if not 0 <= fields[_TAGGED_NUMBER] < 1 << 63:
        raise ValueError("a GTID with a number that no server gives")
    ts_us = fields.get(_TAGGED_ORIGINAL_US, fields.get(_TAGGED_IMMEDIATE_US, 0))
    return Gtid(_uuid(fields[_TAGGED_UUID]), fields.get(_TAGGED_TAG, ""), fields[_TAGGED_NUMBER], ts_us // 1000)


_TAGGED_UUID, _TAGGED_NUMBER, _TAGGED_TAG = 1, 2, 3
_TAGGED_IMMEDIATE_US, _TAGGED_ORIGINAL_US, _TAGGED_LAST = 6, 7, 11


def parse_previous_gtids(body: bytes) -> GtidSet:
    """The GTIDs in all files before this one. From MySQL 8.4 on the format may carry tags."""
    result = GtidSet()
    tagged = body[7] == 1
    count = int.from_bytes(body[1:7] if tagged else body[:8], "little")
    at = 8
    for _ in range(count):
        uuid, tag = _uuid(body[at : at + 16]), ""
        at += 16
        if tagged:
            length = body[at] >> 1  # at most 32, so the integer of varying length is of one byte
            tag = body[at + 1 : at + 1 + length].decode("ascii")
            at += 1 + length
        (runs,) = struct.unpack_from("<Q", body, at)
        at += 8
        for _ in range(runs):
            first, beyond = struct.unpack_from("<QQ", body, at)
            at += 16
            if not 0 < first < beyond:
                raise ValueError("an interval of GTIDs that ends before it begins")
            result.add_interval(uuid, tag, first, beyond - 1)
    return result


class MariadbGtid(NamedTuple):
    domain: int
    server: int
    sequence: int
    standalone: bool  # one statement that commits itself; else rows follow until a commit
    xa: bool  # prepared now, committed by a later transaction
    alter: str  # "start", "rollback", "commit" of a two-phase ALTER, else ""

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"


def parse_mariadb_gtid(body: bytes, server: int) -> MariadbGtid:
    """MariaDB's GTID; `server` is the server id in the event's header."""
    sequence, domain, flags = struct.unpack_from("<QIB", body)
    at = 13
    if flags & 0x02:  # group commit id
        at += 8
    if flags & 0xC0:  # prepared or completed XA: format, two lengths, data
        at += 6 + body[at + 4] + body[at + 5]
    extra = body[at] if at < len(body) else 0
    alter = "start" if extra & 2 else "commit" if extra & 4 else "rollback" if extra & 8 else ""
    return MariadbGtid(domain, server, sequence, bool(flags & 0x01), bool(flags & 0x40), alter)


def parse_mariadb_gtid_list(body: bytes) -> GtidPosition:
    """The GTIDs before this file: for each domain its servers' last ones, the newest last."""
    result = GtidPosition()
    (count,) = struct.unpack_from("<I", body)
    for n in range(count & 0x0FFFFFFF):
        domain, server, sequence = struct.unpack_from("<IIQ", body, 4 + 16 * n)
        result.add(domain, server, sequence)
    return result


def parse_rotate(body: bytes) -> tuple[str, int]:
    """The next file's name and the position to go on at."""
    return body[8:].decode("utf-8"), int.from_bytes(body[:8], "little")


def parse_xa_prepare(body: bytes) -> tuple[str, bool]:
    """The XA id as statements spell it (`X'61',X'',1`), and whether this was a commit in one phase."""
    one_phase, form, gtrid, bqual = struct.unpack_from("<BIII", body)
    data = body[13 : 13 + gtrid + bqual]
    if len(data) != gtrid + bqual:
        raise EOFError("an XA id is cut off")
    return f"X'{data[:gtrid].hex()}',X'{data[gtrid:].hex()}',{form}", bool(one_phase)


class Query(NamedTuple):
    schema: str
    sql: str


def parse_query(body: bytes, *, post_header: int = 13, compressed: bool = False) -> Query:
    """QUERY, EXECUTE_LOAD_QUERY and MariaDB's QUERY_COMPRESSED: the default schema and the statement as text."""
    schema_length = body[8]
    (variables_length,) = struct.unpack_from("<H", body, 11)
    schema_at = post_header + variables_length
    if body[schema_at + schema_length] != 0:
        raise ValueError("a statement whose schema does not end where it should")
    schema = body[schema_at : schema_at + schema_length].decode("utf-8")
    text = body[schema_at + schema_length + 1 :]
    if compressed:
        text = bytes(inflate(text))
    if text.isascii():
        return Query(schema, text.decode("ascii"))
    number = _client_collation(body[post_header:schema_at])
    known = collation(number) if number is not None else None
    if number is not None and known is None:
        raise LookupError(f"the statement is in the unknown collation {number}")
    charset = known.charset if known else "utf8mb4"
    return Query(schema, text.decode("utf-8") if charset.startswith("utf8") else decode(text, charset))


# Status variables that may stand before the charset, and their sizes.
_VARIABLE_SIZES = {0: 4, 1: 8, 3: 4}
_CHARSET_VARIABLE, _CATALOG_VARIABLE = 4, 6


def _client_collation(variables: bytes) -> int | None:
    at = 0
    while at < len(variables):
        code = variables[at]
        at += 1
        if code == _CHARSET_VARIABLE:
            return int.from_bytes(variables[at : at + 2], "little")
        if code == _CATALOG_VARIABLE:
            at += 1 + variables[at]
        elif code in _VARIABLE_SIZES:
            at += _VARIABLE_SIZES[code]
        else:
            return None
    return None


def _trailing_ones(byte: int) -> int:
    return (~byte & (byte + 1)).bit_length() - 1 if byte != 0xFF else 8


def _uuid(data: bytes) -> str:
    if len(data) != 16:
        raise EOFError("a UUID is cut off")
    h = data.hex()
    return f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
