"""The source's tables as `TableSchema`s, read from information_schema in a handful of queries for all of them.

The columns are those that the row events carry, found out by reading them on both servers: visible, invisible and
generated ones, virtual ones too, and MySQL's generated invisible primary key; not the hidden columns behind functional
indexes. A system-versioned MariaDB table carries row_start and row_end, its history rows are events and rows of the
same table, and its primary key ends in row_end.
"""

from __future__ import annotations

import contextlib
import difflib
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import pymysql

from bronze.binlog.definitions import charset_of
from bronze.rowfilter import condition, require_fit
from bronze.snapshot.select import source_table
from bronze.source.server import rows
from lakeward.config import Config, TableConfig
from lakeward.errors import ConfigError, TerminalError
from lakeward.names import TableName
from lakeward.schema import Column, TableSchema, column_from_catalog

SYSTEM_SCHEMAS = ("mysql", "sys", "information_schema", "performance_schema")
RESERVED = (
    *("__ts_ms", "__transaction_id", "__transaction_order", "__deleted"),
    *("__valid_from", "__valid_to", "__is_current", "__valid_from_position", "__valid_to_position"),
)
_LOOKS = 3  # at a table that is listed and has no columns, before that counts as what the server shows of it
KeyKind = Literal["primary", "unique", "configured", "row"]


class Index(NamedTuple):
    """A unique index usable as a key: all its parts are whole columns, none of them nullable."""

    name: str
    columns: tuple[str, ...]


@dataclass
class SourceTable:
    """A followed table: its schema, or why it has none, and what the preflight wants to know of it."""

    name: TableName
    engine: str
    estimated_rows: int
    estimated_bytes: int
    versioned: bool
    charset: str | None = None  # of columns that name none
    schema: TableSchema | None = None
    problems: list[TerminalError] = field(default_factory=list)


def discover(conn: pymysql.Connection, config: Config, known: Collection[str] = ()) -> list[TableSchema]:
    """Schemas of the tables that `[source] include` and `exclude` pick, in name order. `known` are the names of those
    that were followed before, which the configuration may go on naming when they are gone.

    Raises ConfigError for configuration that fits no table or column, TerminalError for columns that have no place in
    the lake (all of them in one error).
    """
    tables = survey(conn, config, known)
    problems = [problem for table in tables for problem in table.problems]
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise TerminalError(
            "tables of the source cannot be copied as they are:\n" + "\n".join(f"  - {p.message}" for p in problems),
            hint="; ".join(dict.fromkeys(p.hint for p in problems if p.hint)),
        )
    return [table.schema for table in tables if table.schema is not None]


def survey(conn: pymysql.Connection, config: Config, known: Collection[str] = ()) -> list[SourceTable]:
    """Every followed table with its schema or its problems. Raises ConfigError as `discover`."""
    found = _tables(conn, config)
    _check_configured(config, {*known, *(str(t.name) for t in found)})
    return _described(conn, config, found)


def describe(conn: pymysql.Connection, config: Config, name: TableName) -> TableSchema | None:
    """The schema of one table as it is now, None when it is not there. Raises as `discover`."""
    for table in _described(conn, config, _tables(conn, config, only=name)):
        if table.problems:
            raise table.problems[0]
        return table.schema
    return None


def _described(
    conn: pymysql.Connection, config: Config, found: list[SourceTable], looks: int = _LOOKS
) -> list[SourceTable]:
    """`found` with their schemas or problems, without those that are gone since they were listed."""
    columns, indexes = _columns(conn, found), _indexes(conn, found)
    there = []
    for table in found:
        if columns.get(table.name):
            _describe(table, columns[table.name], indexes.get(table.name, []), config)
            _require_filter(conn, config, table.name, columns[table.name])
            there.append(table)
        elif looks:  # dropped or renamed in between, it may have come back by now
            there += _described(conn, config, _tables(conn, config, only=table.name), looks - 1)
        else:
            table.problems.append(_hidden(table.name))
            there.append(table)
    return there


def filter_condition(conn: pymysql.Connection, config: Config, name: TableName) -> str:
    """The row filter of a table as the server's SQL, "" where it has none. Raises as `describe`."""
    tree = config.table(name).filter
    if tree is None:
        return ""
    found = _columns(conn, _tables(conn, config, only=name)).get(name, [])
    if not found:  # it is gone, as whoever reads it will find out; should it come back by then, nothing is let in
        return "(1 = 0)"
    _require_filter(conn, config, name, found)
    return condition(tree, _filterable(config, name, found))


