"""Kinds of events that are rare: by real servers where one can be had to write them, else made by hand."""

from __future__ import annotations

import contextlib
import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest
from servers import handmade
from servers.binlog import Log
from servers.handmade import Writer, inner, payload, query, rows, table_map
from servers.running import Database

from bronze.binlog import groups
from bronze.binlog.blocks import Block
from bronze.binlog.bulk import read_blocks
from bronze.binlog.compressed import inflate
from bronze.binlog.events import ARTIFICIAL, HEADER, HEADER_SIZE, ROWS
from bronze.binlog.frame import WRAP, Frame
from bronze.binlog.items import Boundary, RowsEvent, Statement
from bronze.binlog.transactions import read
from bronze.decode.rows import decode_rows
from bronze.source.server import position_now
from lakeward.embedded.server import EmbeddedServer
from lakeward.errors import FailClosedError, WrongServerError

INT, BLOB = (3, b""), (252, b"\4")
BLOB_CHARSET = (2, b"\x3f")  # binary
TABLE = table_map([INT, BLOB], [BLOB_CHARSET])


def image(number: int, value: bytes = b"x") -> bytes:
    return b"\0" + struct.pack("<iI", number, len(value)) + value


def items(writer: Writer, *, file: int = 1) -> list[RowsEvent | Statement | Boundary]:
    return list(read(writer.events, file=file, wants=lambda table: True, gtid_set=""))


def numbers(found: list[Any]) -> list[tuple[str, list[int]]]:
    """Each row event's op and the first column of its rows."""
    out: list[tuple[str, list[int]]] = []
    for event in found:
        if isinstance(event, RowsEvent):
            done = decode_rows(event.table_map.columns, [(event.op, event.images)], [event.presence])
            side = done.before if event.op == "d" else done.after
            out.append((event.op, side.field(0).to_pylist()))
    return out


def boundaries(found: list[Any]) -> list[Boundary]:
    return [item for item in found if isinstance(item, Boundary)]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (23, rows(2, image(1) + image(2), version=1)),
        (30, rows(2, image(1) + image(2))),
        (30, rows(2, image(1) + image(2), extra=b"\0\3abc")),
    ],
)
def test_rows_of_both_versions_and_with_extra_data_are_read(kind: int, body: bytes) -> None:
    writer = Writer()
    writer.transaction(1, (19, TABLE), (kind, body))
    assert numbers(items(writer)) == [("c", [1, 2])]


def test_rows_of_a_partitioned_table_carry_extra_data_and_are_read(mysql_server: EmbeddedServer) -> None:
    with Database.create(mysql_server, "partitioned") as database:
        database.execute("CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 4")
        log = Log(database)
        database.execute("INSERT INTO p VALUES (1), (2), (3)")
        database.execute("UPDATE p SET id = id + 10")
        bodies = [bytes(raw)[HEADER_SIZE:] for raw in log.raw() if HEADER.unpack_from(raw)[1] in ROWS]
        assert any(int.from_bytes(body[8:10], "little") > 2 for body in bodies), "no extra data: nothing is proven"
        found = [n for op, ns in numbers(log.read()) for n in ns]
        assert sorted(found) == [1, 2, 3, 11, 12, 13]


def test_heartbeats_of_both_versions_move_nothing() -> None:
    writer = Writer()
    writer.transaction(1, (19, TABLE), (30, rows(2, image(1))))
    pos = writer.pos
    for kind, body in ((27, b"binlog.000001"), (41, b"\1\x0dbinlog.000001\2\4abcd\0")):
        writer.put(kind, body, placed=False)
    writer.transaction(2, (19, TABLE), (30, rows(2, image(2))))
    found = items(writer)
    assert numbers(found) == [("c", [1]), ("c", [2])]
    assert [b.pos for b in boundaries(found)] == [boundaries(found)[0].pos, pos, writer.pos]


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_checksums_may_be_switched_off_and_on_in_mid_log(
    own_server: Callable[..., EmbeddedServer], flavour: str
) -> None:
    with Database.create(own_server(flavour), "checksums") as database:
        database.execute("CREATE TABLE i (a INT PRIMARY KEY)")
        log = Log(database)
        for n, algorithm in enumerate(("NONE", "CRC32", "NONE")):
            database.execute(f"INSERT INTO i VALUES ({2 * n})")
            database.execute(f"SET GLOBAL binlog_checksum = {algorithm}")
            database.execute(f"INSERT INTO i VALUES ({2 * n + 1})")
        now, found = None, []
        while now != position_now(database.root, 1):  # MariaDB says of each file later that it is done with it
            now, found = position_now(database.root, 1), log.read()
        assert now is not None
        assert numbers(found) == [("c", [n]) for n in range(6)]
        assert (boundaries(found)[-1].pos, boundaries(found)[-1].gtid) == (now.at.pos, now.gtid)


def test_a_file_without_checksums_is_read() -> None:
    writer = Writer(checksum=False)
    writer.transaction(1, (19, TABLE), (30, rows(2, image(1))))
    assert numbers(items(writer)) == [("c", [1])]


