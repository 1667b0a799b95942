"""The clauses of ALTER TABLE, one by one: which leave rows and columns as they are.

A clause counts as harmless only when each of its words is known to be. ADD COLUMN is so when old rows surely have NULL
in the new column: nullable, and no default. DROP, RENAME, CHANGE and MODIFY of a column are told one by one, for
`bronze.reshape` to judge.

Source: MySQL manual, "ALTER TABLE Statement"; MariaDB knowledge base, "ALTER TABLE".
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from bronze.binlog.definitions import definition
from bronze.binlog.effects import Alter, ColumnChange, DropColumn, Effect, ModifyColumn, Rename, RenameColumn
from bronze.binlog.sqltext import Cursor, words
from lakeward.names import TableName

_OPTIONS: Final = words(
    """ALGORITHM AUTO_INCREMENT AUTOEXTEND_SIZE AVG_ROW_LENGTH CHARSET CHECKSUM COLLATE COMMENT COMPRESSION
    DELAY_KEY_WRITE ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE KEY_BLOCK_SIZE LOCK MAX_ROWS MIN_ROWS
    PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL PASSWORD ROW_FORMAT SECONDARY_ENGINE
    SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES TABLESPACE TRANSACTIONAL"""
)
_TYPES: Final = words(
    """TINYINT SMALLINT MEDIUMINT INT INTEGER BIGINT INT1 INT2 INT3 INT4 INT8 MIDDLEINT BOOL BOOLEAN DECIMAL DEC NUMERIC
    FIXED NUMBER FLOAT FLOAT4 FLOAT8 DOUBLE REAL PRECISION BIT DATE TIME DATETIME TIMESTAMP YEAR CHAR CHARACTER VARCHAR
    VARCHAR2 VARYING NCHAR NVARCHAR NATIONAL TINYTEXT TEXT MEDIUMTEXT LONGTEXT LONG BINARY VARBINARY RAW TINYBLOB BLOB
    MEDIUMBLOB LONGBLOB CLOB ENUM SET JSON GEOMETRY POINT LINESTRING POLYGON MULTIPOINT MULTILINESTRING MULTIPOLYGON
    GEOMETRYCOLLECTION GEOMCOLLECTION VECTOR UUID INET4 INET6 UNSIGNED SIGNED ZEROFILL ASCII UNICODE"""
)
_DURABLE: Final = ("INNODB", "MYISAM", "ARIA", "ROCKSDB")
_INDEXES: Final = ("INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "FOREIGN", "CHECK")


@dataclass
class _Found:
    harmless: bool = True
    adds: list[str] = field(default_factory=list)
    rekeys: bool = False
    changes: list[ColumnChange] = field(default_factory=list)
    recharsets: bool = False
    renamed: TableName | None = None
    others: list[TableName] = field(default_factory=list)  # tables that rows were exchanged with


def altered(table: TableName, rest: Cursor, default_schema: str, *, lossy: bool) -> tuple[Effect, ...]:
    """The effects of ALTER TABLE `table` with the clauses in `rest`; `lossy` where rows may go by themselves."""
    found = _Found(harmless=not lossy)
    parts = rest.clauses()
    renames = 0
    for part in parts:
        if part.take("ORDER", "BY"):  # the last clause, with commas of its own
            break
        before = found.renamed
        found.harmless = _clause(part, found, default_schema) and found.harmless
        renames += found.renamed is not before
    effects: list[Effect] = []
    if renames < len(parts) or not parts or lossy:
        effects.append(_alter(table, found))
    effects.extend(Alter(other, harmless=False) for other in found.others)
    if found.renamed is not None:
        effects.append(Rename(table, found.renamed))
    return tuple(effects)


def _alter(table: TableName, found: _Found) -> Alter:
    adds, changes = tuple(found.adds), tuple(found.changes)
    return Alter(table, found.harmless, adds, found.rekeys, changes, found.recharsets)


def _clause(c: Cursor, found: _Found, schema: str) -> bool:
    """Whether the clause is harmless; notes what else it does."""
    word = c.take_any("ADD", "DROP", "ALTER", "RENAME", "EXCHANGE", "CONVERT", "MODIFY", "CHANGE")
    if word == "ADD":
        return _add(c, found)
    if word == "DROP":
        return _drop(c, found)
    if word == "ALTER":
        # Of a column only the default and the visibility, which hold for later rows.
        return bool(c.take_any("INDEX", "KEY", "CONSTRAINT", "CHECK")) or _alter_column(c)
    if word == "RENAME":
        if c.take_any("INDEX", "KEY"):
            return True
        if c.take("COLUMN"):
            return _rename_column(c, found)
        c.take_any("TO", "AS", "=")
        found.renamed = c.table(schema)
        return found.renamed is not None
    if word in ("EXCHANGE", "CONVERT"):
        _other_table(c, found, schema)
        return False
    if word in ("MODIFY", "CHANGE"):
        return _redefine(c, found, renames=word == "CHANGE")
    return _keeps_rows(c) or _options(c, found)


def _keeps_rows(c: Cursor) -> bool:
    if c.take_any("FORCE", "NOWAIT", "SECONDARY_LOAD", "SECONDARY_UNLOAD"):
        return c.done
    for pair in (("ENABLE", "KEYS"), ("DISABLE", "KEYS"), ("WITH", "VALIDATION"), ("WITHOUT", "VALIDATION")):
        if c.take(*pair):
            return c.done
    # Rows move between partitions; the server refuses where one would have no place.
    partitions = ("ANALYZE", "CHECK", "OPTIMIZE", "REBUILD", "COALESCE", "REORGANIZE")
    return (
        c.take("PARTITION", "BY")
        or c.take("REMOVE", "PARTITIONING")
        or any(c.take(word, "PARTITION") for word in partitions)
    )


def _alter_column(c: Cursor) -> bool:
    c.take("COLUMN")
    return c.name() is not None and bool(
        c.take("SET", "DEFAULT") or c.take("DROP", "DEFAULT") or c.take("SET", "VISIBLE") or c.take("SET", "INVISIBLE")
    )


def _other_table(c: Cursor, found: _Found, schema: str) -> None:
    """EXCHANGE PARTITION p WITH TABLE t; MariaDB's CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO PARTITION p."""
    while not c.done:
        if c.take("TABLE"):
            other = c.table(schema)
            if other is not None:
                found.others.append(other)
            return
        c.skip()


