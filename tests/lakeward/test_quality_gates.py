"""Gates on batches of a small table: what each severity does, to which rows, and what it says."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from lakeward.config import parse
from lakeward.errors import GateStoppedError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.quality import docs_folder, gate, held_positions, pending, publish_docs, quarantine_list, replay
from lakeward.schema import TableSchema, column_from_catalog, spark_type
from lakeward.state import BronzeState, BronzeTable, save_bronze

NAME = TableName("shop", "trips")
SCHEMA = TableSchema(
    NAME,
    (
        column_from_catalog("id", "bigint", nullable=False),
        column_from_catalog("fare", "decimal(8,2)", nullable=True),
        column_from_catalog("status", "enum('new','done')", nullable=False),
        column_from_catalog("e.mail", "varchar(5)", nullable=True),
    ),
    ("id",),
    "primary",
)
ENVELOPE = (
    "op STRING, before {image}, after {image}, ts_ms BIGINT, source STRUCT<server: STRING, epoch: INT, file: BIGINT,"
    " pos: BIGINT, row: BIGINT, gtid: STRING, snapshot: BOOLEAN, generation: INT,"
    " cascade: BIGINT>,"
    " transaction STRUCT<id: STRING, total_order: BIGINT, data_collection_order: BIGINT>"
).format(image=spark_type(SCHEMA.image()))


def row(id_: int | None, fare: Any = None, status: str | None = "new", mail: str | None = None) -> tuple[Any, ...]:
    from decimal import Decimal

    return (id_, None if fare is None else Decimal(fare), status, mail)


def event(pos: int, op: str, after: Any = None, before: Any = None, number: int = 0) -> tuple[Any, ...]:
    return (op, before, after, 0, ("s", 1, 1, pos, number, None, op == "r", 1 if op == "r" else 0, None), None)


def frame(spark, events):
    return spark.createDataFrame(events, T._parse_datatype_string(ENVELOPE))


def suite(folder: Path, *entries: dict[str, Any]) -> None:
    (folder / "expectations").mkdir(exist_ok=True)
    doc = {"name": "shop.trips", "expectations": list(entries)}
    (folder / "expectations" / "shop.trips.json").write_text(json.dumps(doc))


def fare_rule(severity: str, **meta: Any) -> dict[str, Any]:
    return {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "fare", "min_value": 0},
        "meta": {"severity": severity, "name": "fare is not negative", **meta},
    }


@pytest.fixture
def place(tmp_path):
    """(configuration, lake) in an empty folder."""
    return parse({"lake": {"root": "lake"}}, folder=tmp_path), Lake(str(tmp_path / "lake"))


def judge(spark, place, events, run=1, layer="silver", rows=None):
    config, lake = place
    return gate(frame(spark, events), schema=SCHEMA, layer=layer, config=config, lake=lake, run=run, rows=rows)


def docs(place) -> Path:
    folder = docs_folder(*place)
    assert folder is not None
    return folder


def waiting(spark, place) -> list[Any]:
    held = pending(spark, place[1], NAME)
    assert held is not None
    return held.collect()


def ids(rows) -> list[Any]:
    return sorted((r["after"] or r["before"])["id"] for r in rows)


def test_a_batch_without_a_fault_passes_as_the_very_frame_that_came_in(spark, place):
    config, lake = place
    events = [
        event(10, "c", row(1, 5)),
        event(20, "u", row(1, 6, "done", "a@b.c"), row(1, 5)),
        event(30, "d", before=row(1, 6)),
        event(40, "t"),
        event(5, "r", row(2, None, "")),
    ]
    batch = frame(spark, events)
    result = gate(batch, schema=SCHEMA, layer="silver", config=config, lake=lake, run=1)
    assert result.passed is batch
    assert (result.held, result.warned) == (0, 0)
    assert all(r.success for r in result.results)
    result.hold()
    assert held_positions(spark, lake, NAME) is None


def test_quarantine_holds_back_the_failing_rows_alone_and_names_every_rule_they_failed(spark, place, tmp_path):
    _, lake = place
    not_done = {
        "type": "expect_column_values_to_not_be_in_set",
        "kwargs": {"column": "status", "value_set": ["done"]},
        "meta": {"severity": "quarantine"},
    }
    suite(tmp_path, fare_rule("quarantine"), not_done)
    result = judge(
        spark,
        place,
        [
            event(1, "c", row(1, -1, "done")),
            event(2, "c", row(2, -1)),
            event(3, "c", row(3, None)),
            event(4, "c", row(4, 1)),
            event(5, "d", before=row(5, -1, "done")),
        ],
    )
    assert ids(result.passed.collect()) == [3, 4, 5]
    assert result.passed.schema == frame(spark, []).schema
    assert result.held == 2
    result.hold()
    positions = held_positions(spark, lake, NAME)
    assert positions is not None
    assert sorted(map(tuple, positions.collect())) == [(1, 1, 1, 0, 0, None), (1, 1, 2, 0, 0, None)]
    held = {r["after"]["id"]: r for r in spark.read.format("delta").load(lake.table("quarantine", NAME)).collect()}
    second = "expect_column_values_to_not_be_in_set(status)"
    assert {k: sorted(v["failed"]) for k, v in held.items()} == {
        1: [second, "fare is not negative"],
        2: ["fare is not negative"],
    }
    assert held[1]["source"]["pos"] == 1
    assert (held[1]["layer"], held[1]["run"], held[1]["replayed_at"]) == ("silver", 1, None)


def test_holding_the_same_run_again_doubles_nothing(spark, place, tmp_path):
    _, _lake = place
    suite(tmp_path, fare_rule("quarantine"))
    bad = [event(1, "c", row(1, -1))]
    for _ in range(2):
        judge(spark, place, bad, run=7).hold()
    assert len(waiting(spark, place)) == 1
    judge(spark, place, [event(2, "c", row(2, -1))], run=8).hold()
    assert len(waiting(spark, place)) == 2


def test_a_stop_names_rule_count_examples_docs_and_remedy_and_holds_nothing(spark, place, tmp_path):
    _, lake = place
    suite(tmp_path, fare_rule("stop"))
    with pytest.raises(GateStoppedError) as caught:
        judge(spark, place, [event(1, "c", row(1, "-3.50")), event(2, "c", row(2, 1))])
    said = str(caught.value)
    assert caught.value.exit_code == 3
    assert "rule 'fare is not negative' failed for 1 of 2 rows" in said
    assert "id = 1: fare = -3.50" in said
    assert "id = 2" not in said
    assert str(docs(place) / "index.html") in said
    assert "shop.trips.json" in said
    assert (docs(place) / "index.html").is_file()
    assert pending(spark, lake, NAME) is None


def test_warn_lets_everything_pass_and_is_counted(spark, place, tmp_path, caplog):
    suite(tmp_path, fare_rule("warn"))
    result = judge(spark, place, [event(1, "c", row(1, -1)), event(2, "c", row(2, -1))])
    assert result.passed.count() == 2
    assert (result.held, result.warned) == (0, 2)
    assert "failed for 2 of 2 rows" in caplog.text


def test_quarantine_above_its_threshold_stops_a_batch_of_twenty_but_not_a_smaller_one(spark, place, tmp_path):
    suite(tmp_path, fare_rule("quarantine", threshold=0.1))
    good = [event(n, "c", row(n, 1)) for n in range(17)]
    bad = [event(100 + n, "c", row(100 + n, -1)) for n in range(3)]
    with pytest.raises(GateStoppedError, match=r"above its threshold of 10\.00%"):
        judge(spark, place, good + bad)
    assert judge(spark, place, good[:16] + bad).held == 3
    assert judge(spark, place, [*good, *bad[:2], event(50, "c", row(50, 1))]).held == 2


def test_mostly_is_great_expectations_verdict_and_lets_its_share_pass(spark, place, tmp_path):
    rule = fare_rule("quarantine", threshold=1)
    rule["kwargs"]["mostly"] = 0.5
    suite(tmp_path, rule)
    assert judge(spark, place, [event(1, "c", row(1, -1)), event(2, "c", row(2, 1))]).held == 0
    assert judge(spark, place, [event(1, "c", row(1, -1)), event(2, "c", row(2, None))]).held == 1


@pytest.mark.parametrize(
    ("events", "rule"),
    [
        ([event(1, "x", row(1))], "op is one of"),
        ([(None, None, row(1), 0, ("s", 1, 1, 1, 0, None, False, 0, None), None)], "op is one of"),
        ([event(1, "c", row(None))], "key id is present"),
        ([event(1, "d", before=row(None))], "key id is present"),
        ([event(1, "d")], "key id is present"),
        (
            [event(1, "c", row(1)), event(1, "c", row(1)), event(2, "c", row(2))],
            "each event is there once' failed for 2 of 3 events",
        ),
    ],
)
@pytest.mark.parametrize("rows", [None, 3])
def test_a_batch_that_no_server_could_have_sent_stops_the_gate(spark, place, events, rule, rows):
    with pytest.raises(GateStoppedError) as caught:
        judge(spark, place, events, rows=rows)
    assert rule in str(caught.value)


@pytest.mark.parametrize("rows", [None, 3])
def test_two_rows_of_one_event_are_two_events(spark, place, rows):
    assert judge(spark, place, [event(1, "c", row(1)), event(1, "c", row(2), number=1)], rows=rows).held == 0


def test_a_value_that_the_schema_forbids_is_quarantined_by_a_derived_rule(spark, place):
    result = judge(spark, place, [event(1, "c", row(1, 1, "gone")), event(2, "c", row(2, 1, None, "123456"))])
    failed = {r.rule.name for r in result.results if not r.success}
    assert failed == {
        "derived: status is one of its labels",
        "derived: status is not null",
        "derived: e.mail has at most 5 characters",
    }
    assert result.held == 2


def test_an_event_that_a_newer_snapshot_supersedes_is_not_judged_by_todays_schema(spark, place):
    from lakeward.position import Position

    _, lake = place
    table = BronzeTable(SCHEMA, "streaming", generation=2, start=Position(1, 1, 100))
    save_bronze(lake, BronzeState(tables={str(NAME): table}))
    old_snapshot = event(50, "r", row(2, 1, "gone"))
    assert judge(spark, place, [event(99, "c", row(1, 1, "gone")), old_snapshot]).held == 0
    assert judge(spark, place, [event(100, "c", row(1, 1, "gone"))]).held == 1


def test_no_masked_value_is_in_a_message_or_a_page(spark, tmp_path):
    config = parse({"tables": {"shop.trips": {"mask": {"e.mail": "sha256"}}}}, folder=tmp_path)
    lake = Lake(config.root)
    secret = {
        "type": "expect_column_values_to_match_regex",
        "kwargs": {"column": "e.mail", "regex": "^z"},
        "meta": {"severity": "stop"},
    }
    suite(tmp_path, secret, fare_rule("warn"))
    with pytest.raises(GateStoppedError) as caught:
        judge(spark, (config, lake), [event(1, "c", row(1, -1, "new", "s3cret-h4sh"))])
    pages = [p.read_text() for p in docs((config, lake)).rglob("*.html")]
    assert len(pages) == 2
    assert all("s3cret" not in text for text in [str(caught.value), *pages])
    assert "e.mail = (masked)" in str(caught.value)
    assert any("fare is not negative" in page for page in pages)


def test_data_docs_keep_the_pages_of_the_last_runs_only(spark, place, tmp_path, monkeypatch):
    monkeypatch.setattr("lakeward.quality.docs.RUNS_MAX", 2)
    config, lake = place
    result = judge(spark, place, [event(1, "c", row(1, 1))])
    for run in range(1, 5):
        publish_docs(result.results, config, lake, run=run)
    folder = docs(place)
    assert sorted(p.name for p in (folder / "runs").iterdir()) == ["run-3-silver", "run-4-silver"]
    index = (folder / "index.html").read_text()
    assert "runs/run-4-silver/shop.trips.html" in index
    assert "run-2" not in index


def test_a_rule_about_the_whole_batch_is_judged_too(spark, place, tmp_path):
    few = {
        "type": "expect_table_row_count_to_be_between",
        "kwargs": {"max_value": 1},
        "meta": {"severity": "stop", "name": "few rows"},
    }
    suite(tmp_path, few)
    assert judge(spark, place, [event(1, "c", row(1)), event(2, "d", before=row(1))]).held == 0
    with pytest.raises(GateStoppedError, match="few rows"):
        judge(spark, place, [event(1, "c", row(1)), event(2, "c", row(2))])


def test_the_gold_gate_judges_rows_of_silver_and_skips_deleted_ones(spark, place, tmp_path):
    _, lake = place
    suite(tmp_path, fare_rule("quarantine", layer="gold"))
    ddl = "id BIGINT, fare DECIMAL(8,2), status STRING, `e.mail` STRING, __ts_ms BIGINT, _change_type STRING"
    rows = [(*row(1, -1), 5, "insert"), (*row(2, -1), 5, "delete"), (*row(3, 1), 5, "insert")]
    batch = spark.createDataFrame(rows, T._parse_datatype_string(ddl))
    result = gate(batch, schema=SCHEMA, layer="gold", config=place[0], lake=lake, run=3)
    assert sorted(r["id"] for r in result.passed.collect()) == [2, 3]
    assert result.passed.columns == batch.columns
    result.hold()
    held = spark.read.format("delta").load(lake.table("quarantine", NAME)).collect()
    assert [(r["op"], r["after"]["id"], r["after"]["e.mail"], r["layer"]) for r in held] == [("u", 1, None, "gold")]
    twice = spark.createDataFrame([rows[2], rows[2]], batch.schema)
    with pytest.raises(GateStoppedError, match="key id is unique"):
        gate(twice, schema=SCHEMA, layer="gold", config=place[0], lake=lake, run=4)


def test_replay_releases_what_passes_now_and_finishes_a_replay_that_was_killed(spark, place, tmp_path):
    config, lake = place
    save_bronze(lake, BronzeState(tables={str(NAME): BronzeTable(SCHEMA, "streaming")}))
    suite(tmp_path, fare_rule("quarantine"))
    judge(spark, place, [event(1, "c", row(1, -1)), event(2, "u", row(2, "-9"), row(3, 1))]).hold()
    listed = quarantine_list(spark, lake, config)
    assert [(e["table"], e["rows"], e["by_rule"]) for e in listed] == [("shop.trips", 2, {"fare is not negative": 2})]
    rule = fare_rule("quarantine")
    rule["kwargs"]["min_value"] = -5
    suite(tmp_path, rule)
    seen: list[list[int]] = []

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    def recompute(_spark, _lake, _config, schema, keys):
        seen.append(sorted(r["id"] for r in keys.collect()))

    with pytest.raises(KeyboardInterrupt):
        replay(spark, lake, config, [NAME], killed)
    assert [r["source"]["pos"] for r in waiting(spark, place)] == [2]
    report = replay(spark, lake, config, [NAME], recompute)
    assert seen == [[1]]
    assert report == [{"table": "shop.trips", "released": 0, "still_held": 1}]
    suite(tmp_path)
    replay(spark, lake, config, [NAME], recompute)
    assert seen == [[1], [2, 3]]
    assert waiting(spark, place) == []
    replay(spark, lake, config, [NAME], recompute)
    assert len(seen) == 2


def test_quarantine_takes_up_a_column_that_was_added_and_one_whose_type_changed(spark, place, tmp_path):
    config, lake = place
    suite(tmp_path, fare_rule("quarantine"))
    judge(spark, place, [event(1, "c", row(1, -1))], run=1).hold()
    noon = datetime.fromisoformat("2026-01-02 12:00:00")
    for run, (kind, value) in enumerate([("datetime", noon), ("varchar(9)", "five")], start=2):
        added = column_from_catalog("added one", kind, nullable=True)
        schema = TableSchema(NAME, (*SCHEMA.columns, added), ("id",), "primary")
        ddl = ENVELOPE.replace(spark_type(SCHEMA.image()), spark_type(schema.image()))
        events = [event(run, "c", (*row(run, -1), value))]
        batch = spark.createDataFrame(events, T._parse_datatype_string(ddl))
        gate(batch, schema=schema, layer="silver", config=config, lake=lake, run=run).hold()
        found = {r["after"]["id"]: r["after"]["added one"] for r in waiting(spark, place)}
        assert found == ({1: None, 2: noon} if run == 2 else {3: "five"})