@pytest.mark.parametrize("checksum", [True, False])
def test_a_rotation_leads_to_the_next_file_and_never_back(checksum: bool) -> None:
    writer = Writer(checksum=checksum)
    writer.put(4, struct.pack("<Q", 4) + b"binlog.000002")
    later = Writer(checksum=checksum)
    later.transaction(1, (19, TABLE), (30, rows(2, image(1))))
    writer.events += later.events
    found = items(writer)
    assert numbers(found) == [("c", [1])]
    assert [b.file for b in boundaries(found)] == [1, 2, 2, 2][: len(boundaries(found))]
    with pytest.raises(WrongServerError):
        items(writer, file=3)


def test_an_incident_stops_the_run() -> None:
    writer = Writer()
    writer.transaction(1, (19, TABLE), (30, rows(2, image(1))))
    at = writer.pos
    writer.put(26, struct.pack("<HB", 1, 4) + b"lost")
    with pytest.raises(FailClosedError, match="lost changes") as stopped:
        items(writer)
    assert stopped.value.facts["position"] == at
    assert "resnapshot" in str(stopped.value.hint)


@pytest.mark.parametrize("number", [-1, -(1 << 63)])
def test_a_gtid_with_a_number_that_no_server_gives_is_refused_by_both_readers(number: int) -> None:
    writer = Writer()
    for n in (1, 2):  # the second would be taken with the first, had it a number
        writer.put(33, b"\1" + handmade.UUID + struct.pack("<q", n if n == 1 else number) + b"\2" + bytes(16))
        writer.put(2, query(b"BEGIN"))
        writer.put(19, TABLE)
        writer.put(30, rows(2, image(n)))
        writer.put(16, bytes(8))
    with pytest.raises(FailClosedError, match="no server gives"):
        items(writer)
    with pytest.raises(FailClosedError, match="no server gives"):
        list(read_blocks([Block.of(writer.events)], file=1, wants=lambda table: True, gtid_set=""))


def test_images_without_most_columns_weigh_what_they_will_cost() -> None:
    writer = Writer()
    some = struct.pack("<IHHH", handmade.TABLE_ID, 0, 1, 2) + b"\2\1" + b"\0\1\0\0\0" * 10
    writer.transaction(1, (19, TABLE), (30, rows(2, image(1))), (30, some))
    whole, part = (item for item in items(writer) if isinstance(item, RowsEvent))
    assert whole.weight == len(whole.images)
    assert part.weight == 2 * len(part.images) == 100


# Compressed transactions.


def compressed(count: int, size: int, *, whole: int | None = None) -> bytes:
    def events() -> Any:
        yield inner(2, query(b"BEGIN"))
        for n in range(count):
            yield inner(19, TABLE)
            yield inner(30, rows(2, image(n, bytes([n & 255]) * size)))
        yield inner(16, struct.pack("<Q", 1))

    body: bytes = payload(events(), whole=whole)
    return body


def test_a_compressed_transaction_of_any_size_is_read_in_little_memory() -> None:
    size, count = 1 << 20, 200
    writer = Writer()
    writer.put(33, b"\1" + handmade.UUID + struct.pack("<Q", 1) + b"\2" + bytes(16))
    writer.put(40, compressed(count, size))
    assert len(writer.events[-1]) < 1 << 20
    seen = 0
    tracemalloc.start()
    try:
        for item in read(writer.events, file=1, wants=lambda table: True, gtid_set=""):
            seen += isinstance(item, RowsEvent)
            del item
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == count
    assert peak < groups.HELD_BYTES_MAX + 12 * size


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body[:-1],
        lambda body: body + b"\0",
        lambda body: body.replace(bytes([2, 1, 0]), bytes([2, 1, 3]), 1),
        lambda body: body.replace(bytes([2, 1, 0]), bytes([2, 2, 0]), 1),
        lambda body: compressed(3, 100, whole=1000),
    ],
)
def test_a_compressed_transaction_that_is_not_what_it_says_is_refused(change: Callable[[bytes], bytes]) -> None:
    writer = Writer()
    writer.put(33, b"\1" + handmade.UUID + struct.pack("<Q", 1) + b"\2" + bytes(16))
    writer.put(40, change(compressed(3, 100)))
    with pytest.raises(FailClosedError) as stopped:
        items(writer)
    assert stopped.value.facts["position"] == writer.pos - len(writer.events[-1])


def test_a_compressed_transaction_cut_off_between_two_events_is_refused() -> None:
    whole = [inner(2, query(b"BEGIN")), inner(19, TABLE), inner(30, rows(2, image(1))), inner(16, bytes(8))]
    body = payload(whole[:3], whole=sum(map(len, whole)))
    writer = Writer()
    writer.put(33, b"\1" + handmade.UUID + struct.pack("<Q", 1) + b"\2" + bytes(16))
    writer.put(40, body)
    with pytest.raises(FailClosedError):
        items(writer)


