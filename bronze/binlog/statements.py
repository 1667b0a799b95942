"""What a statement in the binlog does to tables that row events do not say.

Pure. It errs on one side: whatever is not surely harmless is not, and a statement that cannot be read but could touch a
table is `Unknown`. Names are as the statement spells them; a server that folds their case (lower_case_table_names)
needs them compared without case.

Source: MySQL manual, "Data Definition Statements"; MariaDB knowledge base, the same.
"""

from __future__ import annotations

import logging

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from bronze.binlog.alters import altered
from bronze.binlog.effects import Alter, Create, Drop, DropSchema, Effect, Rename, Truncate, Unknown
from bronze.binlog.sqltext import Cursor, first_word, tokens, words
from lakeward.names import TableName

__all__ = [
    "Alter",
    "Create",
    "Drop",
    "DropSchema",
    "Effect",
    "Rename",
    "Truncate",
    "Unknown",
    "effects",
    "first_word",
    "written_tables",
]

_SHAPING = frozenset(("ALTER", "CREATE", "DROP", "RENAME", "TRUNCATE"))
# What ALTER, CREATE and DROP are followed by where no table's rows or columns are meant.
_NO_TABLE = words(
    """AGGREGATE ALGORITHM DATABASE DEFINER EVENT FULLTEXT FUNCTION INDEX INSTANCE JSON LIBRARY LOGFILE PACKAGE
    PREPARE PROCEDURE RESOURCE ROLE SCHEMA SEQUENCE SERVER SPATIAL SQL TABLESPACE TRIGGER UNDO UNIQUE USER VECTOR
    VIEW"""
)


def effects(sql: str, default_schema: str) -> tuple[Effect, ...]:
    """What the statement does, in its order; `()` for one that changes no table's rows or columns.

    An XA COMMIT among the statements stands for rows that are not known (see `transactions.read`).
    """
    word = first_word(sql)
    if word == "XA":
        return (Unknown(None),)
    if word not in _SHAPING:
        return ()
    found = tokens(sql)
    if found is None:
        return (Unknown(None),)
    while found and found[0].kind == "mark":
        found.pop(0)
    cursor = Cursor(found)
    cursor.take(word)
    read = {"ALTER": _alter, "CREATE": _create, "DROP": _drop, "RENAME": _rename, "TRUNCATE": _truncate}[word]
    return read(cursor, default_schema)


def _alter(c: Cursor, schema: str) -> tuple[Effect, ...]:
    lossy = False
    while word := c.take_any("ONLINE", "OFFLINE", "IGNORE"):
        lossy = lossy or word == "IGNORE"  # rows that a new unique key forbids are deleted
    if not c.take("TABLE"):
        return _of_no_table(c)
    c.take("IF", "EXISTS")
    table = c.table(schema)
    if table is None:
        return (Unknown(None),)
    if c.take("WAIT"):
        c.skip()
    return altered(table, c, schema, lossy=lossy)


def _create(c: Cursor, schema: str) -> tuple[Effect, ...]:
    replace = c.take("OR", "REPLACE")
    temporary = c.take("TEMPORARY")
    if not c.take("TABLE"):
        return () if temporary else _of_no_table(c)
    if temporary:
        return ()
    c.take("IF", "NOT", "EXISTS")
    table = c.table(schema)
    if table is None:
        return (Unknown(None),)
    return (Drop(table), Create(table)) if replace else (Create(table),)


def _drop(c: Cursor, schema: str) -> tuple[Effect, ...]:
    if c.take("TEMPORARY"):
        return ()
    if c.take_any("DATABASE", "SCHEMA"):
        c.take("IF", "EXISTS")
        name = c.name()
        return (Unknown(None),) if name is None else (DropSchema(name),)
    if c.take("INDEX"):
        return _drop_index(c, schema)
    if not c.take_any("TABLE", "TABLES"):
        return _of_no_table(c)
    c.take("IF", "EXISTS")
    dropped: list[Effect] = []
    for part in c.clauses():
        table = part.table(schema)
        dropped.append(Unknown(None) if table is None else Drop(table))
    return tuple(dropped) or (Unknown(None),)


def _drop_index(c: Cursor, schema: str) -> tuple[Effect, ...]:
    c.take("IF", "EXISTS")
    name = c.name()
    if name is None or not c.take("ON"):
        return (Unknown(None),)
    table = c.table(schema)
    return (Unknown(None) if table is None else Alter(table, name.upper() != "PRIMARY", rekeys=True),)


def _rename(c: Cursor, schema: str) -> tuple[Effect, ...]:
    if c.take("USER"):
        return ()
    if not c.take_any("TABLE", "TABLES"):
        return (Unknown(None),)
    c.take("IF", "EXISTS")
    renamed: list[Effect] = []
    for part in c.clauses():
        old = part.table(schema)
        if part.take("WAIT"):
            part.skip()
        part.take("NOWAIT")
        new = part.table(schema) if part.take("TO") else None
        renamed.append(Unknown(None) if old is None or new is None else Rename(old, new))
    return tuple(renamed) or (Unknown(None),)


def _truncate(c: Cursor, schema: str) -> tuple[Effect, ...]:
    c.take("TABLE")
    table = c.table(schema)
    return (Unknown(None) if table is None else Truncate(table),)


def _of_no_table(c: Cursor) -> tuple[Effect, ...]:
    return () if c.peek() in _NO_TABLE else (Unknown(None),)


def written_tables(sql: str, default_schema: str) -> tuple[TableName, ...] | None:
    """The tables that an INSERT, UPDATE, DELETE, REPLACE or LOAD writes to; None where that cannot be told.

    Triggers that fire on it may write to others.
    """
    cursor = Cursor(tokens(sql) or [])
    if cursor.take_any("INSERT", "REPLACE"):
        while cursor.take_any("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"):
            pass
        return _one(cursor.table(default_schema))
    if cursor.take_any("LOAD"):
        while not cursor.done and not cursor.take("INTO", "TABLE"):
            cursor.skip()
        return _one(cursor.table(default_schema))
    try:
        tree = sqlglot.parse_one(sql, dialect="mysql")
    except SqlglotError:
        return None
    if isinstance(tree, exp.Update):
        named = list(tree.find_all(exp.Table))
    elif isinstance(tree, exp.Delete):
        aliases = {t.alias: t for t in tree.find_all(exp.Table) if t.alias}
        named = list(tree.args.get("tables") or []) or list(tree.this.find_all(exp.Table))
        named = [t if t.db else aliases.get(t.name, t) for t in named]
    else:
        return None
    return tuple(TableName(t.db or default_schema, t.name) for t in named) or None


def _one(table: TableName | None) -> tuple[TableName, ...] | None:
    return None if table is None else (table,)


# It warns of what it cannot parse with the statement's text, which may hold what must not be logged.
logging.getLogger("sqlglot").setLevel(logging.ERROR)
