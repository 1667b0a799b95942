"""A rendered plan as statements: what each one does, to which object.

The SQL files stay the one place that says what is made; this reads back what `snowflake.lakehouse.template` has put
into them, where each name stands in double quotes. Snowflake's lexical rules: quotes are doubled inside quotes, a
backslash escapes within a string, a comment ends with its line.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from lakeward.config import Secret, Snowflake
from lakeward.errors import ConfigError
from lakeward.names import sql_literal
from snowflake.lakehouse.template import secret

Action = Literal["create", "replace", "refresh", "describe", "grant", "other"]
Name = tuple[str, ...]

_TOKEN = re.compile(r"""--[^\r\n]*|"(?:[^"]|"")*"|'(?:[^'\\]|''|\\.)*'|;|[^-"';]+|.""", re.DOTALL)
_NAME = r'("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*)'
_KINDS = (
    "DATABASE|SCHEMA|EXTERNAL VOLUME|CATALOG INTEGRATION|STORAGE INTEGRATION|FILE FORMAT|STAGE|ICEBERG TABLE"
    "|EXTERNAL TABLE|DYNAMIC TABLE|TABLE|VIEW|PIPE|ROLE|WAREHOUSE"
)
_CREATE = re.compile(rf"CREATE (OR REPLACE )?({_KINDS}) (?:IF NOT EXISTS )?{_NAME}")
_REFRESH = re.compile(rf"ALTER (ICEBERG TABLE) {_NAME} REFRESH(?: '((?:[^'\\]|''|\\.)*)')?$")
_DESCRIBE = re.compile(rf"DESC ({_KINDS}) {_NAME}$")
_GRANT = re.compile(rf"GRANT (\w+) ON ({_KINDS}) {_NAME} TO ROLE {_NAME}$")
_PART = re.compile(r'"((?:[^"]|"")*)"')
_HOLDERS = ("EXTERNAL VOLUME", "CATALOG INTEGRATION", "STAGE")  # whose statements may hold a secret


@dataclass(frozen=True)
class Statement:
    """One statement. `text` may be printed and logged; `sql` is what is run."""

    text: str
    action: Action
    kind: str = ""  # ICEBERG TABLE, SCHEMA …
    name: Name = ()
    path: str | None = None  # of REFRESH
    privilege: str = ""  # of GRANT
    role: Name = ()

    def sql(self, config: Snowflake) -> str:
        """The text with its secrets. Raises ConfigError where one is not to be had."""
        made = self.text
        if self.kind in _HOLDERS:
            for setting in ("storage_key_id", "storage_secret_key", "rest_oauth_client_secret", "rest_bearer_token"):
                place = secret(setting)
                if place in made:
                    where: Secret | None = getattr(config, setting)
                    if where is None:
                        raise ConfigError(f"[snowflake] {setting} is not set", hint=f'{setting} = "env:NAME"')
                    made = made.replace(place, sql_literal(where.reveal()))
        return made


def statements(text: str) -> list[Statement]:
    """The statements of a rendered plan, in order, without the comments around them."""
    return [_read(one) for one in _split(text)]


def parts(name: str) -> Name:
    """`"LAKE"."a""b"` → ("LAKE", 'a"b')."""
    return tuple(part.replace('""', '"') for part in _PART.findall(name))


def property_of(statement: Statement, name: str) -> str | None:
    """The string that a CREATE gives one of its properties: `BASE_LOCATION = 'silver/…'`."""
    tokens = _TOKEN.findall(statement.text)
    for before, after in itertools.pairwise(tokens):
        if after.startswith("'") and re.search(rf"\b{re.escape(name)} = $", before) and before[0] not in "\"'-":
            return _unescaped(after[1:-1])
    return None


def bare(statement: Statement) -> str:
    """The statement without what stands in quotes, on one line: what no name or value can imitate."""
    kept = [t for t in _TOKEN.findall(statement.text) if not t.startswith(('"', "'", "--"))]
    return " ".join("".join(kept).split())


def _split(text: str) -> Iterator[str]:
    current: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        if token == ";":
            yield "".join(current).strip()
            current = []
        elif not token.startswith("--"):
            current.append(token)
    if "".join(current).strip():
        raise ValueError("a plan that does not end with a semicolon")


def _read(text: str) -> Statement:
    if found := _CREATE.match(text):
        return Statement(text, "replace" if found[1] else "create", found[2], parts(found[3]))
    if found := _REFRESH.match(text):
        path = None if found[3] is None else _unescaped(found[3])
        return Statement(text, "refresh", found[1], parts(found[2]), path)
    if found := _DESCRIBE.match(text):
        return Statement(text, "describe", found[1], parts(found[2]))
    if found := _GRANT.match(text):
        return Statement(text, "grant", found[2], parts(found[3]), privilege=found[1], role=parts(found[4]))
    return Statement(text, "other")


def _unescaped(text: str) -> str:
    return re.sub(r"''|\\(.)", lambda m: m[1] or "'", text)
