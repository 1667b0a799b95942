"""A merge into gold writes those files anew that hold a changed key, and no other, whatever the keys are."""

from __future__ import annotations

import importlib

import pyarrow.parquet as pq
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
    shop.spark.sql(f"UPDATE {trips} SET status = 'done' WHERE id IN (11, 14, 25)")
    shop.spark.sql(f"DELETE FROM {trips} WHERE id = 12")
    shop.spark.sql(f"INSERT INTO {trips} SELECT id, 'late', 1, 't', 0 FROM range(100, 103)")
    assert shop.publish().tables == {"shop.trips": "merged"}
    after = files(shop, "shop.trips")
    assert len(before.keys() & after.keys()) == 1
    assert sum(n for path, n in after.items() if path not in before) == 9 + 10 + 3
    assert [s.operation for s in shop.snapshots("shop.trips")] == ["overwrite", "append", "append", "overwrite"]
    shop.assert_mirrored()


@pytest.fixture
def in_groups(shop, monkeypatch):
    """A file of several row groups."""
    monkeypatch.setitem(gold.iceberg.PROPERTIES, "write.parquet.row-group-size-bytes", "200000")
    table = shop.create("trips", {"id": "bigint", "status": "varchar(40)"}, ["id"])
    shop.spark.sql(f"INSERT INTO {table} SELECT id, md5(CAST(id AS STRING)), 1, 't', 0 FROM range(0, 60000, 1, 1)")
    shop.publish()
    (path,) = files(shop, "shop.trips")
    assert pq.ParquetFile(path).num_row_groups > 3
    return table


def test_a_file_of_several_row_groups_is_written_anew_as_a_whole(shop, in_groups):
    """A merge finds the files by the keys' ranges; a reader that was given the ranges, too, would skip row groups."""
    shop.spark.sql(f"UPDATE {in_groups} SET status = 'done' WHERE id = 5")
    assert shop.publish().tables == {"shop.trips": "merged"}
    shop.assert_mirrored()


class ReadInPart:
    """A table whose data files are read without the row groups that a filter leaves out."""

    def __init__(self, table):
        self.table = table

    def newScan(self):
        return self

    def ignoreResiduals(self):
        return self.table.newScan()


def test_rows_that_were_not_read_are_missed_before_anything_is_published(shop, in_groups, monkeypatch):
    before, tasks = shop.published("shop.trips"), gold.overwrite._tasks
    monkeypatch.setattr(gold.overwrite, "_tasks", lambda s, table, spans: tasks(s, ReadInPart(table), spans))
    shop.spark.sql(f"UPDATE {in_groups} SET status = 'done' WHERE id = 5")
    with pytest.raises(TerminalError, match=r"gold wrote [\d,]+ rows of .*trips.* where 60,000 are due; none is"):
        shop.publish()
    assert shop.session().table(before.identifier).count() == before.rows
    monkeypatch.undo()
    assert shop.publish().tables == {"shop.trips": "merged"}
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
    schema = T.StructType.fromDDL("region STRING, part BINARY, n DECIMAL(6,2), rate DOUBLE, k BIGINT, note STRING")

    def frame(*rows: str):
        return session.sql(f"SELECT * FROM VALUES {', '.join(rows)} AS t(region, part, n, rate, k, note)").to(schema)

    kept = "('kept', X'00ff', 1.5, 0.5, 1, 'a')"
    gone = (
        "('o''b', NULL, 1.5, 0.5, 7, 'b')",
        "(NULL, NULL, NULL, NULL, NULL, 'c')",
        "('', X'', 0, double('NaN'), 7, 'd')",
    )
    gold.iceberg.replace(frame(kept, gone[0], gone[2], "('ä`.', X'01', -2, -0.5, 8, 'e')"), name)
    frame(gone[1]).writeTo(name).append()  # in a file of its own, which no range of numbers leads to
    changed = frame("('ä`.', X'01', -2, -0.5, 8, 'changed')", "('new', NULL, NULL, 1, NULL, 'new')")
    keys = changed.unionAll(frame(*gone)).drop("note")
    overwrite = gold.overwrite.Overwrite(keys.localCheckpoint(), name)
    found = {row[0]: row[1] for row in overwrite.found().groupBy(gold.overwrite.FILE).count().collect()}
    overwrite.commit(changed.localCheckpoint(), found)
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


