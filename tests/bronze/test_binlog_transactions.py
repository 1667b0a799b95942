"""Transactions as both servers write them, read from the server and from its file."""

import datetime
import zlib
from pathlib import Path

import pytest
from servers.binlog import Log

from bronze.binlog.events import HEADER, MAGIC
from bronze.binlog.files import read_file
from bronze.binlog.transactions import Boundary, RowsEvent, Statement, read
from bronze.source.server import position_now
from lakeward.errors import FailClosedError, WrongServerError


@pytest.fixture
def log(database):
    database.execute("CREATE TABLE i (a INT PRIMARY KEY, b VARCHAR(200)) ENGINE=InnoDB")
    database.execute("CREATE TABLE m (a INT PRIMARY KEY) ENGINE=MyISAM")
    return Log(database)


def run(database, script):
    with database.connection() as connection, connection.cursor() as cursor:
        for statement in script.split(";"):
            cursor.execute(statement.strip())


def keys(events):
    """The first column's value in the only row of each event, with what happened to it."""
    return [(e.op, int.from_bytes(bytes(e.images)[1:5], "little")) for e in events]


def places(items):
    return [(type(i).__name__, i.file, i.pos) for i in items]


def test_the_server_and_its_file_give_the_same(log):
    run(log.database, "INSERT INTO i VALUES (1,'x'),(2,'y'); UPDATE i SET b='z' WHERE a=1; DELETE FROM i WHERE a=2")
    run(log.database, "BEGIN; INSERT INTO i VALUES (3,'x'); INSERT INTO i VALUES (4,'x'); COMMIT; TRUNCATE m")
    streamed = log.read()
    file = Path(log.server.folder) / "data" / log.name(log.start.at.file)
    start = log.start._replace(at=log.start.at._replace(pos=4))
    on_disk = log.read(read_file(file), start=start, gtid="")
    mine = [i for i in on_disk if i.pos >= log.start.at.pos and not isinstance(i, Boundary)]
    wire = [i for i in streamed if not isinstance(i, Boundary)]
    assert places(mine) == places(wire)
    assert [bytes(i.images) for i in mine if isinstance(i, RowsEvent)] == [
        bytes(i.images) for i in wire if isinstance(i, RowsEvent)
    ]
    assert [i.op for i in wire if isinstance(i, RowsEvent)] == ["c", "u", "d", "c", "c"]
    assert [i.sql for i in wire if isinstance(i, Statement)] == ["TRUNCATE m"]


def test_positions_grow_and_the_last_boundary_is_where_the_server_stands(log):
    for n in range(5):
        run(log.database, f"BEGIN; INSERT INTO i VALUES ({n}, 'x'); UPDATE i SET b = 'y' WHERE a = {n}; COMMIT")
    items = log.read()
    positions = [(i.file, i.pos) for i in items if not isinstance(i, Boundary)]
    assert positions == sorted(set(positions))
    boundaries = [i for i in items if isinstance(i, Boundary)]
    now = position_now(log.database.root, 1)
    assert (boundaries[-1].file, boundaries[-1].pos) == (now.at.file, now.at.pos)
    assert boundaries[-1].gtid == now.gtid
    assert all(i.transaction.gtid and i.transaction.id == i.transaction.gtid for i in items if isinstance(i, RowsEvent))


def test_a_read_resumed_at_any_boundary_gives_the_rest(log):
    run(log.database, "INSERT INTO i VALUES (1,''); CREATE TABLE n (a INT); INSERT INTO i VALUES (2,''); DROP TABLE n")
    whole = log.read()
    boundaries = [n for n, item in enumerate(whole) if isinstance(item, Boundary)]
    assert len(boundaries) == 4
    for n in boundaries:
        at = log.start.at._replace(file=whole[n].file, pos=whole[n].pos)
        rest = log.read(start=log.start._replace(at=at, gtid=whole[n].gtid))
        assert places(rest) == places(whole[n + 1 :])
        assert [i.gtid for i in rest if isinstance(i, Boundary)] == [whole[k].gtid for k in boundaries if k > n]


def test_the_commit_time_is_the_servers(log):
    before = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    run(log.database, "INSERT INTO i VALUES (1,'x')")
    after = datetime.datetime.now(datetime.UTC).timestamp() * 1000
    (event,) = log.rows()
    assert before - 1000 <= event.transaction.ts_ms <= after + 1


