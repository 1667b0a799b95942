"""Chunks cover each row once: whatever the key's type, collation or range, and while a writer moves rows about."""

from __future__ import annotations

import json
import threading

import pyarrow as pa
import pytest

from bronze.snapshot.bounds import Chunk, plan
from bronze.snapshot.read import read_chunk
from bronze.source.catalog import discover
from bronze.source.connection import connect, settings
from lakeward.config import parse

CHUNK_ROWS = 50


def _config(database):
    return parse(
        {
            "source": {
                "url": f"mysql://replicator@127.0.0.1:{database.server.port}",
                "include": [f"{database.name}.*"],
            }
        }
    )


def _planned(database, password):
    config = _config(database)
    with connect(config.source, password) as conn:
        (schema,) = discover(conn, config)
        chunks = plan(conn, schema, CHUNK_ROWS)
    # As they come back from bronze.json.
    return (
        settings(config.source, password),
        schema,
        [Chunk.from_json(json.loads(json.dumps(c.to_json()))) for c in chunks],
    )


def _chunk_rows(database, password):
    where, schema, chunks = _planned(database, password)
    found = []
    for chunk in chunks:
        batches = list(read_chunk(where, schema, chunk))
        found.append(pa.chunked_array(batches, schema.image()).to_pylist())
    return schema, chunks, found


def _fill(database, ddl, rows):
    database.execute("SET sql_mode = ''")
    database.execute(f"CREATE TABLE t ({ddl})")
    marks = ", ".join(["%s"] * len(rows[0]))
    database.executemany(f"INSERT INTO t VALUES ({marks})", rows)
    database.execute("ANALYZE TABLE t")


def _strings():
    words = ["", " ", "a", "A", "ä", "z", "Z", "'", "\\", "%", "_", "日本", "😀", "\x00", "\n", "\x7f", "ß", "ss"]
    return [(f"{a}{i}{b}", i) for i, (a, b) in enumerate((a, b) for a in words for b in words)]