def _require_filter(conn: pymysql.Connection, config: Config, name: TableName, found: list[tuple[Any, ...]]) -> None:
    tree = config.table(name).filter
    if tree is not None:
        require_fit(tree, _filterable(config, name, found), name, conn)


def _filterable(config: Config, name: TableName, found: list[tuple[Any, ...]]) -> dict[str, Column]:
    """The columns that a filter may name, in lower case: excluded ones too, and masked ones in clear."""
    settings, columns = config.table(name), {}
    for column, column_type, nullable, charset, collation, *_ in found:
        left_out = column in settings.exclude_columns
        with contextlib.suppress(TerminalError):  # a type that the lake has no place for
            columns[str(column).lower()] = column_from_catalog(
                str(column),
                _decoded(column_type),
                nullable=nullable == "YES",
                charset=charset,
                collation=collation,
                tinyint1="int" if left_out else settings.tinyint1,
            )
    return columns


def estimated_rows(conn: pymysql.Connection, table: TableName) -> int:
    """The engine's estimate of the table's rows; 0 where there is none. Within a factor of two as a rule."""
    found = rows(
        conn,
        "SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        tuple(table),
    )
    return int(found[0][0] or 0) if found else 0


def unique_indexes(conn: pymysql.Connection, name: TableName) -> list[Index]:
    """Indexes of `name` that can be a key, best first: the primary key, then the fewest columns, then by name."""
    return _best_first(_index_rows(conn, [name]).get(name, []))


def _tables(conn: pymysql.Connection, config: Config, only: TableName | None = None) -> list[SourceTable]:
    marks = ", ".join(["%s"] * len(SYSTEM_SCHEMAS))
    where = f"TABLE_SCHEMA NOT IN ({marks})"
    args: tuple[str, ...] = SYSTEM_SCHEMAS
    if only is not None:
        where, args = f"{where} AND TABLE_SCHEMA = %s AND TABLE_NAME = %s", (*args, *only)
    found = rows(
        conn,
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_ROWS, DATA_LENGTH, TABLE_TYPE, TABLE_COLLATION "
        f"FROM information_schema.TABLES WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {where} "
        "ORDER BY TABLE_SCHEMA, TABLE_NAME",
        args,
    )
    tables = [
        SourceTable(
            TableName(str(s), str(t)),
            str(engine or ""),
            int(n or 0),
            int(size or 0),
            kind != "BASE TABLE",
            charset_of(str(collation or "")),
        )
        for s, t, engine, n, size, kind, collation in found
    ]
    return sorted((t for t in tables if config.source.wants(t.name)), key=lambda t: t.name)


def _columns(conn: pymysql.Connection, tables: Iterable[SourceTable]) -> dict[TableName, list[tuple[Any, ...]]]:
    found: dict[TableName, list[tuple[Any, ...]]] = defaultdict(list)
    for schema, names in _by_schema(t.name for t in tables):
        for row in rows(
            conn,
            "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME, "
            "GENERATION_EXPRESSION, EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s "
            "ORDER BY TABLE_NAME, ORDINAL_POSITION",
            (schema,),
        ):
            if row[0] in names:
                found[TableName(schema, str(row[0]))].append(row[1:])
    return found


def _indexes(conn: pymysql.Connection, tables: Iterable[SourceTable]) -> dict[TableName, list[Index]]:
    return {name: _best_first(found) for name, found in _index_rows(conn, [t.name for t in tables]).items()}


def _index_rows(conn: pymysql.Connection, names: Iterable[TableName]) -> dict[TableName, list[tuple[Any, ...]]]:
    found: dict[TableName, list[tuple[Any, ...]]] = defaultdict(list)
    for schema, wanted in _by_schema(names):
        for row in rows(
            conn,
            "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART, NULLABLE FROM information_schema.STATISTICS "
            "WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
            (schema,),
        ):
            if row[0] in wanted:
                found[TableName(schema, str(row[0]))].append(row[1:])
    return found


def _best_first(found: list[tuple[Any, ...]]) -> list[Index]:
    parts: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for index, *part in found:
        parts[str(index)].append(tuple(part))
    usable = []
    for index, columns in parts.items():
        # A primary key over prefixes still names a row once: whole values differ wherever prefixes do.
        whole = index == "PRIMARY" or all(sub is None for _, sub, _ in columns)
        if whole and all(name is not None and nullable != "YES" for name, _, nullable in columns):
            usable.append(Index(index, tuple(str(c) for c, _, _ in columns)))
    return sorted(usable, key=lambda i: (i.name != "PRIMARY", len(i.columns), i.name))


