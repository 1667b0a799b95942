"""What bronze keeps so that silver can carry out cascades: foreign keys, since when, and who had no checks."""

from __future__ import annotations

import os

import pytest
from servers.running import Database
from servers.sparkless import Sparkless

from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.foreign_keys import ForeignKey

TABLES = (
    "CREATE TABLE parent (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT one FOREIGN KEY (p) REFERENCES parent (id) "
    "ON DELETE CASCADE)",
    "INSERT INTO parent VALUES (1, 1), (2, 2), (3, 3)",
)


def _lake(database, password, folder):
    for statement in TABLES:
        database.execute(statement)
    made = Sparkless(folder, password, [f"{database.name}.*"])
    made.run(url_of(database.server))
    return made


@pytest.fixture
def lake(database, replicator_password, tmp_path):
    return _lake(database, replicator_password, tmp_path)


@pytest.fixture
def unlogged(mariadb_server, tmp_path):
    """A schema and its lake on a server that does not log cascades."""
    with Database.create(mariadb_server, f"references_{os.getpid()}") as made:
        yield made, _lake(made, ensure_replicator(mariadb_server, [EVERY_SCHEMA]), tmp_path)


def _keys(lake, table: str) -> list[ForeignKey]:
    return [ForeignKey.from_json(doc) for doc in lake.state.tables[table].foreign_keys]


def test_events_without_foreign_key_checks_say_so_and_others_do_not(database, lake) -> None:
    database.execute("DELETE FROM parent WHERE id = 1")
    database.execute("SET foreign_key_checks = 0")
    database.execute("DELETE FROM parent WHERE id = 2")
    database.execute("UPDATE parent SET v = 9 WHERE id = 3")
    database.execute("SET foreign_key_checks = 1")
    database.execute("UPDATE parent SET v = 8 WHERE id = 3")
    lake.run(url_of(database.server))
    events = [e for e in lake.events(f"{database.name}.parent") if e["op"] != "r"]
    assert [(e["op"], e["source"]["unchecked"]) for e in events] == [("d", None), ("d", True), ("u", True), ("u", None)]
    assert {e["source"]["cascade"] for e in events} == {None}


def test_a_foreign_key_holds_from_the_statement_that_made_it_to_the_one_that_took_it(unlogged) -> None:
    database, lake = unlogged
    child = f"{database.name}.child"
    (first,) = _keys(lake, child)
    assert (first.name, first.since, first.until) == ("one", None, None)
    database.execute("INSERT INTO parent VALUES (4, 4)")
    database.execute("ALTER TABLE child DROP FOREIGN KEY one")
    database.execute("INSERT INTO parent VALUES (5, 5)")
    before = lake.state.checkpoint.at
    lake.run(url_of(database.server))
    (gone,) = _keys(lake, child)
    assert gone.until is not None
    assert before < gone.until < lake.state.checkpoint.at
    database.execute("ALTER TABLE child ADD CONSTRAINT two FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE CASCADE")
    database.execute("INSERT INTO parent VALUES (6, 6)")
    before = lake.state.checkpoint.at
    lake.run(url_of(database.server))
    _, new = _keys(lake, child)
    assert (new.name, new.on_delete, new.on_update, new.until) == ("two", "", "CASCADE", None)
    assert before < new.since < lake.state.checkpoint.at


def test_the_children_of_a_parent_that_is_read_again_are_read_again_too(unlogged) -> None:
    database, lake = unlogged
    database.execute("ALTER TABLE parent MODIFY v VARCHAR(20)")
    database.execute("DELETE FROM parent WHERE id = 1")
    lake.run(url_of(database.server))
    tables = {n.partition(".")[2]: t for n, t in lake.state.tables.items()}
    assert {n: (t.status, t.generation) for n, t in tables.items()} == {
        "parent": ("streaming", 2), "child": ("streaming", 2)
    }  # fmt: skip
