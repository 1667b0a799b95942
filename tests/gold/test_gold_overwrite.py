"""A merge into gold writes those files anew that hold a changed key, and no other, whatever the keys are."""

from __future__ import annotations

import importlib

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import types as T

import gold.iceberg
import gold.overwrite
from lakeward.errors import TerminalError
from lakeward.jvm import java_class

TRIPS = {"id": "bigint", "status": "varchar(20)"}


def files(shop, table: str) -> dict[str, int]:
    """The data files of a published table and the rows in each."""
    read = StaticTable.from_metadata(shop.published(table).metadata_file).inspect.files()
    return dict(zip(read["file_path"].to_pylist(), read["record_count"].to_pylist(), strict=True))


@pytest.fixture
def trips(shop):
    """Three files, of ten keys each: a publication of new rows alone leaves the files before it as they are."""
    table = shop.create("trips", TRIPS, ["id"])
    seen: set[str] = set()
    for first in (0, 10, 20):
        shop.spark.sql(f"INSERT INTO {table} SELECT id, 'new', 1, 't', 0 FROM range({first}, {first + 10})")
        shop.publish()
        assert seen < set(files(shop, "shop.trips"))
        seen = set(files(shop, "shop.trips"))
    assert sorted(files(shop, "shop.trips").values()) == [10, 10, 10]
    return table


@pytest.fixture(params=["broadcast", "shuffled"])
def joined(request, monkeypatch):
    if request.param == "shuffled":
        monkeypatch.setattr(gold.overwrite, "BROADCAST_ROWS_MAX", 0)


def test_only_files_with_a_changed_key_are_written_anew(shop, trips, joined):
    before = files(shop, "shop.trips")
    shop.spark.sql(f"UPDATE {trips} SET status = 'done' WHERE id IN (11, 14)")
    shop.spark.sql(f"DELETE FROM {trips} WHERE id = 12")
    shop.spark.sql(f"INSERT INTO {trips} SELECT id, 'late', 1, 't', 0 FROM range(100, 103)")
    assert shop.publish().tables == {"shop.trips": "merged"}
    after = files(shop, "shop.trips")
    assert len(before.keys() & after.keys()) == 2
    assert sum(n for path, n in after.items() if path not in before) == 9 + 3
    assert [s.operation for s in shop.snapshots("shop.trips")] == ["overwrite", "append", "append", "overwrite"]
    shop.assert_mirrored()


def test_a_key_that_came_and_went_between_two_publications_changes_no_file(shop, trips):
    before = files(shop, "shop.trips")
    shop.spark.sql(f"INSERT INTO {trips} VALUES (50, 'short', 1, 't', 0)")
    shop.spark.sql(f"DELETE FROM {trips} WHERE id = 50")
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert files(shop, "shop.trips") == before
    assert shop.publish().tables == {"shop.trips": "unchanged"}


def test_keys_of_several_columns_and_without_a_value_find_their_rows(shop, joined):
    """As a mart's may be; a mirror's keys have values."""
    session = shop.session()
    name = gold.iceberg.identifier(session, "marts", "names")
    schema = T.StructType.fromDDL("region STRING, part BINARY, n DECIMAL(6,2), rate DOUBLE, note STRING")

    def frame(*rows: str):
        return session.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(region, part, n, rate, note)").to(schema)

    kept = "('kept', X'00ff', 1.5, 0.5, 'a')"
    gone = ("('o''b', NULL, 1.5, 0.5, 'b')", "(NULL, NULL, NULL, NULL, 'c')", "('', X'', 0, double('NaN'), 'd')")
    gold.iceberg.replace(frame(kept, *gone, "('ä`.', X'01', -2, -0.5, 'e')"), name)
    changed = frame("('ä`.', X'01', -2, -0.5, 'changed')", "('new', NULL, NULL, 1, 'new')")
    keys = changed.unionAll(frame(*gone)).drop("note")
    gold.overwrite.overwrite(keys.localCheckpoint(), changed.localCheckpoint(), name)
    assert sorted(r.note for r in session.table(name).collect()) == ["a", "changed", "new"]


@pytest.mark.parametrize("before", ["gold.overwrite._spans", "gold.iceberg.commit_files"])
def test_what_another_program_commits_meanwhile_is_not_written_over(shop, trips, monkeypatch, before):
    module, _, called = before.rpartition(".")
    real = getattr(importlib.import_module(module), called)

    def late(*arguments):
        shop.session().sql(f"INSERT INTO {shop.published('shop.trips').identifier} VALUES (11, 'theirs', 1, 't', 0)")
        return real(*arguments)

    monkeypatch.setattr(before, late)
    shop.spark.sql(f"UPDATE {trips} SET status = 'done' WHERE id = 11")
    shop.cut()
    with pytest.raises(TerminalError, match="another program has changed"):
        shop.gold()
    monkeypatch.undo()
    assert [s.operation for s in shop.snapshots("shop.trips")] == ["overwrite"] + ["append"] * 3  # theirs the last
    assert shop.gold().tables == {"shop.trips": "rebuilt"}
    shop.assert_mirrored()


def test_what_was_staged_for_a_merge_is_forgotten_after_it(shop, trips):
    shop.spark.sql(f"UPDATE {trips} SET status = 'done' WHERE id = 11")
    shop.publish()
    table = gold.iceberg.load(shop.session(), shop.published("shop.trips").identifier)
    for name in ("FileRewriteCoordinator", "ScanTaskSetManager"):
        kept = java_class(shop.spark, f"org.apache.iceberg.spark.{name}").get()
        assert kept.fetchSetIds(table).isEmpty()
