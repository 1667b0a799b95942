"""Asking real servers for their binlog, and what they refuse."""

import threading
import time

import pytest
from servers.running import Database

from bronze.binlog.events import HEADER
from bronze.binlog.transactions import Boundary, RowsEvent, read
from bronze.binlog.wire import Dump, dump_error
from bronze.source.connection import settings
from bronze.source.server import position_now
from lakeward.config import Source
from lakeward.embedded.replicator import ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import TerminalError, TransientError, WrongServerError
from lakeward.position import binlog_name


def file_name(server, number):
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW BINARY LOGS")
        return binlog_name(cursor.fetchall()[-1][0], number)


def dump(server, *, file, pos, blocking=False, heartbeat_s=10.0, server_id=4712, **changed):
    reached = settings(Source(url=url_of(server)), ensure_replicator(server, ["*"]))
    return Dump(
        {**reached, **changed},
        server_id=server_id,
        file=file,
        pos=pos,
        flavour=server.flavour,
        blocking=blocking,
        heartbeat_s=heartbeat_s,
    )


def now(server):
    with server.admin() as connection:
        return position_now(connection, 1).at


def test_a_dump_that_does_not_block_ends_with_the_log(server):
    at = now(server)
    opened = dump(server, file=file_name(server, at.file), pos=at.pos)
    assert [HEADER.unpack_from(raw)[1] for raw in opened][:2] == [4, 15]
    opened.close()
    opened.close()


@pytest.mark.parametrize("mebibytes", [16, 64])
def test_an_event_of_several_packets_comes_whole(mebibytes, database):
    database.execute("CREATE TABLE big (a INT PRIMARY KEY, b LONGBLOB)")
    at = position_now(database.root, 1)
    size = (mebibytes << 20) + 12345
    ((usual,),) = database.query("SELECT @@GLOBAL.max_allowed_packet")
    database.execute("SET GLOBAL max_allowed_packet = 134217728")
    try:
        with database.connection() as connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO big VALUES (1, REPEAT('x', %s))", (size,))
            cursor.execute("INSERT INTO big VALUES (2, '')")
    finally:
        database.execute("SET GLOBAL max_allowed_packet = %s", [usual])
    opened = dump(database.server, file=file_name(database.server, at.at.file), pos=at.at.pos)
    items = list(read(opened, file=at.at.file, wants=lambda t: t.schema == database.name, gtid_set=at.gtid))
    opened.close()
    big, small = [i for i in items if isinstance(i, RowsEvent)]
    assert bytes(big.images).count(b"x") == size
    assert small.pos > big.pos + size


def test_a_blocking_dump_waits_beats_and_goes_on(database):
    database.execute("CREATE TABLE i (a INT PRIMARY KEY)")
    at = position_now(database.root, 1)
    opened = dump(
        database.server, file=file_name(database.server, at.at.file), pos=at.at.pos, blocking=True, heartbeat_s=0.3
    )
    kinds = []

    def observed():
        for raw in opened:
            kinds.append(HEADER.unpack_from(raw)[1])
            yield raw

    def write_later():
        time.sleep(1.2)
        database.execute("INSERT INTO i VALUES (1)")

    writer = threading.Thread(target=write_later)
    writer.start()
    items = read(observed(), file=at.at.file, wants=lambda t: t.schema == database.name, gtid_set=at.gtid)
    seen = []
    for item in items:
        seen.append(type(item))
        if item.pos > at.at.pos and isinstance(item, Boundary):
            break
    writer.join()
    opened.close()
    assert seen[-2:] == [RowsEvent, Boundary]
    assert 27 in kinds


