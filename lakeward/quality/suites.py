"""The user's own expectations: one file a table, in Great Expectations' suite format, checked whole when it
is read.

Promise: a suite is either meant as it is written or refused before a row is touched, with the file, the entry
and the nearest right word. A misspelt column or severity would otherwise be a gate that guards nothing.

A file is `<schema>.<table>.json` in the folder `[quality] suites`, names encoded as in the lake's paths:

    {"expectations": [{"type": "expect_column_values_to_be_between",
                       "kwargs": {"column": "fare", "min_value": 0},
                       "meta": {"severity": "quarantine", "layer": "silver", "threshold": 0.05, "name": "fare >= 0"}}]}
"""

from __future__ import annotations

import datetime
import difflib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from great_expectations.compatibility.pydantic import ValidationError
from great_expectations.exceptions.exceptions import ExpectationNotFoundError
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.registry import (
    get_expectation_impl,
    list_registered_expectation_implementations,
)

from lakeward.config import Config
from lakeward.errors import ConfigError
from lakeward.names import TableName, encode_path
from lakeward.quality.predicates import ROW_LEVEL, UNIQUE
from lakeward.quality.rules import LAYERS, SEVERITIES, Rule, plain, plain_kwargs
from lakeward.schema import BYTES, INTEGERS, STRINGS, Column, TableSchema

_NOT_ON_SPARK = (
    "like_pattern",
    "query_results",
    "unexpected_rows",
    "other_table",
    "outliers",
    "kl_divergence",
)
_META = ("severity", "layer", "threshold", "name", "notes")
_TEXT = (*STRINGS, "enum", "set", "json", "time", "uuid", "inet4", "inet6")
_OPAQUE = (*BYTES, "geometry", "vector")
FLOAT_EXACT = 2**53  # Great Expectations turns the bounds of `between` into floats; integers beyond it would change


def suite_path(config: Config, table: TableName) -> Path:
    """Where the table's suite is, whether it exists or not."""
    name = f"{encode_path(table.schema)}.{encode_path(table.table)}.json"
    return config.path(config.quality.suites) / name


def load_suite(config: Config, schema: TableSchema) -> list[Rule]:
    """The rules of the table's suite; empty where it has none. Raises ConfigError for anything that cannot be
    meant."""
    path = suite_path(config, schema.name)
    if not path.is_file():
        return []
    try:
        doc = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise ConfigError(f"the suite {path} is not JSON: {error}", hint="mend the file at that place") from error
    entries = doc.get("expectations") if isinstance(doc, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f'the suite {path} has no list "expectations"', hint="see docs/quality.md for the format")
    rules: list[Rule] = []
    for number, entry in enumerate(entries, start=1):
        rules.append(_rule(entry, f"{path}, expectation {number}", schema, {r.name for r in rules}, path))
    return rules


def check_suites(config: Config, schemas: Iterable[TableSchema]) -> None:
    """Read every suite of the folder. Raises ConfigError for a wrong one, and for one that names no followed
    table."""
    schemas = list(schemas)
    folder = config.path(config.quality.suites)
    known = {suite_path(config, s.name).name: s for s in schemas}
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        if path.name not in known:
            near = difflib.get_close_matches(path.name, known, n=1)
            raise ConfigError(
                f"the suite {path} names no table that is followed",
                hint=f"did you mean {near[0]}?" if near else "rename it to <schema>.<table>.json, or remove it",
            )
        load_suite(config, known[path.name])


def _rule(entry: Any, where: str, schema: TableSchema, taken: set[str], path: Path) -> Rule:
    if not isinstance(entry, dict) or not isinstance(entry.get("type"), str):
        raise ConfigError(f'{where}: an expectation is {{"type": …, "kwargs": …, "meta": …}}')
    kind, kwargs, meta = entry["type"], entry.get("kwargs", {}), entry.get("meta") or {}
    _known(list(entry), ("type", "kwargs", "meta", "id", "notes", "description", "severity"), f"{where}: key")
    if not isinstance(kwargs, dict) or not isinstance(meta, dict):
        raise ConfigError(f"{where}: kwargs and meta are objects")
    implementation = _implementation(kind, where)
    _known(list(meta), _META, f"{where}: meta key")
    severity, layer = meta.get("severity", "warn"), meta.get("layer", "silver")
    _known([severity], SEVERITIES, f"{where}: severity")
    _known([layer], LAYERS, f"{where}: layer")
    threshold = meta.get("threshold")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, (int, float))):
        raise ConfigError(f"{where}: threshold {threshold!r} is not a number between 0 and 1")
    if threshold is not None and not 0 <= threshold <= 1:
        raise ConfigError(f"{where}: threshold {threshold!r} is not between 0 and 1")
    if severity == "quarantine" and kind not in ROW_LEVEL:
        raise ConfigError(
            f"{where}: {kind} judges the batch as a whole, so there is no row to quarantine",
            hint='write severity "warn" or "stop"',
        )
    if kind in UNIQUE and layer == "silver":
        raise ConfigError(
            f"{where}: {kind} cannot stand before silver, where a row that changes twice has two events",
            hint='write "layer": "gold", where it is checked among the rows that changed',
        )
    _columns(kwargs, where, schema)
    for column in _named(kwargs, schema):
        _values_fit(column, kind, kwargs, where)
    name = meta.get("name") or f"{kind}({', '.join(c.name for c in _named(kwargs, schema))})"
    while name in taken:
        name += " again"
    expectation = _build(implementation, kwargs, meta, where, schema)
    return Rule(name, expectation, severity, layer, "row", threshold, str(path))


