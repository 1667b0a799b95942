"""Whatever gold has published, three queries are named; tests/end_to_end/test_commands.py runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from gold.published import PublishedTable
from gold.state import Kind
from lakeward.cli import hints
from lakeward.cli.app import App
from lakeward.position import Checkpoint, Position

FRESHNESS = "SELECT table_name, rows, cut, published_at FROM gold.lakeward.freshness ORDER BY table_name"


def table(kind: Kind, schema: str, name: str, rows: int, export: str | None = None) -> PublishedTable:
    place = f"/lake/gold/{schema}/{name}"
    cut = Checkpoint(Position(1, 1, 4), "", 0)
    identifier = f"gold.`{schema}`.`{name}`"
    return PublishedTable(schema, name, kind, identifier, place, f"{place}/v1", export, (), rows, cut, 0)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "lakeward.toml").write_text("")

    def print_over(*tables: PublishedTable) -> list[str]:
        fresh = table("freshness", "lakeward", "freshness", len(tables))
        monkeypatch.setattr(hints, "published", lambda _: [*tables, fresh] if tables else [])
        hints.next_queries(App(str(tmp_path / "lakeward.toml")))
        lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
        return [
            line.removeprefix("spark.sql(").removesuffix(").show()").strip("\"'") for line in lines if "SELECT" in line
        ]

    return print_over


def test_with_a_mart_and_exports_the_last_is_for_duckdb(printed):
    trips = table("mirror", "shop", "trips", 900, "/lake/export/shop/trips/cut=1")
    things = table("mirror", "shop", "things", 90, "/lake/export/shop/things/cut=1")
    small, mart = table("mart", "marts", "a", 0), table("mart", "marts", "trip_changes", 5)
    files = "/lake/export/shop/trips/cut=1/**/*.parquet"
    assert printed(trips, things, small, mart) == [
        FRESHNESS,
        "SELECT * FROM gold.`marts`.`trip_changes` LIMIT 10",
        f"SELECT count(*) FROM '{files}",
    ]


@pytest.mark.parametrize("export", [None, "s3a://lake/export/shop/trips/cut=1"])
def test_without_a_mart_and_without_exports_on_this_machine_there_are_three_all_the_same(printed, export):
    assert printed(table("mirror", "shop", "trips", 900, export), table("mirror", "shop", "things", 90)) == [
        FRESHNESS,
        "SELECT * FROM gold.`shop`.`trips` LIMIT 10",
        "SELECT count(*) FROM gold.`shop`.`trips`",
    ]


def test_a_mart_alone_has_three_and_a_lake_without_tables_none(printed):
    assert len(set(printed(table("mart", "marts", "total", 1)))) == 3
    assert printed() == []
