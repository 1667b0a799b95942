"""Columns that come, go and change their type on the way to Snowflake's own tables."""

from __future__ import annotations

from decimal import Decimal

import pytest

from snowflake.lakehouse import merge_sql, positions
from snowflake.lakehouse.shape import changes, follows

META = "5, 'tx', 1"
INT, BIGINT, PRICE, TEXT = "NUMBER(10,0)", "NUMBER(19,0)", "NUMBER(10,2)", "VARCHAR"


@pytest.mark.parametrize(
    ("there", "recorded", "wanted", "needed"),
    [
        ({"V": INT}, {"V": INT}, INT, ""),
        ({}, {}, INT, "added"),
        ({"V": INT}, {"V": INT}, BIGINT, "widened"),
        ({"V": BIGINT}, {"V": INT}, BIGINT, ""),  # widened by a run that died then
        ({"V": BIGINT}, {"V": BIGINT}, INT, ""),  # holds them all
        ({"V": INT}, {"V": INT}, PRICE, "retyped"),  # the same precision, and cents would be rounded
        ({"V": PRICE}, {"V": INT}, INT, "retyped"),  # a run died after it had made the column anew
        ({"V": "VARIANT"}, {"V": TEXT}, TEXT, "retyped"),
        ({"V": INT}, {}, PRICE, "emptied"),  # dropped at the source, and added again
        ({"V": INT}, {}, INT, "emptied"),
        ({}, {"V": INT}, INT, "added"),  # somebody dropped it in Snowflake
    ],
)
def test_what_a_column_needs_is_found_in_what_is_there(there, recorded, wanted, needed):
    found = changes([("V", wanted)], there, recorded)
    named = {k: getattr(found, k) for k in ("added", "widened", "emptied", "retyped")}
    assert {k: v for k, v in named.items() if v} == ({needed: [("V", wanted)]} if needed else {})


@pytest.mark.parametrize(
    ("there", "recorded", "wanted", "right"),
    [
        ({"V": INT}, {"V": INT}, {"V": INT}, True),
        ({"V": INT}, {"V": INT}, {"V": INT, "W": INT}, True),
        ({"V": INT}, {"V": INT}, {"V": BIGINT}, True),
        ({"V": BIGINT}, {"V": INT}, {"V": BIGINT}, True),
        ({"V": INT}, {"V": INT}, {"V": PRICE}, False),
        ({"V": PRICE}, {"V": INT}, {"V": INT}, False),  # empty since a run died
        ({}, {"V": INT}, {"V": INT}, False),
        ({"V": INT}, {"V": INT}, {}, False),
    ],
)
def test_rows_that_were_sunk_stay_where_their_columns_hold_them(there, recorded, wanted, right):
    assert follows(wanted.items(), there, recorded) is right


@pytest.fixture
def prices(silver_lake):
    where = silver_lake.create("prices", {"id": "int", "v": "int"}, ["id"])
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES (1, 5, {META}), (2, 6, {META})")
    silver_lake.sink()
    return where


def rows(silver_lake, columns="ID, V"):
    return sorted(silver_lake.query(f"SELECT {columns} FROM SHOP.PRICES"), key=repr)


def test_a_column_that_comes_again_with_another_type_rounds_nothing(silver_lake, prices):
    silver_lake.drop_column(prices, "shop.prices", "v")
    silver_lake.sink()
    assert rows(silver_lake) == [(1, None), (2, None)]
    silver_lake.add_column(prices, "shop.prices", "v", "decimal(10,2)")
    silver_lake.spark.sql(f"INSERT INTO {prices} (id, v) VALUES (3, 12.75)")
    silver_lake.sink()
    assert rows(silver_lake) == [(1, None), (2, None), (3, Decimal("12.75"))]


def test_a_column_that_went_and_came_between_two_runs_has_no_old_value(silver_lake, prices):
    silver_lake.add_column(prices, "shop.prices", "w", "int")
    silver_lake.drop_column(prices, "shop.prices", "w")  # the table maps its columns from here on
    silver_lake.sink()
    silver_lake.drop_column(prices, "shop.prices", "v")
    silver_lake.add_column(prices, "shop.prices", "v", "int")
    silver_lake.spark.sql(f"INSERT INTO {prices} (id, v) VALUES (3, 7)")
    silver_lake.sink()
    assert rows(silver_lake) == [(1, None), (2, None), (3, 7)]


def test_a_wider_number_is_made_in_place_and_loads_no_row_again(silver_lake, prices, monkeypatch):
    def never(*values):
        raise AssertionError("dropped")

    monkeypatch.setattr(merge_sql, "drop_column", never)
    silver_lake.retype_column(prices, "shop.prices", "v", "bigint")
    silver_lake.spark.sql(f"INSERT INTO {prices} (id, v) VALUES (3, 5000000000)")
    assert silver_lake.sink().changes == 1
    assert rows(silver_lake) == [(1, 5), (2, 6), (3, 5_000_000_000)]


@pytest.mark.parametrize("moment", ["sink.after_drop", "sink.after_shape"])
def test_a_retyped_column_is_loaded_anew_whenever_a_sink_dies(silver_lake, prices, killed_at, moment):
    silver_lake.retype_column(prices, "shop.prices", "v", "double")
    killed_at(moment)
    with pytest.raises(BaseException, match=moment):
        silver_lake.sink()
    found = silver_lake.query('SELECT SILVER_VERSION FROM LAKEWARD."SINK_POSITIONS"')
    assert found == [(positions.NOTHING,)]
    silver_lake.sink_again()
    assert rows(silver_lake, "ID, V::VARCHAR") == [(1, "5.0"), (2, "6.0")]
