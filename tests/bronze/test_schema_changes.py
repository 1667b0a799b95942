"""Schema changes are in a bronze table of their own, each once, and without the values of masked columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from servers.sparkless import Sparkless

from bronze import schema_changes
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.lake import Lake


def recorded(lake):
    folder = Path(lake.lake.table("bronze", schema_changes.TABLE))
    rows = [row for file in folder.glob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    return sorted(rows, key=lambda r: (r["source"]["epoch"], r["source"]["file"], r["source"]["pos"], r["table"]))


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_each_change_of_a_followed_table_is_recorded_with_what_was_done(flavour, own_server, tmp_path) -> None:
    server = own_server(flavour)
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        for name in ("kept", "gone", "old", "other"):
            cursor.execute(f"CREATE TABLE shop.{name} (id INT PRIMARY KEY, v VARCHAR(100))")
        cursor.execute("CREATE TABLE shop.people (id INT PRIMARY KEY, email VARCHAR(100))")
        password = ensure_replicator(server, [EVERY_SCHEMA])
        include = ["shop.kept", "shop.gone", "shop.old", "shop.new", "shop.people"]
        lake = Sparkless(tmp_path, password, include)
        lake.tables = {"shop.people": {"exclude_columns": ["email"]}}
        lake.run(url_of(server))
        assert recorded(lake) == []
        for statement in (
            "ALTER TABLE shop.kept ADD COLUMN w INT",
            "ALTER TABLE shop.kept MODIFY v VARCHAR(200)",
            "ALTER TABLE shop.kept MODIFY v VARCHAR(50)",
            "TRUNCATE TABLE shop.kept",
            "ALTER TABLE shop.people ALTER email SET DEFAULT 'jane@example.com' /* jane@example.com */",
            "DROP TABLE shop.gone",
            "RENAME TABLE shop.old TO shop.new",
            "ALTER TABLE shop.other ADD COLUMN w INT",
        ):
            cursor.execute(statement)
        lake.run(url_of(server))
        lake.run(url_of(server))
    found = recorded(lake)
    assert [(r["table"], r["change"], r["done"]) for r in found] == [
        ("kept", "alter table", "followed"),
        ("kept", "alter table", "followed"),
        ("kept", "alter table", "read again"),
        ("kept", "truncate", "followed"),
        ("people", "alter table", "followed"),
        ("gone", "drop table", "stopped"),
        ("old", "rename table", "stopped"),
    ]
    assert found[0]["statement"] == "ALTER TABLE shop.kept ADD COLUMN w INT"
    assert "jane" not in str(found)
    assert found[-3]["statement"].startswith("ALTER TABLE shop . people ALTER email SET DEFAULT ?")
    assert all(r["ts_ms"] > 0 and r["transaction_id"] and r["source"]["pos"] > 0 for r in found)


def test_a_batch_that_is_landed_again_adds_nothing(spark, tmp_path) -> None:
    lake = Lake(str(tmp_path / "lake"))
    source = {"server": "s", "epoch": 1, "file": 3, "pos": 4, "gtid": ""}
    change: dict[str, Any] = {
        "schema": "shop",
        "table": "t",
        "change": "truncate",
        "done": "followed",
        "statement": "TRUNCATE t",
    }
    change |= {"ts_ms": 5, "source": source, "transaction_id": "3:4"}
    for batch in (7, 7, 8):
        schema_changes.land(spark, lake, [change], batch=batch)
    rows = spark.read.format("delta").load(lake.table("bronze", schema_changes.TABLE)).collect()
    assert len(rows) == 2
    assert rows[0].asDict(recursive=True) == change
