"""A source table's columns and what each becomes in the lake: the type table of the contract, in one place.

Both paths into bronze (snapshot and binlog) build these same `Column`s, so a value cannot take one type on one path
and another on the other. The mapping is total over `KINDS`; a type outside it is refused by name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from lakeward.errors import TerminalError
from lakeward.names import TableName, spark_identifier

INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
STRINGS = ("char", "varchar", "text")  # text covers tinytext … longtext
BYTES = ("binary", "varbinary", "blob")  # blob covers tinyblob … longblob
TEMPORALS = ("date", "datetime", "timestamp")  # those that may hold zero or partial dates
KINDS = (
    *INTEGERS,
    *("decimal", "float", "double", "bit"),
    *TEMPORALS,
    *("time", "year"),
    *STRINGS,
    *BYTES,
    *("enum", "set", "json", "geometry", "vector", "uuid", "inet4", "inet6"),
)
GEOMETRY_ARROW = pa.struct([pa.field("srid", pa.int32()), pa.field("wkb", pa.binary())])

_GEOMETRIES = {
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"),
    *("geometrycollection", "geomcollection"),
}
_SYNONYMS = {
    **dict.fromkeys(("tinytext", "mediumtext", "longtext"), "text"),
    **dict.fromkeys(("tinyblob", "mediumblob", "longblob"), "blob"),
    **dict.fromkeys(_GEOMETRIES, "geometry"),
    "numeric": "decimal",
    "integer": "int",
}


@dataclass(frozen=True)
class Column:
    """One column of a source table. Sizes are those of the source: characters, bytes, bits or digits."""

    name: str
    kind: str  # one of KINDS
    unsigned: bool = False
    length: int | None = None  # CHAR, VARCHAR: characters; BINARY, VARBINARY: bytes; BIT: bits; VECTOR: entries
    precision: int = 0  # DECIMAL
    scale: int = 0  # DECIMAL
    fsp: int = 0  # fractional digits of DATETIME, TIMESTAMP, TIME
    charset: str | None = None
    collation: str | None = None
    labels: tuple[str, ...] = ()  # ENUM, SET: in the order of their numbers
    nullable: bool = True
    masked: bool = False  # a keyed hash stands in its place
    boolean: bool = False  # TINYINT(1) that `tinyint1 = "boolean"` turns into BOOLEAN

    @property
    def arrow(self) -> pa.DataType:
        """The column's type in Arrow."""
        return _arrow(self)

    @property
    def spark(self) -> str:
        """The column's type in Spark SQL, as DDL."""
        return spark_type(self.arrow)

    def to_json(self) -> dict[str, Any]:
        default = {f.name: f.default for f in dataclasses.fields(self)}
        return {k: v for k, v in dataclasses.asdict(self).items() if v != default[k]}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Column:
        return cls(**{**doc, "labels": tuple(doc.get("labels", ()))})