def test_rows_that_were_rolled_back_but_logged_do_not_count(log):
    mixed = "INSERT INTO m VALUES (%d);" if log.database.flavour == "mariadb" else ""  # MySQL forbids it under GTIDs
    first = mixed and mixed % 1
    second = mixed and mixed % 2
    run(log.database, f"BEGIN; INSERT INTO i VALUES (1,''); CREATE TEMPORARY TABLE tt (a INT); {first} ROLLBACK")
    run(
        log.database,
        "BEGIN; INSERT INTO i VALUES (2,''); SAVEPOINT s; INSERT INTO i VALUES (3,'');"
        f"{second} ROLLBACK TO s; INSERT INTO i VALUES (4,''); COMMIT",
    )
    events = log.rows()
    assert keys([e for e in events if e.table_map.name.table == "i"]) == [("c", 2), ("c", 4)]
    if mixed:
        assert keys([e for e in events if e.table_map.name.table == "m"]) == [("c", 1), ("c", 2)]
        logged = b"".join(bytes(raw) for raw in log.raw())
        assert b"ROLLBACK TO" in logged, "the server no longer logs what this test is about"


def test_an_xa_transaction_counts_where_it_is_committed(log):
    run(
        log.database,
        "XA START 'x'; INSERT INTO i VALUES (1,''); INSERT INTO i VALUES (5,''); XA END 'x'; XA PREPARE 'x'",
    )
    assert [i for i in log.read() if not isinstance(i, Boundary)] == []
    assert [i for i in log.read() if isinstance(i, Boundary)] == [], "a read must not resume after the prepare"
    run(log.database, "INSERT INTO i VALUES (2,''); XA COMMIT 'x'; INSERT INTO i VALUES (3,'')")
    events = log.rows()
    assert keys(events) == [("c", 2), ("c", 1), ("c", 5), ("c", 3)]
    assert events[1].pos == events[2].pos > events[0].pos
    assert events[1].in_payload
    run(log.database, "XA START 'y'; INSERT INTO i VALUES (9,''); XA END 'y'; XA PREPARE 'y'; XA ROLLBACK 'y'")
    run(log.database, "XA START 'z'; INSERT INTO i VALUES (10,''); XA END 'z'; XA COMMIT 'z' ONE PHASE")
    assert keys(log.rows()) == [("c", 2), ("c", 1), ("c", 5), ("c", 3), ("c", 10)]
    assert isinstance(log.read()[-1], Boundary)


def test_an_xa_commit_whose_prepare_was_not_read_is_a_statement(log):
    run(log.database, "XA START 'x'; INSERT INTO i VALUES (1,''); XA END 'x'; XA PREPARE 'x'")
    later = position_now(log.database.root, 1)
    run(log.database, "XA COMMIT 'x'")
    (statement,) = [i for i in log.read(start=later) if isinstance(i, Statement)]
    assert statement.sql.startswith("XA COMMIT")


def test_compressed_transactions_and_events_are_read(log):
    value = "x" * 150
    with log.database.connection() as connection, connection.cursor() as cursor:
        if log.database.flavour == "mysql":
            cursor.execute("SET SESSION binlog_transaction_compression = ON")
            cursor.execute("BEGIN")
            cursor.execute("INSERT INTO i VALUES (1, %s)", (value,))
            cursor.execute("UPDATE i SET a = 2 WHERE a = 1")
            cursor.execute("COMMIT")
        else:
            cursor.execute("SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10")
            try:
                cursor.execute("INSERT INTO i VALUES (1, %s)", (value,))
                cursor.execute("UPDATE i SET a = 2 WHERE a = 1")
                cursor.execute("CREATE TABLE long_enough_to_be_compressed_by_the_server (a INT)")
            finally:
                cursor.execute("SET GLOBAL log_bin_compress = OFF, log_bin_compress_min_len = 256")
    kinds = {HEADER.unpack_from(raw)[1] for raw in log.raw()}
    assert kinds & {40, 165}
    insert, update = log.rows()
    assert (insert.op, update.op) == ("c", "u")
    assert value.encode() in bytes(insert.images)
    assert bytes(update.images).count(value.encode()) == 2
    if log.database.flavour == "mysql":
        assert insert.in_payload
        assert insert.pos == update.pos
    else:
        assert [i.sql[:12] for i in log.read() if isinstance(i, Statement)] == ["CREATE TABLE"]


def test_a_tagged_gtid_is_read(mysql_server, request):
    from servers.running import Database

    with Database.create(mysql_server, "tagged") as database:
        database.execute("CREATE TABLE i (a INT PRIMARY KEY)")
        log = Log(database)
        database.execute("SET SESSION gtid_next = 'AUTOMATIC:some_tag'")
        database.execute("INSERT INTO i VALUES (1)")
        database.execute("SET SESSION gtid_next = 'AUTOMATIC'")
        (event,) = log.rows()
        assert ":some_tag:" in event.transaction.gtid
        assert event.transaction.ts_ms > 1_700_000_000_000
        assert log.read()[-1].gtid == position_now(database.root, 1).gtid


