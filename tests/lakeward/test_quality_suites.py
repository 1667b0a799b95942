"""Suites that cannot be meant are refused by name, and derived rules never fail on a row that a server could hold."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as T

from lakeward.config import Config
from lakeward.embedded import demo
from lakeward.errors import ConfigError
from lakeward.names import TableName
from lakeward.quality import check_suites, derive, load_suite
from lakeward.quality.evaluate import evaluate
from lakeward.quality.frame import of_events
from lakeward.schema import KINDS, TableSchema, column_from_catalog, spark_type

TRIPS = TableSchema(
    TableName("shop", "trips"),
    (
        column_from_catalog("id", "bigint", nullable=False),
        column_from_catalog("fare", "decimal(8,2)", nullable=True),
        column_from_catalog("city", "varchar(20)", nullable=True),
        column_from_catalog("started", "datetime(6)", nullable=True),
        column_from_catalog("photo", "blob", nullable=True),
    ),
    ("id",),
    "primary",
)


def write(folder: Path, doc: Any, name: str = "shop.trips.json") -> Config:
    (folder / "expectations").mkdir(exist_ok=True)
    (folder / "expectations" / name).write_text(doc if isinstance(doc, str) else json.dumps(doc))
    return Config(folder=folder)


def entry(kind: str = "expect_column_values_to_be_between", meta: Any = None, **kwargs: Any) -> dict[str, Any]:
    return {"type": kind, "kwargs": kwargs or {"column": "fare", "min_value": 0}, "meta": meta or {}}


@pytest.mark.parametrize(
    ("bad", "message", "hint"),
    [
        (entry("expect_column_max_to_be_betwen"), "expectation type 'expect_column_max_to_be_betwen'", "_between"),
        (entry(column="fair", min_value=0), "column 'fair' is unknown", "'fare'"),
        (entry(meta={"severity": "quarantin"}), "severity 'quarantin' is unknown", "'quarantine'"),
        (entry(meta={"layer": "sliver"}), "layer 'sliver' is unknown", "'silver'"),
        (entry(meta={"treshold": 0.1}), "meta key 'treshold' is unknown", "'threshold'"),
        (entry(meta={"threshold": 5}), "threshold 5 is not between 0 and 1", ""),
        (entry(column="fare", min_valu=0), "kwargs 'min_valu'", "'min_value'"),
        (entry(column="fare"), "min_value and max_value cannot both be None", ""),
        (entry(column="fare", min_value=2, max_value=1), "min_value 2 is above max_value 1", ""),
        (entry(column="fare", min_value=0, mostly=3), "kwargs 'mostly'", ""),
        (entry(column="fare", min_value="zero"), "'zero' cannot be compared with fare", ""),
        (entry(column="started", min_value="yesterday"), "'yesterday' cannot be compared with started", ""),
        (entry(column="id", min_value=2**53 + 1), "cannot be compared with id", ""),
        (entry("expect_column_values_to_be_in_set", column="city", value_set=[1]), "1 cannot be compared", ""),
        (entry("expect_column_values_to_be_in_set", column="photo", value_set=["x"]), "cannot be compared", ""),
        (entry("expect_column_values_to_match_regex", column="fare", regex="^1"), "wants text", ""),
        (entry("expect_column_mean_to_be_between", {"severity": "quarantine"}, column="fare", min_value=0),
         "no row to quarantine", "warn"),
        (entry("expect_column_values_to_be_unique", column="id"), "two events", "gold"),
        (entry("expect_column_values_to_match_like_pattern", column="city", like_pattern="a%"), "is unknown", ""),
        ({"kind": "x"}, '"type": …', ""),
    ],
)  # fmt: skip
def test_a_suite_that_cannot_be_meant_is_refused_with_file_entry_and_the_nearest_right_word(
    tmp_path, bad, message, hint
):
    config = write(tmp_path, {"expectations": [entry(), bad]})
    with pytest.raises(ConfigError) as caught:
        load_suite(config, TRIPS)
    assert message in str(caught.value)
    assert "shop.trips.json, expectation 2" in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["{", "[]", '{"expectations": {}}'])
def test_a_file_that_is_no_suite_is_refused(tmp_path, text):
    with pytest.raises(ConfigError, match=r"shop\.trips\.json"):
        load_suite(write(tmp_path, text), TRIPS)


def test_a_suite_of_a_table_that_is_not_followed_is_refused_with_the_nearest_name(tmp_path):
    config = write(tmp_path, {"expectations": []}, "shop.trisp.json")
    with pytest.raises(ConfigError) as caught:
        check_suites(config, [TRIPS])
    assert "shop.trips.json" in (caught.value.hint or "")


def test_a_right_suite_is_read_with_its_defaults(tmp_path):
    config = write(
        tmp_path,
        {
            "name": "shop.trips",
            "expectations": [
                entry(),
                entry(meta={"severity": "stop", "layer": "gold", "threshold": 0.5, "name": "fare"}),
                entry(column="fare", min_value=0, row_condition="city = 'Ulm'", condition_parser="spark"),
            ],
        },
    )
    first, second, third = load_suite(config, TRIPS)
    assert (first.severity, first.layer, first.threshold) == ("warn", "silver", None)
    assert first.name == "expect_column_values_to_be_between(fare)"
    assert (second.severity, second.layer, second.threshold, second.name) == ("stop", "gold", 0.5, "fare")
    assert third.name == first.name + " again"
    assert load_suite(Config(folder=tmp_path / "nowhere"), TRIPS) == []


LAST = datetime.datetime.fromisoformat("9999-12-31 23:59:59.999999")
UTC = datetime.UTC
EXTREMES: list[tuple[str, list[Any]]] = [
    ("tinyint", [-128, 127]),
    ("tinyint unsigned", [0, 255]),
    ("smallint", [-(2**15), 2**15 - 1]),
    ("smallint unsigned", [0, 2**16 - 1]),
    ("mediumint", [-(2**23), 2**23 - 1]),
    ("mediumint unsigned", [0, 2**24 - 1]),
    ("int", [-(2**31), 2**31 - 1]),
    ("int unsigned", [0, 2**32 - 1]),
    ("bigint", [-(2**63), 2**63 - 1]),
    ("bigint unsigned", [Decimal(0), Decimal(2**64 - 1)]),
    ("decimal(38,10)", [Decimal("-" + "9" * 28 + "." + "9" * 10), Decimal("0E-10")]),
    ("decimal(38,38) unsigned", [Decimal("0." + "0" * 37 + "1"), Decimal("0." + "9" * 38)]),
    ("decimal(65,30)", ["-" + "9" * 35 + "." + "9" * 30, "0." + "0" * 30]),
    ("decimal(65,0) unsigned", ["9" * 65, "0"]),
    ("float unsigned", [0.0, 3.402823466385288e38]),
    ("double", [-1.7976931348623157e308, -0.0]),
    ("double unsigned", [-0.0, 5e-324]),
    ("bit(1)", [True, False]),
    ("bit(63)", [0, 2**63 - 1]),
    ("bit(64)", [Decimal(0), Decimal(2**64 - 1)]),
    ("date", [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    ("datetime(6)", [None, datetime.datetime.fromisoformat("0001-01-01"), LAST]),
    ("timestamp(6)", [None, datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)]),
    ("time(6)", ["-838:59:59.000000", "838:59:59.000000"]),
    ("year", [0, 1901, 2155]),
    ("char(2)", ["", "\N{GRINNING FACE}\N{GRINNING FACE}"]),
    ("varchar(3)", ["", "a\N{COMBINING ACUTE ACCENT}\N{GRINNING FACE}", "\x00\n "]),
    ("longtext", ["", "x" * 100_000]),
    ("binary(2)", [b"\0\0", b"\xff\xff"]),
    ("varbinary(2)", [b"", b"\xff\xff"]),
    ("blob", [b"", b"\xff" * 70_000]),
    ("enum('a','it''s','new\nline')", ["", "a", "it's", "new\nline"]),
    ("set('a','b.*','(')", ["", "a", "b.*,(", "a,b.*,("]),
    ("json", ["null", '{"a": [1.0, "\\u0000"]}']),
    ("point", [(4326, b"\1")]),
    ("vector(2)", [[1.0, 2.0]]),
    ("uuid", ["00000000-0000-0000-0000-000000000000"]),
    ("inet4", ["255.255.255.255"]),
    ("inet6", ["::"]),
]


def table(nullable: bool, tinyint1: str = "int") -> TableSchema:
    columns = [
        column_from_catalog(f"c{n}.`x", kind, nullable=nullable, tinyint1=tinyint1)
        for n, (kind, _) in enumerate([*EXTREMES, ("tinyint(1)", [])])
    ]
    key = column_from_catalog("id", "int", nullable=False)
    return TableSchema(TableName("odd", "all"), (key, *columns), ("id",), "primary")


def image(number: int, *, null: bool) -> tuple[Any, ...]:
    return (number, *[None if null else values[number % len(values)] for _, values in EXTREMES])


@pytest.mark.parametrize("nullable", [True, False])
def test_derived_rules_never_fail_on_the_extremes_of_any_type(spark, nullable):
    schema = table(nullable, "boolean" if nullable else "int")
    assert {c.kind for c in schema.columns} == set(KINDS)
    struct = spark_type(schema.image())
    place = (
        "STRUCT<epoch: INT, file: BIGINT, pos: BIGINT, row: BIGINT, generation: INT, snapshot: BOOLEAN, cascade: INT>"
    )
    ddl = T._parse_datatype_string(f"op STRING, before {struct}, after {struct}, source {place}")
    flag = (True if nullable else 127,)
    source = [(1, 1, n, 0, 0, False, None) for n in range(12)]
    events: list[Any] = [("cur"[n % 3], None, (*image(n, null=False), *flag), source[n]) for n in range(8)]
    events += [("d", (*image(8, null=True), None), None, source[8]), ("t", None, None, source[9])]
    if nullable:
        events.append(("c", None, (*image(10, null=True), None), source[10]))
    rules = derive(schema)
    results, _ = evaluate(of_events(spark.createDataFrame(events, ddl), schema), rules)
    assert [(r.rule.name, r.examples) for r in results if r.failed or not r.success] == []
    assert len(rules) > (20 if nullable else 50)


def test_a_zero_date_in_a_not_null_column_or_a_key_is_no_fault():
    day = column_from_catalog("day", "date", nullable=False)
    schema = TableSchema(TableName("odd", "days"), (day,), ("day",), "primary")
    assert [r.name for r in derive(schema)] == [
        "derived: op is one of c, u, d, r, t",
        "derived: each event is there once",
    ]
    assert derive(schema, "gold") == []


def test_a_masked_column_keeps_only_the_rule_that_its_hash_keeps_too():
    schema = TableSchema(
        TableName("shop", "users"), (column_from_catalog("email", "varchar(5)", nullable=False),), (), "row"
    )
    assert [r.name for r in derive(schema, masked=["email"])][2:] == ["derived: email is not null"]
    assert len(derive(schema)) == 4


def demo_table(name: str) -> TableSchema:
    """A table as the demo's schema.sql declares it: a column a line, its type after its name."""
    text = (Path(demo.__file__).parent / "schema.sql").read_text()
    body = text.split(f"CREATE TABLE {name} (\n", 1)[1].split("\n);", 1)[0]
    columns = []
    for line in body.splitlines():
        found = re.match(r"    (\w+) +((?:SET|ENUM)\([^)]*\)|\w+(?:\([\d,]+\))?(?: UNSIGNED)?) +(NOT NULL|NULL)", line)
        if found:
            kind = found[2] if "(" in found[2] else found[2].lower()
            columns.append(column_from_catalog(found[1], kind, nullable=found[3] == "NULL"))
    return TableSchema(TableName("shop", name), tuple(columns), ("id",), "primary")


