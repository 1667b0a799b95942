"""The column definitions of MODIFY and CHANGE: what of them a column's values hang on.

A definition is read only when each of its words is known not to touch old values; else there is none.

Source: MySQL manual, "CREATE TABLE Statement" (`column_definition`); MariaDB knowledge base, "CREATE TABLE".
"""

from __future__ import annotations

from typing import Final

from bronze.binlog.effects import Definition
from bronze.binlog.sqltext import Cursor, Token, words

# As information_schema spells them, and their synonyms. JSON is not among them: to MariaDB it is LONGTEXT.
_TYPES: Final = words(
    """TINYINT SMALLINT MEDIUMINT INT INTEGER BIGINT DECIMAL NUMERIC FLOAT DOUBLE BIT DATE TIME DATETIME TIMESTAMP YEAR
    CHAR VARCHAR TEXT MEDIUMTEXT LONGTEXT BINARY VARBINARY BLOB MEDIUMBLOB LONGBLOB ENUM SET"""
)
_SPOKEN: Final = {"DEC": "DECIMAL", "FIXED": "DECIMAL", "INT4": "INT", "INT8": "BIGINT", "FLOAT8": "DOUBLE"}
_SIZED_FLOATS: Final = ("FLOAT", "DOUBLE")  # FLOAT(7,4) rounds


def definition(c: Cursor) -> Definition | None:
    """The definition that is next, to the clause's end; None where it says anything that could change old values."""
    kind = c.take_any(*_TYPES) or _SPOKEN.get(c.take_any(*_SPOKEN), "")
    if not kind or (c.peek() == "(" and kind in _SIZED_FLOATS):
        return None
    if kind == "DOUBLE":
        c.take("PRECISION")
    spelt = kind.lower() + (_inside(c) if c.peek() == "(" else "")
    if "\\" in spelt:  # what a backslash does hangs on the session's sql_mode
        return None
    charset, nullable, auto = None, kind != "TIMESTAMP", False  # a TIMESTAMP may be NOT NULL by itself
    while not c.done:
        if c.take_any("UNSIGNED"):
            spelt += " unsigned"
        elif c.take("NOT", "NULL"):
            nullable = False
        elif c.take("NULL"):
            nullable = True
        elif c.take("CHARACTER", "SET") or c.take_any("CHARSET"):
            charset = _word(c)
            if not charset:
                return None
        elif c.take("COLLATE"):
            named = charset_of(_word(c))
            if named is None or (charset is not None and charset != named):
                return None
            charset = named
        elif c.take("DEFAULT") or c.take("ON", "UPDATE"):
            if not _value(c):
                return None
        elif c.take("AUTO_INCREMENT"):
            auto = True
        elif c.take_any("COMMENT", "COLUMN_FORMAT", "STORAGE", "AFTER"):
            c.skip()
        elif not (c.take("UNIQUE", "KEY") or c.take_any("UNIQUE", "SIGNED", "FIRST", "VISIBLE")):
            return None
    return Definition(spelt, charset, nullable, auto)


def charset_of(collation: str) -> str | None:
    """The character set whose name the collation's begins with; None for one that names none (MariaDB's uca1400)."""
    word = collation.lower()
    if word == "binary":
        return word
    charset, _, rest = word.partition("_")
    return charset if rest and not charset.startswith("uca") else None


def _word(c: Cursor) -> str:
    c.take("=")
    return (c.name() or "").lower()


def _inside(c: Cursor) -> str:
    """`(10,2)` or `('a','it''s')`, as information_schema prints it."""
    begin = c.at
    c.skip()
    return "".join(_spelt(token) for token in c.found[begin : c.at])


def _spelt(token: Token) -> str:
    return "'" + token.text.replace("'", "''") + "'" if token.kind == "string" else token.raw


def _value(c: Cursor) -> bool:
    """Go past a default: a literal, a name such as NULL or CURRENT_TIMESTAMP(6), or an expression in brackets."""
    c.take_any("-", "+")
    if c.done:
        return False
    numbers = c.peek()[:1].isdigit()
    c.skip()
    if numbers and c.take("."):
        c.skip()
    if c.peek() == "(":
        c.skip()
    return True
