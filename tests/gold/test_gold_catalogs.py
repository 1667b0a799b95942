"""Gold in a catalog that is no folder, rebuilds that are asked for, and catalogs that are refused."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from servers.iceberg_rest import rest_catalog

import gold.maintenance
from lakeward import catalog
from lakeward.config import Gold, parse
from lakeward.errors import ConfigError, UsageError
from lakeward.storage import sdk


def test_a_rest_catalog_publishes_merges_and_is_maintained_and_files_lie_where_they_always_do(
    shop, duckdb, monkeypatch, tmp_path
):
    monkeypatch.setenv("CATALOG_TOKEN", "the-token")
    with rest_catalog(tmp_path) as server:
        own = replace(shop.config.gold, catalog="rest", uri=server.uri, properties={"token": "env:CATALOG_TOKEN"})
        shop.config = replace(shop.config, gold=own)
        name = "My Shop.order items"
        table = shop.create("order items", {"id": "int", "n": "int"}, ["id"], schema="My Shop")
        shop.spark.sql(f"INSERT INTO {table} SELECT /*+ REPARTITION(6) */ CAST(id AS INT), 1, 1, 't', 0 FROM range(12)")
        assert shop.publish().tables == {name: "created"}
        first = shop.published(name).metadata_file
        shop.spark.sql(f"UPDATE {table} SET n = 2 WHERE id < 3")
        assert shop.publish().tables == {name: "merged"}
        shop.assert_mirrored()
        shop.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
        swap = ("RENAME COLUMN n TO `n.o`", "ADD COLUMN n INT", "RENAME COLUMN n TO m", "RENAME COLUMN `n.o` TO n")
        for clause in (*swap, "ADD COLUMN `n.o` INT"):
            shop.spark.sql(f"ALTER TABLE {table} {clause}")
        shop.spark.sql(f"UPDATE {table} SET m = 2, `n.o` = 3 WHERE id < 3")
        assert shop.publish().tables == {name: "merged"}
        shop.assert_mirrored()
        stray = Path(shop.published(name).location, "data", "of-a-killed-run.parquet")
        stray.write_bytes(b"orphan")
        os.utime(stray, (1, 1))
        now_ms = shop.published(name).published_ms + shop.config.lake.keep_days * gold.maintenance.DAY_MS
        report = gold.maintenance.run(shop.spark, shop.lake, shop.config, now_ms=now_ms)
        assert (report.expired >= 1, report.orphans, stray.exists()) == (True, 1, False)
        shop.assert_mirrored()
        assert set(shop.gold().tables.values()) == {"unchanged"}
        entry = shop.published(name)
        assert entry.location == f"{shop.lake.root}/gold/My-20-Shop/order-20-items"
        assert entry.metadata_file != first
        assert entry.metadata_file.removeprefix("file:").startswith(entry.location + "/metadata/")
        assert duckdb(f"SELECT sum(n) FROM iceberg_scan('{entry.metadata_file}')") == [["15"]]
        assert {token for _, _, token in server.seen} == {"Bearer the-token"}
        assert ("POST", "/v1/namespaces/My-20-Shop/tables/order-20-items") in {seen[:2] for seen in server.seen}
        assert "the-token" not in json.dumps(shop.lake.read("gold"))


def test_a_rebuild_that_is_asked_for_replaces_the_table_in_one_commit(shop):
    table = shop.create("trips", {"id": "int", "n": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} SELECT CAST(id AS INT), 1, 1, 't', 0 FROM range(10)")
    shop.config.path("models").joinpath("total.sql").write_text("SELECT sum(n) AS n FROM shop.trips")
    shop.publish()
    name = shop.published("shop.trips").identifier
    before = shop.published("shop.trips")
    shop.session().sql(f"DELETE FROM {name} WHERE id = 3")  # somebody's hand: nothing in silver says so
    with pytest.raises(UsageError, match=r"gold publishes no table shop\.trip\n"):
        shop.gold(rebuild=["shop.trip"])
    report = shop.gold(rebuild=["shop.trips"])
    assert report.tables == {"shop.trips": "rebuilt", "marts.total": "rebuilt"}
    assert report.rebuilt == {"shop.trips": "it was asked for"}
    shop.assert_mirrored()
    # No snapshot in between, empty or half: the one of the first run, the stray delete, the rebuild.
    rows = [int(s["summary"]["total-records"]) for s in shop.snapshots("shop.trips")]
    assert rows == [10, 9, 10]
    assert shop.published("shop.trips").columns == before.columns
    assert shop.gold(rebuild=["marts.total"]).tables == {"shop.trips": "unchanged", "marts.total": "rebuilt"}


@pytest.mark.parametrize(
    ("gold", "said"),
    [
        ({"catalog": "glue", "uri": "http://x"}, "goes with catalog"),
        ({"catalog": "jdbc"}, "needs a uri"),
        ({"catalog": "rest"}, "needs a uri"),
        ({"uri": "http://x"}, "goes with catalog"),
    ],
)
def test_a_catalog_that_cannot_be_meant_is_refused(gold, said):
    with pytest.raises(ConfigError, match=said):
        catalog.check(Gold(**gold))


def test_a_catalogs_secret_is_named_and_never_written(monkeypatch):
    with pytest.raises(ConfigError, match=r"jdbc\.password holds a literal") as error:
        parse({"gold": {"properties": {"jdbc.password": "hunter2"}}})
    assert "hunter2" not in str(error.value)
    monkeypatch.setenv("CATALOG_PASSWORD", "hunter2")
    asked = {"catalog": "jdbc", "uri": "jdbc:sqlite:/c.db", "properties": {"jdbc.password": "env:CATALOG_PASSWORD"}}
    config = parse({"gold": asked})
    assert "hunter2" not in repr(config)
    settings = catalog.settings(config.gold, "/lake")
    assert settings["spark.sql.catalog.gold.jdbc.password"] == "hunter2"
    assert settings["spark.sql.catalog.gold.warehouse"] == "/lake/gold"
    assert catalog.artifacts(config.gold) == (catalog.SQLITE,)


def test_files_by_what_a_server_hands_out_are_reached_by_awss_own_clients():
    asked = {"catalog": "rest", "uri": "https://catalog.example.com"}
    own = parse({"gold": asked}).gold
    assert catalog.artifacts(own) == ()
    assert catalog.settings(own, "s3a://b/lake")["spark.sql.catalog.gold.io-impl"].endswith(".HadoopFileIO")
    vended = parse({"gold": {**asked, "properties": {"io-impl": catalog.S3_FILES}}}).gold
    assert set(sdk(("kms", "url-connection-client"))) <= set(catalog.artifacts(vended))
    settings = catalog.settings(vended, "s3a://b/lake")
    assert settings["spark.sql.catalog.gold.io-impl"] == catalog.S3_FILES
    assert settings["spark.sql.catalog.gold.http-client.type"] == "urlconnection"
    chosen = {"io-impl": catalog.S3_FILES, "http-client.type": "apache"}
    settings = catalog.settings(parse({"gold": {**asked, "properties": chosen}}).gold, "s3a://b/lake")
    assert settings["spark.sql.catalog.gold.http-client.type"] == "apache"
