"""What fails in gold holds up nothing else, and what is lost is noticed: marts, withheld rows, missing tables."""

from __future__ import annotations

import json

import pytest

from gold.basis import basis
from gold.state import load_gold
from lakeward.errors import TerminalError
from lakeward.position import Position
from lakeward.quality.quarantine import read


def model(shop, name: str, sql: str) -> None:
    shop.config.path("models").joinpath(f"{name}.sql").write_text(sql)


def fresh(shop) -> dict[str, str]:
    rows = shop.session().table("gold.lakeward.freshness").collect()
    return {f"{r.table_schema}.{r.table_name}": r.cut for r in rows}


@pytest.fixture
def trips(shop):
    table = shop.create("trips", {"id": "int", "n": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, 5, 1, 't', 0), (2, 0, 1, 't', 0)")
    return table


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT id, 10 / n AS x FROM shop.trips", "DIVIDE_BY_ZERO"),
        ("-- keys: id\nSELECT id, CAST('x' AS INT) + n AS x FROM shop.trips", "CAST_INVALID_INPUT"),
        ("SELECT NULL AS x FROM shop.trips", "unknown"),
    ],
)
def test_a_mart_that_fails_over_its_rows_holds_up_no_other_table(shop, trips, sql, said):
    model(shop, "a_good", "SELECT count(*) AS trips FROM shop.trips")
    model(shop, "b_wrong", sql)
    model(shop, "c_good", "SELECT trips + 1 AS more FROM marts.a_good")
    for rows in (2, 3):
        with pytest.raises(TerminalError, match="the mart b_wrong fails") as raised:
            shop.publish()
        assert said in str(raised.value)
        assert "b_wrong.sql" in str(raised.value)
        assert [r.more for r in shop.rows_of_gold("marts.c_good")] == [rows + 1]
        cut = str(shop.silver.cut.at)
        assert fresh(shop) == {"shop.trips": cut, "marts.a_good": cut, "marts.c_good": cut}
        assert load_gold(shop.lake).cut == shop.silver.cut
        assert load_gold(shop.lake).basis == ""  # so the next run tries again, whatever stands still
        shop.spark.sql(f"INSERT INTO {trips} VALUES (3, 0, 1, 't', 0)")


def test_while_a_mart_fails_each_row_that_a_gate_withholds_is_in_quarantine(shop, trips):
    suites = shop.config.path(shop.config.quality.suites)
    suites.mkdir()
    rule = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "n", "max_value": 9},
        "meta": {"severity": "quarantine", "layer": "gold", "name": "small", "threshold": 1.0},
    }
    (suites / "shop.trips.json").write_text(json.dumps({"name": "shop.trips", "expectations": [rule]}))
    model(shop, "wrong", "SELECT no_such FROM shop.trips")
    for key in (3, 4):
        shop.spark.sql(f"INSERT INTO {trips} VALUES ({key}, 99, 1, 't', 0)")
        for _ in range(2):  # the second has nothing new to withhold
            with pytest.raises(TerminalError, match="the mart wrong fails"):
                shop.publish()
    held = read(shop.spark, shop.lake, shop.bronze.tables["shop.trips"].name)
    assert held is not None
    assert sorted(row.after.id for row in held.collect()) == [3, 4]
    assert sorted(row.id for row in shop.rows_of_gold("shop.trips")) == [1, 2]


