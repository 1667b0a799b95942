"""A statement's text as tokens, as MySQL's lexer sees it: enough to read DDL by, and exact about what is quoted.

Version comments (`/*!50100 … */`, MariaDB's `/*M! … */`) are code, so they are opened; other comments are dropped.
sqlglot is not used for this: it drops what stands in version comments (`DROP /*!40005 TEMPORARY */ TABLE` becomes a
plain DROP) and gives most of MySQL's ALTER clauses back as one opaque string.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lakeward.names import TableName

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+ | --(?=\s|$)[^\n]* | \#[^\n]*)
    | (?P<open>/\*M?!\d*)
    | (?P<comment>/\*.*?\*/)
    | (?P<close>\*/)
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<string>'(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*")
    | (?P<word>[\w$@]+)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    kind: str  # word, quoted (a name in backticks), string, mark
    text: str  # words in upper case; names and strings without their quotes
    raw: str

    @property
    def is_name(self) -> bool:
        """Whether it can be a name where one is expected: under ANSI_QUOTES a string is one."""
        return self.kind in ("word", "quoted", "string")

    @property
    def name(self) -> str:
        return self.raw if self.kind == "word" else self.text


def tokens(sql: str) -> list[Token] | None:
    """The statement's tokens, MariaDB's `SET STATEMENT … FOR` left out. None where a quote is never closed."""
    found = []
    for match in _TOKEN.finditer(sql):
        kind, raw = str(match.lastgroup), match[0]
        if kind == "mark" and raw in "`'\"":
            return None
        if kind == "word":
            found.append(Token(kind, raw.upper(), raw))
        elif kind in ("quoted", "string"):
            quote = raw[0]
            found.append(Token(kind, raw[1:-1].replace(quote * 2, quote), raw))
        elif kind == "mark" and raw != ";":
            found.append(Token(kind, raw, raw))
    if [t.text for t in found[:2]] == ["SET", "STATEMENT"]:
        after = next((n for n, t in enumerate(found) if t.kind == "word" and t.text == "FOR"), len(found) - 1)
        found = found[after + 1 :]
    return found


def first_word(sql: str) -> str:
    """The statement's first word in upper case; `""` where it has none."""
    plain = _PLAIN.match(sql)
    if plain and plain[1].upper() != "SET":
        return plain[1].upper()
    return next((t.text for t in tokens(sql) or () if t.kind == "word"), "")


_PLAIN = re.compile(r"[\s(]*([A-Za-z_]+)(?=\s|$|`|\()")


def words(text: str) -> frozenset[str]:
    """A list of keywords, written as one text."""
    return frozenset(text.split())


class Cursor:
    """Tokens being read from left to right."""

    def __init__(self, found: list[Token]) -> None:
        self.found = found
        self.at = 0

    @property
    def done(self) -> bool:
        return self.at >= len(self.found)

    def peek(self, ahead: int = 0) -> str:
        """The next word or mark; `""` for a quoted name, a string or the end."""
        n = self.at + ahead
        if n < len(self.found) and self.found[n].kind in ("word", "mark"):
            return self.found[n].text
        return ""

    def take(self, *words: str) -> bool:
        """Go past these words if they are next."""
        if all(self.peek(n) == word for n, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def take_any(self, *words: str) -> str:
        """Go past one of these words if it is next."""
        word = self.peek()
        if word and word in words:
            self.at += 1
            return word
        return ""

    def name(self) -> str | None:
        """Go past a name; None where there is none."""
        if self.done or not self.found[self.at].is_name:
            return None
        self.at += 1
        return self.found[self.at - 1].name

    def table(self, default_schema: str) -> TableName | None:
        """Go past a table's name, with or without its schema."""
        first = self.name()
        if first is None:
            return None
        if self.take("."):
            second = self.name()
            return None if second is None else TableName(first, second)
        return TableName(default_schema, first)

    def skip(self) -> None:
        """Go past one token, or past everything in a pair of brackets."""
        depth = 0
        while not self.done:
            word = self.peek()
            self.at += 1
            depth += (word == "(") - (word == ")")
            if depth <= 0:
                return

    def clauses(self) -> list[Cursor]:
        """The rest, parted at the commas that stand in no brackets."""
        parts: list[list[Token]] = [[]]
        depth = 0
        for token in self.found[self.at :]:
            mark = token.text if token.kind == "mark" else ""
            depth += (mark == "(") - (mark == ")")
            if mark == "," and depth == 0:
                parts.append([])
            else:
                parts[-1].append(token)
        self.at = len(self.found)
        return [Cursor(part) for part in parts if part]
