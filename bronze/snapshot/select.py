"""The SELECT of a chunk: expressions whose text loses nothing, and key bounds as literals of the column's own charset.

`SELECT f` rounds a FLOAT to six digits and a FLOAT(M,D) or DOUBLE(M,D) to D decimals; `f * 1e0` is a DOUBLE, which both
servers print with as many digits as it takes to read the same bits back (dtoa, mode 0), a negative zero included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lakeward.errors import TerminalError
from lakeward.names import TableName, mysql_identifier
from lakeward.schema import INTEGERS, STRINGS, Column, TableSchema

_NUMBERS = (*INTEGERS, "decimal", "year", "float", "double")
_QUOTED = ("date", "datetime", "timestamp", "time", "uuid", "inet4", "inet6")


class Bound(NamedTuple):
    """One key part of a bound, safe to store and to write into SQL: what it is, its text, its collation.

    `what`: number (digits as the server prints them), ordinal (the number behind an ENUM, SET or BIT), ascii (printed
    text without a charset: times, UUIDs, addresses), bytes (hex), text (hex of the bytes in the column's own charset;
    `charset` and `collation` name it, so that the server compares it as it orders the key).
    """

    what: str
    value: str
    charset: str = ""
    collation: str = ""

    def literal(self) -> str:
        if self.what in ("number", "ordinal"):
            return str(self.value)
        if self.what == "ascii":
            return f"'{self.value}'"
        if self.what == "bytes":
            return f"X'{self.value}'"
        return f"(_{self.charset} X'{self.value}' COLLATE {self.collation})"


def fetched(column: Column) -> str:
    """The expression whose text the snapshot reads for `column`."""
    name = mysql_identifier(column.name)
    if column.kind in ("float", "double"):
        return f"{name} * 1e0"
    return f"{name} + 0" if column.kind == "bit" else name


def compared(column: Column) -> str:
    """The expression that orders rows by `column` as literals of its `Bound`s compare.

    An index holds ENUM and SET by number, but a comparison with text would compare labels.
    """
    name = mysql_identifier(column.name)
    return f"{name} + 0" if column.kind in ("enum", "set") else name


def bound_expression(column: Column) -> str:
    """The expression whose text makes a `Bound`."""
    name = mysql_identifier(column.name)
    if column.kind in ("enum", "set", "bit"):
        return f"{name} + 0"
    if column.kind in ("float", "double"):
        return fetched(column)
    return name if column.kind in _NUMBERS or column.kind in _QUOTED else f"HEX({name})"


def bound(column: Column, text: bytes) -> Bound:
    """A Bound from the text of `bound_expression`. Raises TerminalError for text no such value can have."""
    value = text.decode("ascii")
    if column.kind in ("enum", "set", "bit"):
        what, allowed = "ordinal", "0123456789"
    elif column.kind in _NUMBERS:
        what, allowed = "number", "0123456789-+.e"
    elif column.kind in _QUOTED:
        what, allowed = "ascii", "0123456789abcdefABCDEF-:. /"
    else:
        what, allowed = "text" if column.kind in STRINGS else "bytes", "0123456789ABCDEF"
    if set(value) - set(allowed) or (not value and what not in ("text", "bytes")):
        raise TerminalError(f"the key column {column.name!r} has a value that cannot bound a chunk", kind=column.kind)
    if what == "text":
        if column.charset is None or column.collation is None:
            raise TerminalError(f"the key column {column.name!r} has no character set")
        return Bound(what, value, column.charset, column.collation)
    return Bound(what, value)


def can_bound(column: Column) -> bool:
    """Whether values of this kind order rows; JSON, geometries and vectors do not."""
    return column.kind not in ("json", "geometry", "vector")


def beyond(keys: Sequence[str], bounds: Sequence[Bound], *, sign: str = ">") -> str:
    """`(a, b) > (x, y)` in the form that both optimisers turn into one index range.

    A row constructor is compared row by row; the expanded OR with the redundant bound on the leading column is not
    (MySQL manual, 'Row Constructor Expression Optimization'). `keys` are expressions of `compared`; sign is > or <.
    """
    ways = []
    for i, (key, value) in enumerate(zip(keys, bounds, strict=True)):
        equal = [f"{k} = {b.literal()}" for k, b in zip(keys[:i], bounds[:i], strict=True)]
        ways.append("(" + " AND ".join([*equal, f"{key} {sign} {value.literal()}"]) + ")")
    if len(ways) == 1:
        return ways[0]
    return f"({keys[0]} {sign}= {bounds[0].literal()} AND ({' OR '.join(ways)}))"


def up_to(keys: Sequence[str], bounds: Sequence[Bound]) -> str:
    """`(a, b) <= (x, y)`, in the form of `beyond`."""
    if len(keys) == 1:
        return f"({keys[0]} <= {bounds[0].literal()})"
    below = beyond(keys, bounds, sign="<")
    equal = " AND ".join(f"{k} = {b.literal()}" for k, b in zip(keys, bounds, strict=True))
    return f"({below} OR ({equal}))"


def within(keys: Sequence[str], lower: Sequence[Bound] | None, upper: Sequence[Bound] | None) -> str:
    """The WHERE clause, with its leading space, of keys above `lower` and not above `upper`; empty for no bound."""
    parts = [beyond(keys, lower)] if lower is not None else []
    parts += [up_to(keys, upper)] if upper is not None else []
    return f" WHERE {' AND '.join(parts)}" if parts else ""


def filtered(where: str, condition: str) -> str:
    """The WHERE clause `where`, as `within` gives it, of the rows of which `condition` is true too; "" is for all."""
    if condition and where:
        return f" WHERE {condition} AND ({where.removeprefix(' WHERE ')})"
    return f" WHERE {condition}" if condition else where


def source_table(name: TableName) -> str:
    return f"{mysql_identifier(name.schema)}.{mysql_identifier(name.table)}"


def select(schema: TableSchema, where: str = "", *, versioned: bool = False) -> str:
    """The SELECT of all of `schema`'s columns in their order. `where` comes from `within`.

    `versioned`: the table keeps history rows (MariaDB), which are in its row events and therefore are read too.
    """
    columns = ", ".join(fetched(c) for c in schema.columns)
    period = " FOR SYSTEM_TIME ALL" if versioned else ""
    return f"SELECT {columns} FROM {source_table(schema.name)}{period}{where}"


def from_json(doc: Sequence[Any] | None) -> tuple[Bound, ...] | None:
    return None if doc is None else tuple(Bound(*part) for part in doc)