def test_a_compressed_part_holds_what_it_says() -> None:
    packed = zlib.compress(bytes(5000))
    assert inflate(b"\x02" + (5000).to_bytes(2, "big") + packed) == bytes(5000)
    for broken in (
        b"\x02" + (4999).to_bytes(2, "big") + packed,
        b"\x02" + (5001).to_bytes(2, "big") + packed,
        b"\x02" + (5000).to_bytes(2, "big") + packed[:-3],
        b"\x02" + (5000).to_bytes(2, "big") + packed + b"\0",
        b"\x04" + (2**32 - 1).to_bytes(4, "big") + packed,
        b"\x12" + (5000).to_bytes(2, "big") + packed,
    ):
        with pytest.raises((ValueError, zlib.error)):
            inflate(broken)


# Positions beyond 4 GiB, where the header's begins again.


def test_positions_go_on_where_the_headers_wrap() -> None:
    writer = Writer()
    writer.pos = WRAP - 40
    writer.transaction(1, (19, TABLE), (30, rows(2, image(1))))
    beyond = writer.pos
    writer.transaction(2, (19, TABLE), (30, rows(2, image(2))))
    assert beyond > WRAP
    writer.put(4, struct.pack("<Q", 4) + b"binlog.000002")
    writer.events += Writer().events
    frame = Frame(1)
    frame.pos = WRAP - 40
    for raw in writer.events[1:-2]:
        place, _ = frame.place(raw)
        assert place.pos == frame.pos - len(raw)
    assert frame.pos == writer.pos - len(writer.events[-2])
    with pytest.raises(FailClosedError, match="events are missing"):
        frame.place(writer.events[-1])


def test_nothing_resumes_beyond_what_a_dump_can_be_asked_for() -> None:
    """A server takes a start of four bytes, so after 4 GiB the next boundary is the next file's beginning."""
    writer = Writer()
    writer.pos = WRAP - 30
    writer.put(4, struct.pack("<Q", writer.pos) + b"binlog.000001", flags=ARTIFICIAL, placed=False)
    writer.transaction(1, (19, TABLE), (30, rows(2, image(1))))
    writer.put(4, struct.pack("<Q", 4) + b"binlog.000002")
    writer.events += Writer().events
    found = items(writer)
    assert numbers(found) == [("c", [1])]
    (event,) = [i for i in found if isinstance(i, RowsEvent)]
    assert event.pos > WRAP
    assert {b.file for b in boundaries(found) if b.pos > 4 + len(writer.events[0])} == set()
    assert [b.pos for b in boundaries(found) if b.file == 2] == [4, 4 + len(writer.events[-1])]


# XA.


@pytest.fixture
def orphaned(database: Database) -> Iterator[Database]:
    """A database with a table `i`; an XA transaction 'o' that is left in it would keep it from being dropped."""
    database.execute("CREATE TABLE i (a INT PRIMARY KEY)")
    yield database
    with contextlib.suppress(pymysql.Error):
        database.execute("XA ROLLBACK 'o'")


def test_an_xa_transaction_that_nobody_ends_is_not_waited_for_for_ever(
    orphaned: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = orphaned
    log = Log(database)
    with database.connection() as orphan, orphan.cursor() as cursor:
        for sql in ("XA START 'o'", "INSERT INTO i VALUES (1)", "XA END 'o'", "XA PREPARE 'o'"):
            cursor.execute(sql)
    database.execute("INSERT INTO i VALUES (2)")
    assert boundaries(log.read()) == []
    monkeypatch.setattr(groups, "XA_WAIT_S", -1)
    found = log.read()
    assert numbers(found) == [("c", [2])]
    now = position_now(database.root, 1)
    last = boundaries(found)[-1]
    assert (last.file, last.pos) == (now.at.file, now.at.pos)
    database.execute("XA COMMIT 'o'")
    assert numbers(log.read()) == [("c", [2]), ("c", [1])], "what was read from before the prepare is known"
    (statement,) = [i for i in log.read(start=now) if isinstance(i, Statement)]
    assert statement.sql.startswith("XA COMMIT")


def test_an_xa_transaction_prepared_just_before_the_end_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    xid = struct.pack("<BIII", 0, 1, 1, 0) + b"o"
    writer = Writer()
    before = writer.pos
    writer.put(33, b"\1" + handmade.UUID + struct.pack("<Q", 1) + b"\2" + bytes(16))
    writer.put(2, query(b"XA START X'6f',X'',1"))
    writer.put(38, xid)
    for late in (0, groups.XA_WAIT_S + 1):
        monkeypatch.setattr("bronze.binlog.transactions.time.time", lambda late=late: writer.seconds + late)
        assert boundaries(items(writer))[-1].pos == (writer.pos if late else before)
    writer.seconds += groups.XA_WAIT_S + 1
    writer.transaction(2, (19, TABLE), (30, rows(2, image(1))))
    assert boundaries(items(writer))[-1].pos == writer.pos
