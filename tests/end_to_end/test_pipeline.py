"""A real server to gold, and what each kind of change becomes on the way."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from servers.load import load

from lakeward.errors import LockedError

pytestmark = pytest.mark.timeout(1200)


def test_a_snapshot_and_the_stream_after_it_make_silver_equal_to_the_source(pipeline) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), n BIGINT UNSIGNED)")
    db.execute("INSERT INTO users VALUES (1, 'ann', 18446744073709551615), (2, 'bob', 0), (3, 'cy', NULL)")
    pipeline.run()
    assert pipeline.ops("users") == "rrr"
    db.execute("UPDATE users SET name = 'Ann' WHERE id = 1")
    db.execute("DELETE FROM users WHERE id = 2")
    db.execute("INSERT INTO users VALUES (4, 'dee', 4)")
    pipeline.run()
    assert pipeline.ops("users") == "rrrudc"
    assert [r[:2] for r in pipeline.rows("users", "id", "name")] == [(1, "Ann"), (3, "cy"), (4, "dee")]
    proof = pipeline.verify()
    assert proof.equal
    assert [t.rows for t in proof.tables] == [3]
    gold = pipeline.spark.table(f"gold.{db.name}.users")
    assert sorted(r["name"] for r in gold.collect()) == ["Ann", "cy", "dee"]
    fresh = pipeline.spark.table("gold.lakeward.freshness").where("table_name = 'users'").collect()
    assert [r["rows"] for r in fresh] == [3]


def test_an_envelope_says_what_was_before_and_after_and_in_which_transaction(pipeline) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE a (id INT PRIMARY KEY, v INT)")
    db.execute("CREATE TABLE b (id INT PRIMARY KEY, v INT)")
    pipeline.bronze()
    connection = db.connection()
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO a VALUES (1, 1), (2, 2)")
        cursor.execute("INSERT INTO b VALUES (1, 1)")
        cursor.execute("UPDATE a SET v = 9 WHERE id = 2")
        cursor.execute("COMMIT")
    connection.close()
    pipeline.bronze()
    order = ("transaction.total_order", "transaction.data_collection_order", "op", "before.v", "after.v")
    a = [tuple(r) for r in pipeline.table("bronze", "a").orderBy("transaction.total_order").select(*order).collect()]
    b = [tuple(r) for r in pipeline.table("bronze", "b").select(*order).collect()]
    assert a == [(1, 1, "c", None, 1), (2, 2, "c", None, 2), (4, 3, "u", 2, 9)]
    assert b == [(3, 1, "c", None, 1)]
    ids = {r[0] for t in "ab" for r in pipeline.table("bronze", t).select("transaction.id").collect()}
    assert len(ids) == 1


def test_keys_that_move_and_swap_leave_nothing_behind(pipeline) -> None:
    db = pipeline.database
    pipeline.write_config(rest=f'[tables."{db.name}.folded"]\nhistory = "scd2"\n')
    db.execute("CREATE TABLE t (a INT, b VARCHAR(5), v INT, PRIMARY KEY (a, b))")
    db.execute("INSERT INTO t VALUES (1, 'x', 10), (2, 'y', 20)")
    # One key to the server: 'a', 'A', 'á' and, since it pads, 'a '.
    db.execute("CREATE TABLE folded (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, u INT UNIQUE, v INT)")
    db.execute("INSERT INTO folded VALUES ('a', 1, 1), ('b', 2, 2), ('c', 3, 3), ('d', 4, 4)")
    pipeline.bronze()
    pipeline.silver()
    connection = db.connection()
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for statement in ("a = 3 WHERE a = 1", "a = 1, b = 'x' WHERE a = 2", "a = 2, b = 'y' WHERE a = 3"):
            cursor.execute(f"UPDATE t SET {statement}")
        cursor.execute("COMMIT")
        for statement in (
            "REPLACE INTO folded VALUES ('A', 1, 10)",
            "INSERT INTO folded VALUES ('Á ', 9, 0) ON DUPLICATE KEY UPDATE k = VALUES(k), v = v + 1",
            "REPLACE INTO folded VALUES ('e', 2, 20)",  # takes b's place by the other key
            "UPDATE folded SET k = 'C' WHERE k = 'c'",
            "DELETE FROM folded WHERE k = 'D'",
            "INSERT INTO folded VALUES ('d ', 4, 40)",
            "UPDATE folded SET v = v WHERE k = 'd'",
        ):
            cursor.execute(statement)
    connection.close()
    proof = pipeline.verify()
    assert proof.equal, [(t.name, t.differences) for t in proof.tables if not t.equal]
    assert pipeline.rows("t", "a", "b", "v") == [(1, "x", 20), (2, "y", 10)]
    assert pipeline.rows("folded", "k", "u", "v") == [("C", 3, 3), ("d ", 4, 40), ("e", 2, 20), ("Á ", 1, 11)]
    history = pipeline.table("silver", "folded", "__history")
    versions = sorted((r["k"], r["v"], r["__is_current"]) for r in history.collect())
    assert versions == [
        *(("A", 10, False), ("C", 3, True), ("a", 1, False), ("b", 2, False), ("c", 3, False), ("d", 4, False)),
        *(("d ", 40, True), ("e", 20, True), ("Á ", 11, True)),
    ]


def test_truncate_is_one_event_and_empties_silver(pipeline) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1), (2)")
    pipeline.run()
    db.execute("INSERT INTO t VALUES (3)")
    db.execute("TRUNCATE TABLE t")
    db.execute("INSERT INTO t VALUES (9)")
    pipeline.run()
    assert pipeline.ops("t") == "rrctc"
    assert pipeline.rows("t", "id") == [(9,)]
    assert pipeline.verify().equal


def test_a_table_without_a_key_keeps_the_count_of_equal_rows(pipeline) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE t (a INT, b DOUBLE)")
    db.execute("INSERT INTO t VALUES (1, 0.1), (1, 0.1), (1, 0.1), (2, NULL)")
    pipeline.run()
    db.execute("DELETE FROM t WHERE a = 1 LIMIT 1")
    db.execute("INSERT INTO t VALUES (2, NULL)")
    pipeline.run()
    assert sorted(r[0] for r in pipeline.table("silver", "t").select("a").collect()) == [1, 1, 2, 2]
    assert pipeline.verify().equal


def test_an_added_column_is_taken_up_without_reading_the_table_again(pipeline) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    db.execute("INSERT INTO t VALUES (1)")
    pipeline.run()
    # DATETIME needs a feature of Delta's that a table without one lacks.
    db.execute("ALTER TABLE t ADD COLUMN note VARCHAR(10), ADD COLUMN at DATETIME")
    db.execute("INSERT INTO t VALUES (2, 'new', '2026-01-02 03:04:05')")
    pipeline.run()
    assert pipeline.status()["t"]["snapshot"]["generation"] == 1
    assert pipeline.rows("t", "id", "note", "at") == [
        (1, None, None),
        (2, "new", datetime.fromisoformat("2026-01-02 03:04:05")),
    ]
    assert pipeline.verify().equal


@pytest.mark.parametrize(
    "alter",
    [
        "ALTER TABLE t ADD COLUMN at DATETIME NOT NULL DEFAULT '2026-01-02 03:04:05'",
        "ALTER TABLE t DROP COLUMN v",
        "ALTER TABLE t MODIFY v VARCHAR(20)",
        "ALTER TABLE t CHANGE v renamed INT",
        "RENAME TABLE t TO was, other TO t",
    ],
)
def test_what_the_binlog_does_not_say_of_an_alter_is_read_afresh(pipeline, alter: str) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    db.execute("CREATE TABLE other (id INT PRIMARY KEY, w INT)")
    db.execute("INSERT INTO t VALUES (1, 10), (2, 20)")
    db.execute("INSERT INTO other VALUES (7, 70)")
    pipeline.run()
    db.execute("INSERT INTO t VALUES (3, 30)")
    db.execute(alter)
    db.execute("DELETE FROM t WHERE id = 1")
    pipeline.run()
    assert {t["state"] for t in pipeline.status().values()} <= {"streaming", "stopped"}
    assert pipeline.verify().equal


def test_money_that_moves_between_tables_under_load_is_never_half_in_silver(pipeline) -> None:
    db = pipeline.database
    for table in ("left_", "right_"):
        db.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, amount INT)")
        db.execute(f"INSERT INTO {table} VALUES (0, 1000), (1, 1000)")

    def move(cursor: Any, w: int, n: int) -> None:
        one, other = ("left_", "right_") if n % 2 else ("right_", "left_")
        cursor.execute(f"UPDATE {one} SET amount = amount - %s WHERE id = %s", (n, w))
        cursor.execute(f"UPDATE {other} SET amount = amount + %s WHERE id = %s", (n, w))

    seen = set()
    with load(db.connection, move, writers=2, pause_s=0.002):
        for _ in range(3):
            pipeline.bronze()
            pipeline.silver()
            rows = [pipeline.rows(t, "id", "amount") for t in ("left_", "right_")]
            assert [one + other for (_, one), (_, other) in zip(*rows, strict=True)] == [2000, 2000]
            assert len({t["cut"] for t in pipeline.status().values()}) == 1
            seen.add(str(rows))
    assert len(seen) == 3  # it did move between the runs
    assert pipeline.verify().equal


def test_a_table_that_is_dropped_stops_and_says_why(pipeline) -> None:
    db = pipeline.database
    for table in ("kept", "gone"):
        db.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY)")
        db.execute(f"INSERT INTO {table} VALUES (1)")
    pipeline.run()
    db.execute("INSERT INTO gone VALUES (2)")
    db.execute("DROP TABLE gone")
    pipeline.run()
    status = pipeline.status()
    assert status["gone"]["state"] == "stopped"
    assert "dropped" in status["gone"]["reason"]
    assert status["kept"]["state"] == "streaming"
    assert pipeline.verify().equal


def test_a_second_run_is_told_who_holds_the_lake(pipeline) -> None:
    lake = pipeline.app.lake
    with lake.lock("run"), pytest.raises(LockedError, match="process id"):
        pipeline.bronze()


def test_a_run_with_nothing_new_starts_no_spark(pipeline) -> None:
    pipeline.database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    pipeline.run()
    app = pipeline.app
    app._spark = None
    for stage in pipeline.stages():
        stage(app)
    assert app._spark is None
