"""Columns that silver renamed, dropped, added, widened: the mirror follows by Iceberg's ALTER, and keeps field ids."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.table import StaticTable
from servers.killed import killed_at

import gold.overwrite
from gold.columns import Change, Field, Followed, Silver, compared
from lakeward.errors import TerminalError

MAPPED = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
COLUMNS = {"Id": "int", "n": "int", "m": "int", "f": "float", "d": "decimal(8,2)", "word": "varchar(20)"}


def ids(shop, table: str) -> dict[str, int]:
    """The field ids of a published table's columns."""
    read = StaticTable.from_metadata(shop.published(table).metadata_file)
    return {field.name: field.field_id for field in read.schema().fields}


def alter(shop, table: str, *clauses: str) -> None:
    for clause in clauses:
        shop.spark.sql(f"ALTER TABLE {table} {clause}")


def assert_followed(shop, name: str, duckdb=None) -> None:
    """Gold is silver in rows and columns, as Spark, PyIceberg and DuckDB read it."""
    shop.assert_mirrored(name)
    silver = shop.spark.table(shop.sql_name(shop.bronze.tables[name].name))
    entry = shop.published(name)
    assert [(c.lower(), kind) for c, kind in silver.dtypes] == list(entry.columns)
    rows = sorted(repr(tuple(r)) for r in silver.collect())
    read = StaticTable.from_metadata(entry.metadata_file)
    arrow = read.scan().to_arrow()
    assert sorted(repr(tuple(r.values())) for r in arrow.to_pylist()) == rows
    now = read.current_snapshot()
    assert now is not None
    assert now.schema_id == read.schema().schema_id
    if duckdb is not None:
        said = duckdb(f"SELECT * FROM iceberg_scan('{entry.metadata_file}')")
        texts = silver.selectExpr(*[f"coalesce(CAST(`{c}` AS STRING), 'None') AS `{c}`" for c in silver.columns])
        assert sorted(map(tuple, said)) == sorted(map(tuple, texts.collect()))


@pytest.fixture
def trips(shop):
    table = shop.create("trips", COLUMNS, ["Id"])
    rows = "CAST(id AS INT), id * 10, id * 100, CAST(id / 4 AS FLOAT), id + 0.25, 'x', 1, 't', 0 FROM range(8)"
    shop.spark.sql(f"INSERT INTO {table} SELECT {rows}")
    shop.publish()
    return table


def test_several_alters_with_changes_between_them_are_followed_in_one_commit(shop, trips, duckdb):
    before, file = ids(shop, "shop.trips"), shop.published("shop.trips").metadata_file
    shop.spark.sql(f"UPDATE {trips} SET n = 1, word = 'before' WHERE Id = 1")
    shop.spark.sql(f"DELETE FROM {trips} WHERE Id = 2")
    alter(shop, trips, MAPPED, "RENAME COLUMN word TO `the word`", "RENAME COLUMN Id TO Nr", "DROP COLUMN m")
    shop.spark.sql(f"UPDATE {trips} SET n = 3, `the word` = 'between' WHERE Nr = 3")
    alter(shop, trips, "ADD COLUMN (m STRING FIRST, word INT AFTER n)")
    shop.spark.sql(f"UPDATE {trips} SET m = 'new', word = 7 WHERE Nr IN (1, 4)")
    for clause in ("n TYPE BIGINT", "f TYPE DOUBLE", "d TYPE DECIMAL(12,2)", "Nr TYPE BIGINT"):
        alter(shop, trips, f"ALTER COLUMN {clause}")
    shop.spark.sql(f"INSERT INTO {trips} VALUES ('m', 9000000000, 8000000000, 1, 0.1D, 1234567890.12, 'w', 1, 't', 0)")
    source, name = shop.bronze.tables["shop.trips"], "Nr"
    columns = tuple(replace(c, name=name) if c.name == "Id" else c for c in source.schema.columns)
    source.schema = replace(source.schema, columns=columns, keys=(name,))
    shop.silver.tables["shop.trips"].keys = [name]
    report = shop.publish()
    assert (report.tables, report.rebuilt) == ({"shop.trips": "merged"}, {})
    assert_followed(shop, "shop.trips", duckdb)
    after = ids(shop, "shop.trips")
    same = {"nr": "id", "n": "n", "f": "f", "d": "d", "the word": "word", "__ts_ms": "__ts_ms"}
    assert {new: before[old] for new, old in same.items()} == {new: after[new] for new in same}
    assert not {after["m"], after["word"]} & set(before.values())
    # Readers of the metadata file that was published before still have the columns of that time.
    then = StaticTable.from_metadata(file)
    assert {f.name: f.field_id for f in then.schema().fields} == before
    assert then.scan().to_arrow().num_rows == 8
    versions = [s["summary"]["lakeward.silver-version"] for s in shop.snapshots("shop.trips")]
    assert len(versions) == len(set(versions)) == 2
    metadata = shop.published("shop.trips").metadata_file
    log = StaticTable.from_metadata(metadata).metadata.metadata_log
    assert [entry.metadata_file for entry in log] == [file]  # columns and rows in one metadata file
    assert shop.publish().tables == {"shop.trips": "unchanged"}


