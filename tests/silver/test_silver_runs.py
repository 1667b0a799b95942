"""Runs as a whole: killed at any moment and run again, stopped by a gate, with tables that wait or were dropped."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame
from servers.killed import SILVER, killed_at

from lakeward.config import TableConfig
from lakeward.errors import GateStoppedError
from lakeward.position import Position
from lakeward.state import load_silver
from silver.replay import recompute


@pytest.mark.parametrize("point", [moment.removeprefix("silver.") for moment in SILVER])
def test_a_run_killed_at_any_point_is_finished_by_the_next_as_it_was_planned(ledger, make_schema, point):
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": 1, "v": 0}])
    heap = ledger.follow(make_schema("heap", {"v": "int"}, ()), [{"v": 1}, {"v": 1}])
    ledger.silver()
    for schema, row in ((users, {"id": 2, "v": 2}), (heap, {"v": 1})):
        ledger.insert(schema, row)
    ledger.delete(heap, {"v": 1})
    ledger.insert(heap, {"v": 7})
    ledger.flush()
    with killed_at(f"silver.{point}"):
        ledger.rerun()
    planned = ledger.state.checkpoint.at
    ledger.insert(users, {"id": 3, "v": 3})  # bronze goes on before silver is run again
    ledger.flush()
    report = ledger.rerun()
    resumed = point not in ("before_intent", "after_state")
    assert report.resumed == (2 if resumed else None)
    assert report.cut.at == ledger.state.checkpoint.at != planned
    assert ledger.content(users) == Counter([(1, 0), (2, 2), (3, 3)])
    assert ledger.content(heap) == Counter([(1,), (1,), (7,)])
    for schema in (users, heap):
        ledger.assert_told_truly(schema)
    assert ledger.changes(users, 2) == [("insert", (2, 2)), ("insert", (3, 3))]


@dataclass
class Judged:
    passed: DataFrame
    held: int
    holds: list[int]

    def hold(self) -> None:
        self.holds.append(self.held)


def test_a_key_whose_newest_event_is_held_back_keeps_its_last_passed_state(ledger, make_schema):
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": i, "v": i} for i in (1, 2)])
    holds: list[int] = []

    def gate(frame: DataFrame, plan: Any, run: int) -> Judged:
        bad = frame.where("after.v < 0")
        return Judged(frame.where("after.v IS NULL OR after.v >= 0"), bad.count(), holds)

    ledger.silver(gate=gate)
    ledger.update(users, {"id": 1, "v": 1}, {"id": 1, "v": 5})
    ledger.update(users, {"id": 1, "v": 5}, {"id": 1, "v": -1})
    ledger.update(users, {"id": 2, "v": 2}, {"id": 3, "v": -2})
    report = ledger.silver(gate=gate)
    assert ledger.content(users) == Counter([(1, 5), (2, 2)])
    assert report.tables["shop.users"].held == holds[-1] == 2
    ledger.follow(users, [{"id": 1, "v": -1}, {"id": 3, "v": -2}, {"id": 4, "v": 4}])  # read anew: 2 is gone, 1 held
    ledger.silver(gate=gate)
    assert ledger.content(users) == Counter([(1, 5), (4, 4)])
    ledger.assert_told_truly(users)


def test_when_a_gate_stops_in_one_table_nothing_passes_in_any(ledger, make_schema):
    first = ledger.follow(make_schema("a", {"id": "int"}, ("id",)), [{"id": 1}])
    second = ledger.follow(make_schema("b", {"id": "int"}, ("id",)), [{"id": 1}])
    ledger.silver()
    ledger.insert(first, {"id": 2})
    ledger.insert(second, {"id": 2})
    ledger.flush()
    before = load_silver(ledger.lake)

    def gate(frame: DataFrame, plan: Any, run: int) -> Judged:
        if plan.name == "shop.b":
            raise GateStoppedError("stopped")
        return Judged(frame, 1, [])

    with pytest.raises(GateStoppedError):
        ledger.rerun(gate=gate)
    assert load_silver(ledger.lake) == before
    assert ledger.content(first) == Counter([(1,)])
    ledger.rerun()
    assert ledger.content(first) == ledger.content(second) == Counter([(1,), (2,)])


def test_tables_that_are_worked_on_at_once_share_no_properties_of_spark(ledger, make_schema):
    """Spark keeps a query's number among a thread's properties: a query of another table takes it out at its end."""
    for name in ("a", "b"):
        ledger.follow(make_schema(name, {"id": "int"}, ("id",)), [{"id": 1}])
    ledger.flush()
    context, both, seen = ledger.spark.sparkContext, threading.Barrier(2), {}

    def gate(frame: DataFrame, plan: Any, run: int) -> Judged:
        context.setLocalProperty("table", plan.name)
        both.wait(60)
        seen[plan.name] = (context.getLocalProperty("table"), context.getLocalProperty("caller"))
        return Judged(frame, 0, [])

    context.setLocalProperty("caller", "this one")
    try:
        ledger.rerun(gate=gate)
    finally:
        context.setLocalProperty("caller", None)
    assert seen == {name: (name, "this one") for name in ("shop.a", "shop.b")}


def test_a_history_tells_what_happened_between_silvers_cut_and_a_table_read_anew(ledger, make_schema):
    ledger.tables = {"shop.users": TableConfig(history="scd2")}
    users = ledger.follow(
        make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": i, "v": i} for i in (1, 2, 3)]
    )
    ledger.silver()
    ledger.update(users, {"id": 1, "v": 1}, {"id": 1, "v": 10})
    ledger.update(users, {"id": 1, "v": 10}, {"id": 1, "v": 11})
    ledger.delete(users, {"id": 2, "v": 2})
    ledger.insert(users, {"id": 4, "v": 4})
    ledger.delete(users, {"id": 4, "v": 4})
    ledger.insert(users, {"id": 5, "v": 5})
    ledger.follow(users, [{"id": 1, "v": 11}, {"id": 3, "v": 3}, {"id": 5, "v": 5}])  # before silver has run
    ledger.update(users, {"id": 5, "v": 5}, {"id": 5, "v": 6})
    ledger.flush()
    with killed_at("silver.between_merges"):
        ledger.rerun()
    ledger.rerun()
    ended = [(1, 1), (1, 10), (2, 2), (4, 4), (5, 5)]
    found = ledger.read(users, "__history").select("id", "v", "__is_current").collect()
    assert Counter(map(tuple, found)) == Counter(
        [*((*version, False) for version in ended), (1, 11, True), (3, 3, True), (5, 6, True)]
    )
    assert ledger.content(users) == Counter([(1, 11), (3, 3), (5, 6)])


def test_a_history_ends_at_the_truncate_what_a_table_read_anew_had_up_to_it(ledger, make_schema):
    ledger.tables = {"shop.users": TableConfig(history="scd2")}
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": i, "v": i} for i in (1, 2)])
    ledger.silver()
    ledger.follow(users, [{"id": 1, "v": 1}])  # its second chunk is read after the TRUNCATE
    ledger.truncate(users)
    truncated = datetime.fromtimestamp(ledger.ts_ms / 1000, UTC).replace(tzinfo=None)
    ledger.insert(users, {"id": 3, "v": 3})
    ledger.silver()
    found = ledger.read(users, "__history").select("id", "v", "__valid_to").collect()
    assert sorted(map(tuple, found)) == [(1, 1, truncated), (2, 2, truncated), (3, 3, None)]


def test_a_dropped_table_keeps_its_rows_up_to_its_last_event_and_one_being_read_anew_waits(ledger, make_schema):
    gone = ledger.follow(make_schema("gone", {"id": "int"}, ("id",)), [{"id": 1}])
    anew = ledger.follow(make_schema("anew", {"id": "int"}, ("id",)), [{"id": 1}])
    ledger.silver()
    ledger.insert(gone, {"id": 2})
    ledger.state.tables["shop.gone"].status = "stopped"
    ledger.state.tables["shop.gone"].dropped = True
    ledger.follow(anew, [{"id": 9}])
    ledger.state.tables["shop.anew"].status = "snapshot"
    ledger.state.tables["shop.anew"].high = Position(1, 1, ledger.pos + 10_000)
    report = ledger.silver()
    assert ledger.content(gone) == Counter([(1,), (2,)])
    assert ledger.content(anew) == Counter([(1,)])
    assert report.waiting == {"shop.gone": "stopped", "shop.anew": "snapshot"}
    ledger.state.tables["shop.anew"].status = "streaming"
    ledger.silver()
    assert ledger.content(anew) == Counter([(9,)])
    assert ledger.content(gone) == Counter([(1,), (2,)])


def test_released_events_bring_their_rows_to_the_last_event_that_passed(ledger, make_schema):
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": i, "v": i} for i in (1, 2)])
    heap = ledger.follow(make_schema("heap", {"v": "int"}, ()), [{"v": 1}])
    ledger.tables = {"shop.users": TableConfig(history="scd2")}
    held = "after.v < 0"

    def gate(frame: DataFrame, plan: Any, run: int) -> Judged:
        return Judged(frame.where(f"NOT coalesce({held}, false)"), 1, [])

    ledger.update(users, {"id": 1, "v": 1}, {"id": 1, "v": -1})
    ledger.update(users, {"id": 2, "v": 2}, {"id": 2, "v": -2})
    ledger.update(users, {"id": 2, "v": -2}, {"id": 2, "v": 22})
    ledger.insert(heap, {"v": -1})
    ledger.silver(gate=gate)
    assert ledger.content(users) == Counter([(1, 1), (2, 22)])
    place = "epoch INT, file BIGINT, pos BIGINT, row BIGINT, generation INT, cascade BIGINT"
    none = ledger.spark.createDataFrame([], place)
    for schema, names in ((users, "id"), (heap, "v")):
        bronze = ledger.spark.read.format("delta").load(ledger.lake.table("bronze", schema.name))
        keys = bronze.where(held).select(f"after.{names}").distinct()
        recompute(ledger.spark, ledger.lake, ledger.config, schema, keys, held=none)
        ledger.assert_told_truly(schema)
    assert ledger.content(users) == Counter([(1, -1), (2, 22)])
    assert ledger.content(heap) == Counter([(1,), (-1,)])
    opened = ledger.read(users, "__history").where("__is_current").select("id", "v").collect()
    assert Counter(map(tuple, opened)) == Counter([(1, -1), (2, 22)])
