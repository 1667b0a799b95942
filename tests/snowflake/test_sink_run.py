"""What a run of the sink does about tables that are refused and connections that are lost, and its statements over
keys that may be NULL. No Spark: the tables' own way is played, or the staged rows are written by hand."""

from __future__ import annotations

import contextlib
import shutil
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakeward.config import parse
from lakeward.errors import TerminalError, TransientError
from lakeward.lake import Lake
from lakeward.names import TableName
from snowflake.lakehouse import connection, merge_sql, positions, sink
from snowflake.lakehouse.merge_sql import Target
from snowflake.lakehouse.positions import SinkPosition
from snowflake.lakehouse.staging import staged

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

    for before in (first, replace(first, silver_id="another", version=4), None):
        with pytest.raises(TransientError, match=r"another sink has moved SHOP\.T"):
            overtaken(before)
    assert session.rows('SELECT * FROM "T"') == []
    assert positions.read(session, place) == replace(first, version=4)
    assert positions.read(session, ("OTHER", "T")) is None


def test_a_key_that_is_null_is_a_key(session):
    columns = (("A", "NUMBER(10,0)"), ("B", "VARCHAR"), ("V", "VARCHAR"))
    target = Target(session.database, "LAKEWARD", "PAIRS", columns, (0, 1), frozenset({1}))
    session.run(merge_sql.create(target))
    session.run(f"INSERT INTO {target.name} VALUES (1, NULL, 'old'), (1, 'x', 'old'), (2, NULL, 'goes')")
    session.run(merge_sql.create_staged(target, "STAGED"))
    session.run(
        "INSERT INTO \"STAGED\" VALUES (1, NULL, 'new', 'INSERT', TRUE, 1), (2, NULL, 'goes', 'DELETE', FALSE, 1),"
        " (3, NULL, 'comes', 'INSERT', FALSE, 1), (1, 'x', 'old', 'DELETE', FALSE, 1), (1, 'x', 'x', 'INSERT', TRUE, 1)"
    )
    session.run(merge_sql.merge(target, "STAGED"))
    found = session.rows(f'SELECT "A", "B", "V" FROM {target.name}')
    assert sorted(found, key=repr) == [(1, "x", "x"), (1, None, "new"), (3, None, "comes")]


def test_what_is_loaded_is_cast_to_what_its_column_is():
    columns = (("ID", "NUMBER(10,0)"), ("X", "BINARY"), ("AT", "TIMESTAMP_NTZ(6)"), ("J", "VARIANT"))
    loaded = merge_sql.copy(Target("D", "S", "T", columns, (0,)), "STAGED", "FILES", "batch")
    for field in ('$1:"c0"::NUMBER(10,0)', '$1:"c1"::BINARY', '$1:"c2"::NUMBER(19,0)', '$1:"c3"::VARCHAR'):
        assert field in loaded
    assert '$1:"__is_update"::BOOLEAN' in loaded
    assert "BINARY_AS_TEXT = FALSE" in loaded  # else bytes are read as text
    target = Target("D", "S", "T", columns, (0,))
    for made in (merge_sql.merge(target, "STAGED"), merge_sql.append(target, "STAGED", 1)):
        # A document that Snowflake cannot parse stays, as a string. (The server cannot run this.)
        assert 'COALESCE(TRY_PARSE_JSON("c3"), TO_VARIANT("c3"))' in made


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"version": 4}, False),  # silver was put back to an earlier state
        ({"version": positions.NOTHING}, False),
        ({"generation": 2}, False),
        ({"silver_id": "another"}, False),  # made anew, and its versions counted from 0
    ],
)
def test_changes_are_applied_to_an_earlier_state_of_the_very_table_alone(changed, same):
    before = replace(SinkPosition("id", 1, 3, "1:1:4", ()), **changed)
    work: Any = types.SimpleNamespace(silver_id="id", silver=types.SimpleNamespace(generation=1, version=3))
    assert sink._of_this(before, work) is same


