"""The queries over the landed events: hand-written events in, the state and the history of the rows out."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fakesnow
import pytest
import snowflake.connector
from servers.published import case

from lakeward.lake import Lake
from lakeward.names import TableName, sql_literal
from lakeward.position import Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, save_bronze
from snowflake.lakehouse import landing_sql, template
from snowflake.lakehouse.plan import build
from snowflake.lakehouse.statements import statements

pytestmark = pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")  # DuckDB's, of fakesnow's way

NAME = TableName("shop", "trips")
START = 1_700_000_000_000
Rows = list[tuple[Any, ...]]


def event(
    op: str,
    pos: int,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    *,
    seconds: int | None = None,
    row: int = 0,
    tx: str | None = None,
    generation: int = 0,
    absent: Sequence[str] | None = None,
    before_absent: Sequence[str] | None = None,
) -> dict[str, Any]:
    """An event as the landing writes it; of a snapshot where it has a `generation`."""
    source = {"server": "s", "epoch": 1, "file": 7, "pos": pos, "row": row, "gtid": None, "snapshot": generation > 0}
    source |= {"generation": generation, "absent": absent, "before_absent": before_absent, "cascade": None}
    return {
        "table": str(NAME),
        "position": f"{1:010d}:{7:012d}:{pos:020d}:{row:010d}",
        "op": op,
        "ts_ms": START + 1000 * (pos if seconds is None else seconds),
        "source": source,
        "transaction": {"id": tx or f"tx:{pos}"},
        "before": before,
        "after": after,
    }


def read(generation: int, pos: int, *rows: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of a snapshot that began at `pos`."""
    return [
        event("r", pos, None, r, row=i, tx=f"snapshot:{generation}", generation=generation) for i, r in enumerate(rows)
    ]


def ab(key: int, name: str | None) -> dict[str, Any]:
    return {"id": key, "name": name}


class Landed:
    """A raw table that holds `events`, and what the plan's queries make of it."""

    def __init__(self, connection: Any, folder: Path, database: str) -> None:
        self.cursor, self.folder, self.database = connection.cursor(), folder, database
        self.lake, self.config = case(folder, "landing", database=database)
        self.table = self.of({"id": "int", "name": "varchar(9)"})

    def of(self, columns: dict[str, str], keys: Sequence[str] = ("id",), **known: Any) -> BronzeTable:
        made = tuple(column_from_catalog(c, kind, nullable=c not in keys) for c, kind in columns.items())
        schema = TableSchema(NAME, made, tuple(keys), "primary")
        self.table = BronzeTable(schema, "streaming", generation=1, snapshot_rows=1, **known)
        return self.table

    def load(self, events: Sequence[dict[str, Any]]) -> None:
        """Load the events, the last first, and some of them twice; then make the tables."""
        save_bronze(Lake(str(self.folder)), BronzeState(tables={str(NAME): self.table}))
        plan = statements(build(self.lake, self.config).text)
        self.cursor.execute(f'CREATE SCHEMA "{self.database}"."LAKEWARD"')
        self.cursor.execute(f'CREATE SCHEMA "{self.database}"."SHOP__LANDED"')
        raw = next(s for s in plan if s.kind == "TABLE")
        self.cursor.execute(raw.text)
        lines = [json.dumps(e) for e in [*reversed(events), *events[::2]]]
        values = " UNION ALL ".join(f"SELECT PARSE_JSON({sql_literal(line)}), 'f', 1" for line in lines)
        self.cursor.execute(f'INSERT INTO "{self.database}"."LAKEWARD"."LANDING_RAW" {values}')
        for made in plan:
            if (made.kind, made.action) == ("DYNAMIC TABLE", "replace"):
                query = made.text.partition("\n  AS\n")[2]
                place = f'"{self.database}"."SHOP__LANDED"."{made.name[-1]}"'
                self.cursor.execute(f"CREATE TABLE {place} AS {query}")

    def state(self, columns: str = "*") -> Rows:
        self.cursor.execute(f'SELECT {columns} FROM "{self.database}"."SHOP__LANDED"."TRIPS" ORDER BY 1, 2')
        return [tuple(row) for row in self.cursor.fetchall()]

    def history(self, columns: str = '"ID", "NAME"') -> Rows:
        """Columns of each version, and when it began and ended in seconds from START, in the order of positions."""
        at = f"DATE_PART(EPOCH_SECOND, {{}}) - {START // 1000}"
        self.cursor.execute(
            f"SELECT {columns}, {at.format(chr(34) + '__VALID_FROM' + chr(34))},"
            f' {at.format(chr(34) + "__VALID_TO" + chr(34))}, "__IS_CURRENT"'
            f' FROM "{self.database}"."SHOP__LANDED"."TRIPS__HISTORY" ORDER BY "__VALID_FROM_POSITION", 1, 2'
        )
        found = [tuple(row) for row in self.cursor.fetchall()]
        assert all((row[-1] is True) == (row[-2] is None) for row in found)
        return [row[:-1] for row in found]


