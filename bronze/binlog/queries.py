"""What a statement in the binlog is to the transaction it stands in.

Transaction control is in the server's own spelling, so it is matched as such; everything else is told by its first
word, comments and MariaDB's `SET STATEMENT … FOR` left out.
"""

from __future__ import annotations

import enum
import re

from bronze.binlog.sqltext import first_word


class Kind(enum.Enum):
    BEGIN = enum.auto()
    COMMIT = enum.auto()
    ROLLBACK = enum.auto()
    SAVEPOINT = enum.auto()
    ROLLBACK_TO = enum.auto()
    XA_START = enum.auto()
    XA_END = enum.auto()
    XA_COMMIT = enum.auto()
    XA_ROLLBACK = enum.auto()
    ROWS = enum.auto()  # it may change rows, and stands there instead of them
    OTHER = enum.auto()


_PLAIN = {"BEGIN": Kind.BEGIN, "COMMIT": Kind.COMMIT, "ROLLBACK": Kind.ROLLBACK}
_NAMED = re.compile(r"(SAVEPOINT|ROLLBACK TO|XA START|XA BEGIN|XA END|XA COMMIT|XA ROLLBACK)\s+(.*)", re.I | re.S)
_NAMED_KINDS = {
    "SAVEPOINT": Kind.SAVEPOINT,
    "ROLLBACK TO": Kind.ROLLBACK_TO,
    "XA START": Kind.XA_START,
    "XA BEGIN": Kind.XA_START,
    "XA END": Kind.XA_END,
    "XA COMMIT": Kind.XA_COMMIT,
    "XA ROLLBACK": Kind.XA_ROLLBACK,
}
_CHANGES_ROWS = frozenset(
    ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "DO", "CALL", "VALUES", "TABLE", "IMPORT")
)


def classify(sql: str) -> tuple[Kind, str]:
    """The statement's kind, and the savepoint or XA id that it names (`""` where it names none)."""
    plain = _PLAIN.get(sql)
    if plain is not None:
        return plain, ""
    if sql[:1] in "SRXsrx":
        match = _NAMED.match(sql)
        if match:
            return _NAMED_KINDS[match[1].upper()], _canonical(match[2])
    word = first_word(sql)
    if word in _PLAIN:
        return _PLAIN[word], ""
    return (Kind.ROWS if word in _CHANGES_ROWS else Kind.OTHER), ""


def _canonical(name: str) -> str:
    """Savepoints' names know no case; an XA id is spelled `X'61',X'',1`, its hex in lower case."""
    name = name.strip().lower()
    return name if not name.startswith("x'") else "X'" + name[2:].replace(",x'", ",X'")
