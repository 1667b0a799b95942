"""Expectations that follow from the source's schema alone, so that nobody has to write them.

Promise: a derived rule never fails on a row that the source could hold. So a rule stands here only where the
server itself upholds it and the lake's type keeps it: a NOT NULL date may be NULL in the lake (a zero date),
`''` is a legal ENUM value (what a non-strict server stores for an invalid one), a masked column holds a hash,
and a BLOB has no length to check. What a lake type upholds by itself (DECIMAL(p,s), BOOLEAN) needs no rule.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.registry import get_expectation_impl

from lakeward.quality.rules import GateLayer, Rule, Scope, Severity, plain
from lakeward.schema import INTEGERS, TEMPORALS, Column, TableSchema

OPS = ("c", "u", "d", "r", "t")
OP = "__op"
CASCADE = "__cascade"
PLACE = ("__epoch", "__file", "__pos", "__row", "__generation", CASCADE)
KEY = "__key "  # and the column's name: the key of the row that an event names, taken from `before` in a delete
LABELS_MAX = 1000  # an ENUM can have 65,535; the check of so many costs more than it finds

_BITS = {"tinyint": 8, "smallint": 16, "mediumint": 24}  # INT and BIGINT fill their lake type


def derive(
    schema: TableSchema,
    layer: GateLayer = "silver",
    *,
    masked: Collection[str] = (),
    versioned: tuple[str, ...] = (),
) -> list[Rule]:
    """The rules that `schema` implies for the gate before `layer`.

    `masked` are columns whose values the lake holds only as a hash. `versioned` are columns of a gold batch
    that tell several states of one key apart (`_commit_version`, `_change_type`).
    """
    names = {c.name: plain(c.name, frozenset(x.name for x in schema.columns)) for c in schema.columns}
    if layer == "gold":
        return list(_of_state(schema, names, versioned))
    rules = [*_of_events(schema, names)]
    keys = frozenset(schema.keys)
    for column in schema.columns:
        rules += _of_column(column, names[column.name], is_key=column.name in keys, masked=column.name in masked)
    return rules


def _rule(
    name: str, expectation: Expectation, severity: Severity, scope: Scope = "row", layer: GateLayer = "silver"
) -> Rule:
    return Rule(f"derived: {name}", expectation, severity, layer, scope)


def _expect(what: str, **kwargs: Any) -> Expectation:
    implementation: type[Expectation] = get_expectation_impl(f"expect_{what}")
    return implementation(**kwargs)


def _never_null(column: Column) -> bool:
    """Whether the lake, too, can hold no NULL there: a zero or partial date becomes one."""
    return not column.nullable and column.kind not in TEMPORALS


def _of_events(schema: TableSchema, names: dict[str, str]) -> Iterator[Rule]:
    known = _expect("column_values_to_be_in_set", column=OP, value_set=list(OPS))
    yield _rule(f"op is one of {', '.join(OPS)}", known, "stop", "event")
    once = _expect("compound_columns_to_be_unique", column_list=list(PLACE))
    yield _rule("each event is there once", once, "stop", "event")
    for key in schema.keys:
        if _never_null(schema.column(key)):
            present = _expect("column_values_to_not_be_null", column=KEY + names[key])
            yield _rule(f"key {key} is present", present, "stop", "keyed")


def _of_state(schema: TableSchema, names: dict[str, str], versioned: tuple[str, ...]) -> Iterator[Rule]:
    for key in schema.keys:
        if _never_null(schema.column(key)):
            present = _expect("column_values_to_not_be_null", column=names[key])
            yield _rule(f"key {key} is present", present, "stop", layer="gold")
    if schema.keys and not schema.counted and schema.key_kind != "configured":
        columns = [names[k] for k in schema.keys] + list(versioned)
        unique: Expectation = (
            _expect("compound_columns_to_be_unique", column_list=columns)
            if len(columns) > 1
            else _expect("column_values_to_be_unique", column=columns[0])
        )
        yield _rule(f"key {', '.join(schema.keys)} is unique", unique, "stop", layer="gold")


def _of_column(column: Column, name: str, *, is_key: bool, masked: bool) -> Iterator[Rule]:
    if _never_null(column) and not is_key:
        not_null = _expect("column_values_to_not_be_null", column=name)
        yield _rule(f"{column.name} is not null", not_null, "quarantine")
    if masked:
        return
    for what, expectation in _of_values(column, name):
        yield _rule(f"{column.name} {what}", expectation, "quarantine")


def _of_values(column: Column, name: str) -> Iterator[tuple[str, Expectation]]:
    kind = column.kind
    if kind in INTEGERS and not column.boolean:
        yield from _of_integer(column, name)
    elif kind in ("decimal", "float", "double") and column.unsigned and _is_number(column):
        yield "is not negative", _expect("column_values_to_be_between", column=name, min_value=0)
    elif kind == "decimal" and not _is_number(column):
        yield "fits its type", _expect("column_values_to_match_regex", column=name, regex=decimal_regex(column))
    elif kind == "year":
        yield "is a year", _expect("column_values_to_be_between", column=name, min_value=0, max_value=2155)
    elif kind in ("char", "varchar") and column.length is not None:
        longest = _expect("column_value_lengths_to_be_between", column=name, max_value=column.length)
        yield f"has at most {column.length} characters", longest
    elif kind in ("binary", "varbinary") and column.length is not None:
        longest = _expect("column_value_lengths_to_be_between", column=name, max_value=column.length)
        yield f"has at most {column.length} bytes", longest
    elif kind == "enum" and 0 < len(column.labels) <= LABELS_MAX:
        members = list(dict.fromkeys([*column.labels, ""]))
        yield "is one of its labels", _expect("column_values_to_be_in_set", column=name, value_set=members)
    elif kind == "set" and column.labels:
        yield "holds its members", _expect("column_values_to_match_regex", column=name, regex=set_regex(column))


def _of_integer(column: Column, name: str) -> Iterator[tuple[str, Expectation]]:
    bits = _BITS.get(column.kind)
    if bits is not None:
        low, high = (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        fits = _expect("column_values_to_be_between", column=name, min_value=low, max_value=high)
        yield f"is between {low} and {high}", fits
    elif column.unsigned:
        yield "is not negative", _expect("column_values_to_be_between", column=name, min_value=0)


_END = r"(?![\s\S])"  # `$` would also stand before a last line break


def decimal_regex(column: Column) -> str:
    """What MySQL prints for a DECIMAL(p,s) that no lake type holds: all s digits, at most p-s before the
    point."""
    sign = "" if column.unsigned else "-?"
    point = rf"\.[0-9]{{{column.scale}}}" if column.scale else ""
    return rf"^{sign}[0-9]{{1,{max(1, column.precision - column.scale)}}}{point}{_END}"


def set_regex(column: Column) -> str:
    """Any of a SET's members, comma-joined; `''` is the empty set."""
    member = "(?:" + "|".join(re.escape(label) for label in column.labels) + ")"
    return f"^(?:{member}(?:,{member})*)?{_END}"


def _is_number(column: Column) -> bool:
    return column.kind != "decimal" or column.precision <= 38
