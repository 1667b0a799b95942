"""Row filters at capture: the same rows by the binlog, by a snapshot and in a proof.

The server applies the filter to what a snapshot or a proof reads, as SQL (`condition`). To rows of the binlog it is
applied here (`Capture`): numbers, dates and NULLs by Arrow, and text by asking the source how it compares, each
distinct value once, since what is equal is a matter of the column's collation and only the server has all of them.
A zero or partial date is NULL in the lake and is NULL to the filter, by both ways.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_FLOOR, Decimal, localcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from bronze.source.connection import open_connection, translated
from bronze.source.server import rows
from lakeward.errors import ConfigError
from lakeward.names import TableName, mysql_identifier
from lakeward.rowfilter import All, Filter, IsNull, Not, Test, tests
from lakeward.schema import INTEGERS, TEMPORALS, Column

_COMPARED_TEXT = ("char", "varchar", "enum", "set")
_ASKED_AT_ONCE = 1000  # comparisons a question to the server
_ASKED_CHARACTERS = 100_000  # of the values in it: far below the least max_allowed_packet
_KNOWN_MAX = 1_000_000  # verdicts that are kept
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?")
_COMPARE: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def digest(tree: Filter | None, key: bytes | None) -> str | None:
    """What tells two filters apart, and nothing of their literals: those may be of a masked column."""
    return None if tree is None else hmac.new(key or b"", repr(tree).encode(), hashlib.sha256).hexdigest()


def require_fit(tree: Filter, columns: Mapping[str, Column], name: TableName, conn: pymysql.Connection) -> None:
    """Raises ConfigError for a filter that does not mean something exact of these columns (by lower-case name)."""
    for test in tests(tree):
        column = columns.get(test.column.lower())
        if column is None:
            raise ConfigError(f'[tables."{name}"] where names {test.column!r}, which is no column of that table',
                              hint=f"there are: {', '.join(c.name for c in columns.values())}")  # fmt: skip
        why = _misfit(test, column) if isinstance(test, Test) else None
        if why is None and isinstance(test, Test) and isinstance(test.literal, str) and column.kind in _COMPARED_TEXT:
            why = _unholdable(conn, column, test.literal)
        if why is not None:
            raise ConfigError(f'[tables."{name}"] where: the column {column.name!r} ({column.kind}) {why[0]}',
                              hint=why[1])  # fmt: skip


def misfit(tree: Filter, columns: Mapping[str, Column]) -> str | None:
    """Why the filter means nothing of a table that has these columns now, if so."""
    for test in tests(tree):
        column = columns.get(test.column.lower())
        if column is None:
            return f"the column {test.column!r} is gone"
        if isinstance(test, Test) and (why := _misfit(test, column)):
            return f"the column {column.name!r} ({column.kind}) {why[0]}"
    return None


def _misfit(test: Test, column: Column) -> tuple[str, str] | None:
    """What is wrong, and how to mend it."""
    text = isinstance(test.literal, str)
    if column.kind in _COMPARED_TEXT:
        if not text:
            return "is compared with a number", "put the value into single quotes"
        if column.kind in ("enum", "set") and test.op not in ("=", "<>", "like"):
            return f"has no order that {test.op} could mean", "name its values with IN"
        return None
    if test.op == "like":
        return "is no text, so LIKE would depend on how it is printed", "compare it with = < > or BETWEEN"
    if column.kind in TEMPORALS:
        form = (
            "'YYYY-MM-DD'" if column.kind == "date" else "'YYYY-MM-DD' or 'YYYY-MM-DD hh:mm:ss' (a TIMESTAMP's is UTC)"
        )
        if not text or _moment(str(test.literal)) is None or (column.kind == "date" and len(str(test.literal)) != 10):
            return "is compared with something that is no date of its kind", f"write {form}"
        return None
    if column.kind in (*INTEGERS, "decimal", "float", "double", "bit", "year") and column.precision <= 38:
        if text:
            return "is compared with text", "write the number without quotes"
        if column.kind == "year" and test.literal != 0 and not 1901 <= Decimal(test.literal) <= 2155:
            return "is compared with a year that it cannot hold", "write all four digits, 1901 to 2155"
        return None
    return "can only be tested by IS NULL or IS NOT NULL", "filter by another column"


def _unholdable(conn: pymysql.Connection, column: Column, text: str) -> tuple[str, str] | None:
    if text.isascii():
        return None
    there_and_back = f"CONVERT(CONVERT({_quoted(text)} USING {column.charset}) USING utf8mb4)"
    if rows(conn, f"SELECT HEX({there_and_back}) = '{text.encode().hex().upper()}'")[0][0]:
        return None
    return "is compared with text that its character set cannot hold", "take it out: no row can be equal to it"


def condition(tree: Filter, columns: Mapping[str, Column]) -> str:
    """The filter as the server's SQL, in parentheses; columns by lower-case name."""
    if isinstance(tree, Not):
        return f"(NOT {condition(tree.part, columns)})"
    if isinstance(tree, Test | IsNull):
        column = columns[tree.column.lower()]
        value = _real(column)
        return f"({value} IS NULL)" if isinstance(tree, IsNull) else f"({value} {tree.op} {_literal(tree, column)})"
    word = " AND " if isinstance(tree, All) else " OR "
    return f"({word.join(condition(part, columns) for part in tree.parts)})"


