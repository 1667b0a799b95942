"""A destination's columns as Snowflake has them, and what makes silver's of them.

Every DDL statement of Snowflake's commits by itself, so the fewer the better, and what is to be done is found out from
the columns that are there, not from what an earlier run meant to do: it may have died in between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from snowflake.lakehouse.connection import Session
from snowflake.lakehouse.merge_sql import Target
from snowflake.lakehouse.template import qualified

Column = tuple[str, str]  # name, type

_NUMBER = re.compile(r"NUMBER\((\d+),(\d+)\)")
# What INFORMATION_SCHEMA calls a type that a sink makes. How precise a time is it does not say, and no sink changes it.
_CALLED = {
    "TEXT": "VARCHAR",
    "STRING": "VARCHAR",
    "DOUBLE": "FLOAT",
    "REAL": "FLOAT",
    "VARBINARY": "BINARY",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ(6)",
    "TIMESTAMP_LTZ": "TIMESTAMP_LTZ(6)",
}


@dataclass(frozen=True)
class Changes:
    """What a destination's columns need. Only `retyped` takes values away that a reader may want."""

    added: list[Column]
    widened: list[Column]
    emptied: list[Column]  # there, but of no version of silver's that was sunk: made anew, with no value
    retyped: list[Column]  # made anew, and without values until all rows have been loaded


def columns_there(session: Session, target: Target) -> dict[str, str]:
    """The destination's columns and their types as `Target` spells them; none where there is no such table."""
    found = session.rows(
        "SELECT COLUMN_NAME, DATA_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE"
        f" FROM {qualified((target.database,))}.INFORMATION_SCHEMA.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (target.schema, target.table),
    )
    return {name: _spelled(kind, precision, scale) for name, kind, precision, scale in found}


def _spelled(kind: str, precision: int | None, scale: int | None) -> str:
    if kind in ("NUMBER", "DECIMAL", "NUMERIC") and precision is not None:
        return f"NUMBER({precision},{scale or 0})"
    return _CALLED.get(kind, kind)


def wider(old: str, new: str) -> bool:
    """Whether Snowflake makes a column `new` of one that is `old` where it stands, each value digit for digit."""
    held, wanted = _NUMBER.fullmatch(old), _NUMBER.fullmatch(new)
    return bool(held and wanted and held[2] == wanted[2] and int(held[1]) < int(wanted[1]))


def holds(there: str, wanted: str) -> bool:
    """Whether a column of the type `there` takes each value of `wanted` as it is."""
    return there == wanted or wider(wanted, there)


def changes(wanted: Iterable[Column], there: Mapping[str, str], recorded: Mapping[str, str]) -> Changes:
    """What brings the columns that are `there` to `wanted`; `recorded` are those that were sunk last."""
    found = Changes([], [], [], [])
    for name, kind in wanted:
        if name not in there:
            found.added.append((name, kind))
        elif name not in recorded:
            found.emptied.append((name, kind))
        elif wider(there[name], kind):
            found.widened.append((name, kind))
        elif not holds(there[name], kind):
            found.retyped.append((name, kind))
    return found


def follows(wanted: Iterable[Column], there: Mapping[str, str], recorded: Mapping[str, str]) -> bool:
    """Whether the rows that were sunk in the columns `recorded` are right in `wanted`, so that changes can be applied
    to them: no column has gone or has another type, but for a wider one, here or there."""
    known = dict(wanted)
    return all(
        name in known
        and name in there
        and (known[name] == kind or wider(kind, known[name]))
        and (holds(there[name], known[name]) or wider(there[name], known[name]))
        for name, kind in recorded.items()
    )