KEYS = {
    "signed": ("id BIGINT PRIMARY KEY, v INT", [(i * i * i - 5_000_000, i) for i in range(400)]),
    "signed_extremes": (
        "id BIGINT PRIMARY KEY, v INT",
        [(-(2**63), 0), (2**63 - 1, 1), *((i - 100, i) for i in range(300))],
    ),
    "unsigned_extremes": (
        "id BIGINT UNSIGNED PRIMARY KEY, v INT",
        [(0, 0), (2**64 - 1, 1), *((2**63 - 100 + i, i) for i in range(300))],
    ),
    "skewed": (
        "id INT PRIMARY KEY, v INT",
        [(i, i) for i in range(600)] + [(2_000_000_000 + i, i) for i in range(600)],
    ),
    "text_utf8": ("id VARCHAR(40) COLLATE utf8mb4_bin PRIMARY KEY, v INT", _strings()),
    "text_ci": (
        "id VARCHAR(40) COLLATE utf8mb4_general_ci PRIMARY KEY, v INT",
        [(f"k{i * 7919 % 1000:04d}É'\\", i) for i in range(400)],
    ),
    "text_latin1": (
        "id VARCHAR(40) CHARACTER SET latin1 PRIMARY KEY, v INT",
        [(f"{chr(c)}{c}{i}", c) for c in range(0xC0, 0xE0) for i in range(10, 20)],
    ),
    "text_utf16": (
        "id CHAR(10) CHARACTER SET utf16 COLLATE utf16_bin PRIMARY KEY, v INT",
        [(f"é{i}", i) for i in range(300)],
    ),
    "binary": ("id VARBINARY(8) PRIMARY KEY, v INT", [(bytes([i % 256, 39, 92, i // 256]), i) for i in range(400)]),
    "decimal": ("id DECIMAL(30,10) PRIMARY KEY, v INT", [(f"{i - 150}.{i:010d}", i) for i in range(300)]),
    "time": (
        "id TIME(3) PRIMARY KEY, v INT",
        [(f"{'-' if i % 2 else ''}{i:03d}:00:01.5", i) for i in range(300)],
    ),
    "double": ("id DOUBLE PRIMARY KEY, v INT", [((i - 150) / 7, i) for i in range(300)]),
    "bit": ("id BIT(64) PRIMARY KEY, v INT", [(2**64 - 1 - i * 10**15, i) for i in range(300)]),
    "composite": (
        "a INT, b VARCHAR(10) COLLATE utf8mb4_bin, c VARBINARY(4), v INT, PRIMARY KEY (a, b, c)",
        [(i % 3 - 1, f"x{i % 7}", bytes([i % 256]), i) for i in range(1, 700)][:500],
    ),
    "composite_enum": (
        "e ENUM('z','a','m'), s SET('q','b'), n SMALLINT UNSIGNED, v INT, PRIMARY KEY (e, s, n)",
        [(e, s, n, n) for e in "zam" for s in ("", "q", "b", "q,b") for n in range(40)],
    ),
    "unique_not_null": ("v INT, u VARCHAR(20) COLLATE utf8mb4_bin NOT NULL UNIQUE", [(i, f"u{i}") for i in range(300)]),
}


@pytest.mark.parametrize("name", KEYS)
def test_chunks_hold_every_row_once(name, database, replicator_password) -> None:
    ddl, rows = KEYS[name]
    _fill(database, ddl, rows)
    schema, chunks, found = _chunk_rows(database, replicator_password)
    assert len(chunks) > 3
    assert (chunks[0].lower, chunks[-1].upper) == (None, None)
    keys = [tuple(row[k] for k in schema.keys) for part in found for row in part]
    assert len(keys) == len(set(keys)) == len(rows)
    assert max(map(len, found)) <= 4 * CHUNK_ROWS


def test_an_empty_table_is_one_chunk_without_rows(database, replicator_password) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    _, chunks, found = _chunk_rows(database, replicator_password)
    assert (len(chunks), found) == (1, [[]])


def test_a_table_without_a_key_is_one_chunk(database, replicator_password) -> None:
    database.execute("SET sql_mode = ''")
    database.execute("CREATE TABLE t (a INT, b INT)")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(i % 5, None) for i in range(200)])
    schema, chunks, found = _chunk_rows(database, replicator_password)
    assert (schema.keys, len(chunks), len(found[0])) == ((), 1, 200)


def test_rows_beyond_the_range_known_at_planning_are_read(database, replicator_password) -> None:
    _fill(database, "id INT PRIMARY KEY, v INT", [(i, i) for i in range(1, 301)])
    where, schema, chunks = _planned(database, replicator_password)
    database.execute("INSERT INTO t VALUES (-2147483648, 1), (2147483647, 2), (301, 3)")
    found = [row["id"] for chunk in chunks for batch in read_chunk(where, schema, chunk) for row in batch.to_pylist()]
    assert sorted(found) == [-(2**31), *range(1, 302), 2**31 - 1]


@pytest.mark.parametrize("ddl", ["id INT PRIMARY KEY, v INT", "id VARCHAR(12) PRIMARY KEY, v INT"])
def test_rows_that_stand_still_are_read_once_while_others_move(ddl, database, replicator_password) -> None:
    _fill(database, ddl, [(i * 10, i) for i in range(500)])
    where, schema, chunks = _planned(database, replicator_password)
    stop = threading.Event()

    def move() -> None:
        with database.connection() as writer, writer.cursor() as cursor:
            n = 0
            while not stop.is_set():
                n += 1
                # Every tenth row hops back and forth over chunk ends; the others stay.
                cursor.execute("UPDATE t SET id = %s WHERE v = %s", (n * 7919 % 5000 + 5001, n % 50 * 10))
                cursor.execute("INSERT IGNORE INTO t VALUES (%s, -1)", (n + 100_000,))

    mover = threading.Thread(target=move)
    mover.start()
    try:
        found = [row for chunk in chunks for batch in read_chunk(where, schema, chunk) for row in batch.to_pylist()]
    finally:
        stop.set()
        mover.join()
    still = sorted(row["v"] for row in found if row["v"] >= 0 and row["v"] % 10)
    assert still == [v for v in range(500) if v % 10]