def test_a_mart_is_as_fresh_as_the_least_fresh_of_what_it_reads(shop, trips):
    gone = shop.create("gone", {"id": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {gone} VALUES (1, 1, 't', 0)")
    model(shop, "both", "SELECT count(*) AS c FROM shop.trips, shop.gone")
    model(shop, "over", "SELECT c FROM marts.both")
    model(shop, "other", "SELECT id FROM shop.trips")
    shop.publish()
    stopped = shop.silver.cut.at
    for note in ("unchanged", "changed"):
        if note == "changed":
            shop.spark.sql(f"INSERT INTO {trips} VALUES (3, 7, 1, 't', 0)")
        shop.cut()
        shop.silver.tables["shop.gone"].cut = stopped  # dropped at the source: it stands where it stopped
        shop.save()
        shop.gold()
        now = str(shop.silver.cut.at)
        assert fresh(shop) == {
            "shop.trips": now,
            "marts.other": now,
            "shop.gone": str(stopped),
            "marts.both": str(stopped),
            "marts.over": str(stopped),
        }
        assert shop.snapshots("marts.both")[-1].summary["lakeward.cut"] == str(stopped)


def test_a_mart_over_one_that_fails_is_as_fresh_as_what_that_one_still_says(shop, trips):
    model(shop, "first", "SELECT id, 10 / n AS x FROM shop.trips WHERE n > 0")
    model(shop, "second", "SELECT count(*) AS c FROM marts.first")
    shop.publish()
    before = str(shop.silver.cut.at)
    model(shop, "first", "SELECT id, 10 / n AS x FROM shop.trips")
    shop.spark.sql(f"INSERT INTO {trips} VALUES (3, 7, 1, 't', 0)")
    with pytest.raises(TerminalError, match="the mart first fails"):
        shop.publish()
    assert fresh(shop) == {
        "shop.trips": str(shop.silver.cut.at),
        "marts.first": before,
        "marts.second": before,
    }


def test_a_table_that_the_catalog_lost_is_made_anew_before_freshness_speaks_of_it(shop, trips):
    quiet = shop.create("quiet", {"id": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {quiet} VALUES (1, 1, 't', 0)")
    model(shop, "over", "SELECT count(*) AS c FROM shop.quiet")
    shop.publish()
    for name in ("shop.quiet", "marts.over"):
        shop.session().sql(f"DROP TABLE {shop.published(name).identifier}")
    shop.spark.sql(f"INSERT INTO {trips} VALUES (3, 7, 1, 't', 0)")
    assert shop.publish().tables == {"shop.quiet": "created", "shop.trips": "merged", "marts.over": "rebuilt"}
    shop.assert_mirrored()
    assert [r.c for r in shop.rows_of_gold("marts.over")] == [1]


def test_of_many_unchanged_tables_each_is_asked_for_in_its_turn(shop, trips, monkeypatch):
    monkeypatch.setattr("gold.run.CHECKED_MAX", 2)
    for name in ("quiet", "calm", "still"):
        table = shop.create(name, {"id": "int"}, ["id"])
        shop.spark.sql(f"INSERT INTO {table} VALUES (1, 1, 't', 0)")
    shop.publish()
    for name in ("shop.quiet", "shop.calm", "shop.still"):
        shop.session().sql(f"DROP TABLE {shop.published(name).identifier}")
    made: list[str] = []
    for key in (3, 4, 5):  # two tables are asked for in each run
        shop.spark.sql(f"INSERT INTO {trips} VALUES ({key}, 7, 1, 't', 0)")
        made += [name for name, outcome in shop.publish().tables.items() if outcome == "created"]
    assert sorted(made) == ["shop.calm", "shop.quiet", "shop.still"]
    shop.assert_mirrored()


def test_silver_may_stand_at_the_same_cut_and_hold_other_rows(shop, trips):
    """As after a table was read anew at a quiet source."""
    shop.publish()
    before = load_gold(shop.lake).basis
    assert before == basis(shop.config, shop.bronze, shop.silver)
    shop.spark.sql(f"DELETE FROM {trips} WHERE id = 2")
    shop.silver.tables["shop.trips"].version += 1
    shop.save()
    assert basis(shop.config, shop.bronze, shop.silver) != before
    assert shop.gold().tables == {"shop.trips": "merged"}
    assert load_gold(shop.lake).basis == basis(shop.config, shop.bronze, shop.silver)
    assert shop.silver.cut.at == Position(1, 7, 200)
    assert [r.id for r in shop.rows_of_gold("shop.trips")] == [1]
