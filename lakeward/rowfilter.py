"""Row filters (`where` of a table's configuration) as a tree: a small part of SQL that has one meaning.

The language: a column against literals by `=`, `<>`, `<`, `<=`, `>`, `>=`, `IN`, `BETWEEN`, `LIKE` and `IS NULL`,
joined by `AND`, `OR`, `NOT` and parentheses, with SQL's three-valued logic. Anything else is refused here, by name,
before a row is read: a filter that two readers could take for two things lets in what was to stay out. Which columns
there are and whether a literal fits them is asked of the source's catalog (`bronze.rowfilter`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from lakeward.errors import ConfigError

Literal = str | Decimal
DIGITS_MAX = 30  # of a number, before and after its point
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`""")
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_LANGUAGE = "it may hold columns and literals with = <> < <= > >= IN BETWEEN LIKE, IS NULL, AND, OR, NOT"


@dataclass(frozen=True)
class Test:
    """`column op literal`; `op` is one of = <> < <= > >= like."""

    column: str
    op: str
    literal: Literal


@dataclass(frozen=True)
class IsNull:
    column: str


@dataclass(frozen=True)
class Not:
    part: Filter


@dataclass(frozen=True)
class All:
    """AND of its parts."""

    parts: tuple[Filter, ...]


@dataclass(frozen=True)
class Some:
    """OR of its parts."""

    parts: tuple[Filter, ...]


Filter = Test | IsNull | Not | All | Some


def tests(tree: Filter) -> Iterator[Test | IsNull]:
    """What the filter asks of single columns, in its order."""
    if isinstance(tree, Test | IsNull):
        yield tree
    else:
        for part in (tree.part,) if isinstance(tree, Not) else tree.parts:
            yield from tests(part)


def columns(tree: Filter) -> tuple[str, ...]:
    """The columns that the filter reads, as it spells them, each once without regard to case."""
    return tuple({t.column.lower(): t.column for t in tests(tree)}.values())


def parse_filter(sql: str, setting: str) -> Filter:
    """The tree of `sql`. Raises ConfigError, which names `setting` and repeats no literal: one may be of a masked
    column."""
    # Slow to import, and most configurations filter nothing.
    import sqlglot
    from sqlglot.errors import SqlglotError

    if "\\" in sql:
        raise ConfigError(f"{setting} holds a backslash, whose meaning depends on the server's sql_mode",
                          hint="write the condition without it")  # fmt: skip
    if re.search(r"!(?!=)", _QUOTED.sub("", sql)):
        raise ConfigError(f"{setting} holds !, which binds otherwise than NOT does", hint="write NOT, in parentheses")
    try:
        trees = sqlglot.parse(f"SELECT 1 WHERE {sql}", read="mysql")
    except SqlglotError as error:
        raise ConfigError(f"{setting} is not a condition of SQL that can be read", hint=_LANGUAGE) from error
    where = trees[0].args.get("where") if len(trees) == 1 and trees[0] is not None else None
    extra = trees[0] is not None and any(v for k, v in trees[0].args.items() if k not in ("where", "expressions"))
    if where is None or extra:
        raise ConfigError(f"{setting} is more than one condition", hint=_LANGUAGE)
    return _Reader(setting).tree(where.this)


class _Reader:
    def __init__(self, setting: str) -> None:
        from sqlglot import exp

        self.setting = setting
        self.joins: dict[type, type[All] | type[Some]] = {exp.And: All, exp.Or: Some}
        self.compares = {exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
        self.others: dict[type, Callable[[Any], Filter]] = {
            exp.Paren: lambda e: self.tree(e.this),
            exp.Not: lambda e: Not(self.tree(e.this)),
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: lambda e: Test(self._column(e.this), "like", self._literal(e.expression)),
            exp.Is: self._is,
        }

    def tree(self, e: Any) -> Filter:
        kind = type(e)
        if kind in self.joins:
            return self.joins[kind]((self.tree(e.this), self.tree(e.expression)))
        if kind in self.compares:
            return self._compare(self.compares[kind], e.this, e.expression)
        if kind in self.others:
            return self.others[kind](e)
        raise self._refused(f"holds {kind.__name__.upper()}, which a filter at capture cannot")

    def _compare(self, op: str, left: Any, right: Any) -> Filter:
        if self._is_column(right) and not self._is_column(left):
            left, right, op = right, left, _FLIPPED[op]
        return Test(self._column(left), op, self._literal(right))

    def _in(self, e: Any) -> Filter:
        if not e.expressions:
            raise self._refused("holds an IN that is no list of literals")
        column = self._column(e.this)
        return Some(tuple(Test(column, "=", self._literal(v)) for v in e.expressions))

    def _between(self, e: Any) -> Filter:
        column = self._column(e.this)
        low, high = self._literal(e.args["low"]), self._literal(e.args["high"])
        return All((Test(column, ">=", low), Test(column, "<=", high)))

    def _is(self, e: Any) -> Filter:
        from sqlglot import exp

        if not isinstance(e.expression, exp.Null):
            raise self._refused("holds an IS that is not IS NULL or IS NOT NULL")
        return IsNull(self._column(e.this))

    @staticmethod
    def _is_column(e: Any) -> bool:
        from sqlglot import exp

        return isinstance(e, exp.Column) and len(e.parts) == 1 and isinstance(e.this, exp.Identifier)

    def _column(self, e: Any) -> str:
        if not self._is_column(e):
            raise self._refused("has something else than a column's plain name on one side of a comparison")
        return str(e.this.name)

    def _literal(self, e: Any) -> Literal:
        from sqlglot import exp

        if isinstance(e, exp.Null):
            raise self._refused("compares with NULL, which is never true", "write IS NULL or IS NOT NULL")
        if isinstance(e, exp.Boolean):
            return Decimal(bool(e.this))
        negative = isinstance(e, exp.Neg)
        e = e.this if negative else e
        if not isinstance(e, exp.Literal):
            raise self._refused("compares with something that is no literal", "put text and dates into single quotes")
        if e.is_string and not negative:
            return str(e.this)
        try:
            number = Decimal(str(e.this))
        except InvalidOperation:
            raise self._refused("holds a number that cannot be read") from None
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int) or len(digits) + exponent > DIGITS_MAX or exponent < -DIGITS_MAX:
            raise self._refused(f"holds a number of more than {DIGITS_MAX} digits")
        return -number if negative else number

    def _refused(self, why: str, hint: str = _LANGUAGE) -> ConfigError:
        return ConfigError(f"{self.setting} {why}", hint=hint)