@pytest.fixture
def landed(tmp_path: Path) -> Iterator[Landed]:
    with fakesnow.patch():
        yield Landed(snowflake.connector.connect(database="LAKE", schema="PUBLIC"), tmp_path, "LAKE")


def test_a_table_that_was_read_again_has_the_rows_of_its_newest_generation(landed):
    events = [
        *read(1, 10, ab(1, "a"), ab(2, "b"), ab(3, "c")),
        event("c", 20, None, ab(4, "d")),
        *read(2, 30, ab(2, "b"), ab(3, "other"), {"id": 5}),
        *read(3, 35, ab(2, "b"), ab(3, "other"), ab(5, None)),
        event("u", 40, ab(2, "b"), ab(2, "later")),
    ]
    landed.load(events)
    assert landed.state() == [(2, "later"), (3, "other"), (5, None)]
    assert landed.history() == [
        (1, "a", 10, 30),
        (2, "b", 10, 40),  # the new generation has it as it was, so it went on
        (3, "c", 10, 30),
        (4, "d", 20, 30),
        (3, "other", 30, None),
        (5, None, 30, None),
        (2, "later", 40, None),
    ]


def test_of_two_snapshots_at_one_place_the_newer_counts(landed):
    landed.load([*read(1, 10, ab(1, "a"), ab(2, "b")), *read(2, 10, ab(2, "b"))])
    assert landed.state() == [(2, "b")]


def test_a_table_that_was_empty_when_it_was_read_again_has_no_row_of_before(landed):
    landed.of({"id": "int", "name": "varchar(9)"}).start = Position(1, 7, 30, 0)
    landed.table.generation, landed.table.snapshot_rows = 2, 0
    landed.load([*read(1, 10, ab(1, "a")), event("c", 20, None, ab(2, "b")), event("c", 40, None, ab(3, "c"))])
    assert landed.state() == [(3, "c")]
    assert landed.history() == [(1, "a", 10, 20), (2, "b", 20, 20), (3, "c", 40, None)]


def test_a_generation_that_the_plan_takes_for_empty_and_that_has_rows_begins_once(landed):
    landed.table.start, landed.table.generation, landed.table.snapshot_rows = Position(1, 7, 30, 0), 2, 0
    landed.load([*read(1, 10, ab(1, "a"), ab(2, "b")), event("c", 20, None, ab(3, "c")), *read(2, 30, ab(1, "a"))])
    assert landed.history() == [(1, "a", 10, None), (2, "b", 10, 20), (3, "c", 20, 20)]


def test_columns_that_an_event_lacks_keep_their_values_and_a_null_that_was_sent_is_one(landed):
    events = [
        *read(1, 10, ab(1, "a"), ab(2, "b")),
        event("u", 20, ab(1, None), ab(1, None), absent=["name"], before_absent=["name"]),
        event("u", 30, ab(2, None), ab(2, None), before_absent=["name"]),
        event("u", 40, ab(2, None), ab(2, None), absent=["name"], before_absent=["name"]),
        event("d", 50, ab(2, None), None, before_absent=["name"]),
        event("c", 60, None, ab(2, None)),
        event("u", 70, ab(2, None), ab(2, None), absent=["name"], before_absent=["name"]),
    ]
    landed.load(events)
    assert landed.state() == [(1, "a"), (2, None)]
    assert landed.history() == [(1, "a", 10, None), (2, "b", 10, 30), (2, None, 30, 50), (2, None, 60, None)]


