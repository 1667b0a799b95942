"""The statements that bring one batch of staged changes into a destination table. Pure: text in, text out.

A staged table looks like a Snowflake stream: the row's columns, `__action` (INSERT or DELETE) and `__is_update`; and
`__copies`, how often the row is to be inserted, for tables whose rows may be equal. Inside it the columns are called
c0, c1, …: a source's name may hold anything, and appears only where the destination is named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeward.names import snowflake_identifier as quoted
from snowflake.lakehouse.template import qualified, sql_type, stage_path

ACTION, IS_UPDATE, COPIES = "__action", "__is_update", "__copies"
_MARKS = ((ACTION, "VARCHAR"), (IS_UPDATE, "BOOLEAN"), (COPIES, "NUMBER(19,0)"))
# What a column is staged as, where that is not its type, and what makes the type of it. Instants travel as
# microseconds, which no reader of Parquet takes for something else; documents as text.
_STAGED = {
    "TIMESTAMP_NTZ(6)": ("NUMBER(19,0)", "TO_TIMESTAMP_NTZ({}, 6)"),
    "TIMESTAMP_LTZ(6)": ("NUMBER(19,0)", "TO_TIMESTAMP_LTZ({}, 6)"),
    # A document that Snowflake cannot parse (a number out of its range, a key twice) stays, as a string.
    "VARIANT": ("VARCHAR", "COALESCE(TRY_PARSE_JSON({0}), TO_VARIANT({0}))"),
}


@dataclass(frozen=True)
class Target:
    """A destination: its place, its columns as (name, type), and where its key's columns stand among them."""

    database: str
    schema: str
    table: str
    columns: tuple[tuple[str, str], ...]
    keys: tuple[int, ...] = ()
    nullable_keys: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return qualified((self.database, self.schema, self.table))


def create(target: Target) -> str:
    columns = ", ".join(f"{quoted(name)} {sql_type(kind)}" for name, kind in target.columns)
    return f"CREATE TABLE IF NOT EXISTS {target.name} ({columns})"


def create_staged(target: Target, staged: str) -> str:
    columns = ", ".join(f"{quoted(name)} {sql_type(kind)}" for name, kind in _staged_columns(target))
    return f"CREATE TEMPORARY TABLE {quoted(staged)} ({columns})"


def copy(target: Target, staged: str, stage: str, folder: str) -> str:
    """Load the staged table from `folder`/ of the session's stage, each field cast to what its column is."""
    names = [quoted(name) for name, _ in _staged_columns(target)]
    fields = ", ".join(f"$1:{quoted(name)}::{sql_type(kind)}" for name, kind in _staged_columns(target))
    place = stage_path(((stage,), f"{folder}/"))
    return (
        f"COPY INTO {quoted(staged)} ({', '.join(names)}) FROM (SELECT {fields} FROM {place})"
        " FILE_FORMAT = (TYPE = PARQUET BINARY_AS_TEXT = FALSE) PURGE = TRUE"
    )


def merge(target: Target, staged: str) -> str:
    """Apply the last change of each key. Every key is there once already; a second would be an error of MERGE's own
    in Snowflake, and QUALIFY makes sure all the same."""
    places, names = _places(target), [quoted(column) for column, _ in target.columns]
    keys = ", ".join(quoted(places[k]) for k in target.keys)
    on = " AND ".join(
        f"t.{names[k]} {'IS NOT DISTINCT FROM' if k in target.nullable_keys else '='} s.{quoted(places[k])}"
        for k in target.keys
    )
    sets = ", ".join(f"t.{name} = s.{quoted(place)}" for name, place in zip(names, places, strict=True))
    return (
        f"MERGE INTO {target.name} AS t USING (SELECT {_values(target)}, {quoted(ACTION)}, {quoted(IS_UPDATE)}"
        f" FROM {quoted(staged)} QUALIFY ROW_NUMBER() OVER (PARTITION BY {keys} ORDER BY {quoted(ACTION)} DESC) = 1)"
        f" AS s ON {on}"
        f" WHEN MATCHED AND s.{quoted(ACTION)} = 'DELETE' THEN DELETE"
        f" WHEN MATCHED THEN UPDATE SET {sets}"
        f" WHEN NOT MATCHED AND s.{quoted(ACTION)} <> 'DELETE' THEN INSERT ({', '.join(names)})"
        f" VALUES ({', '.join(f's.{quoted(place)}' for place in places)})"
    )


def append(target: Target, staged: str, copy_number: int) -> str:
    """Insert each staged row that is wanted at least `copy_number` times, once."""
    names = ", ".join(quoted(column) for column, _ in target.columns)
    return (
        f"INSERT INTO {target.name} ({names}) SELECT {_values(target, alias=False)} FROM {quoted(staged)}"
        f" WHERE {quoted(COPIES)} >= {copy_number:d}"
    )


def add_column(target: Target, column: tuple[str, str]) -> str:
    return f"ALTER TABLE {target.name} ADD COLUMN {quoted(column[0])} {sql_type(column[1])}"


def widen_column(target: Target, column: tuple[str, str]) -> str:
    return f"ALTER TABLE {target.name} ALTER COLUMN {quoted(column[0])} SET DATA TYPE {sql_type(column[1])}"


def drop_column(target: Target, name: str) -> str:
    return f"ALTER TABLE {target.name} DROP COLUMN {quoted(name)}"


def _staged_columns(target: Target) -> list[tuple[str, str]]:
    own = [(f"c{i}", _STAGED.get(kind, (kind, ""))[0]) for i, (_, kind) in enumerate(target.columns)]
    return [*own, *_MARKS]


def _places(target: Target) -> Sequence[str]:
    return [f"c{i}" for i in range(len(target.columns))]


def _values(target: Target, *, alias: bool = True) -> str:
    """The staged columns in their types."""
    made = []
    for place, (_, kind) in zip(_places(target), target.columns, strict=True):
        value = _STAGED[kind][1].format(quoted(place)) if kind in _STAGED else quoted(place)
        made.append(f"{value} AS {quoted(place)}" if alias else value)
    return ", ".join(made)
