"""Many events at once give what the reader gives event by event, and packets come out as they went in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bronze.binlog import bulk
from bronze.binlog.blocks import Block
from bronze.binlog.bulk import RowsBatch, read_blocks
from bronze.binlog.events import HEADER, HEADER_SIZE
from bronze.binlog.files import file_blocks, read_file
from bronze.binlog.packets import Packets
from bronze.binlog.transactions import Boundary, Statement, read
from bronze.binlog.wire import Dump
from bronze.source.connection import settings
from bronze.source.server import position_now
from lakeward.config import Source
from lakeward.embedded.replicator import ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import LakewardError
from lakeward.position import binlog_name

WRITTEN = [
    "INSERT INTO a VALUES (1, 'x'), (2, 'é')",
    "UPDATE a SET v = 'other' WHERE id = 1",
    "INSERT INTO w VALUES (1)",
    "BEGIN; INSERT INTO a VALUES (3, NULL); INSERT INTO w VALUES (2); INSERT INTO b VALUES (7, 1.5); COMMIT",
    "BEGIN; INSERT INTO a VALUES (4, ''); SAVEPOINT s; INSERT INTO a VALUES (5, ''); ROLLBACK TO s; COMMIT",
    "DELETE FROM a WHERE id = 2",
    "ALTER TABLE a ADD COLUMN more INT",
    "INSERT INTO a VALUES (6, 'wide', 1)",
    "TRUNCATE b",
    "INSERT INTO m VALUES (1), (2)",
    "XA START 'k'; INSERT INTO a VALUES (8, 'xa', 2); XA END 'k'; XA PREPARE 'k'; XA COMMIT 'k'",
    "INSERT INTO a SELECT n.id * 100 + m.id, REPEAT('long', 300), 5 FROM a n, a m",
    "UPDATE a SET more = 9",
    "SET SESSION binlog_row_image = 'MINIMAL'; UPDATE a SET v = 'minimal' WHERE id = 1",
]


@pytest.fixture
def log(database):
    """The raw events of some of everything, and where they start."""
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(2000))")
    database.execute("CREATE TABLE b (id INT PRIMARY KEY, v DECIMAL(9,2))")
    database.execute("CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
    database.execute("CREATE TABLE w (id INT PRIMARY KEY)")
    start = position_now(database.root, 1)
    session = "SET SESSION binlog_rows_query_log_events = ON" if database.flavour == "mysql" else "DO 0"
    with database.connection() as connection, connection.cursor() as cursor:
        for statement in [*WRITTEN[:3], session, *WRITTEN[3:]]:
            for part in statement.split(";"):
                cursor.execute(part)
    for n in range(200, 260):
        database.execute(f"INSERT INTO b VALUES ({n}, {n} / 4)")
    server = database.server
    dump = Dump(
        settings(Source(url=url_of(server)), ensure_replicator(server, ["*"])),
        server_id=4713,
        file=binlog_name(database.query("SHOW BINARY LOGS")[-1][0], start.at.file),
        pos=start.at.pos,
        flavour=server.flavour,
        blocking=False,
        heartbeat_s=10,
    )
    raw = [bytes(event) for event in dump]
    dump.close()
    options = {
        "file": start.at.file,
        "wants": lambda table: table.schema == database.name and table.table != "w",
        "gtid_set": start.gtid,
    }
    return raw, options


def blocks(raw, size):
    return [Block.of(raw[n : n + size]) for n in range(0, len(raw), size)]


def said(items):
    """What was read, one by one, in words that compare; then the last place to resume at, or the error."""
    found: list[tuple[object, ...]] = []
    last = None
    try:
        for item in items:
            if isinstance(item, Boundary):
                last = item
                continue
            found += map(_told, item.events() if isinstance(item, RowsBatch) else [item])
    except LakewardError as error:
        return found, (type(error), error.message, error.facts)
    return found, last


def _told(item):
    transaction = item.transaction
    place = (item.file, item.pos, transaction.id, transaction.gtid, transaction.ts_ms)
    if isinstance(item, Statement):
        return *place, item.schema, item.sql, item.end_pos
    return *place, str(item.table_map.name), len(item.table_map.columns), item.op, bytes(item.images), item.presence


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 100_000])
def test_blocks_of_any_size_give_what_single_events_give(log, size):
    raw, options = log
    assert said(read_blocks(blocks(raw, size), **options)) == said(read(raw, **options))


def test_plain_transactions_come_in_batches(log, database):
    raw, options = log
    items = list(read_blocks([Block.of(raw)], **options))
    in_batches = sum(item.table.size for item in items if isinstance(item, RowsBatch))
    assert in_batches >= 60 if database.flavour == "mysql" else in_batches == 0


def test_a_transaction_longer_than_what_is_kept_is_read_all_the_same(log, monkeypatch):
    raw, options = log
    monkeypatch.setattr(bulk, "_TAIL_BYTES_MAX", 300)
    assert said(read_blocks(blocks(raw, 5), **options)) == said(read(raw, **options))


def test_more_tables_than_are_remembered_are_read_all_the_same(log, monkeypatch):
    raw, options = log
    monkeypatch.setattr(bulk, "_MAPS_MAX", 1)
    assert said(read_blocks(blocks(raw, 100), **options)) == said(read(raw, **options))


def test_damage_is_judged_as_by_the_reader_of_single_events(log):
    raw, options = log
    rng = random.Random(5)
    refused = 0
    for _ in range(400):
        damaged = list(raw)
        n = rng.randrange(2, len(raw))
        kind = rng.randrange(5)
        if kind == 0:
            del damaged[n]
        elif kind == 1:
            damaged[n] = raw[n][: rng.randrange(HEADER_SIZE, len(raw[n]))]
        elif kind == 2:
            damaged.insert(n, raw[n])
        else:
            changed = bytearray(raw[n])
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            damaged[n] = bytes(changed)
        expected = said(read(damaged, **options))
        refused += isinstance(expected[1], tuple)
        found = said(read_blocks(blocks(damaged, rng.choice([4, 30, 1000])), **options))
        # The reader of blocks may hold back rows before the damage that the other one has given out.
        assert found[1] == expected[1]
        assert found[0] == expected[0]
    assert refused > 300


def test_no_batch_goes_beyond_the_place_to_stop_at(log):
    raw, options = log
    ends = [(i.file, i.pos) for i in read(raw, **options) if isinstance(i, Boundary)]
    for stop in ends[-30:]:
        reached = (0, 0)
        for item in read_blocks([Block.of(raw)], stop=stop, **options):
            if isinstance(item, Boundary):
                reached = (item.file, item.pos)
                if reached >= stop:
                    break
        assert reached == stop


def test_a_file_in_blocks_is_the_file(log, database, monkeypatch):
    _, options = log
    monkeypatch.setattr("bronze.binlog.files.BLOCK_BYTES", 1000)
    name = binlog_name(database.query("SHOW BINARY LOGS")[-1][0], options["file"])
    path = Path(database.server.folder) / "data" / name
    events = [bytes(event) for block in file_blocks(path) for event in block]
    assert events == [bytes(event) for event in read_file(path)]
    assert HEADER.unpack_from(events[0])[1] == 15
    cut = path.parent / "cut"
    cut.write_bytes(path.read_bytes()[:-3])
    assert bytes(list(list(file_blocks(cut))[-1])[-1]) == events[-1][:-3]
    cut.unlink()


def packed(payloads, sequence=1):
    out = b""
    for payload in payloads:
        while True:
            part, payload = payload[:0xFFFFFF], payload[0xFFFFFF:]
            out += len(part).to_bytes(3, "little") + bytes([sequence & 255]) + part
            sequence += 1
            if len(part) < 0xFFFFFF:
                break
    return out


class Trickle:
    """A connection that gives what it has in small and large parts."""

    def __init__(self, data, rng):
        self.data, self.at, self.rng = data, 0, rng

    def read_into(self, buffer):
        size = min(len(buffer), len(self.data) - self.at, self.rng.choice([1, 3, 100, 70_000, 1 << 23]))
        buffer[:size] = self.data[self.at : self.at + size]
        self.at += size
        return size

    def ready(self):
        return self.rng.random() < 0.9


def received(data, seed):
    trickle = Trickle(data, random.Random(seed))
    for item in Packets(trickle.read_into, trickle.ready, 1):
        if isinstance(item, bytes):
            yield item
        else:
            yield from (b"\0" + bytes(event) for event in item)


@pytest.mark.parametrize("seed", range(4))
def test_packets_come_out_as_they_went_in(seed):
    rng = random.Random(seed)
    sizes = [rng.choice([0, 1, 30, 5000]) for _ in range(300)] + [5 << 20, 0xFFFFFE, 0xFFFFFF, 18 << 20, 9]
    payloads = [b"\0" + rng.randbytes(size) for size in sizes] + [b"\xfe\0\0\2\0"]
    rng.shuffle(payloads)
    stream = received(packed(payloads), seed)
    assert [next(stream) for _ in payloads] == payloads
    with pytest.raises(EOFError):
        next(stream)


def test_packets_out_of_order_are_refused():
    data = packed([b"\0one", b"\0two"]) + packed([b"\0three"], sequence=4)
    with pytest.raises(ConnectionError):
        list(received(data, 1))
