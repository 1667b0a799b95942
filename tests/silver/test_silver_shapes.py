"""Columns: added, dropped, retyped, with awkward names, and with values that plain equality confuses."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql.types import StructType

from bronze.envelope import envelope_ddl
from lakeward.config import TableConfig
from lakeward.errors import ConfigError, TerminalError


def test_an_added_column_stands_where_the_source_has_it(ledger, make_schema):
    ledger.follow(make_schema("users", {"id": "int", "z": "int"}, ("id",)), [{"id": 1, "z": 1}])
    ledger.silver()
    wide = make_schema("users", {"id": "int", "a b": "varchar(3)", "z": "int"}, ("id",))
    ledger.spark.sql(
        f"ALTER TABLE delta.`{ledger.lake.table('bronze', wide.name)}` "
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    ledger.alter(wide)
    ledger.insert(wide, {"id": 2, "a b": "x", "z": 2})
    ledger.update(wide, {"id": 1, "a b": None, "z": 1}, {"id": 1, "a b": "y", "z": 1})
    ledger.silver()
    assert ledger.content(wide) == Counter([(1, "y", 1), (2, "x", 2)])
    assert ledger.read(wide).columns == ["id", "a b", "z", "__ts_ms", "__transaction_id", "__transaction_order"]


def test_a_new_generation_changes_what_differs_and_a_new_shape_or_key_is_one_commit(ledger, make_schema):
    shape = {"id": "int", "v": "int", "w": "int"}
    users = ledger.follow(make_schema("users", shape, ("id",)), [{"id": i, "v": i, "w": i} for i in (1, 2, 3)])
    ledger.silver()
    since = ledger.version(users) + 1
    ledger.follow(users, [{"id": 1, "v": 1, "w": 1}, {"id": 2, "v": 20, "w": 2}, {"id": 4, "v": 4, "w": 4}])
    ledger.silver()
    assert Counter(ledger.changes(users, since)) == Counter(
        [
            ("update_preimage", (2, 2, 2)),
            ("update_postimage", (2, 20, 2)),
            ("delete", (3, 3, 3)),
            ("insert", (4, 4, 4)),
        ]
    )
    ledger.assert_told_truly(users)
    version = ledger.version(users)
    narrow = ledger.follow(
        make_schema("users", {"v": "int", "id": "int"}, ("v",)), [{"v": 1, "id": 1}, {"v": 4, "id": 4}]
    )
    ledger.silver()
    assert ledger.content(narrow) == Counter([(1, 1), (4, 4)])
    assert ledger.read(narrow).columns[:3] == ["v", "id", "__ts_ms"]
    assert ledger.version(narrow) == version + 1


def test_awkward_names_and_values_that_plain_equality_confuses_are_kept_apart(ledger, make_schema):
    columns = {"i d": "int", "a`b.c": "double", "p,(": "point", "v": "vector(2)", "é=": "varbinary(3)"}
    places = make_schema("pla ces", columns, ("i d",))
    heap = make_schema("heap", {k: v for k, v in columns.items() if k != "i d"}, ())

    def row(number: int, zero: float, x: bytes = b"\x00", srid: int = 0) -> dict[str, Any]:
        return {"i d": number, "a`b.c": zero, "p,(": (srid, x), "v": [zero, 1.0], "é=": x}

    def bare(*args, **kwargs) -> dict[str, Any]:
        return {k: v for k, v in row(0, *args, **kwargs).items() if k != "i d"}

    for schema in (places, heap):
        _bronze(ledger, DeltaTable.create, schema).property("delta.columnMapping.mode", "name").execute()
    ledger.follow(places, [row(1, 0.0), row(2, 0.0), row(3, 0.0), row(4, 0.0)])
    ledger.follow(heap, [bare(0.0), bare(-0.0), bare(0.0, b""), bare(0.0, srid=1)])
    ledger.silver()
    ledger.update(places, row(1, 0.0), row(1, -0.0))
    ledger.update(places, row(2, 0.0), row(2, 0.0, b""))
    ledger.update(places, row(3, 0.0), row(3, 0.0, srid=4326))
    ledger.update(places, row(4, 0.0), row(4, 0.0))  # nothing differs: nothing is written
    ledger.delete(heap, bare(-0.0))
    ledger.insert(heap, bare(0.0, srid=1))
    report = ledger.silver()
    assert (report.tables["shop.pla ces"].updated, report.tables["shop.heap"].deleted) == (3, 1)
    flat = [
        (r[0], str(r[1]), tuple(r[2]), [str(x) for x in r[3]], bytes(r[4]))
        for r in ledger.read(places).orderBy("`i d`").collect()
    ]
    assert flat == [
        (1, "-0.0", (0, bytearray(b"\x00")), ["-0.0", "1.0"], b"\x00"),
        (2, "0.0", (0, bytearray(b"")), ["0.0", "1.0"], b""),
        (3, "0.0", (4326, bytearray(b"\x00")), ["0.0", "1.0"], b"\x00"),
        (4, "0.0", (0, bytearray(b"\x00")), ["0.0", "1.0"], b"\x00"),
    ]
    assert Counter(str(r[0]) for r in ledger.read(heap).collect()) == Counter({"0.0": 4})
    ledger.assert_told_truly(heap)


def test_a_history_keeps_dropped_columns_and_old_values_that_a_new_type_cannot_hold(ledger, make_schema):
    ledger.tables = {"shop.users": TableConfig(history="scd2")}
    first = make_schema("users", {"id": "int", "v": "varchar(9)", "old": "int"}, ("id",))
    ledger.follow(first, [{"id": 1, "v": "12", "old": 1}, {"id": 2, "v": "x", "old": 2}])
    ledger.silver()
    with ledger.transaction():
        pass
    second = make_schema("users", {"id": "int", "v": "int"}, ("id",))
    _bronze(ledger, DeltaTable.replace, second).execute()  # as bronze does when a column takes another type
    ledger.follow(second, [{"id": 1, "v": 12}, {"id": 2, "v": 7}])
    ledger.silver()
    rows = ledger.read(second, "__history").selectExpr("id", "v", "old", "v__until_2", "__is_current").collect()
    assert Counter(map(tuple, rows)) == Counter(
        [(1, 12, 1, "12", True), (2, None, 2, "x", False), (2, 7, None, None, True)]
    )


def test_a_column_with_a_name_of_lakewards_own_and_a_history_without_a_key_are_refused(ledger, make_schema):
    ledger.tables = {"shop.heap": TableConfig(history="scd2")}
    heap = ledger.follow(make_schema("heap", {"v": "int"}, ()), [{"v": 1}])
    with pytest.raises(ConfigError, match="has no key"):
        ledger.silver()
    ledger.tables = {}
    assert ledger.rerun().run == 1
    assert ledger.content(heap) == Counter([(1,)])
    ledger.follow(make_schema("bad", {"id": "int", "__TS_MS": "int"}, ("id",)), [])
    with pytest.raises(TerminalError, match="__TS_MS"):
        ledger.silver()


def _bronze(ledger, builder, schema):
    shape = StructType.fromDDL(envelope_ddl(schema))
    assert isinstance(shape, StructType)
    return builder(ledger.spark).location(ledger.lake.table("bronze", schema.name)).addColumns(shape)
