"""A gold run that dies at any of its named moments is finished by the next, and nothing is applied twice.

The table without a key tells most: a change applied twice to it would double a row.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from servers.killed import killed_at

from gold.state import load_gold
from lakeward.errors import GateStoppedError

POINTS = ("before_intent", "after_intent", "between_tables", "after_tables", "after_freshness")
CHILD = """
import sys
import gold.run
from lakeward.config import load
from lakeward.lake import Lake
from lakeward.spark import session
config = load(sys.argv[1])
gold.run.run(session(config.root, app="doomed", master="local[2]"), Lake(config.root), config)
"""


@pytest.fixture
def two(shop):
    """A keyed table and one without a key, published, and then changed in silver."""
    trips = shop.create("trips", {"id": "int", "status": "varchar(9)"}, ["id"])
    log = shop.create("log", {"word": "varchar(9)"}, [])
    shop.spark.sql(f"INSERT INTO {trips} SELECT CAST(id AS INT), 'new', 1, 't', 0 FROM range(20)")
    shop.spark.sql(f"INSERT INTO {log} SELECT 'a', 1, 't', 0 FROM range(3)")
    shop.publish()
    change(shop)
    shop.cut()
    return shop


def change(shop) -> None:
    trips, log = (shop.sql_name(shop.bronze.tables[f"shop.{t}"].name) for t in ("trips", "log"))
    shop.spark.sql(f"UPDATE {trips} SET status = concat(status, '!') WHERE id > 10")
    shop.spark.sql(f"INSERT INTO {log} VALUES ('a', 1, 't', 0)")


def fresh(shop) -> dict[str, str]:
    rows = shop.session().table("gold.lakeward.freshness").collect()
    return {f"{r.table_schema}.{r.table_name}": r.cut for r in rows}


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_dies_is_finished_by_the_next_with_each_change_applied_once(two, point):
    before = fresh(two)
    with killed_at(f"gold.{point}"):
        two.gold()
    assert (load_gold(two.lake).intent is None) == (point == "before_intent")  # written down before rows are withheld
    now = fresh(two)
    assert now == (dict.fromkeys(before, str(two.silver.cut.at)) if point == "after_freshness" else before)
    two.gold()
    two.assert_mirrored()
    assert load_gold(two.lake).intent is None
    assert [len(two.snapshots(t)) for t in ("shop.trips", "shop.log")] == [2, 2]
    assert set(fresh(two).values()) == {str(two.silver.cut.at)}


def test_silver_may_have_moved_on_when_a_dead_run_is_finished(two):
    with killed_at("gold.after_tables"):
        two.gold()
    change(two)
    two.publish()
    two.assert_mirrored()
    assert [len(two.snapshots(t)) for t in ("shop.trips", "shop.log")] == [3, 3]


def test_the_tables_themselves_say_what_is_published_when_the_state_document_is_lost(two):
    two.gold()
    os.remove(f"{two.lake.root}/_lakeward/gold.json")
    assert set(two.gold().tables.values()) == {"unchanged"}
    change(two)
    assert set(two.publish().tables.values()) == {"merged"}
    two.assert_mirrored()


def test_a_process_killed_between_two_tables_leaves_nothing_half_published(two):
    toml = two.config.folder / "lakeward.toml"
    toml.write_text('[lake]\nroot = "lake"\n[gold]\nmodels = "models"\n')
    environment = {**os.environ, "LAKEWARD_CRASH_AT": "gold.between_tables", "LAKEWARD_DRIVER_MEMORY": "1g"}
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(toml)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr[-3000:]
    two.gold()
    two.assert_mirrored()
    assert [len(two.snapshots(t)) for t in ("shop.trips", "shop.log")] == [2, 2]


def test_each_snapshot_names_its_cut_its_silver_version_and_its_run(two):
    report = two.gold()
    said = two.snapshots("shop.log")[-1]["summary"]
    assert said["lakeward.cut"] == str(two.silver.cut.at)
    assert int(said["lakeward.silver-version"]) == two.silver.tables["shop.log"].version
    assert int(said["lakeward.run"]) == report.run


def test_a_gate_that_stops_at_one_table_publishes_none(two):
    suite = two.config.path(two.config.quality.suites)
    suite.mkdir()
    rule: dict[str, Any] = {
        "type": "expect_column_values_to_be_in_set",
        "kwargs": {"column": "status", "value_set": ["new"]},
        "meta": {"severity": "stop", "layer": "gold", "name": "only new trips"},
    }
    (suite / "shop.trips.json").write_text(json.dumps({"name": "shop.trips", "expectations": [rule]}))
    with pytest.raises(GateStoppedError, match="only new trips"):
        two.gold()
    assert [len(two.snapshots(t)) for t in ("shop.trips", "shop.log")] == [1, 1]
    rule["meta"]["severity"] = "quarantine"
    rule["meta"]["threshold"] = 1.0
    (suite / "shop.trips.json").write_text(json.dumps({"name": "shop.trips", "expectations": [rule]}))
    report = two.gold()
    assert report.held == 9
    # A key whose newer row is held back keeps its last passed state, in a rebuild that is asked for, too.
    assert sorted((r["id"], r["status"]) for r in two.rows_of_gold("shop.trips")) == [(n, "new") for n in range(20)]
    two.assert_mirrored("shop.log")
    assert two.gold(rebuild=["shop.trips"]).tables["shop.trips"] == "rebuilt"
    assert sorted((r["id"], r["status"]) for r in two.rows_of_gold("shop.trips")) == [(n, "new") for n in range(20)]


def test_a_lake_without_a_silver_cut_publishes_nothing(shop):
    report = shop.gold()
    assert (report.cut, report.published) == (None, 0)