def test_files_from_before_an_alter_are_read_by_others_and_merged_into(shop, trips, duckdb):
    before = ids(shop, "shop.trips")
    widened = ("Id TYPE BIGINT", "n TYPE BIGINT", "f TYPE DOUBLE", "d TYPE DECIMAL(20,2)")
    alter(shop, trips, MAPPED, *(f"ALTER COLUMN {clause}" for clause in widened))
    alter(shop, trips, "RENAME COLUMN m TO k", "RENAME COLUMN word TO m", "ADD COLUMN word STRING AFTER k")
    for change in (None, f"INSERT INTO {trips} VALUES (8000000000, 1, 2, 'w', 0.1D, 3.25, 'x', 1, 't', 0)"):
        if change is not None:
            shop.spark.sql(change)
        assert shop.publish().tables == {"shop.trips": "merged"}
        files = StaticTable.from_metadata(shop.published("shop.trips").metadata_file).inspect.files()
        assert 8 in files["record_count"].to_pylist()  # the first file is as it was
        assert_followed(shop, "shop.trips", duckdb)
    after = ids(shop, "shop.trips")
    assert {after[new]: before[old] for new, old in {"k": "m", "m": "word", "f": "f", "d": "d"}.items()} == {
        before[old]: before[old] for old in ("m", "word", "f", "d")
    }
    shop.spark.sql(f"UPDATE {trips} SET k = 0 WHERE Id = 3")
    shop.spark.sql(f"DELETE FROM {trips} WHERE f < 0.5")
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert_followed(shop, "shop.trips", duckdb)


def test_columns_that_went_and_came_again_or_swapped_their_names_are_other_columns(shop, trips):
    alter(shop, trips, MAPPED)
    first = ids(shop, "shop.trips")
    alter(shop, trips, "DROP COLUMN n", "ADD COLUMN n INT")
    assert shop.publish().tables == {"shop.trips": "merged"}  # no row was changed, but each reads NULL there
    assert_followed(shop, "shop.trips")
    then = ids(shop, "shop.trips")
    assert then["n"] not in first.values()
    shop.spark.sql(f"UPDATE {trips} SET n = 5 WHERE Id < 3")
    alter(shop, trips, "RENAME COLUMN n TO x", "RENAME COLUMN m TO n", "RENAME COLUMN x TO m")
    shop.spark.sql(f"UPDATE {trips} SET n = 6 WHERE Id = 1")
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert_followed(shop, "shop.trips")
    now = ids(shop, "shop.trips")
    assert (now["n"], now["m"]) == (then["m"], then["n"])
    # A rename that is taken back, and another column under its name meanwhile.
    alter(shop, trips, "RENAME COLUMN f TO g", "ADD COLUMN f INT", "DROP COLUMN f", "RENAME COLUMN g TO f")
    shop.spark.sql(f"DELETE FROM {trips} WHERE Id = 7")
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert_followed(shop, "shop.trips")
    assert ids(shop, "shop.trips")["f"] == first["f"]


def test_equal_rows_of_a_table_without_a_key_stay_counted_when_columns_change(shop):
    table = shop.create("log", {"word": "varchar(20)", "n": "int", "f": "float", "gone": "int"}, [])

    def row(*values: str) -> str:
        return f"INSERT INTO {table} VALUES ({', '.join(values)}, 1, 't', 0)"

    for gone in ("1", "2", "2"):
        shop.spark.sql(row("'a'", "1", "-0.0F", gone))
        shop.spark.sql(row("'b'", "2", "0.1F", gone))
    shop.publish()
    before = ids(shop, "shop.log")
    shop.spark.sql(f"DELETE FROM {table} WHERE word = 'a' AND gone = 1")
    shop.spark.sql(row("'a'", "1", "0.0F", "5"))
    alter(shop, table, MAPPED, "DROP COLUMN gone", "RENAME COLUMN n TO m", "ALTER COLUMN f TYPE DOUBLE")
    alter(shop, table, "ADD COLUMN gone INT AFTER word")
    shop.spark.sql(f"DELETE FROM {table} WHERE word = 'b'")
    shop.spark.sql(row("'b'", "NULL", "2", "CAST(0.1F AS DOUBLE)"))
    shop.spark.sql(row("'b'", "3", "2", "0.1D"))
    assert shop.publish().tables == {"shop.log": "merged"}
    assert_followed(shop, "shop.log")
    after = ids(shop, "shop.log")
    assert (after["m"], after["f"], after["word"]) == (before["n"], before["f"], before["word"])
    assert after["gone"] not in before.values()


def test_a_type_that_iceberg_does_not_widen_to_means_a_rebuild(shop, trips):
    alter(shop, trips, MAPPED, "RENAME COLUMN m TO k", "ALTER COLUMN d TYPE DECIMAL(14,4)")
    shop.spark.sql(f"UPDATE {trips} SET d = 0.1234 WHERE Id = 1")
    report = shop.publish()
    assert report.tables == {"shop.trips": "rebuilt"}
    assert report.rebuilt["shop.trips"] == "columns were altered as Iceberg cannot follow: d"
    assert_followed(shop, "shop.trips")