def test_versions_of_one_moment_are_kept_and_in_order_and_those_within_a_transaction_are_not(landed):
    events = [
        event("c", 10, None, ab(1, "a"), seconds=5),
        event("u", 20, ab(1, "a"), ab(1, "b"), seconds=5),
        event("u", 30, ab(1, "b"), ab(1, "c"), seconds=3),  # the source's clock went back
        event("u", 40, ab(1, "c"), ab(1, "x"), seconds=6, tx="t"),
        event("u", 41, ab(1, "x"), ab(1, "d"), seconds=6, tx="t"),
        event("u", 50, ab(1, "d"), ab(1, "d"), seconds=7),
    ]
    landed.load(events)
    assert landed.history() == [(1, "a", 5, 5), (1, "b", 5, 5), (1, "c", 5, 6), (1, "d", 6, None)]
    spans = landed.history('"__VALID_FROM_POSITION", "__VALID_TO_POSITION"')
    assert [row[0] for row in spans[1:]] == [row[1] for row in spans[:-1]]
    assert spans[0][0] == "000001-0000000007-00000000000010-1-0000000000-00000000-3"


def test_keys_that_change_rows_that_go_and_truncates(landed):
    events = [
        *read(1, 10, ab(1, "a"), ab(2, "b"), ab(3, "c")),
        event("u", 20, ab(1, "a"), ab(9, "a")),
        event("d", 30, ab(2, "b"), None),
        event("t", 40),
        event("c", 50, None, ab(3, "again")),
        event("d", 60, ab(3, "again"), None),
        event("c", 70, None, ab(3, "again")),
    ]
    landed.load(events)
    assert landed.state() == [(3, "again")]
    assert landed.history() == [
        *((1, "a", 10, 20), (2, "b", 10, 30), (3, "c", 10, 40), (9, "a", 20, 40)),
        *((3, "again", 50, 60), (3, "again", 70, None)),
    ]


def test_a_row_that_the_snapshot_read_late_opens_with_what_the_first_change_found(landed):
    events = [
        *read(1, 10, ab(1, "new"), ab(3, "came"), ab(4, "moved")),
        event("u", 20, ab(1, "old"), ab(1, "new"), seconds=20),
        event("d", 21, ab(2, "gone"), None, seconds=21),
        event("c", 22, None, ab(3, "came"), seconds=22),
        event("u", 23, ab(5, "moved"), ab(4, "moved"), seconds=23),
    ]
    landed.load(events)
    assert landed.state() == [(1, "new"), (3, "came"), (4, "moved")]
    assert landed.history() == [
        *((1, "old", 10, 20), (2, "gone", 10, 21), (5, "moved", 10, 23)),
        *((1, "new", 20, None), (3, "came", 22, None), (4, "moved", 23, None)),
    ]


def test_a_repair_counts_where_it_stands(landed):
    events = [*read(1, 10, ab(1, "a"), ab(2, "b")), event("c", 20, None, ab(3, "c"))]
    events += [event("r", 30, None, ab(1, "mended"), row=1), event("d", 30, ab(3, "c"), None, row=2)]
    landed.load([*events, event("u", 40, ab(1, "mended"), ab(1, "later"))])
    assert landed.state() == [(1, "later"), (2, "b")]


def test_a_renamed_column_is_found_under_its_former_names(landed):
    landed.of({"id": "int", "name": "varchar(9)"}, renamed=[["first", "second"], ["second", "name"]])
    events = [
        *read(1, 10, {"id": 1, "first": "a"}, {"id": 2, "first": "b"}),
        event("u", 20, {"id": 2, "second": "b"}, {"id": 2, "second": None}, absent=["second"]),
        event("u", 30, {"id": 1, "name": "a"}, {"id": 1, "name": None}),
    ]
    landed.load(events)
    assert landed.state() == [(1, None), (2, "b")]


