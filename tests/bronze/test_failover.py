"""The source dies under load and its replica is promoted: bronze goes on there, or says exactly what it would miss."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from servers.load import load
from servers.replicas import SETTINGS, await_executed, caught_up, hold, promote, replicate
from servers.sparkless import Sparkless

from bronze.resnapshot import mark
from lakeward.cli.status import document
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import WrongServerError

WRITERS = 4
TABLES = (
    "CREATE TABLE shop.log (id BIGINT AUTO_INCREMENT PRIMARY KEY, w INT, note VARCHAR(200))",
    "CREATE TABLE shop.counter (w INT PRIMARY KEY, n BIGINT)",
    f"INSERT INTO shop.counter VALUES {', '.join(f'({w}, 0)' for w in range(WRITERS))}",
)


class Pair:
    """A source with the tables above, its replica, and a lake."""

    def __init__(self, folder, own_server, flavour) -> None:
        # Small files, so that the place has to be found among many.
        self.source = own_server(flavour, settings={"max_binlog_size": "262144"})
        self.replica = own_server(flavour, settings={"max_binlog_size": "262144", **SETTINGS[flavour]})
        self.flavour = flavour
        self.bronze = Sparkless(folder, ensure_replicator(self.source, [EVERY_SCHEMA]), ["shop.*"])
        replicate(self.source, self.replica)
        with self.source.admin() as connection, connection.cursor() as cursor:
            cursor.execute("CREATE DATABASE shop")
            for statement in TABLES:
                cursor.execute(statement)

    def read(self, server, **options):
        """Run bronze over `server`; its state after that."""
        self.bronze.run(url_of(server), **options)
        return self.bronze.state

    def log_gtids(self, server):
        """The GTIDs of all transactions of shop.log in the server's binlog."""
        found = []
        with server.admin() as connection, connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            for name, *_ in cursor.fetchall():
                cursor.execute("SHOW BINLOG EVENTS IN %s", (name,))
                gtid = ""
                for _, _, kind, _, _, info in cursor.fetchall():
                    if kind == "Gtid":
                        gtid = info.split("'")[1] if self.flavour == "mysql" else info.split("GTID ")[1].split()[0]
                    elif kind == "Table_map" and "(shop.log)" in info:
                        found.append(gtid)
        return found


def writing(server):
    """Transactions over both tables, until the end or until the server dies."""

    def transaction(cursor, w, n) -> None:
        cursor.execute("INSERT INTO log (w, note) VALUES (%s, REPEAT('x', 150))", (w,))
        cursor.execute("UPDATE counter SET n = n + 1 WHERE w = %s", (w,))

    return load(lambda: server.admin("shop"), transaction, writers=WRITERS, pause_s=0.002, dies=True)


def fail_over(pair) -> None:
    pair.read(pair.source)
    before = set(pair.log_gtids(pair.source))
    with writing(pair.source):
        time.sleep(0.5)
        pair.read(pair.source)
        read = pair.read(pair.source)
        await_executed(pair.replica, read.checkpoint.gtid)  # the load goes on meanwhile
        time.sleep(0.3)
        pair.source.kill()
    promote(pair.replica)
    with writing(pair.replica):
        time.sleep(0.2)
        state = pair.read(pair.replica)
        assert [s["epoch"] for s in state.servers] == [1, 2]
    state = pair.read(pair.replica)
    assert state.epoch == 2
    assert state.gaps == []
    again = pair.read(pair.replica)
    assert (again.epoch, again.checkpoint.gtid) == (2, state.checkpoint.gtid)  # the new server is known from here on
    assert_each_transaction_once(pair, before)
    assert_same_state(pair)


def assert_each_transaction_once(pair, before) -> None:
    wanted = set(pair.log_gtids(pair.replica)) - before
    found = Counter(e["source"]["gtid"] for e in pair.bronze.events("shop.log") if not e["source"]["snapshot"])
    assert [g for g, n in found.items() if n > 1] == []
    assert set(found) == wanted
    epochs = {e["source"]["epoch"] for e in pair.bronze.events("shop.log")}
    assert epochs == {1, 2}


def assert_same_state(pair) -> None:
    for table, key in (("log", "id"), ("counter", "w")):
        rows: dict[int, tuple[object, ...]] = {}
        for event in pair.bronze.events(f"shop.{table}"):
            if event["op"] == "d":
                rows.pop(event["before"][key])
            else:
                rows[event["after"][key]] = tuple(event["after"].values())
        with pair.replica.admin("shop") as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            assert sorted(rows.values()) == sorted(cursor.fetchall())


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_bronze_goes_on_at_the_promoted_replica_with_each_transaction_once(flavour, own_server, tmp_path: Path) -> None:
    fail_over(Pair(tmp_path, own_server, flavour))


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_transactions_that_never_reached_the_replica_are_named_and_both_ways_on_work(
    flavour, own_server, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, own_server, flavour)
    pair.read(pair.source)
    caught_up(pair.source, pair.replica)
    hold(pair.replica)
    with pair.source.admin("shop") as connection, connection.cursor() as cursor:
        known = set(pair.log_gtids(pair.source))
        for w in range(3):
            cursor.execute("INSERT INTO log (w) VALUES (%s)", (w,))
        only_here = [g for g in pair.log_gtids(pair.source) if g not in known]
    pair.read(pair.source)
    pair.source.kill()
    promote(pair.replica)
    with pair.replica.admin("shop") as connection, connection.cursor() as cursor:
        cursor.execute("INSERT INTO log (id, w) VALUES (1000, 8)")

    with pytest.raises(WrongServerError) as refused:
        pair.read(pair.replica)
    assert refused.value.facts["missing"] == spelled(flavour, only_here)
    assert "lakeward resnapshot --all" in str(refused.value)
    assert "--accept-gap" in str(refused.value)
    assert pair.bronze.state.epoch == 1

    pair.read(pair.replica, accept_gap=True)
    pair.read(pair.replica)  # accepted once and for all
    assert [e["after"]["w"] for e in pair.bronze.events("shop.log") if e["source"]["epoch"] == 2] == [8]
    (gap,) = document(pair.bronze.lake)["gaps"]
    assert gap["missing"] == spelled(flavour, only_here)
    assert gap["accepted_by"] == "--accept-gap"
    assert gap["tables"] == ["shop.counter", "shop.log"]

    mark(pair.bronze.spark, pair.bronze.lake, ["shop.log"])
    pair.read(pair.replica)
    assert document(pair.bronze.lake)["gaps"][0]["tables"] == ["shop.counter"]
    mark(pair.bronze.spark, pair.bronze.lake, [], everything=True)
    pair.read(pair.replica)
    assert document(pair.bronze.lake)["gaps"] == []


def spelled(flavour, gtids):
    """Consecutive GTIDs as they are named."""
    joint = {"mysql": ":", "mariadb": "-"}[flavour]
    numbers = [int(g.rpartition(joint)[2]) for g in gtids]
    assert numbers == list(range(numbers[0], numbers[0] + len(gtids)))
    return f"{gtids[0]}-{numbers[-1]}" if flavour == "mysql" else f"{gtids[0]} to {gtids[-1]}"
