"""Marts over mirrors: the shipped one, and what happens when one does not fit or fails."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal

import pytest

from gold.marts import SHIPPED
from lakeward.errors import TerminalError

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
    assert demo.publish().tables[MART] == "rebuilt"
    assert {r["region"] for r in demo.rows_of_gold(MART)} == {"Porto"}
    freshness = demo.session().table("gold.lakeward.freshness").where("kind = 'mart'").collect()
    assert [(r["table_name"], r["rows"], r["cut"]) for r in freshness] == [
        ("trips_by_region_and_day", 1, str(demo.silver.cut.at))
    ]


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
