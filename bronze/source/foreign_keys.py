"""The foreign keys whose actions the source does not log, and which of them silver can carry out.

InnoDB deletes and changes the rows of children itself; no row event says so, on MariaDB and on MySQL before 9.6. From
9.6 on the server does it above the engine and logs it, unless `innodb_native_foreign_keys` hands it back.

Read from SHOW CREATE TABLE: on MariaDB a user with SELECT alone sees no row of REFERENTIAL_CONSTRAINTS.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pymysql

from bronze.snapshot.select import source_table
from bronze.source.server import flavour_and_version, rows
from lakeward.errors import TerminalError
from lakeward.foreign_keys import Action, ForeignKey
from lakeward.names import TableName
from lakeward.schema import TableSchema

CASCADES_LOGGED_FROM = (9, 6, 0)
# A line of SHOW CREATE TABLE. MariaDB doubles no backquote within the names of a foreign key, MySQL does.
_CONSTRAINT = re.compile(
    r"\s*CONSTRAINT `(.+?)` FOREIGN KEY \(`(.+?)`\) REFERENCES (?:`(.+?)`\.)?`(.+?)` \(`(.+?)`\)(.*)$"
)
_RULE = re.compile(r"ON (DELETE|UPDATE) (CASCADE|SET NULL)")
_COMPUTED = re.compile(r"(?:GENERATED ALWAYS )?AS \(")


@dataclass(frozen=True)
class Reference:
    """A foreign key as the source has it. `obstacle`: why silver cannot carry out its actions, None where it can."""

    child: TableName
    key: ForeignKey
    obstacle: str | None = None

    @property
    def rules(self) -> str:
        """`ON DELETE CASCADE, ON UPDATE SET NULL`"""
        found = (("DELETE", self.key.on_delete), ("UPDATE", self.key.on_update))
        return ", ".join(f"ON {event} {action}" for event, action in found if action)


def cascades_logged(conn: pymysql.Connection) -> bool:
    """Whether the binlog has row events for what foreign keys do to children."""
    flavour, version = flavour_and_version(conn)
    if flavour == "mariadb" or version < CASCADES_LOGGED_FROM:
        return False
    native = rows(conn, "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
    return not native or str(native[0][1]).upper() != "ON"


def unlogged(conn: pymysql.Connection, schemas: Sequence[TableSchema]) -> list[Reference]:
    """The foreign keys of these tables with actions that the source does not log. A table that may not be read, or is
    gone, has none here: that is said elsewhere."""
    if cascades_logged(conn):
        return []
    by_name = {str(s.name).lower(): s for s in schemas}
    found = []
    for schema in schemas:
        try:
            ddl = str(rows(conn, f"SHOW CREATE TABLE {source_table(schema.name)}")[0][1])
        except TerminalError:
            continue
        for key in parse(schema.name, ddl):
            parent = by_name.get(str(key.parent).lower())
            why = _obstacle(key, ddl, schema, parent)
            if parent is not None and why is None:
                key = _spelt(key, schema, parent)
            found.append(Reference(schema.name, key, why))
    return found


def parse(child: TableName, ddl: str) -> list[ForeignKey]:
    """The foreign keys with actions in the text of SHOW CREATE TABLE."""
    found = []
    for line in ddl.splitlines():
        if match := _CONSTRAINT.match(line):
            name, columns, schema, table, referenced, rest = match.groups()
            rules: dict[str, Action] = dict(_RULE.findall(rest))
            parent = TableName(_plain(schema) if schema else child.schema, _plain(table))
            if rules:
                found.append(
                    ForeignKey(
                        _plain(name),
                        _names(columns),
                        parent,
                        _names(referenced),
                        rules.get("DELETE", ""),
                        rules.get("UPDATE", ""),
                    )
                )
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(map(_plain, text.split("`, `")))


def _plain(name: str) -> str:
    return name.replace("``", "`")


def _obstacle(key: ForeignKey, ddl: str, child: TableSchema, parent: TableSchema | None) -> str | None:
    if parent is None:
        return f"{key.parent} is not followed"
    if "WITH SYSTEM VERSIONING" in ddl:
        return f"{child.name} is system-versioned, and its history rows change too"
    pairs = list(zip(key.columns, key.referenced, strict=True))
    for schema, names in ((child, key.columns), (parent, key.referenced)):
        for name in names:
            if name.lower() not in _folded(schema):
                return f"{schema.name} is followed without its column {name!r}"
    for mine, theirs in pairs:
        one, other = _folded(child)[mine.lower()], _folded(parent)[theirs.lower()]
        if child.column(one).masked != parent.column(other).masked:
            return f"only one of {child.name}.{one} and {parent.name}.{other} is masked"
    if key.on_update or key.on_delete == "SET NULL":
        for line in ddl.splitlines():
            computed = _COMPUTED.search(line)
            if computed and any(f"`{c.replace('`', '``')}`" in line[computed.start() :] for c in key.columns):
                return f"a generated column of {child.name} is computed from it"
    return None


def _spelt(key: ForeignKey, child: TableSchema, parent: TableSchema) -> ForeignKey:
    """`key` with its tables and columns spelt as the schemas spell them: servers compare names without case."""
    return ForeignKey(
        key.name,
        tuple(_folded(child)[n.lower()] for n in key.columns),
        parent.name,
        tuple(_folded(parent)[n.lower()] for n in key.referenced),
        key.on_delete,
        key.on_update,
    )


def _folded(schema: TableSchema) -> dict[str, str]:
    return {c.name.lower(): c.name for c in schema.columns}


def of_tables(references: Iterable[Reference]) -> dict[str, list[ForeignKey]]:
    """Those that silver can carry out, by the child's name."""
    found: dict[str, list[ForeignKey]] = {}
    for reference in references:
        if reference.obstacle is None:
            found.setdefault(str(reference.child), []).append(reference.key)
    return found
