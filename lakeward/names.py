"""Names in the four tongues Lakeward speaks: paths, MySQL, Spark and Snowflake.

A source name may hold any character. Each function here is total and injective, so that two tables never share
a folder and no name can end a quoted identifier early.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PLAIN = re.compile(r"[A-Za-z0-9_]")


class TableName(NamedTuple):
    """A source table. Prints as `schema.table`, the form used in configuration, state and output."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def folder(self) -> str:
        """`<schema>/<table>` with both parts encoded for a path."""
        return f"{encode_path(self.schema)}/{encode_path(self.table)}"


def encode_path(name: str) -> str:
    """`order items` → `order-20-items`: each character outside `A-Z a-z 0-9 _` as `-` its code point in hex `-`."""
    return "".join(c if _PLAIN.match(c) else f"-{ord(c):x}-" for c in name)


def encode_lower(name: str) -> str:
    """As `encode_path`, capitals too: for catalogs that take `Trips` and `trips` for one name."""
    return "".join(c if _PLAIN.match(c) and c == c.lower() else f"-{ord(c):x}-" for c in name)


def decode_path(encoded: str) -> str:
    """The inverse of `encode_path`, and of `encode_lower`."""
    return re.sub(r"-([0-9a-f]+)-", lambda m: chr(int(m.group(1), 16)), encoded)


def mysql_identifier(name: str) -> str:
    """`` a`b `` → `` `a``b` `` (MySQL manual, 'Schema Object Names')."""
    return "`" + name.replace("`", "``") + "`"


def spark_identifier(name: str) -> str:
    """One part of a Spark SQL name, quoted."""
    return "`" + name.replace("`", "``") + "`"


def snowflake_identifier(name: str) -> str:
    """A Snowflake identifier in double quotes, its case kept."""
    return '"' + name.replace('"', '""') + '"'


def sql_literal(text: str) -> str:
    """A single-quoted literal for Snowflake and Spark, for the statements that take no bound parameter."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
