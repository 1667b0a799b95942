"""`--from`: the point that was meant is found, what is before it stays out, and nothing is in bronze twice."""

from __future__ import annotations

import contextlib
import datetime
import time
from collections import Counter
from unittest import mock

import pytest
from servers.sparkless import Sparkless

from bronze.batch import land as really_land
from bronze.begin import Begin
from lakeward.cli.status import document
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import FailClosedError, TerminalError, UsageError, WrongServerError

FLAVOURS = ["mysql", "mariadb"]


class Source:
    """A server with two tables, and an empty lake."""

    def __init__(self, server, folder) -> None:
        self.server = server
        self.lake(folder)
        self.execute("CREATE DATABASE shop")
        self.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
        self.execute("CREATE TABLE shop.u (id INT PRIMARY KEY)")

    def lake(self, folder, **source) -> None:
        self.bronze = Sparkless(folder, ensure_replicator(self.server, [EVERY_SCHEMA]), ["shop.*"], **source)

    def execute(self, *statements) -> None:
        """In one session."""
        with self.server.admin() as connection, connection.cursor() as cursor:
            for sql in statements:
                cursor.execute(sql)

    def insert(self, *numbers, table="t") -> None:
        for n in numbers:
            self.execute(f"INSERT INTO shop.{table} (id) VALUES ({n})")

    def here(self):
        """The place now, as a place and as GTIDs."""
        show = "SHOW BINARY LOG STATUS" if self.server.flavour == "mysql" else "SHOW MASTER STATUS"
        name = "gtid_executed" if self.server.flavour == "mysql" else "gtid_binlog_pos"
        with self.server.admin() as connection, connection.cursor() as cursor:
            cursor.execute(show)
            file, pos, *_ = cursor.fetchone()
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            return f"{file}:{pos}", cursor.fetchone()[0]

    def run(self, point=None, *tables, **options):
        begin_at = Begin(point, tables) if point else None
        return self.bronze.run(url_of(self.server), begin_at=begin_at, **options)

    def ids(self, table="t"):
        return [(e["after"] or e["before"] or {"id": None})["id"] for e in self.bronze.events(f"shop.{table}")]

    def assert_each_event_once(self) -> None:
        for table in ("t", "u"):
            places = Counter(
                tuple(e["source"][k] for k in ("epoch", "file", "pos", "row", "generation"))
                for e in self.bronze.events(f"shop.{table}")
            )
            assert [p for p, n in places.items() if n > 1] == []


@pytest.fixture
def source(request, own_server, tmp_path):
    return Source(own_server(request.param), tmp_path / "first")


both = pytest.mark.parametrize("source", FLAVOURS, indirect=True)


@both
def test_a_place_a_gtid_set_and_a_time_find_the_same_point_for_a_new_lake(source, tmp_path) -> None:
    source.insert(1, 2)
    source.execute("FLUSH BINARY LOGS")
    source.insert(3, 4)
    time.sleep(2.1)  # MariaDB's events know the second alone
    place, gtids = source.here()
    moment = datetime.datetime.now(datetime.UTC).replace(microsecond=0).isoformat()
    source.insert(5)
    source.execute("FLUSH BINARY LOGS")
    source.insert(6)
    for number, point in enumerate((place, gtids, moment)):
        source.lake(tmp_path / str(number))
        source.run(point)
        source.insert(10 + number)
        source.run()
        state = source.bronze.state
        assert source.ids() == [5, 6, *range(10, 11 + number)]
        assert {e["op"] for e in source.bronze.events("shop.t")} == {"c"}
        table = state.tables["shop.t"]
        assert (table.status, f"{table.start.file}:{table.start.pos}") == ("streaming", tail_of(place))
        shown = next(t for t in document(source.bronze.lake)["tables"] if t["name"] == "shop.t")
        assert shown["started_at"] == {"asked": point, "position": str(table.start)}
    assert state.checkpoint.gtid.replace("\n", "") == source.here()[1].replace("\n", "")


def tail_of(place):
    file, pos = place.split(":")
    return f"{int(file.rpartition('.')[2])}:{pos}"


