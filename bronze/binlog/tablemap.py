"""TABLE_MAP: which table and columns the row images after it are of, in the event's own words.

With `binlog_row_metadata=FULL` the event names its columns and gives all that is needed to read them, so a row is
always decoded as it was written, whatever the table has become since. The columns are built with the same fields as
`column_from_catalog` gives, as far as the event can tell. It cannot tell TINYINT(1) from TINYINT, MariaDB's JSON, UUID,
INET4, INET6 and VECTOR from what they are stored as, nor the name `utf8` that old servers give utf8mb3: the caller
conforms these to the table's registered schema.

Source: MySQL, libs/mysql/binlog/event/rows_event.h (Table_map_event, Optional_metadata_fields); MariaDB,
sql/log_event.cc (Table_map_log_event::init_metadata_fields).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from bronze.binlog.collations import BINARY, Collation, collation
from bronze.binlog.columns import WireColumn
from bronze.binlog.compressed import packed
from bronze.binlog.gtid import Flavour
from bronze.decode.charsets import decode
from bronze.decode.finish import cell
from lakeward.errors import FailClosedError
from lakeward.names import TableName
from lakeward.schema import Column

METADATA_HINT: Final = (
    "SET GLOBAL binlog_row_metadata='FULL', reconnect the writers, then `lakeward resnapshot` the table"
)

VARCHAR, BIT, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 15, 16, 246, 247, 248, 252, 253, 254, 255
YEAR, TIMESTAMP2, DATETIME2, TIME2, VECTOR, JSON = 13, 17, 18, 19, 242, 245
_NUMERIC = frozenset((1, 2, 3, 4, 5, 8, 9, YEAR, NEWDECIMAL))  # those that have a bit of signedness
# Those that have a charset, as seen on MySQL 9.7 and MariaDB 11.4: each counts one type more than texts and bytes.
_CHARACTER: dict[Flavour, frozenset[int]] = {
    "mysql": frozenset((VARCHAR, VAR_STRING, STRING, BLOB, VECTOR)),
    "mariadb": frozenset((VARCHAR, VAR_STRING, STRING, BLOB, GEOMETRY)),
}
# fmt: off
_KINDS = {
    1: "tinyint", 2: "smallint", 9: "mediumint", 3: "int", 8: "bigint", 4: "float", 5: "double", NEWDECIMAL: "decimal",
    BIT: "bit", YEAR: "year", 10: "date", 14: "date", 12: "datetime", DATETIME2: "datetime", 7: "timestamp",
    TIMESTAMP2: "timestamp", 11: "time", TIME2: "time", ENUM: "enum", SET: "set", JSON: "json", GEOMETRY: "geometry",
    VECTOR: "vector",
}
# fmt: on
_META_BYTES = {
    **dict.fromkeys((VARCHAR, VAR_STRING, STRING, BIT, NEWDECIMAL, ENUM, SET), 2),
    **dict.fromkeys((4, 5, BLOB, GEOMETRY, JSON, VECTOR, TIMESTAMP2, DATETIME2, TIME2), 1),
    **dict.fromkeys((1, 2, 3, 7, 8, 9, 10, 11, 12, 13, 14), 0),
}
_REFUSED = {
    140: "a compressed BLOB or TEXT",
    141: "a compressed VARCHAR or VARBINARY",
    244: "an internal type",
}

# Optional metadata, by number.
_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_KEY, _PREFIX_KEY, _ENUM_DEFAULT_CHARSET, _ENUM_COLUMN_CHARSET, _DIMENSIONS = 8, 9, 10, 11, 13


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table as the binlog describes it. Two events with the same description share `columns` and `key`."""

    table_id: int
    name: TableName
    columns: tuple[WireColumn, ...]
    key: tuple[int, ...]  # numbers of the primary key's columns, in its order; () where there is none
    complete: bool  # the description is FULL; the reader refuses any other


def table_name(body: bytes) -> TableName:
    """The table that a TABLE_MAP event's body is of, and nothing more. `body` begins after the event's header."""
    schema_end = 9 + body[8]
    table_end = schema_end + 2 + body[schema_end + 1]
    return TableName(body[9:schema_end].decode("utf-8"), body[schema_end + 2 : table_end].decode("utf-8"))


