"""A small reader of Snowflake's lexical rules (identifiers, strings, comments), apart from the code that quotes."""

from __future__ import annotations

from typing import NamedTuple


class Token(NamedTuple):
    kind: str  # identifier, string, comment, word or sign
    text: str  # what it means: quotes and escapes undone


def tokens(sql: str) -> list[Token]:
    """Raises ValueError for a quote without its end."""
    found, at = [], 0
    while at < len(sql):
        c = sql[at]
        if c.isspace():
            at += 1
        elif sql.startswith("/*", at):
            end = sql.find("*/", at + 2)
            if end < 0:
                raise ValueError("a /* without its end")
            found.append(Token("comment", sql[at : end + 2]))
            at = end + 2
        elif sql.startswith("$$", at):
            end = sql.find("$$", at + 2)
            if end < 0:
                raise ValueError("a $$ without its end")
            found.append(Token("string", sql[at + 2 : end]))
            at = end + 2
        elif sql.startswith(("--", "//"), at):
            end = at
            while end < len(sql) and sql[end] not in "\r\n":
                end += 1
            found.append(Token("comment", sql[at:end]))
            at = end
        elif c in "\"'":
            text, at = _quoted(sql, at)
            found.append(Token("identifier" if c == '"' else "string", text))
        elif c.isalnum() or c in "_$":
            end = at
            while end < len(sql) and (sql[end].isalnum() or sql[end] in "_$"):
                end += 1
            found.append(Token("word", sql[at:end]))
            at = end
        else:
            found.append(Token("sign", c))
            at += 1
    return found


def _quoted(sql: str, at: int) -> tuple[str, int]:
    text: list[str] = []
    quote, at = sql[at], at + 1
    while at < len(sql):
        if sql[at] == quote:
            if sql[at + 1 : at + 2] != quote:
                return "".join(text), at + 1
            at += 1
        elif sql[at] == "\\" and quote == "'":
            at += 1
        text.append(sql[at])
        at += 1
    raise ValueError(f"a {quote} without its end")


def split(sql: str) -> list[list[Token]]:
    """The statements, each without its comments."""
    found: list[list[Token]] = [[]]
    for token in tokens(sql):
        if token == Token("sign", ";"):
            found.append([])
        elif token.kind != "comment":
            found[-1].append(token)
    return [statement for statement in found if statement]


def after(statement: list[Token], name: str) -> list[Token]:
    """The tokens behind `NAME =`; none where the statement does not say it."""
    for at in range(len(statement) - 1):
        if statement[at : at + 2] == [Token("word", name), Token("sign", "=")]:
            return statement[at + 2 :]
    return []


def shape(sql: str) -> list[tuple[str, str]]:
    """The tokens without what identifiers and strings say: equal for two statements of one form."""
    return [(t.kind, "" if t.kind in ("identifier", "string") else t.text) for t in tokens(sql) if t.kind != "comment"]
