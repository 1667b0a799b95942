"""What a proof decides from hashes, without Spark: which keys differ, which only by quarantine, and how it is said."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import Column, TableSchema
from silver.checksum import row_hashes
from silver.events import not_before
from silver.proof.chunks import Chunking
from silver.proof.differences import MASKED, Difference, Held, compare, describe
from silver.proof.sides import Hashes

NONE = Held(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
COLUMNS = (Column("id", "int"), Column("v", "varchar"), Column("secret", "varchar", masked=True))
KEYED = TableSchema(TableName("s", "t"), COLUMNS, ("id",), "primary")
KEYLESS = TableSchema(TableName("s", "t"), COLUMNS, (), "row")


class Side:
    """Rows as (id, v), and their hashes."""

    def __init__(self, schema: TableSchema, *rows: tuple[int, str | None]) -> None:
        keys = (0,) if schema.keys else (0, 1, 2)
        full = [{"id": i, "v": v, "secret": f"hmac of {v}"} for i, v in rows]
        array = pa.array(full, schema.image())
        self.hashes = Hashes(row_hashes(array, keys), row_hashes(array))
        self.examples = {int(h): row for h, row in zip(self.hashes.rows, full, strict=True)}


def _said(schema: TableSchema, source: Side, lake: Side, keys: np.ndarray) -> list[dict[str, Any]]:
    return sorted(
        (describe(schema, int(k), source.hashes, lake.hashes, source.examples, lake.examples) for k in keys),
        key=lambda d: d["key"]["id"],
    )


def _compared(schema: TableSchema, source: Side, lake: Side, held: Held = NONE) -> Difference:
    return compare(source.hashes, lake.hashes, held, keyed=bool(schema.keys))


def test_rows_with_a_key_that_are_lost_added_doubled_and_changed_are_told_apart() -> None:
    source = Side(KEYED, (1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, None))
    lake = Side(KEYED, (2, "b"), (2, "b"), (3, "C"), (4, "d"), (5, "NULL"), (9, "x"))
    found = _compared(KEYED, source, lake)
    assert found.held.size == 0
    said = _said(KEYED, source, lake, found.keys)
    assert [(d["key"], d["what"]) for d in said] == [
        ({"id": "1"}, "missing in silver"),
        ({"id": "2"}, "doubled in silver"),
        ({"id": "3"}, "differs"),
        ({"id": "5"}, "differs"),
        ({"id": "9"}, "only in silver"),
    ]
    assert (said[1]["at_source"], said[1]["in_silver"]) == (1, 2)
    assert said[2]["columns"] == ["v", "secret"]
    assert said[2]["values"] == {
        "v": {"source": "c", "silver": "C"},
        "secret": {"source": MASKED, "silver": MASKED},
    }


def test_equal_rows_without_a_key_are_counted() -> None:
    source = Side(KEYLESS, (1, "a"), (1, "a"), (2, "b"), (3, "c"))
    lake = Side(KEYLESS, (1, "a"), (2, "b"), (2, "b"), (4, "d"))
    said = _said(KEYLESS, source, lake, _compared(KEYLESS, source, lake).keys)
    assert [(d["key"]["v"], d["what"]) for d in said] == [
        ("a", "missing in silver"),
        ("b", "doubled in silver"),
        ("c", "missing in silver"),
        ("d", "only in silver"),
    ]


@pytest.mark.parametrize("schema", [KEYED, KEYLESS])
def test_only_what_quarantine_explains_is_counted_apart(schema: TableSchema) -> None:
    source = Side(schema, (1, "new"), (2, "new"), (4, "d"))
    lake = Side(schema, (2, "wrong"), (3, "gone"), (4, "d"))
    inserted, removed = Side(schema, (1, "new")).hashes, Side(schema, (3, "gone")).hashes
    found = _compared(schema, source, lake, Held(inserted.rows, removed.keys))
    assert sorted(d["key"]["id"] for d in _said(schema, source, lake, found.held)) == ["1", "3"]
    assert {d["key"]["id"] for d in _said(schema, source, lake, found.keys)} == {"2"}


def test_of_long_values_that_differ_the_place_is_shown() -> None:
    source, lake = Side(KEYED, (1, "y" * 5000)), Side(KEYED, (1, "y" * 4000 + "x" + "y" * 999))
    (said,) = _said(KEYED, source, lake, _compared(KEYED, source, lake).keys)
    shown = said["values"]["v"]
    assert "x" in shown["silver"]
    assert "5000 characters" in shown["source"]
    assert len(shown["source"]) < 100


def test_every_key_is_in_the_chunk_whose_range_reads_it() -> None:
    ends = [-10, 0, 7]
    chunking = Chunking((0,), 4, np.array(ends, np.int64), "`id`")
    rows = pa.array([{"id": i} for i in (-11, -10, -9, 0, 1, 7, 8)])
    assert chunking.of(rows, np.zeros(7, np.uint64)).tolist() == [0, 0, 1, 1, 2, 2, 3]
    assert chunking.where([0]) == " WHERE (`id` <= -10)"
    assert chunking.where([1, 2]) == " WHERE (`id` > -10 AND `id` <= 7)"
    assert chunking.where([0, 3]) == " WHERE (`id` <= -10) OR (`id` > 7)"
    assert chunking.where([0, 1, 2, 3]) == ""


def test_a_chunk_by_hash_is_the_same_from_a_batch_and_from_a_part_of_it() -> None:
    chunking = Chunking((0,), 5)
    rows = pa.array([{"id": i, "v": str(i)} for i in range(100)])
    whole = chunking.of(rows, chunking.key_hashes(rows))
    part = rows.slice(40)
    assert chunking.of(part, chunking.key_hashes(part)).tolist() == whole[40:].tolist()
    assert set(whole.tolist()) == set(range(5))


def test_what_a_repair_adds_stands_behind_the_log_and_before_the_checkpoint_after_it() -> None:
    at = Position(1, 2, 300)
    behind = at._replace(row=4)
    later = Position(1, 2, 301)
    assert all(a < b for a, b in pairwise([Position(1, 2, 299, 9), at, behind, later]))
    assert at.place == behind.place != later.place
    for position in (at, behind):
        assert Position.from_json(position.to_json()) == position
    assert Checkpoint.from_json(Checkpoint(behind, "g", 5).to_json()) == Checkpoint(behind, "g", 5)
    assert "row" not in at.to_json()
    assert "source.row >= 4" in not_before(behind)
    assert "source.row" not in not_before(at)