def _implementation(kind: str, where: str) -> type[Expectation]:
    offered = [t for t in list_registered_expectation_implementations() if not any(n in t for n in _NOT_ON_SPARK)]
    _known([kind], offered, f"{where}: expectation type")
    try:
        found: type[Expectation] = get_expectation_impl(kind)
    except ExpectationNotFoundError as error:
        raise ConfigError(f"{where}: unknown expectation type {kind!r}") from error
    return found


def _build(
    cls: type[Expectation], kwargs: dict[str, Any], meta: dict[str, Any], where: str, schema: TableSchema
) -> Any:
    names = {c.name: plain(c.name, frozenset(x.name for x in schema.columns)) for c in schema.columns}
    values = plain_kwargs({k: v for k, v in kwargs.items() if k != "batch_id"}, names)
    condition = values.get("row_condition")
    if isinstance(condition, str):
        parser = values.pop("condition_parser", "spark")
        if parser != "spark":
            raise ConfigError(
                f"{where}: a row_condition is Spark SQL, not {parser!r}", hint='"condition_parser": "spark"'
            )
        values["row_condition"] = {"type": "pass_through", "pass_through_filter": condition}
    known = list(cls.__fields__)
    try:
        return cls(**values, meta=dict(meta))
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        near = difflib.get_close_matches(key, known, n=1) if key not in known else []
        about = "" if key == "__root__" else f" {key!r}"
        raise ConfigError(
            f"{where}: kwargs{about}: {first['msg']}", hint=f"did you mean {near[0]!r}?" if near else None
        ) from error
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{where}: kwargs: {error}") from error


def _known(given: Iterable[Any], known: Iterable[str], what: str) -> None:
    known = list(known)
    for word in given:
        if word not in known:
            near = difflib.get_close_matches(str(word), known, n=1)
            choices = f"one of {', '.join(known)}" if len(known) < 20 else "see docs/quality.md for those there are"
            raise ConfigError(f"{what} {word!r} is unknown", hint=f"did you mean {near[0]!r}?" if near else choices)


def _column_words(kwargs: dict[str, Any]) -> list[Any]:
    found = [kwargs[k] for k in ("column", "column_A", "column_B") if k in kwargs]
    return found + list(kwargs.get("column_list") or [])


def _columns(kwargs: dict[str, Any], where: str, schema: TableSchema) -> None:
    _known(_column_words(kwargs), [c.name for c in schema.columns], f"{where}: column")


def _named(kwargs: dict[str, Any], schema: TableSchema) -> list[Column]:
    return [schema.column(c) for c in _column_words(kwargs)]


def _values_fit(column: Column, kind: str, kwargs: dict[str, Any], where: str) -> None:
    """Refuse a value that Spark would have to convert: under ANSI rules that fails in the middle of a run."""
    if "regex" in kind or "json" in kind or "strftime" in kind:
        if column.kind not in _TEXT:
            raise ConfigError(f"{where}: {kind} wants text, and {column.name} is {column.kind.upper()}")
        return
    values = [kwargs[k] for k in ("min_value", "max_value") if kwargs.get(k) is not None]
    if "lengths" in kind:
        bad = [v for v in [*values, kwargs.get("value")] if v is not None and not _number(v)]
        if bad or column.kind not in (*_TEXT, *BYTES):
            raise ConfigError(f"{where}: {kind} of {column.name} wants text or bytes and numbers for its length")
    elif kind in ("expect_column_values_to_be_between",) or kind.endswith("in_set"):
        values += kwargs.get("value_set") or []
        for value in values:
            _value_fits(column, value, where)
    low, high = kwargs.get("min_value"), kwargs.get("max_value")
    if _number(low) and _number(high) and low > high:  # type: ignore[operator]
        raise ConfigError(f"{where}: min_value {low} is above max_value {high}, so no row could pass")


def _value_fits(column: Column, value: Any, where: str) -> None:
    numeric = (*INTEGERS, "decimal", "float", "double", "year", "bit")
    fits = False
    if column.boolean or (column.kind == "bit" and (column.length or 1) == 1):
        fits = isinstance(value, bool)
    elif column.kind == "decimal" and column.precision > 38:
        fits = isinstance(value, str)
    elif column.kind in numeric:
        fits = _number(value) and (not isinstance(value, int) or abs(value) <= FLOAT_EXACT)
    elif column.kind in ("date", "datetime", "timestamp"):
        fits = isinstance(value, str) and _moment(value)
    elif column.kind not in _OPAQUE:
        fits = isinstance(value, str)
    if not fits:
        raise ConfigError(f"{where}: {value!r} cannot be compared with {column.name}, which is {column.kind.upper()}")


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _moment(value: str) -> bool:
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        return False
    return True
