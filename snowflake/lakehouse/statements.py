"""A rendered plan as statements: what each one does, to which object.

The SQL files stay the one place that says what is made; this reads back what `snowflake.lakehouse.template` has put
into them, where each name stands in double quotes. Snowflake's lexical rules: quotes are doubled inside quotes, a
backslash escapes within a string, a comment ends with its line. A comment within a word (`a--b`), and the marks `//`,
`/*` and `$$` outside of quotes, are in no template: there a value has left its place, and the plan is refused.
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
_ODD = re.compile(r"//|/\*|\*/|\$\$")  # what else begins a comment or a string in Snowflake
_NAME = r'("(?:[^"]|"")*"(?:\."(?:[^"]|"")*")*)'
_KINDS = (
    "DATABASE|SCHEMA|EXTERNAL VOLUME|CATALOG INTEGRATION|STORAGE INTEGRATION|NOTIFICATION INTEGRATION|FILE FORMAT|STAGE"
    "|ICEBERG TABLE|EXTERNAL TABLE|DYNAMIC TABLE|TABLE|VIEW|PIPE|ROLE|WAREHOUSE"
)
_CREATE = re.compile(rf"CREATE (OR REPLACE )?({_KINDS}) (?:IF NOT EXISTS )?{_NAME}")
_REFRESH = re.compile(rf"ALTER (ICEBERG TABLE) {_NAME} REFRESH(?: '((?:[^'\\]|''|\\.)*)')?$")
_DESCRIBE = re.compile(rf"DESC ({_KINDS}) {_NAME}$")
_GRANT = re.compile(rf"GRANT (\w+) ON ({_KINDS}) {_NAME} TO ROLE {_NAME}$")
_PLACE = re.compile(rf"{_NAME}/(\S*)")
_SET = re.compile(r"(\w+) = (\w+)\b(?! =)")
_OPEN = re.compile(r"(\w+) = (\(?)$")
_PART = re.compile(r'"((?:[^"]|"")*)"')
_QUERY = re.compile(r"\bAS\s+(?=(WITH|SELECT)\b)", re.IGNORECASE)
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
    """The statements of a rendered plan, in order, without the comments around them.

    Raises ValueError for a plan that Snowflake would read otherwise than it is written.
    """
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


def settings_of(statement: Statement) -> dict[str, tuple[str, ...]]:
    """What a CREATE sets: `CATALOG_SOURCE = GLUE`, `GLUE_REGION = 'eu-west-1'`, `LOCATIONS = ('a', 'b')`, each as the
    texts it is set to. Of a name that is set twice, the last."""
    found: dict[str, tuple[str, ...]] = {}
    name, listed = "", False
    for token in _TOKEN.findall(statement.text):
        if token.startswith("'"):
            if name:
                found[name] = (*(found.get(name, ()) if listed else ()), _unescaped(token[1:-1]))
            name = name if listed else ""
        elif token[0] not in '"-':
            if listed and ")" not in token:
                continue
            found |= {word: (value,) for word, value in _SET.findall(token)}
            opened = _OPEN.search(token)
            name, listed = (opened[1], bool(opened[2])) if opened else ("", False)
            found.pop(name, None)
    return found


def location_of(statement: Statement) -> tuple[Name, str] | None:
    """The stage and the folder that an external table is on."""
    for match in _TOKEN.finditer(statement.text):
        if match.group().endswith("WITH LOCATION = @") and match.group()[0] not in "\"'-":
            found = _PLACE.match(statement.text, match.end())
            return (parts(found[1]), found[2]) if found else None
    return None


def bare(statement: Statement) -> str:
    """The statement without what stands in quotes, on one line: what no name or value can imitate."""
    kept = [t for t in _TOKEN.findall(statement.text) if not t.startswith(('"', "'", "--"))]
    return " ".join("".join(kept).split())


def query_of(text: str) -> str:
    """What a CREATE … AS selects, on one line and without comments; all of it where it selects nothing."""
    kept = [t for t in _TOKEN.findall(text) if not t.startswith("--")]
    for number, token in enumerate(kept):
        if not token.startswith(('"', "'")) and (found := _QUERY.search(token)):
            kept = [token[found.end() :], *kept[number + 1 :]]
            break
    return " ".join("".join(kept).rstrip(" ;\n").split())


def _split(text: str) -> Iterator[str]:
    current: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        comment = token.startswith("--")
        within = comment and match.start() > 0 and not text[match.start() - 1].isspace()
        if within or token in ('"', "'") or (token[0] not in "\"'-" and _ODD.search(token)):
            around = text[max(0, match.start() - 60) : match.end()]
            raise ValueError(f"a value has left its place in the plan: {around!r}")
        if token == ";":
            yield "".join(current).strip()
            current = []
        elif not comment:
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