def test_a_document_is_parsed_where_it_can_be_and_stays_a_string_else():
    made = landing_sql._type(column_from_catalog("j", "json", nullable=True))
    text = template.landed_columns([("J", made, ("j",))])
    assert "COALESCE(TRY_PARSE_JSON(" in text
    assert "TO_VARIANT(v0['v']::VARCHAR)" in text  # the server cannot run this
    masked = dataclasses.replace(column_from_catalog("j", "json", nullable=True), masked=True)
    assert landing_sql._type(masked) == "VARCHAR"  # a hash is no document


def test_values_of_every_type_and_their_nulls(landed):
    columns = {"id": "bigint", "j": "json", "d": "decimal(10,2)", "u": "bigint unsigned", "raw": "blob", "b": "bit(1)"}
    columns |= {"t": "time(6)", "at": "datetime(6)", "ts": "timestamp(6)", "day": "date", "x": "double", "y": "year"}
    columns |= {"bits": "bit(9)", "e": "enum('a','b')", "p": "point", "v": "vector(2)", "text": "text"}
    landed.of(columns, keys=("id", "d"))
    row = {
        "id": 1,
        "j": '{"k": [1, null]}',
        "d": 1.5,
        "u": 2**64 - 1,
        "raw": "AP8=",
        "b": True,
        "t": "-01:00:00.000001",
    }
    row |= {"at": "1000-01-01T00:00:00.000001", "ts": "2026-01-31T23:59:59.000001Z", "x": 0.1}
    row |= {
        "day": "9999-12-31",
        "y": 2026,
        "bits": 257,
        "e": "b",
        "p": {"srid": 4326, "wkb": "AQE="},
        "v": [1.5, 2.0],
        "text": "ü '\"\\",
    }
    nulls = dict.fromkeys(columns) | {"id": 2, "d": "2.00"}
    other = {**row, "d": "1.50", "u": "18446744073709551614", "j": "null"}
    landed.load([*read(1, 10, row, nulls, {"id": 3, "d": 3}), event("u", 20, row, other)])
    names = [c.upper() for c in columns]
    quoted = ", ".join(f'"{n}"' for n in names)
    first, second, third = (dict(zip(names, found, strict=True)) for found in landed.state(quoted))
    assert first | {"J": None, "V": None, "P": None} == {
        "ID": 1,
        "J": None,
        "D": Decimal("1.50"),
        "U": 2**64 - 2,
        "RAW": b"\x00\xff",
        "B": True,
        "T": "-01:00:00.000001",
        "AT": first["AT"],
        "DAY": datetime.date(9999, 12, 31),
        "TS": first["TS"],
        "X": 0.1,
        "Y": 2026,
        "BITS": 257,
        "E": "b",
        "P": None,
        "V": None,
        "TEXT": "ü '\"\\",
    }
    assert first["AT"].isoformat() == "1000-01-01T00:00:00.000001"
    assert first["TS"].astimezone(datetime.UTC) == datetime.datetime(2026, 1, 31, 23, 59, 59, 1, tzinfo=datetime.UTC)
    assert (json.loads(first["P"]), json.loads(first["V"])) == ({"srid": 4326, "wkb": "0101"}, [1.5, 2.0])
    assert first["J"] is not None, "JSON's null is a document"
    for found, key, decimal in ((second, 2, Decimal(2)), (third, 3, Decimal(3))):
        assert found == dict.fromkeys(names) | {"ID": key, "D": decimal}
    landed.cursor.execute(
        f'SELECT "J"[\'k\'][0]::INT FROM "{landed.database}"."SHOP__LANDED"."TRIPS__HISTORY" WHERE NOT "__IS_CURRENT"'
    )
    assert landed.cursor.fetchall() == [(1,)], "a document, not its text"