def _rename_column(c: Cursor, found: _Found) -> bool:
    if_exists = c.take("IF", "EXISTS")
    old = c.name()
    new = c.name() if c.take("TO") else None
    if old is None or new is None or not c.done:
        return False
    found.changes.append(RenameColumn(old, new, if_exists))
    return True


def _redefine(c: Cursor, found: _Found, *, renames: bool) -> bool:
    """MODIFY name …, or CHANGE name new …"""
    c.take("COLUMN")
    if_exists = c.take("IF", "EXISTS")
    name = c.name()
    new = c.name() if renames else name
    to = definition(c)
    if name is None or new is None or to is None:
        return False
    found.changes.append(ModifyColumn(name, to, if_exists))
    if new != name:
        found.changes.append(RenameColumn(name, new, if_exists))
    return True


def _options(c: Cursor, found: _Found) -> bool:
    """Table options, which may follow one another without commas."""
    while not c.done:
        c.take("DEFAULT")
        found.recharsets = found.recharsets or c.peek() in ("CHARSET", "COLLATE", "CHARACTER")
        if c.take_any("ENGINE", "TYPE"):
            c.take("=")
            if (c.name() or "").upper() not in _DURABLE:  # in MEMORY, BLACKHOLE and others rows do not last
                return False
        elif (
            c.take_any(*_OPTIONS)
            or c.take("CHARACTER", "SET")
            or c.take("DATA", "DIRECTORY")
            or c.take("INDEX", "DIRECTORY")
        ):
            c.take("=")
            c.skip()
        else:
            return False
    return True


def _add(c: Cursor, found: _Found) -> bool:
    if c.peek() in _INDEXES:
        return True
    if c.take("PRIMARY"):
        return False
    if c.take("CONSTRAINT"):
        if c.peek() not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            c.name()
        return c.peek() in ("UNIQUE", "FOREIGN", "CHECK")
    if c.take("PARTITION"):
        return True
    if c.peek() == "VECTOR" and c.peek(1) in ("INDEX", "KEY"):
        return True
    if (c.peek() == "PERIOD" and c.peek(1) == "FOR") or (c.peek() == "SYSTEM" and c.peek(1) == "VERSIONING"):
        return False
    c.take("COLUMN")
    c.take("IF", "NOT", "EXISTS")
    if c.take("("):
        inside = Cursor(c.found[c.at : -1])
        return all(_column(part, found) for part in inside.clauses())
    return _column(c, found)


def _column(c: Cursor, found: _Found) -> bool:
    if c.peek() in (*_INDEXES, "CONSTRAINT", "PRIMARY"):  # in the list of ADD (…)
        return _add(c, found)
    name = c.name()
    kind = c.take_any(*_TYPES)
    if name is None or not kind:
        return False
    nullable = kind != "TIMESTAMP"  # not null by itself where explicit_defaults_for_timestamp is off
    while not c.done:
        if c.take("NULL") or c.take("DEFAULT", "NULL"):
            nullable = True
        elif c.take("CHARACTER", "SET") or c.take_any(
            "CHARSET", "COLLATE", "COMMENT", "AFTER", "SRID", "REF_SYSTEM_ID", "COLUMN_FORMAT", "STORAGE"
        ):
            c.take("=")
            c.skip()
        elif c.take_any(*_TYPES, "FIRST", "INVISIBLE", "VISIBLE") or c.take("UNIQUE", "KEY") or c.take("UNIQUE"):
            continue
        elif c.peek() == "(":  # of the type
            c.skip()
        else:
            return False
    if nullable:
        found.adds.append(name)
    return nullable


def _drop(c: Cursor, found: _Found) -> bool:
    if c.take("FOREIGN", "KEY") or c.take("CHECK"):
        return True
    if c.take_any("INDEX", "KEY", "CONSTRAINT"):
        c.take("IF", "EXISTS")
        name = c.name()
        found.rekeys = True
        return name is not None and name.upper() != "PRIMARY"
    if c.peek() in ("PRIMARY", "PARTITION", "SYSTEM", "PERIOD") and c.peek(1):
        return False
    c.take("COLUMN")
    if_exists = c.take("IF", "EXISTS")
    name = c.name()
    c.take_any("RESTRICT", "CASCADE")
    if name is None or not c.done:
        return False
    found.changes.append(DropColumn(name, if_exists))
    return True
