"""Large batches that Arrow merges: the same rows and change feed as Delta's MERGE, or left to it.

`test_silver_model.py` holds both to one model.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable

from lakeward import crash
from lakeward.config import TableConfig
from lakeward.delta import rename_column
from silver import bulk, files


@pytest.fixture(autouse=True)
def every_batch_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("silver.small.BYTES_MAX", -1)
    monkeypatch.setattr("silver.table.BULK", 0)


def test_values_of_every_kind_stay_and_are_told_as_they_are(
    ledger: Any, make_schema: Any, kinds: dict[str, list[Any]]
) -> None:
    kinds.pop("vector(3)")
    kinds |= {"double": [-0.0, 0.0], "float": [16777216.0, -0.0], "double unsigned": [float("nan"), 1.5]}
    columns = {f"c{n}": kind for n, kind in enumerate(kinds)}
    rows = [{"id": i, **{f"c{n}": values[i % 2] for n, values in enumerate(kinds.values())}} for i in range(4)]
    every = ledger.follow(make_schema("every", {"id": "int", **columns}, ("id",)), rows)
    ledger.silver()
    before = ledger.content(every)
    for n in range(len(kinds)):  # each column by itself becomes what it is in the other row, and is told to have
        new = rows[0] | {f"c{n}": rows[1][f"c{n}"]}
        ledger.update(every, rows[0], new)
        ledger.update(every, rows[2], rows[2])  # is as it was
        assert ledger.silver().tables["shop.every"].updated == 1
        assert _operation(ledger, every) == "WRITE"
        rows[0] = new
    ledger.delete(every, rows[3])
    ledger.insert(every, rows[3] | {"id": 9})
    ledger.silver()
    found = {row[0]: row[1:] for row in ledger.content(every)}
    assert found.keys() == {0, 1, 2, 9}
    assert repr(found[0]) == repr(found[1])  # NaN is not equal to itself
    assert repr((3, *found[9])) in set(map(repr, before))
    assert repr((2, *found[2])) in set(map(repr, before))


@pytest.mark.parametrize("soft", [False, True], ids=["hard", "soft"])
@pytest.mark.parametrize("piece", [3, 1 << 17], ids=["pieces", "whole"])
def test_many_changes_of_one_key_come_to_the_last(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch, soft: bool, piece: int
) -> None:
    monkeypatch.setattr("silver.local.GROUP_ROWS", piece)
    monkeypatch.setattr("silver.local._BATCH_ROWS", 2)
    monkeypatch.setattr(bulk, "FILE_ROWS", piece)
    ledger.tables = {"shop.pairs": TableConfig(deletes="soft" if soft else "hard")}
    schema = make_schema("pairs", {"a": "bigint unsigned", "b": "varchar(9)", "v": "int"}, ("a", "b"))
    rows = {(a, b): a for a in range(10) for b in "xy"}

    def row(key: tuple[int, str], value: int) -> dict[str, Any]:
        return {"a": Decimal(key[0]), "b": key[1], "v": value}

    ledger.follow(schema, [row(key, v) for key, v in rows.items()])
    ledger.silver()
    chance = random.Random(soft + piece)
    for _ in range(3):
        for n in range(80):
            key = (chance.randrange(14), chance.choice("xyz"))
            if key not in rows:
                ledger.insert(schema, row(key, n))
                rows[key] = n
            elif chance.random() < 0.3:
                ledger.delete(schema, row(key, rows.pop(key)))
            elif chance.random() < 0.4 and (to := (chance.randrange(14), "m")) not in rows:
                value = rows.pop(key)
                ledger.update(schema, row(key, value), row(to, value))
                rows[to] = value
            else:
                ledger.update(schema, row(key, rows[key]), row(key, n))
                rows[key] = n
        ledger.silver()
        assert _operation(ledger, schema) == "WRITE"
        assert ledger.content(schema) == Counter((*key, v) for key, v in rows.items())
        ledger.assert_told_truly(schema)


def test_a_file_without_a_changed_row_stays(ledger: Any, make_schema: Any) -> None:
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": 1, "v": 1}])
    ledger.silver()
    ledger.insert(users, {"id": 2, "v": 2})
    ledger.silver()
    before = _data_files(ledger, users)
    ledger.update(users, {"id": 1, "v": 1}, {"id": 1, "v": 1})
    ledger.update(users, {"id": 2, "v": 2}, {"id": 2, "v": 3})
    ledger.silver()
    after = _data_files(ledger, users)
    assert (len(before), len(before & after), len(after)) == (2, 1, 2)
    left = {file.name for file in Path(ledger.location(users)).glob("part-*.parquet")}
    assert len(left) == 3  # what was written of a file for nothing is gone
    version = ledger.version(users)
    ledger.update(users, {"id": 2, "v": 3}, {"id": 2, "v": 3})
    ledger.silver()
    assert ledger.version(users) == version
    ledger.delete(users, {"id": 1, "v": 1})
    ledger.delete(users, {"id": 2, "v": 3})
    ledger.silver()
    assert not _data_files(ledger, users)
    ledger.assert_told_truly(users)


def test_a_column_that_the_source_does_not_have_stays_where_it_is_to_be_kept(ledger: Any, make_schema: Any) -> None:
    ledger.tables = {"shop.users": TableConfig(dropped_columns="keep")}
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": 1, "v": 1}])
    ledger.silver()
    table = f"delta.`{ledger.location(users)}`"
    ledger.spark.sql(f"ALTER TABLE {table} ADD COLUMNS (note STRING AFTER id)")
    ledger.update(users, {"id": 1, "v": 1}, {"id": 1, "v": 2})
    ledger.silver()  # by Delta, since the file lacks the column
    assert _operation(ledger, users) == "MERGE"
    ledger.spark.sql(f"UPDATE {table} SET note = concat('of ', id)")
    ledger.insert(users, {"id": 2, "v": 2})
    ledger.update(users, {"id": 1, "v": 2}, {"id": 1, "v": 3})
    ledger.silver()
    assert _operation(ledger, users) == "WRITE"
    assert {(r["id"], r["note"], r["v"]) for r in ledger.read(users).collect()} == {(1, "of 1", 3), (2, None, 2)}


@pytest.mark.parametrize("piece", [3, 1 << 17], ids=["pieces", "whole"])
def test_rows_that_a_deletion_vector_names_are_no_rows(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr("silver.local.GROUP_ROWS", piece)
    monkeypatch.setattr("silver.local._BATCH_ROWS", 2)
    rows = [{"id": n, "v": 0} for n in range(20)]
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), rows)
    ledger.silver()
    wanted = {row["id"]: 0 for row in rows}
    for turn, ids in enumerate(([3, 7, 8], [4, 19, 0], [3, 7, 4, 5])):
        with monkeypatch.context() as patch:  # a few changes, by MERGE
            patch.setattr(bulk, "TABLE_BYTES_MAX", -1)
            patch.setattr("silver.merge.REWRITTEN_BYTES_MAX", -1)
            patch.setattr("silver.table.DENSE", 1_000_000)
            for key in ids:
                ledger.update(users, {"id": key, "v": wanted[key]}, {"id": key, "v": turn * 100 + key + 1})
                wanted[key] = turn * 100 + key + 1
            ledger.silver()
        assert '"deletionVector":{' in _log(ledger, users)
        for key in (ids[0], 9 + turn, 14):
            ledger.update(users, {"id": key, "v": wanted[key]}, {"id": key, "v": -turn})
            wanted[key] = -turn
        ledger.delete(users, {"id": ids[1], "v": wanted.pop(ids[1])})
        ledger.insert(users, {"id": 30 + turn, "v": 7})
        wanted[30 + turn] = 7
        ledger.silver()
        assert _operation(ledger, users) == "WRITE"
        if ids[1] in (7, 19):
            ledger.insert(users, {"id": ids[1], "v": 0})
            wanted[ids[1]] = 0
        ledger.silver()
        assert ledger.content(users) == Counter(wanted.items())
        ledger.assert_told_truly(users)


def test_what_arrow_may_not_compare_or_hold_is_left_to_delta(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = {"plain": "int", "floating": "double", "listed": "int", "mapped": "int", "twice": "int"}
    tables = {}
    for name, kind in kinds.items():
        other = "vector(2)" if name == "listed" else "int"
        tables[name] = make_schema(name, {"id": kind, "v": other, "w": "int"}, ("id",))
        number = float if kind == "double" else int
        ledger.follow(tables[name], [{"id": number(n), "v": None, "w": 0} for n in range(9)])
    ledger.silver()
    rename_column(ledger.spark, ledger.location(tables["mapped"]), ("w",), "called")
    rename_column(ledger.spark, ledger.location(tables["mapped"]), ("called",), "w")
    twice = ledger.read(tables["twice"]).where("id = 3")
    twice.write.format("delta").mode("append").save(ledger.location(tables["twice"]))
    for name, schema in tables.items():
        for n in range(4):
            key = float(n) if name == "floating" else n
            ledger.update(schema, {"id": key, "v": None, "w": 0}, {"id": key, "v": None, "w": 1})
    ledger.silver()
    assert [name for name, schema in tables.items() if _operation(ledger, schema) == "WRITE"] == ["plain"]
    plain = tables["plain"]
    for name, most in (("MEMORY_MAX", 1), ("ROWS_MAX", 8), ("TABLE_BYTES_MAX", 1)):
        with monkeypatch.context() as patch:
            patch.setattr(bulk, name, most)
            ledger.update(plain, {"id": 5, "v": None, "w": 0}, {"id": 5, "v": None, "w": len(name)})
            ledger.silver()
            assert _operation(ledger, plain) != "WRITE", name
    ledger.assert_told_truly(tables["floating"])


def test_a_run_that_dies_before_its_commit_is_made_once(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": 1, "v": 1}])
    ledger.silver()

    def die(name: str) -> None:
        if name == "silver.before_commit":
            raise RuntimeError("killed")

    ledger.insert(users, {"id": 2, "v": 2})
    with monkeypatch.context() as patch:
        patch.setattr(crash, "point", die)
        with pytest.raises(RuntimeError, match="killed"):
            ledger.silver()
    assert ledger.rerun().resumed == 2
    assert ledger.content(users) == Counter([(1, 1), (2, 2)])
    ledger.assert_told_truly(users)


def test_a_file_that_cannot_be_written_leaves_nothing(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = ledger.follow(make_schema("users", {"id": "int", "v": "int"}, ("id",)), [{"id": 1, "v": 1}])
    ledger.silver()
    there = _everything(ledger, users)

    def full(*_: Any) -> pa.Table:
        raise OSError(28, "No space left on device")

    ledger.update(users, {"id": 1, "v": 1}, {"id": 1, "v": 2})
    with monkeypatch.context() as patch:
        patch.setattr(files._File, "close", full)
        with pytest.raises(OSError, match="No space"):
            ledger.silver()
    assert _everything(ledger, users) == there
    ledger.rerun()
    assert ledger.content(users) == Counter([(1, 2)])


def _data_files(ledger: Any, schema: Any) -> set[str]:
    return {name.rpartition("/")[2] for name in ledger.read(schema).inputFiles()}


def _everything(ledger: Any, schema: Any) -> set[Path]:
    return set(Path(ledger.location(schema)).rglob("*.parquet"))


def _log(ledger: Any, schema: Any) -> str:
    return sorted(Path(ledger.location(schema)).glob("_delta_log/*.json"))[-1].read_text()


def _operation(ledger: Any, schema: Any) -> str:
    return str(DeltaTable.forPath(ledger.spark, ledger.location(schema)).history(1).collect()[0]["operation"])


def test_a_first_load_has_the_snapshot_s_rows_but_for_what_the_stream_has_touched(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("silver.local.GROUP_ROWS", 2)
    monkeypatch.setattr("silver.local._BATCH_ROWS", 2)
    ledger.tables = {"shop.soft": TableConfig(deletes="soft")}
    columns = {"id": "int", "at": "datetime(6)", "day": "date", "v": "int"}
    hard, soft = (make_schema(name, columns, ("id",)) for name in ("hard", "soft"))
    at = datetime.fromisoformat("2024-02-29T12:00:00.000001")

    def row(key: int, value: int) -> dict[str, Any]:
        return {"id": key, "at": at + timedelta(days=key), "day": date(2024, 1, key), "v": value}

    for schema in (hard, soft):
        ledger.follow(schema, [row(9, 0)])
        ledger.follow(schema, [row(n, 0) for n in range(1, 6)])  # a second generation, before silver saw the first
        ledger.flush()
        ledger.update(schema, row(1, 0), row(1, 1))
        ledger.update(schema, row(2, 0), row(7, 2))
        ledger.delete(schema, row(3, 0))
        ledger.insert(schema, row(8, 8))
    report = ledger.silver()
    wanted = Counter(tuple(row(*each).values()) for each in ((1, 1), (7, 2), (8, 8), (4, 0), (5, 0)))
    for schema in (hard, soft):
        assert _operation(ledger, schema) == "WRITE"
        assert ledger.content(schema) == wanted
        ledger.assert_told_truly(schema)
        assert ledger.read(schema).where("__ts_ms IS NULL").count() == 0
    assert (report.tables["shop.hard"].rows, report.tables["shop.soft"].rows) == (5, 5)
    gone = ledger.read(soft).where("__deleted").select("id").collect()
    assert sorted(r[0] for r in gone) == [2, 3]
    # What the log says of a file's times lets no reader leave it out that must not.
    for low, high, found in (("00.000001", "00.000001", 1), ("00.0000005", "00.000002", 1), ("00.000002", "01", 0)):
        where = f"at BETWEEN TIMESTAMP_NTZ'2024-03-08 12:00:{low}' AND TIMESTAMP_NTZ'2024-03-08 12:00:{high}'"
        assert ledger.read(hard).where(where).count() == found, where
    assert len(ledger.read(hard).where("day > DATE'2024-01-07'").inputFiles()) == 1
    assert len(_data_files(ledger, hard)) > 1
