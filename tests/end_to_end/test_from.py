"""`--from` through the whole pipeline: what silver makes of a table without a snapshot, and of earlier events."""

from __future__ import annotations

from typing import Any

from lakeward.cli import main


def place(pipeline: Any) -> str:
    mysql = pipeline.database.flavour == "mysql"
    file, pos, *_ = pipeline.database.query("SHOW BINARY LOG STATUS" if mysql else "SHOW MASTER STATUS")[0]
    return f"{file}:{pos}"


def test_silver_is_built_from_the_point_on_and_a_snapshot_completes_it(pipeline: Any, monkeypatch: Any) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    db.execute("CREATE TABLE k (v INT)")
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    db.execute("INSERT INTO k VALUES (1), (1)")
    earlier = place(pipeline)
    db.execute("UPDATE t SET v = 20 WHERE id = 2")
    point = place(pipeline)
    db.execute("UPDATE t SET v = 10 WHERE id = 1")
    db.execute("DELETE FROM t WHERE id = 3")
    db.execute("INSERT INTO t VALUES (4, 4)")
    db.execute("DELETE FROM k LIMIT 1")
    db.execute("INSERT INTO k VALUES (2)")
    pipeline.bronze(point)
    pipeline.silver()
    assert pipeline.rows("t", "id", "v") == [(1, 10), (4, 4)]
    assert pipeline.rows("k", "v") == [(2,)]
    assert pipeline.status()["t"]["started_at"]["asked"] == point

    pipeline.bronze(earlier)
    db.execute("INSERT INTO t VALUES (5, 5)")
    pipeline.bronze()
    pipeline.silver()
    assert pipeline.ops("t") == "uudcc"
    assert pipeline.rows("t", "id", "v") == [(1, 10), (4, 4), (5, 5)]
    pipeline.assert_each_event_once()

    monkeypatch.chdir(pipeline.folder)
    assert main(["resnapshot", f"{db.name}.t", f"{db.name}.k"]) == 0
    pipeline.run()
    assert pipeline.verify().equal
    assert pipeline.status()["t"]["started_at"] is None


def test_earlier_events_do_not_overrule_a_snapshot(pipeline: Any) -> None:
    db = pipeline.database
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    point = place(pipeline)
    db.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    db.execute("UPDATE t SET v = 9 WHERE id = 1")
    db.execute("DELETE FROM t WHERE id = 2")
    pipeline.run()
    pipeline.bronze(point)
    pipeline.run()
    assert pipeline.ops("t").replace("r", "") == "ccud"
    assert pipeline.rows("t", "id", "v") == [(1, 9)]
    assert pipeline.verify().equal
    pipeline.assert_each_event_once()
