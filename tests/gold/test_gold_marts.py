"""Marts over mirrors: the shipped one, and what happens when one does not fit or fails."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from servers.notebooks import cells

from gold.incremental import Basis, touched_keys
from gold.marts import SHIPPED, load_models
from lakeward.errors import TerminalError

PROJECT = Path(__file__).resolve().parents[2]
MART = "marts.trips_by_region_and_day"


def model(shop, name: str, sql: str) -> None:
    shop.config.path("models").joinpath(f"{name}.sql").write_text(sql)


@pytest.fixture
def demo(shop):
    """The columns of the demo schema that the shipped mart reads, with two regions."""
    shop.config = replace(shop.config, gold=replace(shop.config.gold, models=str(SHIPPED)))
    trips = {
        "id": "bigint unsigned",
        "driver_id": "int unsigned",
        "region_id": "smallint unsigned",
        "requested_at": "datetime(6)",
        "status": "enum('requested','riding','finished','cancelled')",
        "fare": "decimal(10,2)",
        "distance_km": "double",
        "rating": "tinyint",
    }
    regions = {"id": "smallint unsigned", "country_code": "char(2)", "name": "varchar(80)"}
    countries = {"code": "char(2)", "name": "varchar(80)", "currency": "char(3)"}
    one = shop.create("trips", trips, ["id"])
    two = shop.create("regions", regions, ["id"])
    three = shop.create("countries", countries, ["code"])
    at = "TIMESTAMP_NTZ'2026-03-01 23:59:59.999999'"
    shop.spark.sql(
        f"INSERT INTO {one} VALUES (1, 1, 1, {at}, 'finished', 10.50, 2.5D, 5, 1, 't', 0),"
        f" (2, 2, 1, {at}, 'finished', 4.50, 1.5D, 4, 1, 't', 0),"
        f" (3, 1, 1, {at}, 'cancelled', 99, NULL, NULL, 1, 't', 0),"
        " (4, NULL, 2, TIMESTAMP_NTZ'2026-03-02 00:00:00', 'requested', NULL, NULL, NULL, 1, 't', 0)"
    )
    shop.spark.sql(f"INSERT INTO {two} VALUES (1, 'PT', 'Porto', 1, 't', 0), (2, 'PT', 'Faro', 1, 't', 0)")
    shop.spark.sql(f"INSERT INTO {three} VALUES ('PT', 'Portugal', 'EUR', 1, 't', 0)")
    return shop


def test_the_shipped_mart_counts_and_sums_trips_and_is_computed_only_when_an_input_changed(demo):
    assert demo.publish().tables[MART] == "created"
    rows = {r["region"]: r for r in demo.rows_of_gold(MART)}
    porto = rows["Porto"]
    assert (porto["day"], porto["country"], porto["currency"]) == (dt.date(2026, 3, 1), "Portugal", "EUR")
    assert (porto["trips"], porto["finished"], porto["cancelled"], porto["drivers"]) == (3, 2, 1, 2)
    assert (porto["revenue"], porto["average_fare"], porto["distance_km"]) == (Decimal("15.00"), Decimal("7.50"), 4.0)
    assert porto["average_rating"] == 4.5
    assert (rows["Faro"]["day"], rows["Faro"]["revenue"]) == (dt.date(2026, 3, 2), Decimal(0))
    entry = demo.published(MART)
    assert entry.location == f"{demo.lake.root}/gold/marts/trips_by_region_and_day"
    assert demo.publish().tables[MART] == "unchanged"
    assert demo.published(MART).metadata_file == entry.metadata_file
    assert demo.published(MART).cut == demo.silver.cut
    demo.spark.sql(f"DELETE FROM {demo.sql_name(demo.bronze.tables['shop.trips'].name)} WHERE id = 4")
    assert demo.publish().tables[MART] == "merged"
    assert {r["region"] for r in demo.rows_of_gold(MART)} == {"Porto"}
    freshness = demo.session().table("gold.lakeward.freshness").where("kind = 'mart'").collect()
    assert [(r["table_name"], r["rows"], r["cut"]) for r in freshness] == [
        ("trips_by_region_and_day", 1, str(demo.silver.cut.at))
    ]


def test_an_incremental_mart_equals_a_whole_computation_and_touches_only_the_keys_that_changed(demo):
    demo.publish()
    trips = demo.sql_name(demo.bronze.tables["shop.trips"].name)

    def whole():
        held = sorted(repr(r) for r in demo.rows_of_gold(MART))
        demo.gold(rebuild=[MART])
        assert sorted(repr(r) for r in demo.rows_of_gold(MART)) == held

    # A trip moves from one day to another, and back to a region that has none of that day; one gets a NULL day's place.
    for change in (
        f"UPDATE {trips} SET fare = 20, requested_at = TIMESTAMP_NTZ'2026-03-05 10:00:00' WHERE id = 1",
        f"UPDATE {trips} SET region_id = 2 WHERE id = 1",
        f"INSERT INTO {trips} SELECT 9, 3, 2, requested_at, 'finished', 7, 1, 5, 1, 't', 0 FROM {trips} WHERE id = 2",
        f"DELETE FROM {trips} WHERE id IN (2, 3)",
    ):
        demo.spark.sql(change)
        assert demo.publish().tables[MART] == "merged", change
        whole()
    # What is not declared as a driver of the keys makes a whole computation.
    regions = demo.sql_name(demo.bronze.tables["shop.regions"].name)
    demo.spark.sql(f"UPDATE {regions} SET name = 'Lagos' WHERE id = 2")
    assert demo.publish().tables[MART] == "rebuilt"
    assert {r["region"] for r in demo.rows_of_gold(MART)} == {"Lagos"}
    # So does a mart that somebody else has written, and an input whose old snapshot is gone.
    demo.session().sql(f"DELETE FROM {demo.published(MART).identifier}")
    demo.spark.sql(f"UPDATE {trips} SET fare = 21 WHERE id = 1")
    assert demo.publish().tables[MART] == "rebuilt"
    demo.spark.sql(f"UPDATE {trips} SET fare = 22 WHERE id = 1")
    demo.cut()
    demo.gold(rebuild=["shop.trips"])
    assert {r["revenue"] for r in demo.rows_of_gold(MART) if str(r["day"]) == "2026-03-05"} == {Decimal("22.00")}


def test_a_header_that_says_other_keys_than_the_query_makes_costs_time_and_nothing_else(shop):
    table = shop.create("trips", {"id": "int", "n": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, 7, 1, 't', 0), (2, 8, 1, 't', 0)")
    header = "-- materialized: incremental\n-- keys: k\n-- changed: shop.trips: n + 1\n"
    model(shop, "wrong", header + "SELECT n AS k, count(*) AS c FROM shop.trips AS t GROUP BY n")
    shop.publish()
    shop.spark.sql(f"UPDATE {table} SET n = 9 WHERE id = 1")
    assert shop.publish().tables["marts.wrong"] == "rebuilt"
    assert sorted((r["k"], r["c"]) for r in shop.rows_of_gold("marts.wrong")) == [(8, 1), (9, 1)]


def test_changes_are_read_of_tables_of_any_name_and_it_is_said_where_they_cannot_be(shop, caplog):
    table = shop.create("order items", {"id": "int", "n": "int"}, ["id"], schema="My Shop")
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, 7, 1, 't', 0), (2, 8, 1, 't', 0)")
    header = "-- materialized: incremental\n-- keys: n\n-- changed: My Shop.order items: n\n"
    model(shop, "items", header + "SELECT n, count(*) AS c FROM `My Shop`.`order items` AS i GROUP BY n")
    shop.publish()
    shop.spark.sql(f"UPDATE {table} SET n = 8 WHERE id = 1")
    assert shop.publish().tables["marts.items"] == "merged"
    assert sorted((r["n"], r["c"]) for r in shop.rows_of_gold("marts.items")) == [(8, 2)]
    (found,) = load_models(shop.config.path("models"))
    now = {"My Shop.order items": int(shop.snapshots("My Shop.order items")[-1]["snapshot_id"])}
    assert touched_keys(shop.session(), found, Basis({"My Shop.order items": 1}, now)) is None
    assert "items.sql: computed as a whole, since its inputs' changes cannot be read: " in caplog.text
    assert "snapshot" in caplog.text


def test_a_mart_that_breaks_its_expectation_stays_as_it_was(shop):
    table = shop.create("trips", {"id": "int", "n": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, 7, 1, 't', 0), (2, NULL, 1, 't', 0)")
    model(shop, "small", "-- expect: n < 10\n-- expect: id > 0\nSELECT id, n FROM shop.trips")
    shop.publish()
    shop.spark.sql(f"UPDATE {table} SET n = 11 WHERE id = 1")
    with pytest.raises(TerminalError, match="break `expect: n < 10`"):
        shop.publish()
    assert sorted((r["id"], r["n"]) for r in shop.rows_of_gold("marts.small")) == [(1, 7), (2, None)]


def test_the_analysts_notebook_shows_freshness_and_plots_from_published_tables_without_spark(demo):
    demo.publish()
    demo.config.path("lakeward.toml").write_text('[lake]\nroot = "lake"\n')
    plots = demo.config.path("plots")
    plots.mkdir()
    # An analyst's process has no Java: a Spark that is started would fail.
    env = {**os.environ, "LAKEWARD_PLOTS": str(plots), "JAVA_HOME": "/nowhere", "PYTHONPATH": str(PROJECT)}
    done = subprocess.run(
        [sys.executable, "-c", cells("analysis.ipynb") + "\nprint(fresh.to_string(), daily.to_string())"],
        cwd=demo.config.folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {p.name for p in plots.iterdir()} == {"revenue.html", "cancelled.html", "fares.html"}
    assert '"Porto"' in (plots / "revenue.html").read_text()
    assert '"cancelled_share": 0.3333' in (plots / "cancelled.html").read_text()
    assert str(demo.silver.cut.at) in done.stdout


def test_the_shipped_mart_is_skipped_with_its_reason_in_a_lake_of_another_schema(shop):
    shop.config = replace(shop.config, gold=replace(shop.config.gold, models=None))
    table = shop.create("trips", {"id": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, 1, 't', 0)")
    report = shop.publish()
    assert report.tables == {"shop.trips": "created"}
    assert report.skipped[MART] == "not in this lake: shop.countries, shop.regions"
    for name in ("regions", "countries"):
        shop.create(name, {"id": "int"}, ["id"])
    report = shop.publish()
    assert "column" in report.skipped[MART].lower()


def test_a_mart_that_fails_is_named_and_holds_up_no_other(shop):
    table = shop.create("trips", {"id": "int", "n": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, 7, 1, 't', 0), (2, 7, 1, 't', 0)")
    model(shop, "good", "SELECT count(*) AS Trips FROM shop.trips")
    model(shop, "over_good", "SELECT trips + 1 AS more FROM marts.good")
    model(shop, "wrong", "SELECT no_such FROM shop.trips")
    with pytest.raises(TerminalError, match="the mart wrong fails"):
        shop.publish()
    shop.assert_mirrored()
    assert [r["trips"] for r in shop.rows_of_gold("marts.good")] == [2]
    assert [r["more"] for r in shop.rows_of_gold("marts.over_good")] == [3]
    with pytest.raises(TerminalError, match="the mart wrong fails"):
        shop.gold()  # though silver has not moved
    model(shop, "wrong", "-- keys: n\nSELECT n FROM shop.trips")
    with pytest.raises(TerminalError, match="several rows of one key"):
        shop.gold()
    model(shop, "wrong", "-- keys: n\nSELECT DISTINCT n FROM shop.trips")
    assert shop.gold().tables["marts.wrong"] == "created"
