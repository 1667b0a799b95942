"""A table that is altered or dropped between the planning of its snapshot and the reading of its chunks."""

from __future__ import annotations

from unittest import mock

import pytest
from servers.sparkless import Sparkless, run_tasks

from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import LakewardError

ALTERS = {
    "dropped": "DROP COLUMN gone",
    "renamed": "RENAME COLUMN gone TO here",
    "retyped": "MODIFY COLUMN gone VARCHAR(20)",
}


class Died(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture
def lake(database, replicator_password, tmp_path) -> Sparkless:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, gone INT, v INT)")
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1, 10, 100), (2, 20, 200), (3, 30, 300)")
    database.execute("INSERT INTO other VALUES (7)")
    return Sparkless(tmp_path, replicator_password, [f"{database.name}.*"])


def _before_tasks(act):
    """Bronze's tasks, and `act` before the first of them."""
    done = []

    def tasks(*arguments):
        done.append(1)
        if len(done) == 1:
            act()
        return run_tasks(*arguments)

    return mock.patch("servers.sparkless.run_tasks", tasks)


@pytest.mark.parametrize("killed", [False, True], ids=["under the run", "between two runs"])
@pytest.mark.parametrize("alter", ALTERS)
def test_a_table_that_is_altered_before_it_is_read_is_begun_anew(alter, killed, lake, server, database) -> None:
    url = url_of(server)

    def act() -> None:
        database.execute(f"ALTER TABLE t {ALTERS[alter]}")
        database.execute("UPDATE t SET v = 101 WHERE id = 1")
        if killed:
            raise Died

    with _before_tasks(act):
        if killed:
            with pytest.raises(Died):
                lake.run(url)
        else:
            lake.run(url)
    if killed:
        lake.run(url)
    table = lake.state.tables[f"{database.name}.t"]
    assert table.status == "streaming"
    names = {"dropped": ["id", "v"], "renamed": ["id", "here", "v"], "retyped": ["id", "gone", "v"]}[alter]
    assert [c.name for c in table.schema.columns] == names
    found = [e["after"] for e in lake.events(f"{database.name}.t") if e["source"]["generation"] == table.generation]
    assert sorted((row["id"], row["v"]) for row in found) == [(1, 101), (2, 200), (3, 300)]
    assert all(list(row) == names for row in found)
    assert [e["after"]["id"] for e in lake.events(f"{database.name}.other")] == [7]


def test_a_table_that_is_dropped_before_it_is_read_is_stopped_and_the_others_go_on(
    lake, server, database, capsys
) -> None:
    with _before_tasks(lambda: database.execute("DROP TABLE t")):
        lake.run(url_of(server))
    assert lake.state.tables[f"{database.name}.t"].status == "stopped"
    assert "disappeared while its snapshot was read" in capsys.readouterr().err
    assert [e["after"]["id"] for e in lake.events(f"{database.name}.other")] == [7]


def test_what_fails_for_another_reason_still_stops_the_run(lake, server, database) -> None:
    def fail(*_):
        return [LakewardError("the source failed", hint="") for _ in range(2)]

    with mock.patch("servers.sparkless.run_tasks", fail), pytest.raises(LakewardError, match="the source failed"):
        lake.run(url_of(server))
    lake.run(url_of(server))
    assert len(lake.events(f"{database.name}.t")) == 3
