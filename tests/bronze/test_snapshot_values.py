"""The snapshot path gives every value of the golden files, and reads what the protocol can do to a row."""

from __future__ import annotations

import pyarrow as pa
import pytest
from golden.loader import cases, shown

from bronze.snapshot.bounds import Chunk
from bronze.snapshot.read import read_chunk
from bronze.source.catalog import discover
from bronze.source.connection import connect, settings
from lakeward.config import parse
from lakeward.errors import TerminalError
from lakeward.schema import spark_type


def _tables(database, password, **tables):
    """table -> (schema, rows, reader) of every table in the schema."""
    config = parse(
        {
            "source": {
                "url": f"mysql://replicator@127.0.0.1:{database.server.port}",
                "include": [f"{database.name}.*"],
            },
            "tables": {f"{database.name}.{name}": value for name, value in tables.items()},
        }
    )
    found = {}
    with connect(config.source, password) as conn:
        schemas = discover(conn, config)
    for schema in schemas:
        reader = read_chunk(settings(config.source, password), schema, Chunk(0))
        batches = list(reader)
        for batch in batches:
            batch.validate(full=True)
            assert batch.type == schema.image()
        found[schema.name.table] = (schema, pa.chunked_array(batches, schema.image()).to_pylist(), reader)
    return found


def _read(database, password):
    (only,) = _tables(database, password).values()
    return only


@pytest.mark.parametrize("file", sorted({c.name.rpartition("-")[0] for c in cases()}))
def test_a_snapshot_gives_the_golden_values(file: str, database, replicator_password) -> None:
    mine = {c.name.replace("-", "_"): c for c in cases(database.flavour) if c.name.rpartition("-")[0] == file}
    if not mine:
        pytest.skip(f"{database.flavour} does not know this type")
    for table, case in mine.items():
        for statement in case.statements(table, database.flavour):
            database.execute(statement)
    read = _tables(database, replicator_password, **{t: {"tinyint1": c.tinyint1} for t, c in mine.items()})
    for table, case in mine.items():
        schema, rows, _ = read[table]
        assert spark_type(schema.column("v").arrow) == case.lake, case
        values = [shown(row["v"]) for row in sorted(rows, key=lambda r: r["id"])]
        assert values == case.expected(database.flavour), case


def test_dates_that_become_null_are_counted(database, replicator_password) -> None:
    database.execute("SET sql_mode = ''")
    database.execute("CREATE TABLE d (id INT PRIMARY KEY, a DATE, b DATETIME)")
    database.execute(
        "INSERT INTO d VALUES (1, '0000-00-00', '2020-00-01'), (2, '2020-02-29', NULL), (3, '1970-01-01', '1970-01-01')"
    )
    _, rows, reader = _read(database, replicator_password)
    assert [row["a"] is None for row in rows] == [True, False, False]
    assert reader.zero_dates == 2


def test_a_row_of_several_packets_and_its_neighbours_are_whole(database, replicator_password) -> None:
    database.execute("CREATE TABLE w (id INT PRIMARY KEY, a LONGBLOB, b LONGTEXT, z VARCHAR(10))")
    # Each row's payload lies on another side of a packet's end (2**24 - 1), one exactly on it.
    sizes = [3, 16_777_200, 16_777_215 - 20, 17_000_000, 34_000_000, 5]
    for n, size in enumerate(sizes):
        database.execute("INSERT INTO w VALUES (%s, REPEAT(CHAR(%s), %s), REPEAT('é', 9), 'end')", (n, 65 + n, size))
    _, rows, _ = _read(database, replicator_password)
    for n, (row, size) in enumerate(zip(rows, sizes, strict=True)):
        assert row["id"] == n
        assert row["a"] == bytes([65 + n]) * size
        assert (row["b"], row["z"]) == ("é" * 9, "end")


def test_more_rows_than_a_batch_come_once_each(database, replicator_password) -> None:
    database.execute("CREATE TABLE n (id INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(30))")
    database.execute("INSERT INTO n (t) VALUES ('x'), (NULL)")
    for _ in range(16):
        database.execute("INSERT INTO n (t) SELECT CONCAT('row ', id) FROM n")
    _, rows, _ = _read(database, replicator_password)
    ids = [row["id"] for row in rows]
    assert len(ids) == len(set(ids)) == 2 * 2**16


def test_a_table_that_is_gone_is_a_terminal_error_and_names_it(database, replicator_password) -> None:
    database.execute("CREATE TABLE gone (id INT PRIMARY KEY)")
    schema, _, reader = _read(database, replicator_password)
    database.execute("DROP TABLE gone")
    with pytest.raises(TerminalError, match="gone"):
        list(reader)
    assert schema.keys == ("id",)


def test_floats_and_doubles_keep_every_bit(database, replicator_password) -> None:
    database.execute("CREATE TABLE f (id INT PRIMARY KEY, s FLOAT, d DOUBLE, m FLOAT(7,3), k DOUBLE(20,2))")
    database.execute(
        "INSERT INTO f VALUES (1, 16777217, 5e-324, 3.14159, 12345678901234.56), (2, -0e0, -0e0, 0.1, 0.1)"
    )
    _, rows, _ = _read(database, replicator_password)
    assert rows[0]["s"] == 16777216.0
    assert rows[0]["d"] == 5e-324
    assert rows[0]["m"] == pytest.approx(3.142, abs=1e-7)
    assert rows[0]["m"] != 3.142  # the stored single, not its print
    assert rows[0]["k"] == 12345678901234.56
    assert [str(rows[1][c]) for c in "sd"] == ["-0.0", "-0.0"]


def test_generated_and_invisible_columns_are_read(database, replicator_password) -> None:
    database.execute(
        "CREATE TABLE c (id INT PRIMARY KEY, a INT INVISIBLE DEFAULT 5, "
        "v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED)"
    )
    database.execute("INSERT INTO c (id) VALUES (1)")
    _, rows, _ = _read(database, replicator_password)
    assert rows == [{"id": 1, "a": 5, "v": 6, "s": 7}]
