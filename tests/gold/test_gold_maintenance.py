"""Maintenance alters no row, and nothing that a reader may hold is gone before its time."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable
from servers.killed import killed_at

import gold.maintenance
from bronze.commit import ensure_table
from gold import iceberg
from gold.state import load_gold
from lakeward import crash
from lakeward.cli.app import App
from lakeward.cli.maintain import maintain
from lakeward.errors import LockedError, TerminalError, UsageError
from lakeward.names import TableName
from lakeward.position import Position
from lakeward.state import load_silver, save_bronze

DAY_MS = gold.maintenance.DAY_MS


def rows(metadata_file: str) -> int:
    return int(StaticTable.from_metadata(metadata_file).scan().to_arrow().num_rows)


def publish_often(shop: Any, times: int) -> list[tuple[str, int, int]]:
    """A table that was published so many times, and a mart over it: (metadata file, its rows, when committed) of each.

    Six files at least, which is more than maintenance lets stand.
    """
    table = shop.create("trips", {"id": "int"}, ["id"])
    shop.config.path("models").joinpath("total.sql").write_text("SELECT count(*) AS n FROM shop.trips")
    seen = []
    for n in range(times):
        shop.spark.sql(
            f"INSERT INTO {table} SELECT /*+ REPARTITION({6 // times}) */"
            f" CAST(id + {n * 10} AS INT), 1, 't', 0 FROM range(10)"
        )
        shop.publish()
        entry = shop.published("shop.trips")
        seen.append((entry.metadata_file, entry.rows, entry.published_ms))
    return seen


def run(shop, **options: Any) -> gold.maintenance.MaintenanceReport:
    return gold.maintenance.run(shop.spark, shop.lake, shop.config, **options)


def test_what_was_published_within_the_window_is_read_before_during_and_after(shop, monkeypatch):
    seen = publish_often(shop, 6)
    read: list[int] = []

    def reached(name: str) -> None:
        if name == "maintain.after_compaction" and not read:
            read.extend(rows(file) for file, _, _ in seen)

    monkeypatch.setattr(crash, "point", reached)
    data = Path(shop.published("shop.trips").location) / "data"
    before, young = len(list(data.glob("*.parquet"))), data / "young.parquet"
    young.write_bytes(b"a write that has not been committed")
    report = run(shop)
    assert read == [n for _, n, _ in seen]
    assert (report.expired, report.orphans) == (0, 0)
    assert report.compacted >= 2  # the Iceberg mirror, and its silver table
    assert load_silver(shop.lake).tables["shop.trips"].version == shop.version(TableName("shop", "trips"))
    assert [rows(file) for file, _, _ in seen] == read
    assert len(list(data.glob("*.parquet"))) == before + 2
    now = shop.published("shop.trips")
    assert rows(now.metadata_file) == 60
    assert now.metadata_file != seen[-1][0]
    fresh = {r["table_name"]: r["metadata_file"] for r in shop.rows_of_gold("lakeward.freshness")}
    assert fresh["trips"] == now.metadata_file
    # Other files with the same rows: nothing to merge, to compute or to export.
    report = shop.publish()
    assert set(report.tables.values()) == {"unchanged"}
    assert report.exported == []
    shop.assert_mirrored()
    shop.gold(rebuild=["shop.trips"])
    shop.assert_mirrored()

    # Days later: the snapshot that was current when the window begins is kept, those before it are not.
    third = seen[2][2]
    young.unlink()
    stray = data / "of-a-killed-run.parquet"
    stray.write_bytes(b"orphan")
    os.utime(stray, (third / 1000 - 7200, third / 1000 - 7200))
    late = data / "by-a-slow-clock.parquet"  # the store's clock may be behind
    late.write_bytes(b"of a snapshot that is kept")
    os.utime(late, (third / 1000 - 1800, third / 1000 - 1800))
    known: list[bool] = []

    def actions(session: Any) -> Any:
        stands = iceberg.standing(session, shop.published("shop.trips").identifier)
        known.append(stands is not None and stands.metadata_file == shop.published("shop.trips").metadata_file)
        return real(session)

    real = iceberg.actions
    monkeypatch.setattr(iceberg, "actions", actions)
    monkeypatch.setattr(gold.maintenance, "FILES_MIN", 2)  # the file of this publication, and that of the others
    shop.spark.sql(f"INSERT INTO {shop.sql_name(TableName('shop', 'trips'))} VALUES (100, 1, 't', 0)")
    shop.publish()
    report = run(shop, now_ms=third + 1 + shop.config.lake.keep_days * DAY_MS)
    assert report.expired >= 2
    assert report.compacted
    assert known
    assert all(known)  # before anything goes, gold.json names what the compaction has made
    assert not stray.exists()
    assert late.exists()
    assert [rows(file) for file, _, _ in seen[2:]] == [30, 40, 50, 60]
    with pytest.raises(FileNotFoundError):
        rows(seen[0][0])
    shop.assert_mirrored()

    # Later still there is but the compaction's own snapshot, and it says what it holds: the mirror goes on from it.
    run(shop, now_ms=int(time.time() * 1000) + 2 * shop.config.lake.keep_days * DAY_MS)
    assert len(shop.snapshots("shop.trips")) == 1
    shop.spark.sql(f"DELETE FROM {shop.sql_name(TableName('shop', 'trips'))} WHERE id = 7")
    assert shop.publish().tables == {"shop.trips": "merged", "marts.total": "rebuilt"}
    shop.assert_mirrored()


def test_a_run_that_dies_leaves_whole_tables_and_the_next_makes_up_for_it(shop):
    seen = publish_often(shop, 1)
    for point in ("maintain.after_optimize", "maintain.after_compaction"):
        with killed_at(point):
            run(shop)
        assert rows(seen[-1][0]) == 10
        shop.spark.sql(f"DELETE FROM {shop.sql_name(TableName('shop', 'trips'))} WHERE id = {len(point) % 10}")
        shop.publish()
        shop.assert_mirrored()
    run(shop)
    shop.assert_mirrored()
    assert load_gold(shop.lake).intent is None


def test_only_events_that_no_stage_can_read_again_leave_bronze(shop):
    shop.create("trips", {"id": "int"}, ["id"])
    table = shop.bronze.tables["shop.trips"]
    table.generation, table.start = 2, Position(1, 5, 100)
    shop.cut()
    location = shop.lake.table("bronze", table.name)
    ensure_table(shop.spark, location, table.schema)
    now = int(time.time() * 1000)

    def event(n: int, ms: int, **source: Any) -> dict[str, Any]:
        place = {"epoch": 1, "file": 5, "pos": 0, "row": n, "snapshot": False, "generation": 0, **source}
        return {"op": "c", "after": {"id": n}, "ts_ms": ms, "source": place}

    old = now - 40 * DAY_MS
    events = [
        event(1, old, file=4),  # before the snapshot: nobody reads it
        event(2, old, snapshot=True, generation=1),
        event(3, old, snapshot=True, generation=2),  # of the present snapshot
        event(4, old, pos=100),  # since it began
        event(5, now, file=4),  # too young
    ]
    schema = shop.spark.read.format("delta").load(location).schema
    shop.spark.createDataFrame(events, schema).write.format("delta").mode("append").save(location)

    def append_only() -> str:
        said = shop.spark.sql(f"SHOW TBLPROPERTIES delta.`{location}`").collect()
        return str({r["key"]: r["value"] for r in said}["delta.appendOnly"])

    # What a run leaves that is killed while it removes events.
    shop.spark.sql(f"ALTER TABLE delta.`{location}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    assert (run(shop).forgotten, append_only()) == (0, "true")
    shop.config = replace(shop.config, lake=replace(shop.config.lake, bronze_days=30))
    table.status = "snapshot"  # it is being read again: until that is whole, its rows are those of these events
    shop.save()
    assert run(shop).forgotten == 0
    table.status = "streaming"
    shop.save()
    assert run(shop).forgotten == 2
    left = shop.spark.read.format("delta").load(location)
    assert sorted(r["row"] for r in left.select("source.row").collect()) == [3, 4, 5]
    assert append_only() == "true"


def test_maintenance_waits_for_nobody_and_begins_nothing_beside_a_run_that_is_half_done(shop):
    shop.cut()
    shop.config.folder.joinpath("lakeward.toml").write_text('[lake]\nroot = "lake"\n')
    app = App(str(shop.config.folder / "lakeward.toml"))
    with shop.lake.lock("run"), pytest.raises(LockedError, match="lakeward run"):
        maintain(app, argparse.Namespace(tables=[]))
    with pytest.raises(UsageError, match=r"no table shop\.none"):
        run(shop, tables=["shop.none"])
    shop.bronze.intent = {"batch": 1}
    save_bronze(shop.lake, shop.bronze)
    with pytest.raises(TerminalError, match="a run of bronze has not ended"):
        run(shop)


def test_a_mart_goes_on_reading_a_history_whose_files_were_put_together(shop):
    shop.create("trips", {"id": "int"}, ["id"])
    shop.config.path("models").joinpath("versions.sql").write_text("SELECT count(*) AS n FROM shop.trips__history")
    history = shop.lake.table("silver", shop.bronze.tables["shop.trips"].name, "__history")
    for n in range(6):
        shop.spark.range(n, n + 1).write.format("delta").mode("append").save(history)
    shop.silver.tables["shop.trips"].beside["__history"] = 5
    shop.publish()
    shop.config = replace(shop.config, lake=replace(shop.config.lake, keep_days=0))
    assert run(shop).compacted == 1
    assert len(list(Path(history).glob("*.parquet"))) == 1
    assert load_silver(shop.lake).tables["shop.trips"].beside == {"__history": 6}
    assert shop.gold().tables["marts.versions"] == "unchanged"
    shop.gold(rebuild=["marts.versions"])
    assert [r["n"] for r in shop.rows_of_gold("marts.versions")] == [6]


def test_nothing_is_removed_that_a_later_stage_has_yet_to_read(shop):
    table = shop.create("trips", {"id": "int"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} SELECT CAST(id AS INT), 1, 't', 0 FROM range(10)")
    shop.publish()
    shop.spark.sql(f"DELETE FROM {table} WHERE id = 3")
    shop.cut()
    name = shop.bronze.tables["shop.trips"].name
    bronze, silver = (shop.lake.table(layer, name) for layer in ("bronze", "silver"))
    ensure_table(shop.spark, bronze, shop.bronze.tables["shop.trips"].schema)
    strays = [Path(location, "stray.parquet") for location in (bronze, silver)]
    for stray in strays:
        stray.write_bytes(b"of a killed run")
        os.utime(stray, (1, 1))
    young = [stray.with_name("young.parquet") for stray in strays]
    for file in young:  # as old as what a reader of an earlier version may be in
        file.write_bytes(b"replaced")
        age = time.time() - (shop.config.lake.keep_days - 1) * 86_400
        os.utime(file, (age, age))
    assert set(run(shop, unlanded={"shop.trips"}).kept) == {bronze, silver}
    assert all(stray.exists() for stray in strays)
    assert shop.publish().tables == {"shop.trips": "merged"}  # by the change feed, which is all there
    shop.assert_mirrored()
    assert run(shop).kept == {}
    assert not any(stray.exists() for stray in strays)
    assert all(file.exists() for file in young)

    # More days than Delta keeps of itself, and fewer.
    for days in (30, 3):
        shop.config = replace(shop.config, lake=replace(shop.config.lake, keep_days=days))
        for file in young:
            age = time.time() - (days - 1) * 86_400
            os.utime(file, (age, age))
        run(shop)
        assert all(file.exists() for file in young)
        for location in (bronze, silver):
            said = {r["key"]: r["value"] for r in shop.spark.sql(f"SHOW TBLPROPERTIES delta.`{location}`").collect()}
            assert said["delta.deletedFileRetentionDuration"] == f"interval {max(days, 7)} days"
    assert shop.gold().tables == {"shop.trips": "unchanged"}
    shop.assert_mirrored()
