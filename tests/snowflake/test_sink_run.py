"""What a run of the sink does about tables that are refused and connections that are lost, and its statements over
keys that may be NULL. No Spark: the tables' own way is played, or the staged rows are written by hand."""

from __future__ import annotations

import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.config import parse
from lakeward.errors import TerminalError, TransientError
from lakeward.names import TableName
from snowflake.lakehouse import connection, merge_sql, positions, sink
from snowflake.lakehouse.merge_sql import Target
from snowflake.lakehouse.positions import SinkPosition

TABLES = ("shop.a", "shop.b", "shop.c")


class Opened:
    """A session that nothing is asked of."""

    def enter(self, schema: str) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """A run over three tables of five rows each; `fail` raises what their sinking is to end with."""
    versions = types.SimpleNamespace(version=3)
    schemas = {n: types.SimpleNamespace(name=TableName(*n.split("."))) for n in TABLES}
    bronze = {n: types.SimpleNamespace(name=s.name, schema=s) for n, s in schemas.items()}
    made = types.SimpleNamespace(tries=[], pauses=[], opened=0, fail=lambda name: None)

    def once(session: Any, spark: Any, lake: Any, config: Any, work: Any) -> int:
        made.tries.append(str(work.schema.name))
        made.fail(str(work.schema.name))
        return 5

    def login(config: Any) -> Any:
        made.opened += 1
        made.fail("login")
        return Opened()

    monkeypatch.setattr(sink, "load_silver", lambda lake: types.SimpleNamespace(tables=dict.fromkeys(TABLES, versions)))
    monkeypatch.setattr(sink, "load_bronze", lambda lake: types.SimpleNamespace(tables=bronze))
    monkeypatch.setattr(sink, "_work", lambda *v: types.SimpleNamespace(schema=v[3], silver=v[4]))
    monkeypatch.setattr(sink, "next_step", lambda session, spark, work, rows_max: work)
    monkeypatch.setattr(sink, "sink_table", once)
    monkeypatch.setattr(sink, "connect", login)
    monkeypatch.setattr(positions, "ensure", lambda session: None)
    monkeypatch.setattr("snowflake.lakehouse.sink.time.sleep", made.pauses.append)
    monkeypatch.setattr("snowflake.lakehouse.sink.random.uniform", lambda least, most: 1.0)
    spark: Any = types.SimpleNamespace(
        newSession=lambda: types.SimpleNamespace(conf=types.SimpleNamespace(set=lambda *v: None))
    )
    made.run = lambda: sink.run(spark, None, parse({}), [])  # type: ignore[arg-type]
    return made


def test_a_table_that_is_refused_holds_up_no_other_and_is_named_with_its_cause(played):
    def fail(name: str) -> None:
        if name != "shop.b" and name != "login":
            raise TerminalError("Snowflake refused COPY INTO", hint="see the query", number=100038)

    played.fail = fail
    with pytest.raises(TerminalError, match="2 of 3 tables were not sunk") as caught:
        played.run()
    assert played.tries == list(TABLES)
    text = str(caught.value)
    for cause in (
        "shop.a: Snowflake refused COPY INTO",
        "shop.c: Snowflake refused",
        "number: 100038",
        "see the query",
    ):
        assert cause in text
    assert "shop.b" not in text


def test_a_login_that_is_refused_ends_the_run_at_once(played):
    def fail(name: str) -> None:
        raise TerminalError("Snowflake refused the login …")

    played.fail = fail
    with pytest.raises(TerminalError, match="refused the login"):
        played.run()
    assert (played.opened, played.tries) == (1, [])


def test_a_lost_connection_is_made_anew_after_a_pause(played):
    lost = iter([True])

    def fail(name: str) -> None:
        if name == "shop.b" and next(lost, False):
            raise TransientError("the connection is gone")

    played.fail = fail
    report = played.run()
    assert (report.tables, report.changes) == (3, 15)
    assert played.tries == ["shop.a", "shop.b", "shop.b", "shop.c"]
    assert (played.opened, played.pauses) == (2, [1.0])


def test_a_connection_that_stays_lost_is_tried_three_times_more_and_the_table_is_named(played):
    def fail(name: str) -> None:
        if name == "shop.b":
            raise TransientError("the connection is gone")

    played.fail = fail
    with pytest.raises(TransientError) as caught:
        played.run()
    assert played.tries == ["shop.a", *["shop.b"] * 4]
    assert played.pauses == [1.0, 2.0, 4.0]
    assert "table: shop.b" in str(caught.value)


@pytest.fixture
def session(fake_snowflake: dict[str, Any], fresh: str, tmp_path: Path) -> Any:
    (tmp_path / "password").write_text("snow")
    place = {k: fake_snowflake[k] for k in ("account", "user", "host", "port", "protocol")}
    config = parse({"snowflake": {**place, "password": "file:password", "database": fresh}}, folder=tmp_path)
    opened = connection.connect(config.snowflake)
    opened.enter("LAKEWARD")
    yield opened
    opened.close()


def test_a_position_that_another_sink_has_moved_meanwhile_takes_the_batch_with_it(session):
    positions.ensure(session)
    session.run('CREATE TABLE "T" ("ID" NUMBER(10,0))')
    place = ("SHOP", "T")
    first = SinkPosition("id", 1, 3, "1:1:4", (("ID", "NUMBER(10,0)"),))
    positions.move(session, place, None, first)
    positions.move(session, place, first, replace(first, version=4))

    def overtaken(before: SinkPosition | None) -> None:
        with session.transaction():
            session.run('INSERT INTO "T" SELECT 1')
            positions.move(session, place, before, replace(first, version=5))

    for before in (first, None):
        with pytest.raises(TransientError, match=r"another sink has moved SHOP\.T"):
            overtaken(before)
    assert session.rows('SELECT * FROM "T"') == []
    assert positions.read(session, place) == replace(first, version=4)


def test_a_key_that_is_null_is_a_key(session):
    columns = (("A", "NUMBER(10,0)"), ("B", "VARCHAR"), ("V", "VARCHAR"))
    target = Target(session.database, "LAKEWARD", "PAIRS", columns, (0, 1), frozenset({1}))
    session.run(merge_sql.create(target))
    session.run(f"INSERT INTO {target.name} VALUES (1, NULL, 'old'), (1, 'x', 'old'), (2, NULL, 'goes')")
    session.run(merge_sql.create_staged(target, "STAGED"))
    session.run(
        "INSERT INTO \"STAGED\" VALUES (1, NULL, 'new', 'INSERT', TRUE, 1), (2, NULL, 'goes', 'DELETE', FALSE, 1),"
        " (3, NULL, 'comes', 'INSERT', FALSE, 1)"
    )
    session.run(merge_sql.merge(target, "STAGED"))
    found = session.rows(f'SELECT "A", "B", "V" FROM {target.name}')
    assert sorted(found, key=repr) == [(1, "x", "old"), (1, None, "new"), (3, None, "comes")]


def test_what_is_loaded_is_cast_to_what_its_column_is():
    columns = (("ID", "NUMBER(10,0)"), ("X", "BINARY"), ("AT", "TIMESTAMP_NTZ(6)"), ("J", "VARIANT"))
    loaded = merge_sql.copy(Target("D", "S", "T", columns, (0,)), "STAGED", "FILES", "batch")
    for field in ('$1:"c0"::NUMBER(10,0)', '$1:"c1"::BINARY', '$1:"c2"::NUMBER(19,0)', '$1:"c3"::VARCHAR'):
        assert field in loaded
    assert '$1:"__is_update"::BOOLEAN' in loaded