class Recorded:
    """A session that notes what is run, and holds a stage's files as Snowflake does."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.stage: dict[str, bytes] = {}
        self.loaded: list[list[bytes]] = []
        self.refuse = ""

    def run(self, statement: str) -> None:
        self.ran.append(" ".join(statement.split()[:2]))
        if statement.startswith("CREATE OR REPLACE TEMPORARY STAGE"):
            self.stage.clear()
        elif statement.startswith("PUT 'file://"):
            local = Path(statement.removeprefix("PUT 'file://").partition("'")[0])
            self.stage[local.name] = local.read_bytes()
        elif self.refuse and statement.startswith(self.refuse):
            raise TerminalError("refused")
        elif statement.startswith("COPY INTO"):
            self.loaded.append(sorted(self.stage.values()))
            self.stage.clear()

    def rows(self, statement: str) -> list[tuple[int]]:
        return [(5,)]

    transaction = connection.Session.transaction


class Frame:
    """A DataFrame that writes files of these contents."""

    def __init__(self, *contents: bytes) -> None:
        self.contents, self.write, self.kept = contents, self, False

    def mode(self, how: str) -> Frame:
        self.kept = how != "overwrite"
        return self

    def option(self, *_: Any) -> Frame:
        return self

    def parquet(self, folder: str) -> None:
        if not self.kept:
            shutil.rmtree(folder, ignore_errors=True)
        Path(folder).mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(self.contents):
            Path(folder, f"{number}-{len(self.contents)}.parquet").write_bytes(data)


def test_what_is_loaded_is_the_frame_alone_whatever_was_left_of_another(tmp_path):
    lake, session = Lake(str(tmp_path)), Recorded()
    target = Target("D", "S", "T", (("ID", "NUMBER(10,0)"),), (0,))

    def load(*contents: bytes) -> None:
        with staged(session, lake, Frame(*contents), target, rows_max=9):  # type: ignore[arg-type]
            pass

    Frame(b"of a process that was killed", b"x", b"y").parquet(lake.path("_lakeward", "sink"))
    load(b"1", b"2")
    session.refuse = "COPY"
    with pytest.raises(TerminalError):
        load(b"of a table", b"that was", b"refused")
    session.refuse = ""
    load(b"3")
    load()
    assert session.loaded == [[b"1", b"2"], [b"3"]]
    assert not (tmp_path / "_lakeward" / "sink").exists()


def test_a_tables_changes_and_its_position_are_one_transaction(monkeypatch):
    session = Recorded()
    target = Target("D", "S", "T", (("ID", "NUMBER(10,0)"),), (0,))
    before = SinkPosition("id", 1, 3, "1:1:4", target.columns)
    silver = types.SimpleNamespace(generation=1, version=4)
    work: Any = types.SimpleNamespace(target=target, silver=silver, silver_id="id", cut="1:1:5", columns=["id"])
    moved = []

    def move(session: Any, place: Any, before: Any, after: SinkPosition) -> None:
        session.ran.append("position")
        moved.append((after.version, after.cut))

    monkeypatch.setattr(positions, "read", lambda session, place: before)
    monkeypatch.setattr(positions, "move", move)
    monkeypatch.setattr("snowflake.lakehouse.shape.columns_there", lambda session, target: dict(target.columns))
    monkeypatch.setattr(sink, "staged_frame", lambda frame, columns: frame)
    monkeypatch.setattr(sink, "staged", lambda *_, **__: contextlib.nullcontext("STAGED"))
    once: Any = session
    for how, statements in (
        ("merge", ["MERGE INTO"]),
        ("append", ["INSERT INTO"] * 2),
        ("replace", ["DELETE FROM", "INSERT INTO"]),
    ):
        copies = 2 if how == "append" else 1
        monkeypatch.setattr(sink, "_batch", lambda *_, how=how, copies=copies: sink.Batch(None, how, copies))  # type: ignore[arg-type]
        session.ran.clear()
        assert sink.sink_table(once, None, None, parse({}), work) == 5  # type: ignore[arg-type]
        assert session.ran == ["BEGIN", *statements, "position", "COMMIT"]
    assert moved == [(4, "1:1:5")] * 3
