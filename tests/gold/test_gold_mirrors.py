"""Mirrors: gold equals silver at the cut, whatever silver did, and changes only what changed."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pytest
from pyiceberg.table import StaticTable
from pyspark.errors import PySparkException

TRIPS = {"Id": "bigint", "status": "varchar(20)", "fare": "decimal(8,2)"}


def insert(shop, table: str, values: str) -> None:
    shop.spark.sql(f"INSERT INTO {table} {values}")


@pytest.fixture
def trips(shop):
    table = shop.create("trips", TRIPS, ["Id"])
    insert(shop, table, "SELECT id, 'new', id + 0.25, 1, 't', 0 FROM range(100)")
    shop.spark.sql(f"DELETE FROM {table} WHERE Id % 7 = 0")  # a deletion vector
    shop.publish()
    return table


def test_a_first_publication_holds_the_whole_state_of_a_table_with_deletion_vectors(shop, trips):
    shop.assert_mirrored()
    entry = shop.published("shop.trips")
    assert entry.location == f"{shop.lake.root}/gold/shop/trips"
    assert entry.metadata_file.startswith(entry.location + "/metadata/")
    assert [name for name, _ in entry.columns] == [
        "id",
        "status",
        "fare",
        "__ts_ms",
        "__transaction_id",
        "__transaction_order",
    ]


def test_inserts_updates_deletes_and_changed_keys_follow_the_change_feed_in_one_snapshot(shop, trips):
    insert(shop, trips, "SELECT id + 1000, 'new', 1, 1, 't', 0 FROM range(10)")
    shop.spark.sql(f"UPDATE {trips} SET status = 'done' WHERE Id % 3 = 0")
    shop.spark.sql(f"DELETE FROM {trips} WHERE Id % 5 = 0")
    insert(shop, trips, "SELECT 5, 'again', 5, 1, 't', 0")
    shop.spark.sql(f"UPDATE {trips} SET Id = 7777 WHERE Id = 1")
    report = shop.publish()
    assert report.tables == {"shop.trips": "merged"}
    assert len(shop.snapshots("shop.trips")) == 2
    shop.assert_mirrored()


def test_a_table_that_did_not_change_gets_no_snapshot_and_the_new_cut(shop, trips):
    before = shop.published("shop.trips")
    report = shop.publish()
    after = shop.published("shop.trips")
    assert report.tables == {"shop.trips": "unchanged"}
    assert report.published == 0
    assert after.metadata_file == before.metadata_file
    assert after.cut == shop.silver.cut != before.cut


def test_a_silver_version_without_row_changes_makes_no_snapshot(shop, trips):
    shop.spark.sql(f"OPTIMIZE {trips}")
    shop.spark.sql(f"ALTER TABLE {trips} SET TBLPROPERTIES ('x' = 'y')")
    assert shop.publish().tables == {"shop.trips": "unchanged"}
    insert(shop, trips, "SELECT 500, 'new', 1, 1, 't', 0")
    assert shop.publish().tables == {"shop.trips": "merged"}
    shop.assert_mirrored()


def test_a_key_rewritten_in_another_case_leaves_no_old_spelling(shop):
    table = shop.create("users", {"name": "varchar(20)", "n": "int"}, ["name"])
    insert(shop, table, "VALUES ('ann', 1, 1, 't', 0), ('bob', 1, 1, 't', 0)")
    shop.publish()
    shop.spark.sql(f"UPDATE {table} SET name = 'ANN', n = 2 WHERE name = 'ann'")
    shop.publish()
    shop.assert_mirrored()
    assert {r["name"] for r in shop.rows_of_gold("shop.users")} == {"ANN", "bob"}


def test_equal_rows_of_a_table_without_a_key_are_counted(shop):
    table = shop.create("log", {"word": "varchar(20)", "f": "double", "g": "point"}, [])
    point = "named_struct('srid', 0, 'wkb', X'0101')"
    for _ in range(3):
        insert(shop, table, f"VALUES ('a', 0.0D, {point}, 1, 't', 0), ('b', NULL, NULL, 1, 't', 0)")
    insert(shop, table, f"VALUES ('a', -0.0D, {point}, 1, 't', 0)")
    shop.publish()
    shop.assert_mirrored()
    insert(shop, table, f"VALUES ('a', 0.0D, {point}, 1, 't', 0), ('c', 1.5D, NULL, 1, 't', 0)")
    assert shop.publish().tables == {"shop.log": "merged"}  # rows came, none went: an append
    assert shop.snapshots("shop.log")[-1]["operation"] == "append"
    shop.assert_mirrored()
    # One of three equal rows goes, and another value's all but one.
    shop.spark.sql(f"DELETE FROM {table} WHERE word = 'b'")
    insert(
        shop, table, "VALUES ('b', NULL, NULL, 1, 't', 0), ('b', NULL, NULL, 1, 't', 0), ('d', 0.0D, NULL, 1, 't', 0)"
    )
    shop.spark.sql(f"DELETE FROM {table} WHERE word = 'c'")
    assert shop.publish().tables == {"shop.log": "merged"}
    shop.assert_mirrored()
    assert sorted(str(r["f"]) for r in shop.rows_of_gold("shop.log") if r["word"] == "a") == ["-0.0"] + ["0.0"] * 4


def test_rows_whose_key_is_a_zero_date_are_kept_apart(shop):
    table = shop.create("days", {"day": "date", "n": "int"}, ["day"])
    insert(shop, table, "VALUES (NULL, 1, 1, 't', 0), (NULL, 2, 1, 't', 0), (DATE'2020-01-01', 3, 1, 't', 0)")
    shop.publish()
    shop.assert_mirrored()
    shop.spark.sql(f"DELETE FROM {table} WHERE n = 1")
    insert(shop, table, "VALUES (NULL, 4, 1, 't', 0)")
    shop.publish()
    shop.assert_mirrored()


def test_an_added_column_is_added_in_place_with_and_without_changed_rows(shop, trips):
    shop.spark.sql(f"ALTER TABLE {trips} ADD COLUMN (Tip INT AFTER fare)")
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert [n for n, _ in shop.published("shop.trips").columns][2:4] == ["fare", "tip"]
    shop.assert_mirrored()
    shop.spark.sql(f"ALTER TABLE {trips} ADD COLUMN (note STRING AFTER Tip, first_one INT FIRST)")
    shop.spark.sql(f"UPDATE {trips} SET Tip = 3, note = 'x' WHERE Id = 2")
    assert shop.publish().tables == {"shop.trips": "merged"}
    shop.assert_mirrored()


def test_a_vacuumed_change_feed_means_a_rebuild_that_shows_no_empty_table(shop, trips):
    before = shop.published("shop.trips")
    shop.spark.sql(f"UPDATE {trips} SET status = 'x'")
    shop.spark.sql(f"DELETE FROM {trips} WHERE Id = 3")
    shutil.rmtree(f"{shop.lake.root}/silver/shop/trips/_change_data")
    report = shop.publish()
    assert report.tables == {"shop.trips": "rebuilt"}
    assert "feed" in report.rebuilt["shop.trips"]
    shop.assert_mirrored()
    totals = [int(s["summary"]["total-records"]) for s in shop.snapshots("shop.trips")]
    assert totals == [before.rows, before.rows - 1]


def test_gold_that_stood_still_for_longer_than_silver_keeps_removed_files_is_merged_into(shop, trips):
    shop.publish()
    shop.spark.sql(f"ALTER TABLE {trips} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")
    for status in ("late", "later", "done"):
        shop.spark.sql(f"UPDATE {trips} SET status = '{status}' WHERE id = 2")
    time.sleep(1.5)
    of_age = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
    shop.spark.conf.set(of_age, "true")
    with pytest.raises(PySparkException, match="DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND"):  # as any error of the feed's
        shop.publish()
    shop.spark.conf.set(of_age, "false")
    assert shop.publish().tables == {"shop.trips": "merged"}
    shop.assert_mirrored()


def test_a_new_generation_with_other_types_is_replaced_and_keeps_the_ids_of_columns_that_stay(shop, trips):
    before = StaticTable.from_metadata(shop.published("shop.trips").metadata_file)
    shop.spark.sql(
        "SELECT Id, CAST(status AS BINARY) AS status, 5 AS seats, __ts_ms, __transaction_id, __transaction_order "
        f"FROM {trips} WHERE Id > 50"
    ).localCheckpoint().write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(
        f"{shop.lake.root}/silver/shop/trips"
    )
    shop.silver.tables["shop.trips"].generation = 2
    report = shop.publish()
    assert report.tables == {"shop.trips": "rebuilt"}
    shop.assert_mirrored()
    after = StaticTable.from_metadata(shop.published("shop.trips").metadata_file)
    assert after.schema().find_field("id").field_id == before.schema().find_field("id").field_id
    assert len(after.snapshots()) == 2


def test_a_silver_table_created_anew_is_not_merged_from_the_middle_of_its_feed(shop, trips):
    shutil.rmtree(f"{shop.lake.root}/silver/shop/trips")
    shop.create("trips", TRIPS, ["Id"])
    for n in range(5):
        insert(shop, trips, f"SELECT {n}, 'other', 1, 1, 't', 0")
    report = shop.publish()
    assert report.tables == {"shop.trips": "rebuilt"}
    assert "anew" in report.rebuilt["shop.trips"]
    shop.assert_mirrored()


def test_a_mirror_that_another_program_wrote_is_rebuilt(shop, trips):
    name = shop.published("shop.trips").identifier
    shop.session().sql(f"DELETE FROM {name} WHERE id < 20")
    insert(shop, trips, "SELECT 500, 'new', 1, 1, 't', 0")
    assert shop.publish().tables == {"shop.trips": "rebuilt"}
    shop.assert_mirrored()


def test_a_compaction_of_the_mirror_is_not_taken_for_another_writer(shop, trips):
    insert(shop, trips, "SELECT 500, 'new', 1, 1, 't', 0")
    shop.publish()
    session = shop.session()
    session.sql("CALL gold.system.rewrite_data_files(table => 'shop.trips', options => map('rewrite-all', 'true'))")
    insert(shop, trips, "SELECT 501, 'new', 1, 1, 't', 0")
    assert shop.publish().tables == {"shop.trips": "merged"}
    shop.assert_mirrored()


def test_soft_deleted_rows_are_mirrored_as_they_are(shop):
    table = shop.create("kept", {"id": "int"}, ["id"])
    shop.spark.sql(f"ALTER TABLE {table} ADD COLUMN (__deleted BOOLEAN)")
    insert(shop, table, "VALUES (1, 1, 't', 0, false), (2, 1, 't', 0, false)")
    shop.publish()
    shop.spark.sql(f"UPDATE {table} SET __deleted = true WHERE id = 2")
    shop.publish()
    shop.assert_mirrored()


def test_names_that_paths_and_sql_cannot_hold_plainly_are_mirrored(shop):
    table = shop.create("order items", {"no.": "int", "it`s": "varchar(9)", "a b": "int"}, ["no."], schema="My Shop")
    insert(shop, table, "VALUES (1, 'x', 2, 1, 't', 0), (2, 'y', 3, 1, 't', 0)")
    shop.publish()
    shop.spark.sql(f"DELETE FROM {table} WHERE `no.` = 1")  # Delta's own UPDATE fails on a backtick in a name
    insert(shop, table, "VALUES (1, 'z', 9, 1, 't', 0)")
    assert shop.publish().tables == {"My Shop.order items": "merged"}
    shop.assert_mirrored()
    assert shop.published("My Shop.order items").location.endswith("/gold/My-20-Shop/order-20-items")


def test_only_the_tables_that_the_configuration_picks_are_mirrored(shop):
    for name in ("trips", "secrets"):
        insert(shop, shop.create(name, {"id": "int"}, ["id"]), "VALUES (1, 1, 't', 0)")
    shop.config = replace(shop.config, gold=replace(shop.config.gold, mirror=("shop.t*",)))
    assert shop.publish().tables == {"shop.trips": "created"}
    shop.config = replace(shop.config, gold=replace(shop.config.gold, mirror=("shop.s*",)))
    report = shop.publish()
    assert (report.tables, report.withdrawn) == ({"shop.secrets": "created"}, ["shop.trips"])


def test_an_empty_table_is_mirrored_and_filled_later(shop):
    table = shop.create("empty", {"id": "int"}, ["id"])
    shop.publish()
    shop.assert_mirrored()
    insert(shop, table, "VALUES (1, 1, 't', 0)")
    shop.publish()
    shop.assert_mirrored()
