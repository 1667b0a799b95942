"""XA transactions that are prepared while others go on: what stands between their halves is in bronze once."""

from __future__ import annotations

import threading

import pytest
from servers.running import Database
from servers.sparkless import Sparkless

from lakeward.embedded.replicator import replicator_url as url_of


@pytest.fixture
def bronze(database: Database, replicator_password: str, tmp_path) -> Sparkless:
    """Bronze of the tables `t` and `u`; `u` has no key, so that its rows are counted."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE u (id INT)")
    made = Sparkless(tmp_path, replicator_password, [f"{database.name}.*"])
    made.run(url_of(database.server))
    return made


def prepare(connection) -> None:
    for statement in ("XA START 'p'", "INSERT INTO t VALUES (7)", "XA END 'p'", "XA PREPARE 'p'"):
        connection.query(statement)


def ids(bronze: Sparkless, database: Database, table: str) -> list[int]:
    return [e["after"]["id"] for e in bronze.events(f"{database.name}.{table}") if not e["source"]["snapshot"]]


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_what_follows_a_prepared_transaction_is_landed_once_when_it_ends(database, bronze, end) -> None:
    database.execute("INSERT INTO u VALUES (0)")  # a place to resume from before it
    other = database.connection()
    prepare(other)
    database.execute("INSERT INTO u VALUES (1)")
    later = threading.Timer(1.5, other.query, [f"XA {end} 'p'"])
    later.start()
    bronze.run(url_of(database.server))  # looks again and again until then
    later.join()
    bronze.run(url_of(database.server))
    assert ids(bronze, database, "u") == [0, 1]
    assert ids(bronze, database, "t") == ([7] if end == "COMMIT" else [])
    other.close()


@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_a_transaction_prepared_in_one_file_and_ended_in_a_later_one_keeps_each_event_once(
    database, bronze, end
) -> None:
    other = database.connection()
    database.execute("INSERT INTO u VALUES (0)")
    prepare(other)
    for n in (1, 2):
        database.execute("FLUSH BINARY LOGS")  # files are read side by side
        database.execute(f"INSERT INTO u VALUES ({n})")
    other.query(f"XA {end} 'p'")
    database.execute("INSERT INTO u VALUES (3)")
    bronze.run(url_of(database.server))
    assert ids(bronze, database, "u") == [0, 1, 2, 3]
    assert ids(bronze, database, "t") == ([7] if end == "COMMIT" else [])
    assert {t.generation for t in bronze.state.tables.values()} == {1}, "a table was read again without need"
    other.close()
