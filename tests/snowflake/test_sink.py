"""The sink, through the real connector, into fakesnow's server."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from dataclasses import replace
from decimal import Decimal

import pytest

from lakeward.errors import TerminalError, UsageError
from lakeward.names import TableName
from snowflake.lakehouse import positions

META = "5, 'tx', 1"


@pytest.fixture
def users(silver_lake):
    where = silver_lake.create("users", {"id": "int", "name": "varchar(20)"}, ["id"])
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES (1, 'a', {META}), (2, 'b', {META}), (3, 'c', {META})")
    return where


def rows(silver_lake, table="SHOP.USERS", columns="ID, NAME"):
    return sorted(silver_lake.query(f"SELECT {columns} FROM {table}"), key=repr)


def test_a_first_run_loads_every_row_and_a_second_does_nothing(silver_lake, users):
    report = silver_lake.sink()
    assert (report.tables, report.changes) == (1, 3)
    assert rows(silver_lake) == [(1, "a"), (2, "b"), (3, "c")]
    report = silver_lake.sink_again()
    assert (report.tables, report.changes) == (0, 0)


def test_inserts_updates_and_deletes_follow_as_the_last_change_of_each_key(silver_lake, users):
    silver_lake.sink()
    spark = silver_lake.spark
    spark.sql(f"UPDATE {users} SET name = 'b1' WHERE id = 2")
    spark.sql(f"UPDATE {users} SET name = 'b2' WHERE id = 2")
    spark.sql(f"DELETE FROM {users} WHERE id = 3")
    spark.sql(f"INSERT INTO {users} VALUES (4, 'd', {META}), (5, 'e', {META})")
    spark.sql(f"DELETE FROM {users} WHERE id = 5")
    report = silver_lake.sink()
    assert report.changes == 4
    assert rows(silver_lake) == [(1, "a"), (2, "b2"), (4, "d")]


def test_a_sink_that_dies_before_its_table_is_made_knows_it_again(silver_lake, users, killed_at):
    killed_at("sink.after_claim")
    with pytest.raises(BaseException, match=r"sink\."):
        silver_lake.sink()
    silver_lake.sink_again()
    assert rows(silver_lake) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("moment", ["sink.after_put", "sink.after_stage", "sink.before_commit", "sink.after_commit"])
def test_a_sink_that_dies_loses_and_doubles_nothing(silver_lake, users, killed_at, moment):
    for statement in (None, f"UPDATE {users} SET name = 'z' WHERE id = 1"):
        if statement:
            silver_lake.spark.sql(statement)
        killed_at(moment)
        with pytest.raises(BaseException, match=r"sink\."):
            silver_lake.sink()
        silver_lake.sink_again()
        assert rows(silver_lake) == [(1, "z" if statement else "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize("moment", ["sink.after_stage", "sink.before_commit", "sink.after_commit"])
def test_rows_without_a_key_are_counted_once_whenever_a_sink_dies(silver_lake, killed_at, moment):
    where = silver_lake.create("log", {"line": "text"}, [])
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES ('x', {META}), ('x', {META})")
    silver_lake.sink()
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES ('x', {META}), ('y', {META})")
    killed_at(moment)
    with pytest.raises(BaseException, match=r"sink\."):
        silver_lake.sink()
    silver_lake.sink_again()
    assert rows(silver_lake, "SHOP.LOG", "LINE") == [("x",), ("x",), ("x",), ("y",)]
    silver_lake.spark.sql(f"DELETE FROM {where} WHERE line = 'x'")
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES ('x', {META}), ('x', {META})")
    silver_lake.sink()
    assert rows(silver_lake, "SHOP.LOG", "LINE") == [("x",), ("x",), ("y",)]


def test_rows_that_come_and_go_at_once_are_counted_where_no_key_tells_them_apart(silver_lake):
    log = silver_lake.create("log", {"line": "text"}, [])
    days = silver_lake.create("days", {"day": "date", "n": "int"}, ["day"])  # a zero date is NULL in the lake
    silver_lake.spark.sql(f"INSERT INTO {log} VALUES ('x', {META}), ('y', {META})")
    values = f"(NULL, 1, {META}), (NULL, 2, {META}), (DATE'2020-01-01', 3, {META})"
    silver_lake.spark.sql(f"INSERT INTO {days} VALUES {values}")
    silver_lake.sink()
    assert rows(silver_lake, "SHOP.DAYS", "N") == [(1,), (2,), (3,)]
    silver_lake.spark.sql(f"DELETE FROM {log} WHERE line = 'x'")
    silver_lake.spark.sql(f"INSERT INTO {log} VALUES ('z', {META})")
    silver_lake.spark.sql(f"DELETE FROM {days} WHERE n = 1")
    silver_lake.spark.sql(f"INSERT INTO {days} VALUES (NULL, 4, {META}), (NULL, 5, {META})")
    silver_lake.sink()
    assert rows(silver_lake, "SHOP.LOG", "LINE") == [("y",), ("z",)]
    assert rows(silver_lake, "SHOP.DAYS", "N") == [(2,), (3,), (4,), (5,)]


def test_keys_that_swap_their_rows_in_one_batch_and_a_table_that_is_emptied_arrive(silver_lake, users):
    silver_lake.sink()
    spark = silver_lake.spark
    spark.sql(f"UPDATE {users} SET id = CASE id WHEN 1 THEN 2 ELSE 1 END WHERE id < 3")
    silver_lake.sink()
    assert rows(silver_lake) == [(1, "b"), (2, "a"), (3, "c")]
    spark.sql(f"UPDATE {users} SET id = 9 WHERE id = 3")
    spark.sql(f"UPDATE {users} SET id = 3 WHERE id = 9")
    silver_lake.sink()
    assert rows(silver_lake) == [(1, "b"), (2, "a"), (3, "c")]
    spark.sql(f"TRUNCATE TABLE {users}")
    spark.sql(f"INSERT INTO {users} VALUES (2, 'z', {META})")
    silver_lake.sink()
    assert rows(silver_lake) == [(2, "z")]


def test_a_change_feed_that_was_vacuumed_is_a_full_load(silver_lake, users):
    silver_lake.sink()
    silver_lake.spark.sql(f"UPDATE {users} SET name = 'b1' WHERE id = 2")
    silver_lake.cut()
    path = silver_lake.lake.table("silver", TableName("shop", "users"))
    shutil.rmtree(f"{path.removeprefix('file:')}/_change_data")
    assert silver_lake.sink_again().changes == 3
    assert rows(silver_lake) == [(1, "a"), (2, "b1"), (3, "c")]


def test_the_position_stands_in_snowflake_and_names_the_cut(silver_lake, users):
    silver_lake.sink()
    found = silver_lake.query('SELECT TABLE_SCHEMA, TABLE_NAME, SILVER_VERSION, CUT FROM LAKEWARD."SINK_POSITIONS"')
    silver = silver_lake.silver.tables["shop.users"]
    assert found == [("SHOP", "USERS", silver.version, str(silver.cut))]


def test_an_added_column_follows(silver_lake, users):
    silver_lake.sink()
    silver_lake.add_column(users, "shop.users", "nick", "varchar(9)")
    silver_lake.spark.sql(f"INSERT INTO {users} VALUES (9, 'i', {META}, 'nine')")
    silver_lake.sink()
    assert rows(silver_lake, columns="ID, NICK") == [(1, None), (2, None), (3, None), (9, "nine")]


def test_a_table_read_anew_is_replaced(silver_lake, users):
    silver_lake.sink()
    silver_lake.spark.sql(f"INSERT OVERWRITE {users} VALUES (7, 'g', {META})")
    silver_lake.silver.tables["shop.users"].generation = 2
    silver_lake.sink()
    assert rows(silver_lake) == [(7, "g")]


def test_every_type_of_the_contract_arrives_as_it_is(silver_lake):
    where = silver_lake.create(
        "types",
        {
            "i": "int", "b": "bigint", "u": "bigint unsigned", "d": "decimal(38,10)", "f": "float", "g": "double",
            "t": "tinyint(1)", "o": "bit(1)", "day": "date", "at": "datetime(6)", "ts": "timestamp(6)",
            "s": "text", "x": "blob", "j": "json", "p": "point", "v": "vector(2)",
        },
        ["i"],
    )  # fmt: skip
    silver_lake.spark.sql(
        f"INSERT INTO {where} VALUES (1, -9223372036854775808, 18446744073709551615,"
        " 1234567890123456789012345678.0123456789, 16777217f, 0.1d, 2, true, DATE'0001-01-01',"
        " TIMESTAMP_NTZ'9999-12-31 23:59:59.5', TIMESTAMP'2026-03-29 01:30:00.123456Z',"
        " 'ä''\"\\\\\\n☃', X'00FF', '{\"k\": [1, null]}', named_struct('srid', 4326, 'wkb', X'0101'),"
        f" array(0.1f, -0.0f), {META}), (2{', NULL' * 15}, {META})"
    )
    silver_lake.sink()
    # Half a second, as text: the server and the connector take such a time through a float. Snowflake does not.
    columns = 'I, B, U, D, F, G, T, O, DAY, "AT"::VARCHAR, TS, S, X, J, P, V'
    found = rows(silver_lake, "SHOP.TYPES", columns)
    one = found[0]
    assert one[:5] == (1, -(2**63), 2**64 - 1, Decimal("1234567890123456789012345678.0123456789"), 16777216.0)
    assert one[5:8] == (0.1, 2, True)
    assert one[8:10] == (dt.date(1, 1, 1), "9999-12-31 23:59:59.5")
    assert one[10].astimezone(dt.UTC) == dt.datetime(2026, 3, 29, 1, 30, 0, 123456, tzinfo=dt.UTC)
    assert one[11] == "ä'\"\\\n☃"
    assert bytes(one[12]) == b"\x00\xff"
    assert json.loads(one[13]) == {"k": [1, None]}
    assert json.loads(one[14]) == {"srid": 4326, "wkb": "0101"}
    assert json.loads(one[15])[0] == 0.10000000149011612
    # The server answers with 1970 for an instant that is NULL, so it is asked.
    assert (found[1][:10], found[1][11:]) == ((2, *[None] * 9), (None,) * 5)
    assert rows(silver_lake, "SHOP.TYPES", "TS IS NULL") == [(False,), (True,)]


def test_names_with_spaces_dots_and_reserved_words_arrive(silver_lake):
    where = silver_lake.create("order items", {"id": "int", "a.b c": "int", "select": "int"}, ["id"], "my shop")
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES (1, 2, 3, {META})")
    silver_lake.sink()
    silver_lake.spark.sql(f"UPDATE {where} SET `a.b c` = 4")
    silver_lake.sink()
    assert rows(silver_lake, '"MY SHOP"."ORDER ITEMS"', '"ID", "A.B C", "SELECT"') == [(1, 4, 3)]


def test_a_table_that_silver_does_not_hold_is_named(silver_lake, users):
    silver_lake.cut()
    with pytest.raises(UsageError, match=r"silver has no table shop\.nope"):
        silver_lake.sink_again("shop.nope")


def test_a_table_that_somebody_else_made_is_left_alone_and_holds_up_no_other(silver_lake, users):
    where = silver_lake.create("zoo", {"id": "int"}, ["id"])
    silver_lake.spark.sql(f"INSERT INTO {where} VALUES (1, {META})")
    silver_lake.query("CREATE SCHEMA SHOP")
    silver_lake.query("CREATE TABLE SHOP.USERS (ID NUMBER(10,0))")
    with pytest.raises(
        TerminalError, match=r"shop\.users: SHOP\.USERS is there already, and was not made by this sink"
    ):
        silver_lake.sink()
    assert rows(silver_lake, columns="ID") == []
    assert rows(silver_lake, "SHOP.ZOO", "ID") == [(1,)]


def test_a_backlog_is_merged_in_batches_of_whole_commits_and_each_moves_the_position(silver_lake, users, monkeypatch):
    silver_lake.sink()
    for name in ("x", "y", "z"):
        silver_lake.spark.sql(f"UPDATE {users} SET name = '{name}' WHERE id < 3")
    stands, cuts = [], []
    moved = positions.move

    def seen(session, target, before, after):
        stands.append(after.version)
        cuts.append(after.cut)
        moved(session, target, before, after)

    monkeypatch.setattr(positions, "move", seen)
    config = silver_lake.config
    silver_lake.config = replace(config, snowflake=replace(config.snowflake, sink_batch_rows=5))
    earlier = str(silver_lake.silver.cut.at)
    report = silver_lake.sink()
    assert cuts == [earlier, earlier, str(silver_lake.silver.cut.at)]  # no rows are said to be of a cut before they are
    assert report.changes == 6  # the last change of each key, in each of three batches
    assert len(stands) == 3
    assert stands == sorted(stands)
    assert rows(silver_lake) == [(1, "z"), (2, "z"), (3, "c")]