def test_a_purged_file_is_named_with_the_way_on(own_server):
    for flavour in ("mysql", "mariadb"):
        server = own_server(flavour)
        first = now(server)
        with server.admin() as connection, connection.cursor() as cursor:
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("FLUSH BINARY LOGS")
            last = now(server)
            name = file_name(server, first.file)
            for _ in range(100):  # MariaDB keeps a file, without a word, until its engine has let go of it
                cursor.execute("PURGE BINARY LOGS TO %s", (file_name(server, last.file),))
                cursor.execute("SHOW BINARY LOGS")
                if name not in [row[0] for row in cursor.fetchall()]:
                    break
                time.sleep(0.1)
        with pytest.raises(WrongServerError) as refused:
            list(dump(server, file=name, pos=first.pos))
        assert name in refused.value.message
        assert "lakeward resnapshot" in str(refused.value.hint)


def test_a_position_beyond_the_file_is_the_wrong_server(server):
    at = now(server)
    with pytest.raises(WrongServerError) as refused:
        list(dump(server, file=file_name(server, at.file), pos=at.pos + 500_000_000))
    assert str(at.pos + 500_000_000) in refused.value.message


def test_a_wrong_password_is_terminal_and_not_shown(server):
    at = now(server)
    with pytest.raises(TerminalError) as refused:
        dump(server, file=file_name(server, at.file), pos=at.pos, password="pass-not-so")
    assert "pass-not-so" not in str(refused.value)


def test_a_user_without_the_grant_is_told_so(database):
    database.execute("CREATE USER 'plain'@'127.0.0.1' IDENTIFIED BY 'plain-secret'")
    try:
        at = now(database.server)
        name = file_name(database.server, at.file)
        with pytest.raises(TerminalError) as refused:
            list(dump(database.server, file=name, pos=at.pos, user="plain", password="plain-secret"))
        assert "REPLICATION" in str(refused.value)
        assert "plain-secret" not in str(refused.value)
    finally:
        database.execute("DROP USER 'plain'@'127.0.0.1'")


def test_a_server_that_dies_is_a_transient_error(own_server):
    server = own_server("mariadb")
    at = now(server)
    opened = dump(server, file=file_name(server, at.file), pos=at.pos, blocking=True)
    threading.Timer(0.5, server.kill).start()
    with pytest.raises(TransientError):
        list(opened)
    opened.close()


def test_a_second_replica_of_the_same_number_is_told_apart(mysql_server):
    at = now(mysql_server)
    name = file_name(mysql_server, at.file)
    first = dump(mysql_server, file=name, pos=at.pos, blocking=True, server_id=815)
    reading = iter(first)
    next(reading)
    second = dump(mysql_server, file=name, pos=at.pos, server_id=815)
    list(second)
    with pytest.raises((TerminalError, TransientError)):
        list(reading)
    first.close()
    second.close()


def test_events_survive_a_server_without_checksums(own_server):
    for flavour in ("mysql", "mariadb"):
        server = own_server(flavour, settings={"binlog_checksum": "NONE"})
        with Database.create(server, "plain") as database:
            database.execute("CREATE TABLE i (a INT PRIMARY KEY)")
            at = position_now(database.root, 1)
            database.execute("INSERT INTO i VALUES (1)")
            opened = dump(server, file=file_name(server, at.at.file), pos=at.at.pos)
            items = list(read(opened, file=at.at.file, wants=lambda t: t.schema == "plain", gtid_set=at.gtid))
            assert [type(i) for i in items] == [RowsEvent, Boundary]
            assert isinstance(items[0], RowsEvent)
            assert bytes(items[0].images)[1:] == b"\x01\0\0\0"
            opened.close()


@pytest.mark.parametrize("pos", [0, 3, 1 << 32])
def test_a_position_that_cannot_be_asked_for_is_refused(server, pos):
    with pytest.raises(TerminalError):
        dump(server, file="binlog.000001", pos=pos)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source", TerminalError),
        ("A replica with the same server_uuid/server_id as this replica has connected to the source", TerminalError),
        ("Could not find first log file name in binary log index file", WrongServerError),
        ("Slave can not handle replication events with the checksum that master is configured to log", TransientError),
        ("binlog truncated in the middle of event; consider out of disk space on source", TerminalError),
    ],
)
def test_each_refusal_has_its_kind_and_a_way_on(text, kind):
    error = dump_error(text, "binlog.000007", 4)
    assert type(error) is kind
    assert error.hint