@both
def test_earlier_events_of_a_followed_table_are_added_once_and_silver_does_not_hear_of_it(source) -> None:
    first, _ = source.here()
    source.insert(1, 2)
    second, _ = source.here()
    source.insert(3)
    source.execute("UPDATE shop.t SET v = 7 WHERE id = 1")
    source.run()
    source.insert(4)
    source.run()
    before = source.bronze.state.tables["shop.t"]
    for point, ids in (
        (second, [3, 1, 4]),
        (first, [1, 2, 3, 1, 4]),
        (first, [1, 2, 3, 1, 4]),
        (second, [1, 2, 3, 1, 4]),
    ):
        report = source.run(point)
        stream = [e for e in source.bronze.events("shop.t") if not e["source"]["snapshot"]]
        assert [e["after"]["id"] for e in stream] == ids
    assert "already" in report.warnings[0]
    after = source.bronze.state.tables["shop.t"]
    assert (after.start, after.batch, after.generation) == (before.start, before.batch, before.generation)
    assert after.status == "streaming"
    source.assert_each_event_once()


@both
def test_a_new_table_begins_at_the_point_while_the_others_go_on(source) -> None:
    source.bronze.source["exclude"] = ["shop.u"]
    point, _ = source.here()
    source.insert(1)
    source.run()
    source.insert(1, 2, table="u")
    source.execute("TRUNCATE shop.u")
    source.insert(2)
    source.run()
    source.bronze.source["exclude"] = []
    source.insert(3, table="u")
    source.run(point, "shop.u")
    source.insert(4, table="u")
    source.run()
    assert [(e["op"], e["after"] and e["after"]["id"]) for e in source.bronze.events("shop.u")] == [
        ("c", 1), ("c", 2), ("t", None), ("c", 3), ("c", 4),
    ]  # fmt: skip
    assert source.bronze.state.tables["shop.u"].status == "streaming"
    assert source.ids() == [1, 2]  # the snapshot's row and the stream's: not begun again
    source.assert_each_event_once()


@both
def test_tables_that_bronze_holds_from_different_places_are_each_filled_up_to_theirs(source) -> None:
    source.bronze.source["exclude"] = ["shop.u"]
    point, _ = source.here()
    source.insert(1)
    source.run()
    source.insert(2)
    source.insert(1, table="u")
    source.run()
    source.bronze.source["exclude"] = []
    source.run(point)
    assert [(e["op"], e["after"]["id"]) for e in source.bronze.events("shop.t")] == [("c", 1), ("r", 1), ("c", 2)]
    assert [(e["op"], e["after"]["id"]) for e in source.bronze.events("shop.u")] == [("c", 1)]
    source.assert_each_event_once()


@pytest.mark.parametrize("source", ["mariadb"], indirect=True)
def test_a_run_that_is_killed_in_the_middle_is_finished_by_the_next_one(source, tmp_path) -> None:
    source.lake(tmp_path / "small", max_batch_bytes=500)
    point, _ = source.here()
    source.insert(*range(20))
    source.run()
    source.insert(20)
    landed = []

    def land(*arguments, **more):
        landed.append(more)
        if len(landed) == 4:
            raise KeyboardInterrupt
        really_land(*arguments, **more)

    with mock.patch("bronze.run.land", land), contextlib.suppress(KeyboardInterrupt):
        source.run(point)
    assert source.bronze.state.earlier is not None
    source.run()
    assert source.bronze.state.earlier is None
    stream = [e["after"]["id"] for e in source.bronze.events("shop.t") if not e["source"]["snapshot"]]
    assert stream == list(range(21))
    source.assert_each_event_once()