def test_the_suites_of_the_repository_fit_the_demo_database():
    config = Config(folder=Path(demo.__file__).parents[3])
    trips = demo_table("trips")
    assert len(trips.columns) == 15
    check_suites(config, [trips])
    rules = load_suite(config, trips)
    assert {(r.severity, r.layer) for r in rules} == {("quarantine", "silver"), ("warn", "silver"), ("warn", "gold")}
    config = Config(folder=config.folder)
    without = dataclasses.replace(trips, columns=tuple(c for c in trips.columns if c.name != "fare"))
    with pytest.raises(ConfigError, match="column 'fare' is unknown"):
        load_suite(config, without)


def test_the_suite_of_the_demo_judges_trips_as_it_says(spark):
    schema = demo_table("trips")
    suite_of_demo = load_suite(Config(folder=Path(demo.__file__).parents[3]), schema)
    names = [c.name for c in schema.columns]
    at = datetime.datetime.fromisoformat("2026-01-01 10:00:00+00:00")

    def trip(**values: Any) -> tuple[Any, ...]:
        base = {
            "id": Decimal(1),
            "status": "finished",
            "fare": Decimal(5),
            "rating": 5,
            "started_at": at,
            "finished_at": at,
        }
        return tuple({**base, **values}.get(n) for n in names)

    bad = [
        trip(fare=Decimal(-1)),
        trip(rating=6),
        trip(fare=None),
        trip(finished_at=at - datetime.timedelta(1)),
    ]
    fine = [trip(), trip(fare=None, status="riding", finished_at=None, rating=None)]
    place = (
        "STRUCT<epoch: INT, file: BIGINT, pos: BIGINT, row: BIGINT, generation: INT, snapshot: BOOLEAN, cascade: INT>"
    )
    struct = spark_type(schema.image())
    ddl = T._parse_datatype_string(f"op STRING, before {struct}, after {struct}, source {place}")
    events: list[Any] = [("c", None, image, (1, 1, n, 0, 0, False, None)) for n, image in enumerate([*bad, *fine])]
    before_silver = [r for r in suite_of_demo if r.layer == "silver"]
    results, _ = evaluate(of_events(spark.createDataFrame(events, ddl), schema), before_silver)
    assert [r.failed for r in results] == [1, 1, 1, 1]
