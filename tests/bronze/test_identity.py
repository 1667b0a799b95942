"""A log that is not what it was: purged, reset, or begun after the checkpoint. What is lost is named exactly."""

from __future__ import annotations

import time

import pytest
from servers.replicas import SETTINGS, promote, replicate
from servers.running import Database
from servers.sparkless import Sparkless

from bronze.resnapshot import mark
from lakeward.cli.status import document
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import WrongServerError

FLAVOURS = ["mysql", "mariadb"]
RESET = {"mysql": "RESET BINARY LOGS AND GTIDS", "mariadb": "RESET MASTER"}


class Source:
    """A server with a table, and a lake that has read it."""

    def __init__(self, server, folder) -> None:
        self.server = server
        self.bronze = Sparkless(folder, ensure_replicator(server, [EVERY_SCHEMA]), ["shop.*"])
        self.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)")
        self.run()

    def run(self, **options):
        return self.bronze.run(url_of(self.server), **options)

    def execute(self, *statements) -> None:
        with self.server.admin() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def insert(self, *numbers) -> None:
        self.execute(*(f"INSERT INTO shop.t VALUES ({n})" for n in numbers))

    def query(self, sql):
        with self.server.admin() as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def executed(self):
        name = "gtid_executed" if self.server.flavour == "mysql" else "gtid_binlog_pos"
        return str(self.query(f"SELECT @@GLOBAL.{name}")[0][0])

    def purge(self) -> None:
        """Keep the newest file alone."""
        self.execute("FLUSH BINARY LOGS")
        deadline = time.monotonic() + 20
        while len(self.query("SHOW BINARY LOGS")) > 1:  # MariaDB keeps a file until its engine has let go of it
            assert time.monotonic() < deadline
            self.execute(f"PURGE BINARY LOGS TO '{self.query('SHOW BINARY LOGS')[-1][0]}'")
            time.sleep(0.05)

    def refused(self):
        with pytest.raises(WrongServerError) as caught:
            self.run()
        return caught.value


@pytest.fixture
def source(request, own_server, tmp_path):
    return Source(own_server(request.param), tmp_path)


def run_of(flavour, before, after):
    """How the transactions after `before` up to `after` are named."""
    joint = {"mysql": ":", "mariadb": "-"}[flavour]
    name, _, last = after.rpartition(joint)
    first = int(before.rpartition(joint)[2].rpartition("-")[2]) + 1
    last = int(last.rpartition("-")[2])
    one = f"{name}{joint}{first}"
    if first == last:
        return one
    return f"{one}-{last}" if flavour == "mysql" else f"{one} to {name}{joint}{last}"


@pytest.mark.parametrize("source", FLAVOURS, indirect=True)
def test_a_purged_log_names_the_transactions_that_went_and_a_flag_goes_on_without_them(source) -> None:
    before = source.executed()
    source.insert(1, 2, 3)
    lost = run_of(source.server.flavour, before, source.executed())
    source.purge()
    source.insert(4)
    error = source.refused()
    assert "purged" in error.message
    assert error.facts["missing"] == lost
    assert "resnapshot --all" in str(error.hint)
    assert "--accept-gap" in str(error.hint)
    source.run(accept_gap=True)
    source.run()
    assert [e["after"]["id"] for e in source.bronze.events("shop.t")] == [4]
    (gap,) = document(source.bronze.lake)["gaps"]
    assert (gap["missing"], gap["tables"]) == (lost, ["shop.t"])
    mark(source.bronze.spark, source.bronze.lake, ["shop.t"])
    source.run()
    assert document(source.bronze.lake)["gaps"] == []


@pytest.mark.parametrize("source", FLAVOURS, indirect=True)
def test_a_log_that_was_purged_after_it_was_read_is_no_gap(source) -> None:
    source.purge()
    source.insert(1)
    source.run()
    assert [e["after"]["id"] for e in source.bronze.events("shop.t")] == [1]
    assert source.bronze.state.gaps == []
    assert source.bronze.state.epoch == 1


@pytest.mark.parametrize("source", FLAVOURS, indirect=True)
def test_a_log_that_was_reset_is_refused_also_when_it_has_grown_past_the_checkpoint(source) -> None:
    source.execute(RESET[source.server.flavour])
    assert "reset" in source.refused().message
    while len(source.query("SHOW BINARY LOGS")) < source.bronze.state.checkpoint.at.file:
        source.execute("FLUSH BINARY LOGS")
    source.insert(*range(100))  # as many GTIDs and bytes as were read, and more
    error = source.refused()
    assert "history" in error.message
    source.run(accept_gap=True)
    source.run()
    assert [e["after"]["id"] for e in source.bronze.events("shop.t")] == list(range(100))
    assert source.bronze.state.epoch == 2


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_a_replica_made_from_a_backup_lacks_what_was_written_before_it(flavour, own_server, tmp_path) -> None:
    source = Source(own_server(flavour), tmp_path)
    read = source.executed()
    source.insert(1, 2)
    copied = source.executed()
    replica = own_server(flavour, settings=SETTINGS[flavour])
    begin = {
        "mysql": f"SET GLOBAL gtid_purged = '{copied}'",
        "mariadb": f"SET GLOBAL gtid_slave_pos = '{copied}'",
    }[flavour]
    password = ensure_replicator(replica, [EVERY_SCHEMA])
    with replica.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO shop.t VALUES (1), (2)")
        cursor.execute(RESET[flavour])
        cursor.execute(begin)
    replicate(source.server, replica, new=False)
    source.insert(3)
    promote(replica, source.executed())
    source.bronze.password = password
    with pytest.raises(WrongServerError) as refused:
        source.bronze.run(url_of(replica))
    assert refused.value.facts["missing"] == run_of(flavour, read, copied)
    source.bronze.run(url_of(replica), accept_gap=True)
    assert [e["after"]["id"] for e in source.bronze.events("shop.t")] == [3]


def test_without_gtids_another_server_is_refused_and_cannot_be_gone_on_from(own_server, tmp_path) -> None:
    off = {"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"}
    source = Source(own_server("mysql", settings=off), tmp_path)
    other = own_server("mysql", settings=off)
    source.bronze.password = ensure_replicator(other, [EVERY_SCHEMA])
    with Database.create(other, "shop") as database:
        database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        for accept_gap in (False, True):
            with pytest.raises(WrongServerError, match="not the server") as refused:
                source.bronze.run(url_of(other), accept_gap=accept_gap)
            assert "--accept-gap" not in str(refused.value.hint)
        mark(source.bronze.spark, source.bronze.lake, [], everything=True)
        source.bronze.run(url_of(other))
        assert source.bronze.state.epoch == 2