@both
def test_what_cannot_be_meant_is_refused_with_what_can(source) -> None:
    place, gtids = source.here()
    source.insert(1)
    file, pos = place.split(":")
    after, _ = source.here()
    refused(source, TerminalError, f"{file}:{int(pos) + 7}", "between two transactions", place.split(":")[1])
    refused(source, TerminalError, f"{file}:{int(pos) + 7}", "between two transactions", after.split(":")[1])
    refused(source, WrongServerError, f"{file}:99999999", "ends before", after.split(":")[1])
    refused(source, WrongServerError, "900:4", "ends before", after.split(":")[1])
    refused(source, UsageError, "2999-01-01", "future", "UTC")
    refused(source, UsageError, "yesterday", "no place, GTID set or time", "binlog.000042:1234")
    joint = {"mysql": ":", "mariadb": "-"}[source.server.flavour]
    refused(source, WrongServerError, f"{gtids.rpartition(joint)[0]}{joint}500", "never had", "")
    refused(source, UsageError, place, "shop.none is not followed", "shop.t", "shop.none")
    assert source.bronze.state.tables == {}


def refused(source, kind, point, message, hint, *tables) -> None:
    with pytest.raises(kind, match=message) as caught:
        source.run(point, *tables)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize("source", ["mysql"], indirect=True)
def test_a_point_that_was_purged_says_what_is_left(source) -> None:
    place, gtids = source.here()
    moment = datetime.datetime.now(datetime.UTC).isoformat()
    source.insert(1)
    time.sleep(1.1)
    source.execute("FLUSH BINARY LOGS")
    oldest = source.here()[0].split(":")[0]
    source.execute(f"PURGE BINARY LOGS TO '{oldest}'")
    for point in (place, gtids, moment):
        with pytest.raises(WrongServerError, match="purged") as caught:
            source.run(point)
        assert caught.value.facts["oldest"] == f"{int(oldest.rpartition('.')[2])}:4"


@both
def test_events_of_another_shape_are_refused_with_where_to_begin(source) -> None:
    point, _ = source.here()
    source.insert(1)
    source.execute("ALTER TABLE shop.t MODIFY v VARCHAR(10)")
    between, _ = source.here()
    source.insert(2)
    source.run()
    with pytest.raises(FailClosedError, match="another shape"):
        source.run(point, "shop.t")
    source.run()  # nothing of it was begun
    source.run(between)
    assert [e["after"]["id"] for e in source.bronze.events("shop.t") if not e["source"]["snapshot"]] == [2]


PARTIAL = (
    "SET SESSION binlog_row_image = MINIMAL",
    "INSERT INTO shop.t (id) VALUES (1)",
    "UPDATE shop.t SET v = 5",
)


@both
def test_earlier_events_that_lack_columns_say_so_and_nothing_is_read_again_for_them(source) -> None:
    point, _ = source.here()
    source.execute(*PARTIAL)
    source.run()
    source.run(point)
    table = source.bronze.state.tables["shop.t"]
    assert (table.status, table.generation, table.unfinished) == ("streaming", 1, None)
    inserted, updated, read = source.bronze.events("shop.t")
    assert (inserted["op"], inserted["after"], inserted["source"]["absent"]) == ("c", {"id": 1, "v": None}, ["v"])
    assert (updated["op"], updated["after"], updated["source"]["absent"]) == ("u", {"id": 1, "v": 5}, None)
    assert (updated["before"], updated["source"]["before_absent"]) == ({"id": 1, "v": None}, ["v"])
    assert (read["op"], read["after"]) == ("r", {"id": 1, "v": 5})


@both
@pytest.mark.parametrize(
    "statements", [PARTIAL[:2], ("DROP TABLE shop.t", "CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")]
)
def test_a_table_that_begins_where_no_event_tells_its_rows_is_snapshotted_instead(source, statements) -> None:
    source.bronze.source["exclude"] = ["shop.t"]
    source.run()
    point, _ = source.here()
    source.insert(7)
    source.execute(*statements)
    source.insert(8, table="u")
    source.run()
    source.bronze.source["exclude"] = []
    source.run(point, "shop.t")
    table = source.bronze.state.tables["shop.t"]
    assert (table.status, table.generation, table.unfinished) == ("streaming", 2, None)
    kept = [7, 1] if statements == PARTIAL[:2] else []
    snapshot = [e["after"]["id"] for e in source.bronze.events("shop.t") if e["source"]["snapshot"]]
    assert sorted(snapshot) == sorted(kept)
    source.assert_each_event_once()