def _real(column: Column) -> str:
    name = mysql_identifier(column.name)
    if column.boolean:
        return f"({name} <> 0)"  # which is what the lake has of it
    if column.kind not in TEMPORALS:
        return f"({name} + 0)" if column.kind == "bit" else name
    first = f"DATE_FORMAT({name}, '%Y-%m-01')"
    there = f"YEAR({name}) > 0 AND MONTH({name}) > 0 AND DAYOFMONTH({name}) BETWEEN 1 AND DAYOFMONTH(LAST_DAY({first}))"
    return f"(CASE WHEN {there} THEN {name} END)"


def _literal(test: Test, column: Column) -> str:
    if isinstance(test.literal, Decimal):
        return f"{test.literal:f}"
    if column.kind in TEMPORALS:
        moment = _moment(test.literal)
        assert moment is not None
        return f"DATE'{test.literal}'" if column.kind == "date" else f"TIMESTAMP'{moment:%Y-%m-%d %H:%M:%S.%f}'"
    return _quoted(test.literal)


def _quoted(text: str) -> str:
    return f"_utf8mb4 X'{text.encode().hex()}'"


def _moment(text: str) -> datetime.datetime | None:
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


class Capture:
    """Filters rows of the binlog. Holds one connection to the source once text was compared; close it."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._connection: pymysql.Connection | None = None
        self._known: dict[tuple[str, str, str], dict[str, bool]] = {}  # (collation, op, literal) → value → verdict
        self._count = 0

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def passes(self, tree: Filter, images: pa.StructArray, columns: Mapping[str, Column]) -> npt.NDArray[np.bool_]:
        """Which images the filter is true of. `images` hold its columns under the names of `columns` (by lower-case
        name), as they were decoded; a missing image passes none. Raises ConnectionLostError and its kin."""
        fields = {field.name.lower(): i for i, field in enumerate(images.type)}
        verdict = self._verdict(tree, lambda name: images.field(fields[name.lower()]), columns)
        passed: npt.NDArray[np.bool_] = np.asarray(pc.and_(pc.fill_null(verdict, False), images.is_valid()))
        return passed

    def _verdict(self, tree: Filter, values: Callable[[str], pa.Array], columns: Mapping[str, Column]) -> pa.Array:
        if isinstance(tree, IsNull):
            return pc.is_null(values(tree.column))
        if isinstance(tree, Not):
            return pc.invert(self._verdict(tree.part, values, columns))
        if isinstance(tree, Test):
            return self._test(tree, values(tree.column), columns[tree.column.lower()])
        join = pc.and_kleene if isinstance(tree, All) else pc.or_kleene
        first, *others = (self._verdict(part, values, columns) for part in tree.parts)
        for other in others:
            first = join(first, other)
        return first

    def _test(self, test: Test, values: pa.Array, column: Column) -> pa.Array:
        if isinstance(test.literal, Decimal):
            return _compared_number(test.op, values, test.literal)
        if column.kind in TEMPORALS:
            moment: Any = _moment(test.literal)
            return _COMPARE[test.op](values, pa.scalar(moment, pa.timestamp("us")).cast(values.type))
        distinct = values.dictionary_encode()
        verdicts = self._asked(test, column, distinct.dictionary.to_pylist())
        return pa.array(verdicts, pa.bool_()).take(distinct.indices)

    def _asked(self, test: Test, column: Column, values: Sequence[str]) -> list[bool]:
        """Whether `value op literal`, by the column's collation."""
        if self._count > _KNOWN_MAX:
            self._known, self._count = {}, 0
        known = self._known.setdefault((f"{column.charset}.{column.collation}", test.op, str(test.literal)), {})
        for some in _in_questions([v for v in values if v not in known]):
            asked = (
                f"CONVERT({_quoted(v)} USING {column.charset}) COLLATE {column.collation} {test.op} "
                f"{_quoted(str(test.literal))}"
                for v in some
            )
            (answers,) = self._query(f"SELECT {', '.join(asked)}")
            known.update(zip(some, map(bool, answers), strict=True))
            self._count += len(some)
        return [known[v] for v in values]

    def _query(self, sql: str) -> Sequence[tuple[Any, ...]]:
        if self._connection is None:
            self._connection = open_connection(self._settings, proven=True)
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return list(cursor.fetchall())
        except (pymysql.Error, OSError) as error:  # the statement holds values, so it is not repeated
            raise translated(error, "comparing values of a filter's column") from None