@pytest.fixture
def marks(shop):
    """A table without a key in three files: 1, 2, 2 and 3 in the first and the second, 5 and 6 in the third."""
    table = shop.create("marks", {"n": "bigint", "rate": "double", "note": "varchar(20)"}, [])
    for values in ("(1), (2), (2), (3)", "(1), (2), (2), (3)", "(5), (6)"):
        shop.spark.sql(f"INSERT INTO {table} SELECT n, n / 4D, NULL, 1, 't', 0 FROM VALUES {values} AS t(n)")
        shop.publish()
    assert sorted(files(shop, "shop.marks").values()) == [2, 4, 4]
    return table


def test_of_equal_rows_in_several_files_as_many_go_as_went(shop, marks, joined):
    before = files(shop, "shop.marks")
    rows = shop.spark.table(marks)
    # Silver's own way to delete one of equal rows: all of them go, and what is left is written again.
    shop.spark.sql(f"DELETE FROM {marks} WHERE n = 2")
    shop.spark.sql(f"INSERT INTO {marks} SELECT 2, 0.5D, NULL, 1, 't', 0 FROM range(3)")
    shop.spark.sql(f"INSERT INTO {marks} SELECT 5, 1.25D, NULL, 1, 't', 0 FROM range(2)")
    assert shop.publish().tables == {"shop.marks": "merged"}
    after = files(shop, "shop.marks")
    assert [before[path] for path in before.keys() & after.keys()] == [2]  # 5 only gained
    assert sum(after.values()) == 11 == rows.count()
    assert [s.operation for s in shop.snapshots("shop.marks")] == ["overwrite", "append", "append", "overwrite"]
    shop.assert_mirrored()


def test_rows_that_only_came_are_appended_to_a_table_without_a_key(shop, marks):
    before = files(shop, "shop.marks")
    shop.spark.sql(f"INSERT INTO {marks} SELECT 2, 0.5D, NULL, 1, 't', 0 FROM range(3)")
    assert shop.publish().tables == {"shop.marks": "merged"}
    assert before.keys() < files(shop, "shop.marks").keys()
    assert shop.snapshots("shop.marks")[-1].operation == "append"
    shop.assert_mirrored()


def test_rows_that_went_after_a_column_was_added_are_found_in_a_table_without_a_key(shop, marks, joined):
    shop.spark.sql(f"ALTER TABLE {marks} ADD COLUMN (Extra BIGINT FIRST, at TIMESTAMP)")
    shop.spark.sql(f"DELETE FROM {marks} WHERE n IN (1, 5)")
    shop.spark.sql(f"UPDATE {marks} SET Extra = 7 WHERE n = 3")
    assert shop.publish().tables == {"shop.marks": "merged"}
    shop.assert_mirrored()
    shop.spark.sql(f"DELETE FROM {marks} WHERE Extra = 7 OR n = 6")
    assert shop.publish().tables == {"shop.marks": "merged"}
    shop.assert_mirrored()


def test_the_zeros_of_a_table_without_a_key_are_told_apart(shop, joined):
    table = shop.create("zeros", {"rate": "double", "note": "varchar(20)", "f": "float", "v": "vector(1)"}, [])
    values = "(0D, 'a', 0F, 0F), (-0D, 'a', 0F, 0F), (0D, NULL, 0F, 0F), (0D, 'a', -0F, 0F), (0D, 'a', 0F, -0F)"
    shop.spark.sql(f"INSERT INTO {table} SELECT r, n, f, array(v), 1, 't', 0 FROM VALUES {values} AS t(r, n, f, v)")
    shop.publish()
    for left, column in ((4, "rate"), (3, "f"), (2, "v[0]")):
        shop.spark.sql(f"DELETE FROM {table} WHERE CAST({column} AS STRING) = '-0.0'")
        assert shop.publish().tables == {"shop.zeros": "merged"}
        found = shop.session().table(shop.published("shop.zeros").identifier).selectExpr(f"CAST({column} AS STRING)")
        assert [row[0] for row in found.collect()] == ["0.0"] * left


def test_large_values_are_not_broadcast(shop, marks, monkeypatch):
    monkeypatch.setattr(gold.overwrite, "BROADCAST_BYTES_MAX", 99)
    measured = []
    real = gold.overwrite._measured

    def kept(own):
        measured.append(real(own))
        return measured[-1]

    monkeypatch.setattr(gold.overwrite, "_measured", kept)
    shop.spark.sql(f"INSERT INTO {marks} VALUES (7, 1, '{'ä' * 20}', 1, 't', 0), (8, 1, '{'x' * 60}', 1, 't', 0)")
    shop.publish()
    shop.spark.sql(f"DELETE FROM {marks} WHERE n IN (2, 7, 8)")
    shop.publish()
    assert measured == [(0, 0), (3, 2 * 20 + 60 + 3 * (3 + 1))]  # each with a double, as text, and its transaction
    shop.assert_mirrored()