def test_a_file_that_ends_leads_to_the_next(own_server):
    from servers.running import Database

    for flavour in ("mysql", "mariadb"):
        with Database.create(own_server(flavour), "rotating") as database:
            database.execute("CREATE TABLE i (a INT PRIMARY KEY)")
            log = Log(database)
            for n in range(3):
                database.execute("INSERT INTO i VALUES (%s)", [n])
                database.execute("FLUSH BINARY LOGS")
            items = log.read()
            assert [e.file - log.start.at.file for e in items if isinstance(e, RowsEvent)] == [0, 1, 2]
            now = position_now(database.root, 1)
            assert (items[-1].file, items[-1].pos, items[-1].gtid) == (now.at.file, now.at.pos, now.gtid)
            first = next(i for i in items if isinstance(i, Boundary) and i.file == log.start.at.file + 1)
            assert first.pos == 4
            with pytest.raises(WrongServerError):
                log.read(log.raw(), start=log.start._replace(at=log.start.at._replace(file=99)))


# What must stop the run.


def broken(log, change):
    """The events of the log with `change` made to each row event."""
    for raw in log.raw():
        data = bytes(raw)
        yield change(data) if HEADER.unpack_from(data)[1] in (23, 30) else data


def sealed(data):
    return data[:-4] + zlib.crc32(data[:-4]).to_bytes(4, "little")


def wider(data):
    """Of three columns; version 2 has two more bytes, at least, before their number."""
    at = 29 if data[4] == 30 else 27
    return sealed(data[:at] + b"\x03" + data[at + 1 :])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda d: d[:30] + bytes((d[30] ^ 1,)) + d[31:], "CRC32"),
        (lambda d: d[:-1], "cut off"),
        (lambda d: d[:12], "cut off"),
        (lambda d: sealed(d[:4] + b"\xc8" + d[5:]), "type 200"),
        (lambda d: sealed(d[:4] + b"\x1a" + d[5:]), "lost changes"),
        (wider, "3 columns"),
        (lambda d: sealed(d[:19] + b"\x77" + d[20:]), "not described"),
    ],
)
def test_a_damaged_or_unknown_event_stops_the_run_at_its_position(log, change, says):
    run(log.database, "INSERT INTO i VALUES (1,'x')")
    (event,) = log.rows()
    with pytest.raises(FailClosedError) as stopped:
        log.read(broken(log, change))
    assert says in str(stopped.value)
    assert stopped.value.hint
    assert (stopped.value.facts["binlog_file_number"], stopped.value.facts["position"]) == (event.file, event.pos)


def test_an_unknown_event_that_may_be_ignored_is_passed_over(log):
    run(log.database, "INSERT INTO i VALUES (1,'x'); INSERT INTO m VALUES (1)")

    def ignorable(d):
        return sealed(d[:4] + b"\xc8" + d[5:17] + b"\x80\x00" + d[19:])

    assert [type(i) for i in log.read(broken(log, ignorable))] == [Boundary, Boundary]


def test_a_missing_event_is_noticed(log):
    run(log.database, "INSERT INTO i VALUES (1,'x'); INSERT INTO i VALUES (2,'x')")
    for left_out in (23, 30):
        kept = [bytes(r) for r in log.raw() if HEADER.unpack_from(r)[1] != left_out]
        if len(kept) < len(list(log.raw())):
            with pytest.raises(FailClosedError, match="events are missing"):
                log.read(kept)


def test_rows_in_statement_format_stop_the_run_only_where_the_table_is_wanted(log):
    run(log.database, "SET SESSION binlog_format = 'STATEMENT'; INSERT INTO i VALUES (1,'x')")
    with pytest.raises(FailClosedError) as stopped:
        log.read()
    assert stopped.value.facts["tables"] == f"{log.database.name}.i"
    assert "binlog_format" in str(stopped.value.hint)
    assert "'x'" not in str(stopped.value), "a statement's text may hold what must not be shown"
    unwanted = list(read(log.raw(), file=log.start.at.file, wants=lambda t: False, gtid_set=log.start.gtid))
    assert [type(i) for i in unwanted] == [Boundary]


def test_a_file_that_is_no_binlog_is_refused(tmp_path):
    from lakeward.errors import TerminalError

    (tmp_path / "x.000001").write_bytes(b"\xfdbin" + MAGIC)
    with pytest.raises(TerminalError, match="no binlog file"):
        list(read_file(tmp_path / "x.000001"))
