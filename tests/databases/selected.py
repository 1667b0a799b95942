"""A table as a plain SELECT prints it: a second opinion on values, by nothing that Lakeward reads with.

FLOAT is left out, since SELECT rounds it to six digits.
"""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest import mock

from pymysql.connections import Connection

from lakeward.names import mysql_identifier
from lakeward.schema import BYTES, INTEGERS, Column, TableSchema


def selected(connection: Connection, schema: TableSchema) -> tuple[list[str], list[dict[str, Any]]]:
    """The columns that can be compared, and the table's rows as lake values of these."""
    columns = [c for c in schema.columns if c.kind != "float"]
    if not columns:
        return [], []
    wanted = ", ".join(_expression(c) for c in columns)
    table = f"{mysql_identifier(schema.name.schema)}.{mysql_identifier(schema.name.table)}"
    with connection.cursor() as cursor, mock.patch.object(connection, "decoders", {}):  # values stay the server's text
        cursor.execute(f"SELECT {wanted} FROM {table}")
        rows = cursor.fetchall()
    names = [c.name for c in columns]
    return names, [
        {c.name: None if text is None else _value(c, text) for c, text in zip(columns, row, strict=True)}
        for row in rows
    ]


def _expression(column: Column) -> str:
    name = mysql_identifier(column.name)
    if column.kind in (*BYTES, "geometry", "vector"):
        return f"HEX({name})"
    return f"{name} + 0" if column.kind == "bit" else name


def _value(column: Column, text: str) -> Any:
    kind = column.kind
    if kind in (*INTEGERS, "year"):
        return int(text)
    if kind == "bit":
        return bool(int(text)) if column.length == 1 else int(text)
    if kind == "decimal":
        return text if column.precision > 38 else Decimal(text)
    if kind == "double":
        return float(text)
    if kind in BYTES:
        return bytes.fromhex(text)
    if kind == "geometry":
        raw = bytes.fromhex(text)
        return {"srid": int.from_bytes(raw[:4], "little"), "wkb": raw[4:]}
    if kind == "vector":
        raw = bytes.fromhex(text)
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    if kind == "date":
        return _or_null(datetime.date.fromisoformat, text)
    if kind == "datetime":
        return _or_null(datetime.datetime.fromisoformat, text)
    if kind == "timestamp":
        return _or_null(datetime.datetime.fromisoformat, f"{text}+00:00")
    return text


def _or_null(read: Callable[[str], Any], text: str) -> Any:
    """A date; None for one that is none."""
    try:
        return read(text)
    except ValueError:
        return None