def parse_table_map(body: bytes, flavour: Flavour) -> TableMap:
    """The TABLE_MAP event with this body. Post-headers of six bytes of table id, as every server since 5.1 writes.

    Raises FailClosedError (without a position, which the caller knows) where the description is not FULL, a column is
    of a type that has no place in the lake, or a charset is unknown; one of `compressed.MALFORMED` where the body is
    broken.
    """
    name, columns, key = _described(body[8:], flavour)
    return TableMap(int.from_bytes(body[:6], "little"), name, columns, key, True)


@lru_cache(maxsize=4096)
def _described(text: bytes, flavour: Flavour) -> tuple[TableName, tuple[WireColumn, ...], tuple[int, ...]]:
    name = table_name(bytes(8) + text)
    at = 1 + text[0] + 1
    at += 1 + text[at] + 1
    count, at = packed(text, at)
    types = text[at : at + count]
    length, at = packed(text, at + count)
    physical = _physical(types, text[at : at + length], name)
    at += length
    null_bits = text[at : at + (count + 7) // 8]
    fields = dict(_optional(text[at + len(null_bits) :]))
    if count and _NAMES not in fields:
        raise FailClosedError("the binlog does not name the columns of a row event", hint=METADATA_HINT, table=name)
    names = [n.decode("utf-8") for n in _strings(fields.get(_NAMES, b""))]
    if len(names) != count or len(types) != count or len(null_bits) != (count + 7) // 8:
        raise ValueError("a table map whose parts differ in length")
    reader = _Fields(fields, [code for code, _ in physical], flavour, name)
    columns = tuple(
        _column(n, names[n], code, meta, bool(null_bits[n // 8] >> (n % 8) & 1), reader)
        for n, (code, meta) in enumerate(physical)
    )
    for column in columns:
        cell(column)  # refuses sizes that a type does not have
    key = _key(fields)
    if not columns or any(number >= count for number in key):
        raise ValueError("a table map without columns, or of a key that is none of them")
    return name, columns, key


def _physical(types: bytes, metadata: bytes, name: TableName) -> list[tuple[int, int]]:
    """Each column's real type and its meta, as WireColumn has them."""
    result = []
    at = 0
    for number, code in enumerate(types):
        size = _META_BYTES.get(code)
        if size is None:
            raise FailClosedError(
                f"column {number + 1} is stored as {_REFUSED.get(code, f'type {code}')}, which Lakeward cannot read",
                hint=f"make it an ordinary column, or put {name} into [source] exclude",
                table=name,
            )
        if at + size > len(metadata):
            raise EOFError("a table map's metadata is cut off")
        low, high = (*metadata[at : at + size], 0, 0)[:2]
        at += size
        if code in (STRING, ENUM, SET):
            # The real type, then the length; lengths above 255 take two bits of the type (Field_string::do_save_…).
            if low & 0x30 != 0x30:
                result.append((low | 0x30, high | (low & 0x30 ^ 0x30) << 4))
            else:
                result.append((low, high))
        elif code in (VARCHAR, VAR_STRING):
            result.append((VARCHAR, low | high << 8))
        elif code == NEWDECIMAL:
            result.append((code, low << 8 | high))
        elif code == BIT:
            result.append((code, low + 8 * high))
        elif code in (4, 5):
            result.append((code, 0))
        else:
            result.append((code, low))
    if at != len(metadata):
        raise ValueError("a table map's metadata is longer than its columns'")
    return result


def _optional(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        length, start = packed(data, at + 1)
        if start + length > len(data):
            raise EOFError("a table map's optional metadata is cut off")
        yield data[at], data[start : start + length]
        at = start + length


class _Fields:
    """The optional metadata spread over the columns they are of."""

    def __init__(self, fields: dict[int, bytes], codes: list[int], flavour: Flavour, table: TableName) -> None:
        def those(belongs: Callable[[int], bool]) -> list[int]:
            return [n for n, code in enumerate(codes) if belongs(code)]

        self.flavour = flavour
        self.table = table
        numeric = those(_NUMERIC.__contains__)
        bits = fields.get(_SIGNEDNESS, b"")
        if len(bits) < (len(numeric) + 7) // 8:
            raise FailClosedError("a table map does not tell signs", hint=METADATA_HINT, table=table)
        self.unsigned = {c for n, c in enumerate(numeric) if bits[n // 8] << (n % 8) & 0x80}
        characters = those(_CHARACTER[flavour].__contains__)
        self.collations = dict(
            zip(characters, _charsets(fields, _DEFAULT_CHARSET, len(characters), table), strict=True)
        )
        enumerated = those((ENUM, SET).__contains__)
        charsets = _charsets(fields, _ENUM_DEFAULT_CHARSET, len(enumerated), table)
        self.collations.update(zip(enumerated, charsets, strict=True))
        self.labels: dict[int, list[bytes]] = {}
        for code, field in ((ENUM, _ENUM_LABELS), (SET, _SET_LABELS)):
            self.labels.update(zip(those(code.__eq__), _label_lists(fields.get(field, b"")), strict=True))
        self.dimensions = dict(zip(those(VECTOR.__eq__), _numbers(fields.get(_DIMENSIONS, b"")), strict=True))

    def collation(self, number: int, column: str) -> Collation:
        found = collation(number, self.flavour)
        if found is None:
            raise FailClosedError(
                f"column {column!r} has the collation {number}, which Lakeward does not know",
                hint="give the column a collation that MySQL 9 or MariaDB 11.4 has, then `lakeward resnapshot` it",
                table=self.table,
            )
        return found


def _charsets(fields: dict[int, bytes], default: int, count: int, table: TableName) -> list[int]:
    """The collation of each character column: one by one, or a default and those that differ."""
    if not count:
        return []
    if default in fields:
        first, *pairs = _numbers(fields[default])
        result = [first] * count
        for index, number in zip(pairs[::2], pairs[1::2], strict=True):
            result[index] = number
        return result
    if default + 1 not in fields:
        raise FailClosedError("a table map does not tell charsets", hint=METADATA_HINT, table=table)
    return _numbers(fields[default + 1])


def _key(fields: dict[int, bytes]) -> tuple[int, ...]:
    if _PREFIX_KEY in fields:
        return tuple(_numbers(fields[_PREFIX_KEY])[::2])
    return tuple(_numbers(fields.get(_KEY, b"")))


def _column(number: int, name: str, code: int, meta: int, nullable: bool, fields: _Fields) -> WireColumn:
    collation_id = fields.collations.get(number, 0)
    text = collation_id not in (0, BINARY) or code in (ENUM, SET)
    found = fields.collation(collation_id, name) if text else None
    width = found.width if found else 1
    # The server sends labels that are binary as they are, to a client that takes them for utf8mb4.
    labels_in = "utf8mb4" if found is None or collation_id == BINARY else found.charset
    kind = _KINDS.get(code) or {
        STRING: "char" if text else "binary",
        VARCHAR: "varchar" if text else "varbinary",
        BLOB: "text" if text else "blob",
    }.get(code)
    if kind is None:
        raise ValueError(f"column type {code}")
    column = Column(
        name=name,
        kind=kind,
        unsigned=number in fields.unsigned and code != YEAR,  # it has a sign of its own: none
        length={
            STRING: max(1, meta // width),
            VARCHAR: meta // width,
            BIT: meta,
            VECTOR: fields.dimensions.get(number),
        }.get(code),
        precision=meta >> 8 if code == NEWDECIMAL else 0,
        scale=meta & 0xFF if code == NEWDECIMAL else 0,
        fsp=meta if code in (TIMESTAMP2, DATETIME2, TIME2) else 0,
        charset=found.charset if found else None,
        collation=found.name if found else None,
        labels=tuple(decode(label, labels_in) for label in fields.labels[number]) if code in (ENUM, SET) else (),
        nullable=nullable,
    )
    return WireColumn(code, meta, collation_id, column)


def _numbers(data: bytes) -> list[int]:
    result = []
    at = 0
    while at < len(data):
        value, at = packed(data, at)
        result.append(value)
    return result


def _strings(data: bytes) -> list[bytes]:
    result = []
    at = 0
    while at < len(data):
        length, at = packed(data, at)
        if at + length > len(data):
            raise EOFError("a name is cut off")
        result.append(data[at : at + length])
        at += length
    return result


def _label_lists(data: bytes) -> list[list[bytes]]:
    result = []
    at = 0
    while at < len(data):
        count, at = packed(data, at)
        labels = []
        for _ in range(count):
            length, at = packed(data, at)
            if at + length > len(data):
                raise EOFError("a label is cut off")
            labels.append(data[at : at + length])
            at += length
        result.append(labels)
    return result