def test_a_run_that_dies_before_its_commit_is_finished_with_the_columns_as_they_are_then(shop, trips):
    alter(shop, trips, MAPPED, "RENAME COLUMN m TO k")
    shop.spark.sql(f"UPDATE {trips} SET k = 1 WHERE Id = 1")
    shop.cut()
    before = shop.published("shop.trips").columns
    with killed_at("gold.before_altered"):  # files are written, columns and rows are not committed
        shop.gold()
    assert tuple(shop.session().table("gold.shop.trips").dtypes) == before
    alter(shop, trips, "RENAME COLUMN n TO m", "DROP COLUMN word")
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert_followed(shop, "shop.trips")
    assert len(shop.snapshots("shop.trips")) == 2


def test_a_run_of_silver_that_died_behind_an_alter_is_not_followed_before_its_end(shop, trips):
    alter(shop, trips, MAPPED)
    shop.spark.sql(f"UPDATE {trips} SET n = 1 WHERE Id = 1")
    shop.cut()
    alter(shop, trips, "RENAME COLUMN m TO k", "ALTER COLUMN n TYPE BIGINT")  # of a run that has not ended
    assert shop.gold().tables == {"shop.trips": "merged"}
    shop.assert_mirrored()
    assert dict(shop.published("shop.trips").columns)["m"] == "int"
    assert shop.publish().tables == {"shop.trips": "merged"}
    assert_followed(shop, "shop.trips")


@pytest.mark.parametrize("theirs", ["ALTER TABLE {} DROP COLUMN n", "INSERT INTO {} SELECT * FROM {} LIMIT 1"])
def test_what_another_program_does_while_columns_are_altered_is_not_written_over(shop, trips, monkeypatch, theirs):
    real = gold.overwrite.altering
    name = shop.published("shop.trips").identifier

    def late(*arguments):
        transaction = real(*arguments)
        shop.session().sql(theirs.format(name, name))
        return transaction

    monkeypatch.setattr(gold.overwrite, "altering", late)
    alter(shop, trips, MAPPED, "RENAME COLUMN m TO k")
    shop.spark.sql(f"UPDATE {trips} SET k = 1 WHERE Id = 1")
    shop.cut()
    with pytest.raises(TerminalError, match="another program has changed"):
        shop.gold()
    monkeypatch.undo()
    assert shop.gold().tables == {"shop.trips": "rebuilt"}
    assert_followed(shop, "shop.trips")


def silver(*fields: tuple[str, str, str]) -> Silver:
    return Silver("id", tuple(Field(*f) for f in fields))


def test_columns_are_known_by_their_data_and_refused_where_that_cannot_be():
    held = (("id", "int"), ("n", "int"))
    renamed = silver(("Id", "int", "Id"), ("m", "bigint", "n"))
    followed = (Followed("id", "int", "id"), Followed("m", "bigint", "n"))
    assert compared(held, {}, renamed) == Change(held, followed)
    assert not compared(held, {}, silver(("Id", "int", "Id"), ("n", "int", "n")))
    # A snapshot that does not say what silver called its columns.
    assert compared(held, None, renamed).refused == ("n",)
    # `n` was once `a`; then somebody took column mapping from silver's table.
    was = silver(("Id", "int", "Id"), ("n", "int", "a")).marks
    assert compared(held, was, silver(("Id", "int", "Id"), ("n", "int", "n"))).refused == ("n",)
    for old, new, widens in [
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("float", "double", True),
        ("decimal(8,2)", "decimal(10,2)", True),
        ("decimal(8,2)", "decimal(10,3)", False),
        ("decimal(8,2)", "decimal(6,2)", False),
        ("int", "double", False),
        ("date", "timestamp_ntz", False),
    ]:
        change = compared((("n", old),), {}, silver(("n", new, "n")))
        assert bool(change.refused) != widens, (old, new)


def test_an_incremental_mart_over_altered_columns_is_computed_as_a_whole(shop, trips):
    """Rows that no change touched have other values then, and no changelog tells."""
    sql = "-- materialized: incremental\n-- keys: k\n-- changed: shop.trips: id % 2\n"
    sql += "SELECT t.id % 2 AS k, sum(t.n) AS n FROM shop.trips AS t GROUP BY t.id % 2"
    (shop.config.path("models") / "sums.sql").write_text(sql)

    def publish() -> tuple[str, dict[int, int | None]]:
        done = shop.publish().tables["marts.sums"]
        return done, {row.k: row.n for row in shop.rows_of_gold("marts.sums")}

    assert publish() == ("created", {0: 120, 1: 160})
    shop.spark.sql(f"UPDATE {trips} SET n = 0 WHERE Id = 1")
    assert publish() == ("merged", {0: 120, 1: 150})
    alter(shop, trips, MAPPED, "DROP COLUMN n", "ADD COLUMN n INT AFTER Id")
    shop.spark.sql(f"UPDATE {trips} SET n = 5 WHERE Id = 1")
    assert publish() == ("rebuilt", {0: None, 1: 5})
