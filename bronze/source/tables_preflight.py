"""The part of the preflight that looks at the followed tables: may they be read, and can they be copied faithfully."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

import pymysql
from pymysql.constants import ER

from bronze.snapshot.select import select, source_table
from bronze.source.catalog import SourceTable, survey
from bronze.source.findings import Finding, error, warning
from bronze.source.foreign_keys import unlogged
from bronze.source.retention import kept_s
from bronze.source.server import rows
from lakeward.config import Config
from lakeward.errors import TerminalError
from lakeward.names import mysql_identifier

_ROWS_PER_S = 200_000
_ALTERED = (ER.BAD_FIELD_ERROR, ER.NO_SUCH_TABLE)  # since the table was looked up: the stream has what was done
_TRANSACTIONAL = ("innodb", "rocksdb", "myrocks", "tokudb", "ndbcluster")


def check_tables(conn: pymysql.Connection, config: Config, known: Collection[str] = ()) -> list[Finding]:
    """Findings about the tables that the configuration picks. `known` and ConfigError as `catalog.discover`."""
    tables = survey(conn, config, known)
    if not tables:
        return [_nothing(conn, config)]
    found = [error(p.message, p.hint or "") for table in tables for p in table.problems]
    found += _twins(tables)
    for table in tables:
        found += _table(conn, table)
    return found + _cascades(conn, tables) + _duration(conn, tables)


def _nothing(conn: pymysql.Connection, config: Config) -> Finding:
    user = rows(conn, "SELECT CURRENT_USER()")[0][0]
    name, _, host = str(user).rpartition("@")
    globs = ", ".join(config.source.include) or "every schema"
    schema = config.source.include[0].partition(".")[0] if config.source.include else "<schema>"
    return error(
        f"the user {user} can read no table that [source] include ({globs}) and exclude pick",
        f"GRANT SELECT ON {mysql_identifier(schema)}.* TO '{name}'@'{host}';   -- or mend [source] include",
    )


def _table(conn: pymysql.Connection, table: SourceTable) -> list[Finding]:
    found = []
    if table.schema is not None:
        unreadable = _unreadable(conn, table)
        found += unreadable
        if not table.schema.keys:
            found.append(
                warning(
                    f"{table.name} has no key: its rows are compared whole, and equal rows are counted",
                    f'ALTER TABLE {source_table(table.name)} ADD PRIMARY KEY (…);   -- or [tables."{table.name}"] keys',
                )
            )
    if table.versioned:
        found.append(
            warning(
                f"{table.name} is system-versioned: its history rows are rows of the copy too, told apart by the end "
                "of their period, which is part of the key",
                f'[source] exclude = ["{table.name}"]   # if that is not wanted',
            )
        )
    elif table.engine.lower() not in _TRANSACTIONAL:
        found.append(
            warning(
                f"{table.name} is of the engine {table.engine or 'unknown'}, which has no transactions: a statement "
                "that fails half way leaves rows behind, and a snapshot beside writers is not of one moment",
                f"ALTER TABLE {source_table(table.name)} ENGINE = InnoDB;",
            )
        )
    return found


def _unreadable(conn: pymysql.Connection, table: SourceTable) -> list[Finding]:
    assert table.schema is not None
    try:
        rows(conn, select(table.schema, " LIMIT 0"))
    except TerminalError as failure:
        if failure.facts.get("error") in _ALTERED:
            return []
        user = rows(conn, "SELECT CURRENT_USER()")[0][0]
        name, _, host = str(user).rpartition("@")
        return [
            error(
                f"the user {user} may not read {table.name}: {failure.message.rpartition(': ')[2]}",
                f"GRANT SELECT ON {source_table(table.name)} TO '{name}'@'{host}';",
            )
        ]
    return []


def _twins(tables: list[SourceTable]) -> list[Finding]:
    alike: dict[str, list[str]] = defaultdict(list)
    for table in tables:
        alike[str(table.name).lower()].append(str(table.name))
    return [
        warning(
            f"{' and '.join(names)} differ only in case: engines and file systems that ignore case take them for one",
            f'[source] exclude = ["{names[-1]}"], or rename it',
        )
        for names in alike.values()
        if len(names) > 1
    ]


def _cascades(conn: pymysql.Connection, tables: list[SourceTable]) -> list[Finding]:
    schemas = [t.schema for t in tables if t.schema is not None and t.engine.lower() == "innodb"]
    return [
        warning(
            f"{ref.child} is changed by its foreign key {ref.key.name} ({ref.rules}) inside the engine, which this "
            f"server does not log, and silver cannot do the same, since {ref.obstacle}: the copy drifts from the "
            "source after such a change",
            f"ALTER TABLE {source_table(ref.child)} DROP FOREIGN KEY {mysql_identifier(ref.key.name)}, ADD … ON DELETE "
            f"RESTRICT;   -- or mend that, or `lakeward verify --repair {ref.child}` after such changes",
        )
        for ref in unlogged(conn, schemas)
        if ref.obstacle is not None
    ]


def _duration(conn: pymysql.Connection, tables: list[SourceTable]) -> list[Finding]:
    kept = kept_s(conn)
    needed_s = sum(t.estimated_rows for t in tables) / _ROWS_PER_S
    if kept and needed_s > kept / 2:
        return [
            warning(
                f"the snapshot may take {needed_s / 3600:.1f} h and the binlog is kept for {kept / 3600:.1f} h: it "
                "can be purged before the stream gets to it",
                f"SET GLOBAL binlog_expire_logs_seconds = {int(needed_s * 4)};",
            )
        ]
    return []