@dataclass(frozen=True)
class TableSchema:
    """A source table: its columns in the source's order and what names a row."""

    name: TableName
    columns: tuple[Column, ...]
    keys: tuple[str, ...]  # empty where key_kind is "row"
    key_kind: Literal["primary", "unique", "configured", "row"]
    charset: str | None = None  # of columns that name none; None where it is not known
    auto: str | None = None  # the column with AUTO_INCREMENT

    def column(self, name: str) -> Column:
        return next(c for c in self.columns if c.name == name)

    @property
    def counted(self) -> bool:
        """Whether rows of the lake can be equal, so that they must be counted rather than replaced.

        True without a key, and with a key that can hold a zero date (which is NULL in the lake): such a table's
        snapshot has to be read at one exact position, since replaying a change on it twice would count it twice.
        """
        return not self.keys or any(self.column(k).kind in TEMPORALS for k in self.keys)

    def clear(self) -> TableSchema:
        """The table as the source holds it, before anything is masked."""
        return dataclasses.replace(self, columns=tuple(dataclasses.replace(c, masked=False) for c in self.columns))

    def image(self) -> pa.StructType:
        """The Arrow type of `before` and `after`."""
        return pa.struct([pa.field(c.name, c.arrow) for c in self.columns])

    def to_json(self) -> dict[str, Any]:
        return {
            "name": list(self.name),
            "columns": [c.to_json() for c in self.columns],
            "keys": list(self.keys),
            "key_kind": self.key_kind,
            "charset": self.charset,
            "auto": self.auto,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> TableSchema:
        return cls(
            TableName(*doc["name"]),
            tuple(Column.from_json(c) for c in doc["columns"]),
            tuple(doc["keys"]),
            doc["key_kind"],
            doc.get("charset"),
            doc.get("auto"),
        )


def column_from_catalog(
    name: str,
    column_type: str,
    *,
    nullable: bool,
    charset: str | None = None,
    collation: str | None = None,
    tinyint1: str = "int",
) -> Column:
    """A Column from `information_schema.COLUMNS` (COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, …).

    Raises TerminalError for a type outside the contract's table.
    """
    match = re.match(r"\s*([A-Za-z0-9]+)\s*(?:\((.*)\))?(.*)$", column_type, re.DOTALL)
    word, inside, rest = match.groups() if match else (column_type, None, "")
    kind = _SYNONYMS.get(word.lower(), word.lower())
    if kind not in KINDS:
        raise TerminalError(
            f"column {name!r} has the type {column_type!r}, which Lakeward has no exact place for",
            hint=f"add {name!r} to exclude_columns of its table",
        )
    numbers = [int(n) for n in inside.split(",")] if inside and kind not in ("enum", "set") else []
    first = numbers[0] if numbers else None
    unsigned = "unsigned" in rest.lower() or "zerofill" in rest.lower()
    precision, scale = (first or 10, numbers[1] if len(numbers) > 1 else 0) if kind == "decimal" else (0, 0)
    return Column(
        name=name,
        kind=kind,
        unsigned=unsigned,
        length=(first or 1) if kind in ("char", "binary", "bit") else first if kind in _SIZED else None,
        precision=precision,
        scale=scale,
        fsp=(first or 0) if kind in ("datetime", "timestamp", "time") else 0,
        charset=charset,
        collation=collation,
        labels=parse_labels(inside or "") if kind in ("enum", "set") else (),
        nullable=nullable,
        boolean=kind == "tinyint" and first == 1 and tinyint1 == "boolean",
    )


_SIZED = ("varchar", "varbinary", "vector")


def parse_labels(inside: str) -> tuple[str, ...]:
    """`'a','it''s'` → `("a", "it's")`, as information_schema prints an ENUM's or SET's members."""
    return tuple(m.replace("''", "'") for m in re.findall(r"'((?:[^']|'')*)'", inside))


def spark_type(arrow: pa.DataType) -> str:
    """Spark SQL's DDL for an Arrow type of this module."""
    plain = {
        pa.int32(): "INT",
        pa.int64(): "BIGINT",
        pa.float32(): "FLOAT",
        pa.float64(): "DOUBLE",
        pa.bool_(): "BOOLEAN",
        pa.date32(): "DATE",
        pa.timestamp("us"): "TIMESTAMP_NTZ",
        pa.timestamp("us", "UTC"): "TIMESTAMP",
        pa.string(): "STRING",
        pa.binary(): "BINARY",
    }
    if arrow in plain:
        return plain[arrow]
    if pa.types.is_decimal(arrow):
        return f"DECIMAL({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"ARRAY<{spark_type(arrow.value_type)}>"
    fields = ", ".join(f"{spark_identifier(f.name)}: {spark_type(f.type)}" for f in arrow)
    return f"STRUCT<{fields}>"


def spark_fields(fields: pa.Schema) -> str:
    """Spark SQL's DDL for the columns of a table: `op STRING, ts_ms BIGINT, …`."""
    return ", ".join(f"{spark_identifier(f.name)} {spark_type(f.type)}" for f in fields)


def _arrow(c: Column) -> pa.DataType:
    if c.masked:
        return pa.string()
    if c.kind in INTEGERS:
        if c.boolean:
            return pa.bool_()
        if c.kind == "bigint":
            return pa.decimal128(20, 0) if c.unsigned else pa.int64()
        return pa.int64() if c.kind == "int" and c.unsigned else pa.int32()
    if c.kind == "decimal":
        return pa.decimal128(c.precision, c.scale) if c.precision <= 38 else pa.string()
    if c.kind == "bit":
        bits = c.length or 1
        return pa.bool_() if bits == 1 else pa.int64() if bits < 64 else pa.decimal128(20, 0)
    return {
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "datetime": pa.timestamp("us"),
        "timestamp": pa.timestamp("us", "UTC"),
        "year": pa.int32(),
        "geometry": GEOMETRY_ARROW,
        "vector": pa.list_(pa.float32()),
        **dict.fromkeys(BYTES, pa.binary()),
    }.get(c.kind, pa.string())
