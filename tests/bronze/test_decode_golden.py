"""Each line of docs/types.md, on real servers: what the binlog holds decodes to what the golden file says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from golden.loader import GoldenCase, cases, shown
from servers.running import Database

from bronze.binlog.files import read_file
from bronze.binlog.items import RowsEvent
from bronze.binlog.transactions import read
from bronze.decode.rows import DecodedRows, decode_rows
from lakeward.embedded.server import EmbeddedServer
from lakeward.position import binlog_number
from lakeward.schema import Column, column_from_catalog

_NAMES = sorted({case.name for case in cases()})


@dataclass
class Read:
    column: Column
    rows: DecodedRows
    printed: list[Any]  # what SELECT gives, for strings and bytes


@pytest.fixture(scope="module")
def decoded(server: EmbeddedServer) -> Iterator[dict[str, Read]]:
    """Every case of one server: inserted, read from the binlog's file, decoded."""
    with Database.create(server, "golden_binlog") as database:
        database.execute("FLUSH BINARY LOGS")
        known = cases(server.flavour)
        for case in known:
            for statement in case.statements(_table(case), server.flavour):
                database.execute(statement)
        events = _events(database)
        yield {case.name: _read(database, case, events[_table(case)]) for case in known}


@pytest.mark.parametrize("name", _NAMES)
def test_a_value_in_the_binlog_is_what_its_golden_file_and_select_say(
    decoded: dict[str, Read], server: EmbeddedServer, name: str
) -> None:
    case = next(c for c in cases() if c.name == name)
    if server.flavour not in case.flavours:
        pytest.skip(f"{server.flavour} has no such type")
    read = decoded[name]
    assert read.column.spark == case.lake
    after = read.rows.after
    after.validate(full=True)
    assert [shown(row["v"]) for row in after.to_pylist()] == case.expected(server.flavour)
    assert read.rows.before.null_count == len(read.rows.before)
    if case.lake in ("STRING", "BINARY"):
        assert [row["v"] for row in after.to_pylist()] == read.printed


def test_zero_and_partial_dates_are_counted(decoded: dict[str, Read]) -> None:
    for name in ("date-1", "datetime-1", "timestamp-1"):
        rows = decoded[name].rows
        inserted_null = 1
        assert rows.zero_dates == rows.after.field("v").null_count - inserted_null > 0


def test_text_without_a_character_in_unicode_is_counted(decoded: dict[str, Read]) -> None:
    by_charset = {read.column.charset: read.rows.replaced for read in decoded.values()}
    assert by_charset["cp1250"] == 1
    assert by_charset["latin2"] == 0


def _table(case: GoldenCase) -> str:
    return str(case.name).replace("-", "_")


def _events(database: Database) -> dict[str, list[RowsEvent]]:
    show = "SHOW BINARY LOG STATUS" if database.flavour == "mysql" else "SHOW MASTER STATUS"
    file = database.query(show)[0][0]
    folder = Path(database.query("SELECT @@log_bin_basename")[0][0]).parent
    found: dict[str, list[RowsEvent]] = {}
    raw = read_file(folder / file)
    for item in read(raw, file=binlog_number(file), wants=lambda n: n.schema == database.name, gtid_set=""):
        if isinstance(item, RowsEvent):
            found.setdefault(item.table_map.name.table, []).append(item)
    return found


def _read(database: Database, case: GoldenCase, events: list[RowsEvent]) -> Read:
    table = _table(case)
    described = database.query(
        "SELECT COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND COLUMN_NAME = 'v'",
        (database.name, table),
    )[0]
    known = column_from_catalog(
        "v", described[0], nullable=True, charset=described[1], collation=described[2], tinyint1=case.tinyint1
    )
    identity, wire = events[0].table_map.columns
    # What the table map cannot tell is taken from the catalog, as the bronze stage does it.
    wire = replace(wire, column=replace(wire.column, kind=known.kind, boolean=known.boolean))
    assert wire.column.arrow == known.arrow
    rows = decode_rows((identity, wire), [(e.op, e.images) for e in events])
    return Read(known, rows, _printed(database, table, known) if case.lake in ("STRING", "BINARY") else [])


def _printed(database: Database, table: str, column: Column) -> list[Any]:
    # PyMySQL takes the labels of an ENUM or SET in the charset binary for bytes.
    what = "CAST(v AS CHAR)" if column.kind in ("time", "decimal", "enum", "set") else "v"
    return [v for (v,) in database.query(f"SELECT {what} FROM {table} ORDER BY id")]
