"""How a source's names are spelled in Snowflake, and Snowflake's types for the lake's.

Snowflake reads an unquoted name as upper case. So the letters a to z become A to Z by default, and an analyst writes
`select id from shop.trips` as on the source; `[snowflake] names = "source"` keeps them as they are. Only ASCII letters
change: MySQL holds `ß` and `SS` apart, and so does this. Names are quoted in every statement all the same.

Spelling must not make two names one. The source keeps a table's columns apart whatever their case; schemas and tables
it may not, and then the two are refused by name.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Sequence
from typing import Literal

from lakeward.errors import ConfigError

Names = Literal["upper", "source"]

_UPPER = str.maketrans(string.ascii_lowercase, string.ascii_uppercase)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*")
_TYPES = {
    "boolean": "BOOLEAN",
    "tinyint": "NUMBER(3,0)",
    "smallint": "NUMBER(5,0)",
    "int": "NUMBER(10,0)",
    "bigint": "NUMBER(19,0)",
    "float": "FLOAT",
    "double": "FLOAT",
    "date": "DATE",
    "timestamp": "TIMESTAMP_LTZ(6)",  # an instant, as Iceberg's timestamptz is in Snowflake
    "timestamp_ntz": "TIMESTAMP_NTZ(6)",
    "string": "VARCHAR",
    "binary": "BINARY",
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def spell(name: str, names: Names) -> str:
    """A source's name as Snowflake is to hold it."""
    return name.translate(_UPPER) if names == "upper" else name


def unquoted(name: str) -> str:
    """A name of Snowflake's own from the configuration, read as Snowflake reads it without quotes."""
    return name.translate(_UPPER) if _PLAIN.fullmatch(name) else name


def plain(name: str, setting: str) -> str:
    """The name of an object that other statements name in a string, where Snowflake knows no quotes."""
    if _PLAIN.fullmatch(name) is None:
        raise ConfigError(
            f"[snowflake] {setting} = {name!r} is not a plain name",
            hint="use letters, digits and _ only, and no digit first",
        )
    return name.translate(_UPPER)


def refuse_twins(tables: Iterable[tuple[str, str]], names: Names, own: tuple[str, Sequence[str]] = ("", ())) -> None:
    """Raises ConfigError where two of the (schema, table) names are spelled alike, or one as a table of `own`."""
    schemas: dict[str, str] = {}
    seen: dict[tuple[str, str], str] = {}
    for schema, table in tables:
        if (spell(schema, names), spell(table, names)) in {(own[0], name) for name in own[1]}:
            raise ConfigError(
                f"{schema}.{table} would bear the name of a table of Lakeward's own in Snowflake",
                hint=f"set database in [snowflake] to one without {own[0]}, leave the table out with exclude, or set "
                'names = "source" where that tells them apart',
            )
    for schema, table in tables:
        spelled = spell(schema, names), spell(table, names)
        before = seen.setdefault(spelled, f"{schema}.{table}")
        other = schemas.setdefault(spelled[0], schema)
        if before != f"{schema}.{table}" or other != schema:
            raise ConfigError(
                f"{before if other == schema else other} and {schema}.{table} would bear one name in Snowflake",
                hint='set names = "source" in [snowflake]; their names then need double quotes',
            )


def snowflake_type(spark: str) -> str:
    """Snowflake's type for a Spark SQL type in its short form (`bigint`, `decimal(10,2)`, `array<float>`)."""
    if match := _DECIMAL.fullmatch(spark):
        return f"NUMBER({match[1]},{match[2]})"
    return _TYPES.get(spark, "VARIANT")
