"""Golden files: SQL literals in, lake values out; the same files prove the binlog path and the snapshot path.

One file per MySQL type, `tests/golden/<type>.golden`, which an operator can read. A file holds one or more cases;
`#` opens a comment line. A case is

    column: DECIMAL(65,30)            the column's declaration; opens the case
    lake: STRING                      its Spark type
    on: mysql mariadb                 optional: the servers that know it (default: both)
    sql_mode: NO_ZERO_DATE            optional: default is the empty mode, which lets odd values in
    set: time_zone = '+02:00'         optional, repeatable: a SET before CREATE TABLE (GLOBAL: undone behind it)
    tinyint1: boolean                 optional: as in lakeward.toml

    NULL         -> NULL              one line a row: the SQL literal inserted, `->`, the value in the lake
    1.5          -> "1.500000000000000000000000000000"
    '{"a":1}'    -mysql> "{\"a\": 1}"    where the servers differ, one line for each: a row for that server alone
    REPEAT('x', 70000) -> "x" * 70000

Values are written as `shown` prints them: NULL, true, integers and decimals plainly, floats as Python's repr, strings
as in JSON with what cannot be seen escaped, bytes as x'00FF', dates 2020-01-01, timestamps without zone
2020-01-01 00:00:00.000000, instants the same with ` UTC` behind, structs {srid: 0, wkb: x'..'}, lists [1.0, 2.0].

To add a case, add its lines to the type's file (or a new file): both paths pick it up on both servers.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
FLAVOURS = ("mysql", "mariadb")
_ROW = re.compile(r"^(.*?)\s+-(mysql|mariadb)?>\s+(.*)$", re.DOTALL)
_HEAD = re.compile(r"^(column|lake|on|sql_mode|set|tinyint1):\s*(.*)$")


@dataclass(frozen=True)
class GoldenCase:
    """A column declaration and the rows to insert, in order, into a table with an `id` key counting from 1."""

    name: str  # the file's stem and the case's number in it: "int-2"
    column_ddl: str
    lake: str
    flavours: tuple[str, ...]
    sql_mode: str
    settings: tuple[str, ...]  # to be executed as `SET <setting>`
    tinyint1: str
    rows: tuple[tuple[str, str, str], ...]  # literal, flavour or "", shown value

    def inserts(self, flavour: str) -> list[str]:
        """The SQL literals for one server."""
        return [literal for literal, only, _ in self.rows if only in ("", flavour)]

    def expected(self, flavour: str) -> list[str]:
        """What `shown` must give for each inserted literal."""
        return [value for _, only, value in self.rows if only in ("", flavour)]

    def statements(self, table: str, flavour: str) -> list[str]:
        """Everything to execute for the case: settings, CREATE TABLE `table` (id, v), one INSERT a row."""
        head = [f"SET sql_mode = '{self.sql_mode}'", "SET time_zone = '+00:00'"]
        head += [f"SET {setting}" for setting in self.settings]
        create = f"CREATE TABLE {table} (id INT PRIMARY KEY, v {self.column_ddl})"
        inserts = [f"INSERT INTO {table} VALUES ({n}, {v})" for n, v in enumerate(self.inserts(flavour), 1)]
        # A global setting is for the table alone: the server is shared.
        tail = [f"SET {s.partition('=')[0]}= DEFAULT" for s in self.settings if s.startswith("GLOBAL ")]
        return [*head, create, *tail, *inserts]


def cases(flavour: str | None = None) -> list[GoldenCase]:
    """Every case of every file, or those that `flavour` knows."""
    found = [case for path in sorted(FOLDER.glob("*.golden")) for case in _cases_of(path)]
    return [case for case in found if flavour is None or flavour in case.flavours]


def shown(value: Any) -> str:
    """A lake value, as `to_pylist` or a Spark row gives it, in the words of the golden files."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "".join(c if c.isprintable() else _escaped(c) for c in json.dumps(value, ensure_ascii=False))
    if isinstance(value, bytes):
        return f"x'{value.hex().upper()}'"
    if isinstance(value, datetime.datetime):
        zone = " UTC" if value.tzinfo else ""
        return value.replace(tzinfo=None).isoformat(" ", "microseconds") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return f"{value:f}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {shown(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(shown, value)) + "]"
    return repr(value)


def _escaped(char: str) -> str:
    return json.dumps(char)[1:-1] if ord(char) != 0x7F else "\\u007f"


def _cases_of(path: Path) -> Iterator[GoldenCase]:
    head: list[tuple[str, str]] = []
    rows: list[tuple[str, str, str]] = []
    number = 0
    for line in [*path.read_text("utf-8").splitlines(), "column: "]:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if (match := _HEAD.match(text)) and (match[1] == "column" or not rows):
            if match[1] == "column" and head:
                number += 1
                yield _case(f"{path.stem}-{number}", head, rows)
                head, rows = [], []
            head.append((match[1], match[2]))
        elif row := _ROW.match(text):
            rows.append((row[1], row[2] or "", _expand(row[3])))
        else:
            raise ValueError(f"{path.name}: not a line of a golden file: {line!r}")


def _case(name: str, head: list[tuple[str, str]], rows: list[tuple[str, str, str]]) -> GoldenCase:
    words = dict(head)
    return GoldenCase(
        name=name,
        column_ddl=words["column"],
        lake=words["lake"],
        flavours=tuple(words.get("on", " ".join(FLAVOURS)).split()),
        sql_mode=words.get("sql_mode", ""),
        settings=tuple(value for word, value in head if word == "set"),
        tinyint1=words.get("tinyint1", "int"),
        rows=tuple(rows),
    )


def _expand(value: str) -> str:
    """`"x" * 3` → `"xxx"`, and `x'00' * 3` → `x'000000'`: so that a long value stays readable."""
    if match := re.match(r'^"(.*)" \* (\d+)$', value):
        return f'"{match[1] * int(match[2])}"'
    if match := re.match(r"^x'([0-9A-F]*)' \* (\d+)$", value):
        return f"x'{match[1] * int(match[2])}'"
    return value
