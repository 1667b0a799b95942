"""Marts as texts: what a model's file says, without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from gold.marts import SHIPPED, load_models, parse_model
from lakeward.errors import ConfigError
from lakeward.names import TableName, encode_path

FILE = Path("m.sql")


def test_only_the_names_of_tables_are_replaced_and_the_rest_stays_as_it_was_written():
    sql = """-- name: m
WITH a AS (SELECT * FROM shop.`order items` t /* shop.trips */ JOIN gold.shop.trips USING (id)), trips AS (SELECT 1)
SELECT 'shop.trips', count(*) FROM a, trips, marts.other WHERE x = bucket(4, id) AND shop.trips.id > 1"""
    model = parse_model(sql, FILE)
    names = [TableName("marts", "other"), TableName("shop", "order items"), TableName("shop", "trips")]
    assert list(model.inputs) == names
    assert model.rendered({n: f"gold.`{n.schema}`.`{encode_path(n.table)}`" for n in names}) == sql.replace(
        "shop.`order items` t", "gold.`shop`.`order-20-items` t"
    ).replace("JOIN gold.shop.trips", "JOIN gold.`shop`.`trips`").replace("marts.other", "gold.`marts`.`other`")


def test_the_header_says_name_keys_and_whether_the_mart_is_optional():
    model = parse_model("-- name: a_b\n-- description: so\n-- keys: x, y\n-- optional: yes\nSELECT 1", FILE)
    assert (model.name, model.description, model.keys, model.optional) == ("a_b", "so", ("x", "y"), True)
    assert parse_model("SELECT 1", FILE).name == "m"


def test_the_header_says_how_the_rows_of_a_table_name_the_marts_and_what_has_to_hold():
    header = (
        "-- materialized: incremental\n-- keys: a, day\n-- changed: s.t: x, CAST(f(y, 1) AS DATE)\n-- expect: n > 0\n"
    )
    model = parse_model(header + "SELECT 1 FROM s.t AS t", FILE)
    assert model.materialized == "incremental"
    assert model.changed == {TableName("s", "t"): ("x", "CAST(F(y, 1) AS DATE)")}
    assert model.expectations == ("n > 0",)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM", "not SQL"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("DROP TABLE shop.trips", "one SELECT"),
        ("INSERT INTO shop.trips SELECT 1", "one SELECT"),
        ("-- materialized: view\nSELECT 1", "materialized"),
        ("-- name: Bad Name\nSELECT 1", "name"),
        ("-- materialized: incremental\n-- keys: a\nSELECT a FROM s.t t", "needs keys"),
        ("-- keys: a\n-- changed: s.u: a\nSELECT a FROM s.t t", "names no table of the query"),
        ("-- keys: a\n-- changed: s.t: a, b\nSELECT a FROM s.t t", "2 expressions for 1 keys"),
        ("-- keys: a\n-- changed: s.t: a\nSELECT a FROM s.t", "has to have an alias"),
        ("-- keys: a\n-- changed: s.t: a\n-- changed: s.t: b\nSELECT a FROM s.t t", "s.t has two lines"),
    ],
)
def test_a_file_that_is_no_single_select_is_refused(sql, said):
    with pytest.raises(ConfigError, match=said):
        parse_model(sql, FILE)


def test_marts_that_read_marts_come_after_them_and_circles_are_refused(tmp_path):
    (tmp_path / "a.sql").write_text("SELECT * FROM marts.b")
    (tmp_path / "b.sql").write_text("SELECT * FROM shop.t")
    assert [m.name for m in load_models(tmp_path)] == ["b", "a"]
    (tmp_path / "b.sql").write_text("SELECT * FROM marts.a")
    with pytest.raises(ConfigError, match="circle"):
        load_models(tmp_path)


def test_two_marts_of_one_name_are_refused(tmp_path):
    (tmp_path / "a.sql").write_text("-- name: x\nSELECT 1")
    (tmp_path / "b.sql").write_text("-- name: x\nSELECT 1")
    with pytest.raises(ConfigError, match="two marts"):
        load_models(tmp_path)


def test_the_shipped_marts_can_be_read_and_are_optional():
    models = load_models(SHIPPED)
    assert models
    assert all(m.optional and m.keys and m.description for m in models)
