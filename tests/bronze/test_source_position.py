"""Positions under load: what lies before them is visible, and an exact read sees that and nothing more.

Writers commit transactions that each add one row to `log` and move `counter` on by one. How many of them lie before a
position is counted in the binlog itself, by the transactions of `log`'s schema.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from unittest import mock

import pytest
from servers.load import load

from bronze.source.connection import connect
from bronze.source.server import binary_logs, binlog_events, exact_read, facts, position_now, safe_start
from lakeward.config import parse
from lakeward.errors import TerminalError
from lakeward.position import binlog_number

WRITERS = 3


@pytest.fixture
def replica(database, replicator_password):
    source = parse({"source": {"url": f"mysql://replicator@127.0.0.1:{database.server.port}"}}).source
    with contextlib.closing(connect(source, replicator_password)) as conn:
        yield conn


@contextlib.contextmanager
def _load(database, pause_s):
    database.execute("CREATE TABLE log (id BIGINT AUTO_INCREMENT PRIMARY KEY, w INT)")
    database.execute("CREATE TABLE counter (w INT PRIMARY KEY, n BIGINT)")
    database.executemany("INSERT INTO counter VALUES (%s, 0)", [(w,) for w in range(WRITERS)])

    def transaction(cursor, w, n) -> None:
        cursor.execute("INSERT INTO log (w) VALUES (%s)", (w,))
        cursor.execute("UPDATE counter SET n = n + 1 WHERE w = %s", (w,))

    with load(database.connection, transaction, writers=WRITERS, pause_s=pause_s):
        time.sleep(0.2)
        yield


def _committed_before(database, at, first_file):
    """Commits of the load before `at`, by the table map of `log`, one in each transaction."""
    count = 0
    with contextlib.closing(database.connection()) as conn, conn.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        for name in [str(row[0]) for row in cursor.fetchall()]:
            if not first_file <= binlog_number(name) <= at.file:
                continue
            cursor.execute("SHOW BINLOG EVENTS IN %s", (name,))
            count += sum(
                1
                for _, pos, kind, _, _, info in cursor.fetchall()
                if kind == "Table_map" and f"({database.name}.log)" in info and (binlog_number(name), pos) < at[1:3]
            )
    return count


def _seen(conn, database):
    with conn.cursor() as cursor:
        cursor.execute(
            f"SELECT (SELECT COUNT(*) FROM {database.name}.log), (SELECT SUM(n) FROM {database.name}.counter)"
        )
        return tuple(int(v) for v in cursor.fetchone())


@pytest.mark.parametrize("pause_s", [0.0005, 0.005])
def test_an_exact_read_sees_every_transaction_before_its_position_and_none_after(pause_s, database, replica) -> None:
    first = position_now(replica, 1).at.file
    found = []
    with _load(database, pause_s):
        for _ in range(8):
            checkpoint = exact_read(replica, 1)
            early = _seen(replica, database)
            time.sleep(0.05)
            assert _seen(replica, database) == early  # one snapshot for the whole transaction
            replica.rollback()
            found.append((checkpoint, early))
    assert found[-1][1][0] > found[0][1][0]  # the writers did write in between
    for checkpoint, (logged, counted) in found:
        assert logged == counted == _committed_before(database, checkpoint.at, first)


def test_whatever_lies_before_a_safe_start_is_visible(database, replica) -> None:
    first = position_now(replica, 1).at.file
    found = []
    with _load(database, 0.0):
        for _ in range(15):
            checkpoint = safe_start(replica, 1)
            found.append((checkpoint, _seen(replica, database)[0]))
    for checkpoint, logged in found:
        assert logged >= _committed_before(database, checkpoint.at, first)


def test_the_gtids_of_a_safe_start_are_those_before_it_and_no_others(database, replica) -> None:
    with _load(database, 0.0):
        found = [safe_start(replica, 1) for _ in range(10)]
    with contextlib.closing(database.connection()) as conn, conn.cursor() as cursor:
        name = binary_logs(replica)[-1][0]
        for checkpoint in found:
            if database.flavour == "mariadb":
                cursor.execute("SELECT BINLOG_GTID_POS(%s, %s)", (name, checkpoint.at.pos))
                assert cursor.fetchone()[0] == checkpoint.gtid
                continue
            cursor.execute("SHOW BINLOG EVENTS IN %s", (name,))
            events = cursor.fetchall()
            for wanted, before in ((1, True), (0, False)):
                mine = [e[5].split("'")[1] for e in events if e[2] == "Gtid" and (e[1] < checkpoint.at.pos) == before]
                cursor.execute("SELECT GTID_SUBSET(%s, %s)", (",".join(mine), checkpoint.gtid))
                assert cursor.fetchone()[0] == wanted or not mine


def test_facts_say_what_the_server_is(database, replica) -> None:
    found = facts(replica)
    assert found.flavour == database.flavour
    assert found.version == tuple(database.server.version)[: len(found.version)]
    assert found.gtid_mode
    assert found.binlog_name == binary_logs(replica)[-1][0]
    assert facts(replica) == found
    assert len(found.uuid) >= 32


def test_without_gtids_an_exact_read_still_finds_its_position(own_server) -> None:
    server = own_server("mysql", settings={"gtid_mode": "OFF", "enforce_gtid_consistency": "OFF"})
    with contextlib.closing(server.admin()) as conn:
        checkpoint = exact_read(conn, 4)
        assert checkpoint.at.epoch == 4
        assert checkpoint.gtid == ""
        conn.rollback()
        assert safe_start(conn, 4) == checkpoint


@pytest.mark.parametrize("torn_reads", [2, None])
def test_an_event_that_is_just_being_written_is_asked_for_again_for_a_while(torn_reads) -> None:
    asked = itertools.count(1)

    def torn(conn, sql, args):
        if torn_reads is None or next(asked) <= torn_reads:
            raise TerminalError("binlog truncated in the middle of event", error=1220)
        return [("whole",)]

    with mock.patch("bronze.source.server.rows", torn):
        if torn_reads is None:
            with pytest.raises(TerminalError, match="truncated"):
                binlog_events(mock.Mock(), "binlog.000001")
        else:
            assert binlog_events(mock.Mock(), "binlog.000001") == [("whole",)]
