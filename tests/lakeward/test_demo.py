"""The demo database and its traffic: the same everywhere, and whole at every commit."""

from __future__ import annotations

import hashlib
import json

import pytest
from servers.running import binary

import lakeward.embedded.source as source_module
from lakeward.embedded import demo_down, demo_traffic, demo_up, embedded_source
from lakeward.embedded.demo.load import DATABASE, first_rows, load
from lakeward.embedded.demo.traffic import burst
from lakeward.embedded.server import EmbeddedServer

TABLES = list(first_rows())


def checksums(database):
    """Of each table, all its rows in any order."""
    return {table: checksum(database.query(f"SELECT * FROM {table}")) for table in TABLES}


def checksum(rows):
    return hashlib.sha256("\n".join(sorted(map(repr, rows))).encode()).hexdigest()


def loaded(database, name):
    """The demo in a database of its own beside `database`; the caller's fixture drops only its own."""
    return type(database).create(database.server, f"{database.name}_{name}")


def test_the_same_seed_on_equal_databases_leaves_equal_databases(database):
    with loaded(database, "a") as a, loaded(database, "b") as b, loaded(database, "c") as c:
        for copy in (a, b, c):
            load(copy.root)
        assert checksums(a) == checksums(b)
        reports = [burst(copy.root, seed=seed, transactions=150) for copy, seed in ((a, 7), (b, 7), (c, 8))]
        assert reports[0] == reports[1]
        assert checksums(a) == checksums(b)
        assert checksums(a)["trips"] != checksums(c)["trips"]


def test_the_first_rows_read_back_as_they_were_given(database):
    load(database.root)
    given = first_rows()
    assert {t: database.query(f"SELECT COUNT(*) FROM {t}")[0][0] for t in TABLES} == {t: len(given[t]) for t in TABLES}
    assert sum(map(len, given.values())) > 3000
    names = {row[0] for row in database.query("SELECT name FROM countries")}
    assert {"भारत", "日本", "Việt Nam"} <= names


def test_a_burst_inserts_updates_deletes_and_changes_keys(database):
    load(database.root)
    before = {row[0] for row in database.query("SELECT code FROM countries")}
    report = burst(database.root, seed=3, transactions=400)
    assert min(report.inserted, report.updated, report.deleted) > 20
    assert {row[0] for row in database.query("SELECT code FROM countries")} != before
    assert "seed 3" in str(report)


def test_reservation_thing_and_outbox_agree_after_any_burst(database):
    load(database.root)
    for seed in (1, 2, 3):
        burst(database.root, seed=seed)
    reserved = database.query("SELECT id FROM things WHERE state = 'reserved' ORDER BY id")
    active = database.query("SELECT thing_id FROM reservations WHERE state = 'active' ORDER BY thing_id")
    assert reserved == active
    told = database.query("SELECT COUNT(*) FROM cdc_outbox WHERE event_type = 'reserved'")
    assert told == database.query("SELECT COUNT(*) FROM reservations")
    equal = "SELECT COUNT(*) FROM audit_log GROUP BY happened_at, actor, action, line HAVING COUNT(*) > 1"
    assert database.query(equal), "the table without a key should hold equal rows"


def test_a_failing_transaction_leaves_nothing(database):
    load(database.root)
    database.execute("DROP TABLE audit_log")
    with pytest.raises(Exception, match="audit_log"):
        burst(database.root, seed=1)
    database.execute("CREATE TABLE audit_log (happened_at DATETIME(3), actor TEXT, action TEXT)")
    before = database.query("SELECT COUNT(*) FROM reservations")
    with pytest.raises(Exception, match="olumn"):
        burst(database.root, seed=1)
    reserved = database.query("SELECT COUNT(*) FROM things WHERE state = 'reserved'")
    active = database.query("SELECT COUNT(*) FROM reservations WHERE state = 'active'")
    assert reserved == active
    assert database.query("SELECT COUNT(*) FROM reservations")[0][0] >= before[0][0]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder for an embedded source, of which no server is left running."""
    monkeypatch.setattr(source_module, "find_server", lambda basedir=None: binary("mariadb"))
    yield tmp_path
    if server := EmbeddedServer.attach(tmp_path):
        server.kill()


def test_the_demo_goes_up_and_down_and_each_burst_has_the_next_seed(folder):
    assert "no embedded server runs" in demo_down(folder)
    assert DATABASE in demo_up(folder)
    seeds = [demo_traffic(folder, transactions=20).seed for _ in range(2)]
    assert seeds == [1, 2]
    assert "its data stays" in demo_down(folder)
    source = embedded_source(folder)
    assert source.url == f"mysql://replicator@127.0.0.1:{source.server.port}"
    assert demo_traffic(folder, transactions=5).seed == 3
    assert source.password not in repr(source)


def test_a_load_that_was_interrupted_is_begun_anew(folder, monkeypatch):
    def half(connection):
        load(connection)
        raise KeyboardInterrupt

    monkeypatch.setattr(source_module, "load", half)
    with pytest.raises(KeyboardInterrupt):
        embedded_source(folder)
    monkeypatch.undo()
    server = embedded_source(folder).server
    with server.admin(DATABASE) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM trips")
        assert cursor.fetchone() == (len(first_rows()["trips"]),)
    assert json.loads((folder / "demo.json").read_text()) == {"bursts": 0}