def _describe(table: SourceTable, found: list[tuple[Any, ...]], indexes: list[Index], config: Config) -> None:
    settings = config.table(table.name)
    names = [str(row[0]) for row in found]
    _check_columns(table.name, settings, names)
    columns: list[Column] = []
    for name, column_type, nullable, charset, collation, _, _ in found:
        if name in settings.exclude_columns:
            continue
        if str(name).lower() in RESERVED:
            table.problems.append(
                _refused(table.name, f"has a column {name!r}, a name that Lakeward keeps for itself", name)
            )
            continue
        try:
            column = column_from_catalog(
                str(name),
                _decoded(column_type),
                nullable=nullable == "YES",
                charset=charset,
                collation=collation,
                tinyint1=settings.tinyint1,
            )
            columns.append(replace(column, masked=name in settings.mask))
        except TerminalError as error:
            table.problems.append(_refused(table.name, error.message, name))
    if table.versioned:
        end = _period_end(found)
        columns += [] if end else _IMPLICIT_PERIOD
        indexes = [Index(i.name, tuple(dict.fromkeys((*i.columns, end or "row_end")))) for i in indexes]
    keys, kind = _keys(table.name, settings, columns, indexes)
    if not table.problems:
        auto = next((str(row[0]) for row in found if "auto_increment" in str(row[6]).lower()), None)
        table.schema = TableSchema(table.name, tuple(columns), keys, kind, table.charset, auto)


def _keys(
    name: TableName, settings: TableConfig, columns: Sequence[Column], indexes: Sequence[Index]
) -> tuple[tuple[str, ...], KeyKind]:
    if settings.keys:
        left_out = [k for k in settings.keys if k in settings.exclude_columns]
        if left_out:
            raise ConfigError(
                f'[tables."{name}"] keys names {left_out[0]!r}, which exclude_columns leaves out',
                hint="take it out of one of them",
            )
        return settings.keys, "configured"
    kept = {c.name for c in columns}
    for index in indexes:
        if kept.issuperset(index.columns):
            return index.columns, "primary" if index.name == "PRIMARY" else "unique"
    return (), "row"


def _period_end(found: list[tuple[Any, ...]]) -> str | None:
    """The declared ROW END column of a system-versioned table, None where the period is implicit."""
    return next((str(row[0]) for row in found if str(row[5] or "").upper() == "ROW END"), None)


# What `WITH SYSTEM VERSIONING` adds by itself; information_schema lists neither these nor their part of the key.
_IMPLICIT_PERIOD = [Column(name, "timestamp", fsp=6, nullable=False) for name in ("row_start", "row_end")]


def _check_columns(table: TableName, settings: TableConfig, names: list[str]) -> None:
    for setting, wanted in (
        ("keys", settings.keys or ()),
        ("exclude_columns", settings.exclude_columns),
        ("mask", tuple(settings.mask)),
        ("outbox", settings.outbox.required(names) if settings.outbox else ()),
    ):
        for name in wanted:
            if name not in names:
                raise ConfigError(
                    f'[tables."{table}"] {setting} names {name!r}, which is no column of that table',
                    hint=_nearest(name, names),
                )


def _check_configured(config: Config, known: Collection[str]) -> None:
    for name in config.tables:
        if name not in known:
            raise ConfigError(
                f'[tables."{name}"] matches no table that is followed and that this user may read',
                hint=_nearest(name, sorted(known)),
            )


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known[:20]) or 'none'}"


def _refused(table: TableName, why: str, column: object) -> TerminalError:
    return TerminalError(
        f"{table}: {why}",
        hint=f'[tables."{table}"] exclude_columns = ["{column}"]',
        table=str(table),
        column=column,
    )


def _hidden(table: TableName) -> TerminalError:
    return TerminalError(
        f"the user may not read {table}: the server shows it no column of it",
        hint=f"GRANT SELECT ON {source_table(table)} TO the user of [source] url",
        table=str(table),
    )


def _by_schema(names: Iterable[TableName]) -> list[tuple[str, set[str]]]:
    grouped: dict[str, set[str]] = defaultdict(set)
    for name in names:
        grouped[name.schema].add(name.table)
    return sorted(grouped.items())


def _decoded(value: object) -> str:
    """information_schema gives COLUMN_TYPE as bytes where a default charset makes it a blob."""
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)
