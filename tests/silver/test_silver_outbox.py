"""An outbox's inserts are events in tables of their types: each once, in order, parsed, whatever becomes of the row."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from servers.killed import killed_at

from bronze.envelope import envelope_ddl
from lakeward.config import Outbox, TableConfig
from lakeward.errors import ConfigError
from lakeward.position import Position
from silver.outbox import fields_of_types, suffix, write_events
from silver.plan import TablePlan
from silver.table import refuse

pytestmark = pytest.mark.timeout(1200)
COLUMNS = {"id": "bigint", "aggregate_type": "varchar(40)", "aggregate_id": "varchar(40)", "event_type": "varchar(40)",
           "payload": "text"}  # fmt: skip
OUTBOX = Outbox(type="event_type", key="aggregate_id", aggregate="aggregate_type")


def event(op: str, number: int, kind: str | None, payload: Any, pos: int) -> dict[str, Any]:
    text = payload if isinstance(payload, str | None) else json.dumps(payload)
    image = {"id": number, "aggregate_type": "order", "aggregate_id": f"o{number}", "event_type": kind, "payload": text}
    source = {"epoch": 1, "file": 1, "pos": pos, "row": number, "snapshot": op == "r"}
    transaction = {"id": f"tx{pos}", "total_order": number, "data_collection_order": number}
    before, after = (image, None) if op == "d" else (image if op == "u" else None, image)
    return {"op": op, "before": before, "after": after, "ts_ms": 1, "source": source, "transaction": transaction}


def test_each_inserted_row_is_an_event_of_its_types_table_once(ledger, make_schema):
    schema, spark = make_schema("outbox", COLUMNS, ("id",)), ledger.spark

    def write(run: int, events: list[dict[str, Any]]) -> None:
        frame = spark.createDataFrame(events, envelope_ddl(schema)).coalesce(1)
        write_events(spark, ledger.lake, OUTBOX, frame, schema, run=run)

    def read(kind: str | None, *columns: str) -> list[tuple[Any, ...]]:
        rows = ledger.read(schema, suffix(kind)).select(*columns, "__position").collect()
        return [tuple(r)[:-1] for r in sorted(rows, key=lambda r: r[-1])]

    first = [
        event("r", 1, "made", {"n": 1, "who": "a"}, 10),
        event("r", 2, "made", {"n": 2, "price": 1.5}, 10),
        event("c", 2, "made", {"n": 2, "price": 1.5}, 20),  # the chunk saw it too
        event("c", 3, "paid/late", {"N": 3, "ok": True, "lines": [{"a": 1}]}, 30),
        event("c", 4, "made", "{broken", 40),
        event("d", 4, "made", "{broken", 40),  # inserted and removed in one transaction, as an outbox often is
    ]
    write(1, first)
    # The clean-up, an update, another type of one field, a new field, and a kill between two event tables.
    second = [
        event("d", 1, "made", {"n": 1}, 50),
        event("u", 2, "made", {"n": 9}, 60),
        event("c", 6, "made", {"n": "six", "new": None}, 70),
        event("c", 7, "made", {"n": 12345678901234567890, "new": 7}, 70),
        event("c", 8, "paid/late", [1], 70),
        event("c", 5, None, None, 80),
    ]
    with killed_at("silver.between_events"):
        write(2, second)
    write(2, second)
    # Read anew: what is there is not added again, what is new is.
    write(3, [event("r", 6, "made", {"n": "six"}, 90), event("r", 9, "made", {"n": 9}, 90)])
    assert read("made", "__id", "__key", "n", "who", "price", "new", "__snapshot", "__transaction_id") == [
        ("1", "o1", "1", "a", None, None, True, "tx10"),
        ("2", "o2", "2", None, 1.5, None, False, "tx20"),
        ("4", "o4", None, None, None, None, False, "tx40"),
        ("6", "o6", "six", None, None, None, False, "tx70"),
        ("7", "o7", "12345678901234567890", None, None, 7, False, "tx70"),
        ("9", "o9", "9", None, None, None, True, "tx90"),
    ]
    assert read("paid/late", "__id", "__payload", "__error", "N", "ok", "lines") == [
        ("3", '{"N": 3, "ok": true, "lines": [{"a": 1}]}', None, 3, True, '[{"a":1}]'),
        ("8", "[1]", "the payload is not a JSON object", None, None, None),
    ]
    assert read(None, "__id", "__type", "__payload", "__error") == [("5", None, None, None)]


def test_the_fields_of_a_type_do_not_depend_on_how_events_fell_into_batches():
    answers = [
        ("a", "n", "bigint"),
        ("a", "N", "string"),
        ("a", "x", "double"),
        ("b", None, ""),
        (None, "x", "boolean"),
    ]
    wanted = {"a": {"N": "string", "x": "double"}, "b": {}, None: {"x": "boolean"}}
    assert fields_of_types(answers) == fields_of_types(reversed(answers)) == wanted


@pytest.mark.parametrize(
    ("gone", "masked", "said"),
    [("aggregate_id", "", "no column 'aggregate_id'"), ("aggregate_type", "", "no column 'aggregate_type'"),
     ("", "payload", "'payload' is masked"), ("", "aggregate_id", None)],
)  # fmt: skip
def test_an_outbox_without_a_column_that_it_is_read_by_is_refused(make_schema, gone, masked, said):
    schema = make_schema("outbox", {n: k for n, k in COLUMNS.items() if n != gone}, ("id",))
    columns = tuple(replace(c, masked=c.name == masked) for c in schema.columns)
    start = Position(1, 1, 4)
    plan = TablePlan(replace(schema, columns=columns), 1, start, start, rekeyed=False, batch=1, bronze_version=1)
    with nullcontext() if said is None else pytest.raises(ConfigError, match=said):
        refuse(plan, TableConfig(outbox=OUTBOX))


def test_the_names_of_event_tables_are_told_apart():
    assert [suffix(k) for k in ("made", "a b", "", None, "null", "-null-")] == [
        *("__made", "__a-20-b", "__", "__-null-", "__null", "__-2d-null-2d-")
    ]
