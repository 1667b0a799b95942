"""Folders of an export by a column's values: no column is lost to one, and no run to a column that is gone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from gold.export import check
from lakeward.config import TableConfig
from lakeward.errors import ConfigError
from lakeward.lake import Lake
from lakeward.names import TableName

TRIPS = TableName("shop", "trips")


def test_a_column_that_never_made_folders_is_refused_and_one_that_did_is_not(tmp_path):
    lake = Lake(str(tmp_path))
    with pytest.raises(ConfigError, match=r"shop\.trips.*names 'Day', which the table lacks\n.*its columns are id, n"):
        check(lake, TRIPS, {"id": "int", "n": "double"}, ["id", "Day"])
    with pytest.raises(ConfigError, match="names 'n', a double: a folder a value of it"):
        check(lake, TRIPS, {"id": "int", "n": "double"}, ["n"])
    was = {"columns": [["id", "int"], ["day", "date"], ["n", "int"], ["d", "double"]], "ended": ["region"]}
    lake.replace("export/shop/trips/current.json", json.dumps(was).encode())
    check(lake, TRIPS, {"id": "int", "n": "double"}, ["Day", "n", "region"])
    with pytest.raises(ConfigError, match="names 'd', which the table lacks"):
        check(lake, TRIPS, {"id": "int"}, ["d"])  # a DOUBLE never made folders


def test_no_column_is_lost_to_a_folders_name_and_no_run_to_a_column_that_is_dropped(shop, caplog):
    columns = {"id": "int", "day": "date", "by_day": "int", "of it": "int"}
    table = shop.create("trips", columns, ["id"])
    shop.spark.sql(f"INSERT INTO {table} VALUES (1, DATE'2026-03-01', 7, 8, 1, 't', 0)")
    shop.config = replace(shop.config, tables={"shop.trips": TableConfig(export_by=("days",))})
    with pytest.raises(ConfigError, match="names 'days', which the table lacks"):
        shop.publish()
    assert not Path(shop.lake.path("gold", "shop", "trips")).exists()  # refused before anything is published

    def files():
        folder = Path(shop.published("shop.trips").export_location or "")
        return {
            str(f.relative_to(folder).parent): pq.ParquetFile(f).read().to_pylist() for f in folder.rglob("*.parquet")
        }

    shop.config = replace(shop.config, tables={"shop.trips": TableConfig(export_by=("day", "of it"))})
    assert shop.gold().exported == ["shop.trips"]
    ((where, (row,)),) = files().items()
    assert where == "by_day_2=2026-03-01/by_of it=8"
    assert (row["by_day"], str(row["day"]), row["of it"]) == (7, "2026-03-01", 8)
    shop.spark.sql(f"ALTER TABLE {table} DROP COLUMN day")
    for n in (2, 3):  # the second export after it does not know the column from the one before
        shop.spark.sql(f"INSERT INTO {table} VALUES ({n}, 7, 8, 1, 't', 0)")
        caplog.clear()
        assert shop.publish().exported == ["shop.trips"]
        assert (
            """export_by names 'day', which the table lacks; its export has no such folders any more""" in caplog.text
        )
        assert {(where, len(rows)) for where, rows in files().items()} == {("by_of it=8", n)}
        rows = shop.session().table("gold.lakeward.freshness").collect()
        assert {r["cut"] for r in rows} == {str(shop.silver.cut.at)}