def spelled(wire: Column, registered: Column | None) -> Column:
    """`wire` with its collation as this server spells it: older ones write utf8 where a number means utf8mb3."""
    if registered is not None and _plain(registered.collation) == _plain(wire.collation):
        return replace(wire, charset=registered.charset, collation=registered.collation)
    return wire


def _plain(collation: str | None) -> str:
    return (collation or "").replace("utf8mb3_", "utf8_")


def _in_questions(values: Sequence[str]) -> Iterator[Sequence[str]]:
    start = size = 0
    for n, value in enumerate(values):
        size += len(value)
        if n > start and (n - start == _ASKED_AT_ONCE or size > _ASKED_CHARACTERS):
            yield values[start:n]
            start, size = n, len(value)
    if start < len(values):
        yield values[start:]


def _compared_number(op: str, values: pa.Array, literal: Decimal) -> pa.Array:
    kind = values.type
    if pa.types.is_floating(kind):
        return _COMPARE[op](values.cast(pa.float64()), pa.scalar(float(literal), pa.float64()))
    if pa.types.is_boolean(kind):
        values, kind = values.cast(pa.int32()), pa.int32()
    scale = kind.scale if pa.types.is_decimal(kind) else 0
    with localcontext() as context:
        context.prec = 100
        unit = Decimal(1).scaleb(-scale)
        below = literal.quantize(unit, ROUND_FLOOR)  # the greatest value of the type that is not above the literal
        exact = below == literal
        digits = kind.precision - scale if pa.types.is_decimal(kind) else 0
        least, most = _range(kind, digits)
    if below > most or below < least:
        return _constant(values, {"=": False, "<>": True}.get(op, (op[0] == "<") == (below > most)))
    if not exact and op in ("=", "<>"):
        return _constant(values, op == "<>")
    op = op if exact else {"<": "<=", "<=": "<=", ">": ">", ">=": ">"}[op]
    return _COMPARE[op](values, pa.scalar(below if scale or pa.types.is_decimal(kind) else int(below), kind))


def _range(kind: pa.DataType, digits: int) -> tuple[Decimal, Decimal]:
    if pa.types.is_decimal(kind):
        most = Decimal(10) ** digits - Decimal(1).scaleb(-kind.scale)
        return -most, most
    return Decimal(-(2 ** (kind.bit_width - 1))), Decimal(2 ** (kind.bit_width - 1) - 1)


def _constant(values: pa.Array, verdict: bool) -> pa.Array:
    return pc.if_else(values.is_valid(), verdict, pa.scalar(None, pa.bool_()))
