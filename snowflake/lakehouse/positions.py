"""LAKEWARD.SINK_POSITIONS: which version of silver each destination table holds, kept in Snowflake itself.

The row of a table changes in the transaction that changes the table, so the two never disagree whatever dies when;
and it changes only from the value that this run has read, so two sinks that run at once cannot both apply a change.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from lakeward.errors import TransientError
from snowflake.lakehouse.connection import Session
from snowflake.lakehouse.template import qualified

TABLE = "SINK_POSITIONS"
NOTHING = -1  # the version of a destination that was claimed and not yet loaded


@dataclass(frozen=True)
class SinkPosition:
    """What a destination holds."""

    silver_id: str  # the Delta table's own id
    generation: int
    version: int  # of the Delta table
    cut: str  # epoch:file:pos at the source
    columns: tuple[tuple[str, str], ...]  # (name, Snowflake type), as they were when the version was merged


def ensure(session: Session) -> None:
    session.run(
        f'CREATE TABLE IF NOT EXISTS "{TABLE}" ("TABLE_SCHEMA" VARCHAR, "TABLE_NAME" VARCHAR, "SILVER_ID" VARCHAR,'
        ' "GENERATION" NUMBER(19,0), "SILVER_VERSION" NUMBER(19,0), "CUT" VARCHAR, "COLUMNS" VARCHAR,'
        ' "SUNK_AT" TIMESTAMP_LTZ(6))'
    )


def read(session: Session, target: tuple[str, str]) -> SinkPosition | None:
    """The position of the destination (schema, table), or None before its first load."""
    found = session.rows(
        f'SELECT "SILVER_ID", "GENERATION", "SILVER_VERSION", "CUT", "COLUMNS" FROM {_name(session)}'
        ' WHERE "TABLE_SCHEMA" = %s AND "TABLE_NAME" = %s',
        target,
    )
    if not found:
        return None
    silver_id, generation, version, cut, columns = found[0]
    return SinkPosition(silver_id, generation, version, cut, tuple((n, k) for n, k in json.loads(columns)))


def move(session: Session, target: tuple[str, str], before: SinkPosition | None, after: SinkPosition) -> None:
    """Within the transaction of the MERGE. Raises TransientError when another sink has moved it meanwhile."""
    values = (after.silver_id, after.generation, after.version, after.cut, json.dumps(after.columns))
    if before is None:
        moved = session.count(
            f'INSERT INTO {_name(session)} ("SILVER_ID", "GENERATION", "SILVER_VERSION", "CUT", "COLUMNS", "SUNK_AT",'
            ' "TABLE_SCHEMA", "TABLE_NAME") SELECT %s, %s, %s, %s, %s, CURRENT_TIMESTAMP(), %s, %s WHERE NOT EXISTS'
            f' (SELECT 1 FROM {_name(session)} WHERE "TABLE_SCHEMA" = %s AND "TABLE_NAME" = %s)',
            (*values, *target, *target),
        )
    else:
        moved = session.count(
            f'UPDATE {_name(session)} SET "SILVER_ID" = %s, "GENERATION" = %s, "SILVER_VERSION" = %s, "CUT" = %s,'
            ' "COLUMNS" = %s, "SUNK_AT" = CURRENT_TIMESTAMP() WHERE "TABLE_SCHEMA" = %s AND "TABLE_NAME" = %s'
            ' AND "SILVER_ID" = %s AND "SILVER_VERSION" = %s',
            (*values, *target, before.silver_id, before.version),
        )
    if moved != 1:
        raise TransientError(
            f"another sink has moved {target[0]}.{target[1]} while this one worked on it",
            hint="let one sink run for a database",
        )


def _name(session: Session) -> str:
    return qualified((session.database, "LAKEWARD", TABLE))
