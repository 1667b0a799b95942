"""A table that no event tells wholly is read again. Where it is gone before that, silver gets none of those events."""

from __future__ import annotations

from unittest import mock

import pytest
from servers.sparkless import Sparkless

from bronze.snapshot.run import Snapshotter
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.state import SilverState, SilverTable
from silver.plan import plan_run


class World:
    """A lake with a table of one row, of which silver has all."""

    def __init__(self, database, lake: Sparkless) -> None:
        self.database, self.lake = database, lake
        self.name = f"{database.name}.t"
        database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) DEFAULT 'by default')")
        database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
        database.execute("INSERT INTO t VALUES (1, 'whole')")
        self.run()
        state = self.lake.state
        self.silver = SilverState(run=1, cut=state.checkpoint)
        for name, table in state.tables.items():
            self.silver.tables[name] = SilverTable(state.checkpoint.at, table.generation, table.batch, table.rows, 1)

    def run(self) -> None:
        self.lake.run(url_of(self.database.server))

    def insert_without_the_default(self) -> None:
        self.database.execute("SET SESSION binlog_row_image = MINIMAL")
        self.database.execute("INSERT INTO t (id) VALUES (2)")

    def given_to_silver(self) -> list[str]:
        plan = plan_run(self.lake.state, self.silver, lambda _: 1)
        return [table.name for table in plan.tables] if plan else []

    def assert_stopped_without_what_no_event_tells(self, why: str) -> None:
        table = self.lake.state.tables[self.name]
        assert table.status == "stopped"
        assert table.reason is not None
        assert why in table.reason
        assert "inserted rows without v" in table.reason
        assert "silver keeps what it has" in table.reason
        assert self.given_to_silver() == []


@pytest.fixture
def world(database, replicator_password, tmp_path):
    return World(database, Sparkless(tmp_path, replicator_password, [f"{database.name}.*"]))


@pytest.mark.parametrize("max_batch_bytes", [1, 1 << 28])
def test_a_table_dropped_after_an_insert_without_its_defaults_gives_silver_nothing(world, max_batch_bytes) -> None:
    world.lake.source["max_batch_bytes"] = max_batch_bytes  # both in one batch, and each in one
    world.insert_without_the_default()
    world.database.execute("DROP TABLE t")
    world.run()
    why = "dropped at the source" if max_batch_bytes > 1 else "it is not at the source any more"
    world.assert_stopped_without_what_no_event_tells(why)


def test_a_table_renamed_away_after_an_insert_without_its_defaults_gives_silver_nothing(world) -> None:
    world.lake.source["include"] = [world.name, f"{world.database.name}.other"]
    world.insert_without_the_default()
    world.database.execute("RENAME TABLE t TO elsewhere")
    world.run()
    world.assert_stopped_without_what_no_event_tells("renamed to")


def test_a_table_left_out_before_it_was_read_again_gives_silver_nothing(world) -> None:
    world.insert_without_the_default()
    with mock.patch.object(Snapshotter, "run", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        world.run()
    assert world.lake.state.tables[world.name].status == "waiting for snapshot"
    world.lake.source["include"] = [f"{world.database.name}.other"]
    world.run()
    world.assert_stopped_without_what_no_event_tells("left out by the configuration")


def test_a_table_dropped_with_whole_events_gives_silver_all_of_them(world) -> None:
    world.database.execute("INSERT INTO t VALUES (2, 'whole too')")
    world.database.execute("DROP TABLE t")
    world.run()
    assert world.lake.state.tables[world.name].status == "stopped"
    assert world.given_to_silver() == [world.name]


def test_a_table_that_is_made_anew_after_all_that_is_read_again_and_given(world) -> None:
    world.insert_without_the_default()
    world.database.execute("DROP TABLE t")
    world.run()
    world.database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) DEFAULT 'by default')")
    world.database.execute("INSERT INTO t (id) VALUES (3)")
    world.run()
    table = world.lake.state.tables[world.name]
    assert (table.status, table.unfinished) == ("streaming", None)
    assert world.given_to_silver() == [world.name]
