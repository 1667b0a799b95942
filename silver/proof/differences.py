"""What differs between two sides of a proof, from the hashes of their rows, and how it is said. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lakeward.schema import TableSchema
from silver.proof.sides import Hashes

SHOWN_MAX = 64  # characters of a value; of two that differ, around the first difference
MASKED = "(masked)"


@dataclass(frozen=True)
class Held:
    """What quarantine holds of a table: hashes of the rows that its events would leave, and of the keys of those they
    would take away."""

    rows: np.ndarray
    gone: np.ndarray


@dataclass(frozen=True)
class Difference:
    """Keys (hashes, each once) whose rows differ, without those that differ by what is held alone, which are `held`."""

    keys: np.ndarray
    held: np.ndarray


def compare(source: Hashes, lake: Hashes, held: Held, *, keyed: bool) -> Difference:
    """The keys that differ. Without a key the whole row is the key, and the counts of equal rows are compared."""
    missing, extra = only_in(source.rows, lake.rows), only_in(lake.rows, source.rows)
    lost = source.keys[np.isin(source.rows, missing)]
    found = lake.keys[np.isin(lake.rows, extra)]
    bad = np.unique(np.concatenate([lost, found]))
    if keyed:
        there = np.isin(bad, source.keys)
        comes = np.isin(bad, source.keys[np.isin(source.rows, held.rows)])
        goes = ~there & np.isin(bad, held.gone)
    else:
        comes = np.isin(bad, lost) & np.isin(bad, held.rows)
        goes = np.isin(bad, found) & np.isin(bad, held.gone)
    return Difference(bad[~(comes | goes)], bad[comes | goes])


def only_in(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Hashes that stand more often in `these` than in `those`, each once."""
    values = np.unique(np.concatenate([these, those]))
    return np.asarray(values[_counts(values, these) > _counts(values, those)])


def _counts(values: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    found, counts = np.unique(hashes, return_counts=True)
    result = np.zeros(len(values), dtype=np.int64)
    result[np.searchsorted(values, found)] = counts
    return result


def describe(
    schema: TableSchema,
    key: int,
    source: Hashes,
    lake: Hashes,
    at_source: Mapping[int, dict[str, Any]],
    in_lake: Mapping[int, dict[str, Any]],
) -> dict[str, Any]:
    """One differing key: `key`, `what`, how often the row stands on each side where that is not once, and for a row
    that differs `columns` and `values` {column: {"source", "silver"}}. Examples of rows are given by row hash."""
    theirs, ours = source.rows[source.keys == np.uint64(key)], lake.rows[lake.keys == np.uint64(key)]
    row = next((at_source[int(h)] for h in theirs), None)
    others = [in_lake[int(h)] for h in np.unique(ours)]
    named = row if row is not None else others[0]
    keys = schema.keys or tuple(c.name for c in schema.columns)
    found: dict[str, Any] = {"key": {k: _text(named[k]) for k in keys}}
    if len(theirs) > 1 or len(ours) > 1:
        found |= {"at_source": len(theirs), "in_silver": len(ours)}
    if row is None:
        return found | {"what": "only in silver"}
    if len(ours) < len(theirs):
        return found | {"what": "missing in silver"}
    found["what"] = "doubled in silver" if len(ours) > len(theirs) else "differs"
    differing = {c.name: c.masked for c in schema.columns for o in others if _text(row[c.name]) != _text(o[c.name])}
    if differing:
        other = next(o for o in others if any(_text(row[c]) != _text(o[c]) for c in differing))
        found["columns"] = list(differing)
        found["values"] = {c: _pair(row[c], other[c], masked) for c, masked in differing.items()}
    return found


def _pair(source: Any, silver: Any, masked: bool) -> dict[str, str]:
    if masked:
        return {"source": MASKED, "silver": MASKED}
    left, right = _text(source), _text(silver)
    first = next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
    return {"source": _cut(left, first), "silver": _cut(right, first)}


def _cut(text: str, around: int) -> str:
    if len(text) <= SHOWN_MAX:
        return text
    start = max(0, min(around - SHOWN_MAX // 2, len(text) - SHOWN_MAX))
    shown = text[start : start + SHOWN_MAX]
    return f"{'…' if start else ''}{shown}{'…' if start + SHOWN_MAX < len(text) else ''} ({len(text)} characters)"


def _text(value: Any) -> str:
    """A value so that two that differ in one bit differ."""
    if value is None:
        return "NULL"
    if isinstance(value, (bytes, bytearray)):
        return f"x'{value.hex()}'"
    return repr(value) if isinstance(value, (float, dict, list)) else str(value)
