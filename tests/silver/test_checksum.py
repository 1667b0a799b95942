"""One bit changed in any stored value of the type matrix changes the hash of its row and the sum of its chunk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from golden.loader import cases
from servers.running import Database

from bronze.snapshot.bounds import Chunk
from bronze.snapshot.read import read_chunk
from bronze.source.catalog import discover
from bronze.source.connection import connect, settings
from lakeward.config import parse
from silver.checksum import Sums, row_hashes


@pytest.fixture(scope="module")
def matrix(server, replicator_password) -> Iterator[dict[str, pa.StructArray]]:
    """Every table of the golden files as the snapshot reads it, by golden case."""
    with Database.create(server, "golden_checksum") as database:
        known = {c.name.replace("-", "_"): c for c in cases(server.flavour)}
        for table, case in known.items():
            for statement in case.statements(table, server.flavour):
                database.execute(statement)
        config = parse(
            {
                "source": {
                    "url": f"mysql://replicator@127.0.0.1:{server.port}",
                    "include": [f"{database.name}.*"],
                },
                "tables": {f"{database.name}.{t}": {"tinyint1": c.tinyint1} for t, c in known.items()},
            }
        )
        with connect(config.source, replicator_password) as connection:
            schemas = discover(connection, config)
        found = {}
        for schema in schemas:
            batches = list(read_chunk(settings(config.source, replicator_password), schema, Chunk(0)))
            found[schema.name.table] = pa.concat_arrays(batches)
        assert found.keys() == known.keys()
        yield found


def test_each_bit_of_each_value_of_the_matrix_counts(matrix) -> None:
    flipped = 0
    for case, rows in matrix.items():
        before = row_hashes(rows)
        values = rows.field(1)
        for row in np.flatnonzero(np.asarray(values.is_valid())).tolist():
            for changed in _one_bit_others(values, row):
                other = pa.StructArray.from_arrays([rows.field(0), changed], fields=list(rows.type))
                after = row_hashes(other)
                assert np.flatnonzero(before != after).tolist() == [row], (case, row)
                one, two = Sums(1), Sums(1)
                one.add(np.zeros(len(rows), np.int64), before)
                two.add(np.zeros(len(rows), np.int64), after)
                assert one.differing(two).tolist() == [0]
                flipped += 1
        assert row_hashes(rows.slice(1)).tolist() == before[1:].tolist(), case
    assert flipped > 1000


def test_null_and_nothing_and_lengths_are_told_apart() -> None:
    def of(*columns: list[object]) -> list[int]:
        arrays = [pa.array(c, pa.string()) for c in columns]
        rows = pa.StructArray.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])
        return [int(h) for h in row_hashes(rows)]

    hashes = of(["", None, "a", "\0", "\0\0"], ["b", "b", "", "", ""])
    assert len(set(hashes)) == len(hashes)
    assert of(["ab"], ["c"]) != of(["a"], ["bc"])


def test_equal_rows_are_counted_and_sums_are_exact() -> None:
    sums, twice = Sums(2), Sums(2)
    hashes = np.array([2**64 - 1] * 5, np.uint64)
    sums.add(np.array([0, 0, 1, 1, 1]), hashes)
    twice.add(np.array([0, 0, 1, 1, 1, 1, 1]), np.array([2**64 - 1] * 7, np.uint64))
    assert sums.total() == 5 * (2**64 - 1)
    assert sums.differing(twice).tolist() == [1]


def _one_bit_others(values: pa.Array, row: int) -> Iterator[pa.Array]:
    """`values` with one bit of one row's value changed: the first, a middle one and the last of what is stored."""
    if pa.types.is_struct(values.type):
        for i in range(values.type.num_fields):
            for child in _one_bit_others(values.field(i), row):
                children = [child if j == i else values.field(j) for j in range(values.type.num_fields)]
                yield pa.StructArray.from_arrays(children, fields=list(values.type), mask=values.is_null())
        return
    if pa.types.is_list(values.type):
        first, last = values.offsets[row].as_py() * 32, values.offsets[row + 1].as_py() * 32
        yield from (
            pa.ListArray.from_arrays(values.offsets, _flipped(values.values, 1, bit), mask=values.is_null())
            for bit in _some(first, last)
        )
        return
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        first, last = (int(o) * 8 for o in np.frombuffer(values.buffers()[1], np.int32)[row : row + 2])
        yield from (_flipped(values, 2, bit) for bit in _some(first, last))
        return
    width = values.type.bit_width
    yield from (_flipped(values, 1, bit) for bit in _some(row * width, (row + 1) * width))


def _some(first: int, last: int) -> list[int]:
    return sorted({first, (first + last) // 2, last - 1}) if last > first else []


def _flipped(values: pa.Array, buffer: int, bit: int) -> pa.Array:
    buffers = list(values.buffers())
    raw = np.frombuffer(buffers[buffer], np.uint8).copy()
    raw[bit // 8] ^= 1 << bit % 8
    buffers[buffer] = pa.py_buffer(raw)
    return pa.Array.from_buffers(values.type, len(values), buffers)
