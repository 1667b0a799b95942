"""Bronze without a source: events of a load written as the bronze stage writes them, so that silver alone is measured.

The files, commits and state are made by bronze's own writer (`bronze.writer`, `bronze.commit`); only the events are
invented here. A row's values are a function of its number and of how often it was changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from bronze.commit import commit, ensure_table
from bronze.envelope import SOURCE_ARROW, TRANSACTION_ARROW, envelope_arrow
from bronze.writer import EnvelopeWriter, Target
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, save_bronze

PART = 250_000  # events held at once
_COLUMNS = {
    "id": "bigint",
    "customer": "int unsigned",
    "views": "bigint unsigned",
    "stock": "smallint",
    "price": "decimal(12,2)",
    "state": "enum('new','paid','sent','back')",
    "name": "varchar(80)",
    "created": "datetime(6)",
    "updated": "timestamp(3)",
    "note": "text",
}


def schema_of(table: str) -> TableSchema:
    """Ten columns, keyed by `id`."""
    columns = tuple(column_from_catalog(name, kind, nullable=name != "id") for name, kind in _COLUMNS.items())
    return TableSchema(TableName("bench", table), columns, ("id",), "primary")


@dataclass(frozen=True)
class Changes:
    """Changes of one table in their order: op (c, u or d), the row's number and how often it was changed before."""

    op: np.ndarray
    id: np.ndarray
    turn: np.ndarray


def mixed(rows: int, changes: int, *, recent: int | None = None) -> Changes:
    """40 % updates, 40 % inserts and 20 % deletes, shuffled, of a table with the rows 0 … rows-1.

    Updates and deletes are of different rows, anywhere in the table or among its `recent` last ones.
    """
    random = np.random.default_rng(1)
    inserts, deletes = changes * 2 // 5, changes // 5
    updates = changes - inserts - deletes
    span = rows if recent is None else min(recent, rows)
    old = rows - span + random.choice(span, size=updates + deletes, replace=False)
    updated, gone = old[:updates], old[updates:]
    ids = np.concatenate([updated, np.arange(rows, rows + inserts), gone]).astype(np.int64)
    op = np.repeat(np.array(["u", "c", "d"]), [updates, inserts, deletes])
    order = random.permutation(changes)
    ids, op = ids[order], op[order]
    return Changes(op, ids, np.zeros(changes, dtype=np.int64))


class Ledger:
    """Writes batches of events and the state behind them into the lake at `root`."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.lake = Lake(str(root))
        self._spark, self._state, self._pos = spark, BronzeState(), 1000

    def follow(self, schema: TableSchema, rows: int) -> None:
        """The table's snapshot, with the rows 0 … rows-1."""
        table = BronzeTable(schema, status="streaming", generation=1)
        table.start = table.high = Position(1, 1, self._pos)
        self._state.tables[str(schema.name)] = table
        ensure_table(self._spark, self.lake.table("bronze", schema.name), schema)
        ids = np.arange(rows, dtype=np.int64)
        self._write(table, Changes(np.full(rows, "r"), ids, np.zeros(rows, dtype=np.int64)))

    def change(self, schema: TableSchema, changes: Changes) -> None:
        self._write(self._state.tables[str(schema.name)], changes)

    def flush(self) -> None:
        """The batch's checkpoint."""
        self._pos += 1000
        self._state.batch += 1
        self._state.checkpoint = Checkpoint(Position(1, 1, self._pos), "", 1_700_000_000_000)
        save_bronze(self.lake, self._state)

    def _write(self, table: BronzeTable, changes: Changes) -> None:
        location = self.lake.table("bronze", table.name)
        with EnvelopeWriter(self.lake, {str(table.name): Target(f"bronze/{table.name.folder}")}) as writer:
            for at in range(0, len(changes.id), PART):
                part = Changes(*(part[at : at + PART] for part in vars(changes).values()))
                writer.write(str(table.name), _envelopes(table, part, self._pos + at // 1000, at))
            files = writer.close().get(str(table.name), [])
        commit(self._spark, location, files, batch=self._state.batch + 1)
        self._pos += len(changes.id) // 1000 + 1
        table.batch, table.rows = self._state.batch + 1, table.rows + len(changes.id)


def _envelopes(table: BronzeTable, changes: Changes, pos: int, first: int) -> pa.RecordBatch:
    """Events in row events of a thousand rows."""
    schema, n = table.schema, len(changes.id)
    numbers = np.arange(first, first + n)
    snapshot = bool(n) and changes.op[0] == "r"
    has_before, has_after = np.isin(changes.op, ["u", "d"]), changes.op != "d"
    before = _images(schema, changes.id, changes.turn, has_before)
    after = _images(schema, changes.id, changes.turn + (changes.op == "u"), has_after)
    assert table.start is not None
    place = {
        "server": pa.array(["bench"] * n),
        "epoch": np.ones(n, dtype=np.int32),
        "file": np.ones(n, dtype=np.int64),
        "pos": np.full(n, table.start.pos) if snapshot else pos + (numbers - first) // 1000,
        "row": numbers if snapshot else numbers % 1000,
        "snapshot": pa.array([snapshot] * n),
        "generation": np.full(n, table.generation if snapshot else 0, dtype=np.int32),
    }
    transaction = {} if snapshot else {
        "id": pc.binary_join_element_wise("t", pa.array(numbers // 1000).cast(pa.string()), "-"),
        "total_order": numbers % 1000,
        "data_collection_order": numbers % 1000,
    }  # fmt: skip
    columns = [
        pa.array(changes.op.tolist()),
        before,
        after,
        pa.array(1_700_000_000_000 + numbers),
        _struct(SOURCE_ARROW, place, n),
        _struct(TRANSACTION_ARROW, transaction, n),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=envelope_arrow(schema.image()))


def _struct(kind: pa.StructType, values: dict[str, Any], n: int, present: np.ndarray | None = None) -> pa.StructArray:
    arrays = []
    for f in kind:
        value = values.get(f.name)
        array = pa.nulls(n, f.type) if value is None else pa.array(value)
        arrays.append(array if array.type == f.type else array.cast(f.type))
    return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=None if present is None else pa.array(~present))


def _images(schema: TableSchema, ids: np.ndarray, turn: np.ndarray, present: np.ndarray) -> pa.StructArray:
    text = pa.array(ids).cast(pa.string())
    values = {
        "id": ids,
        "customer": ids * 2654435761 % 4294967296,
        "views": pa.array(ids * 1000003, mask=ids % 11 == 0).cast(pa.decimal128(20, 0)),
        "stock": ids % 60000 - 30000,
        "price": pa.array(ids % 1000000 + turn).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2)),
        "state": pa.array(["new", "paid", "sent", "back"]).take(pa.array((ids + turn) % 4)),
        "name": pc.binary_join_element_wise("customer nummer", text, " "),
        "created": pa.array(1_709_210_096_789_012 + ids * 60_000_000).cast(pa.timestamp("us")),
        "updated": pa.array((1_700_000_000_000 + ids + turn) * 1000),
        "note": pc.binary_join_element_wise("changed", pa.array(turn).cast(pa.string()), "times", " "),
    }
    kind = schema.image()
    updated = kind.field("updated").type
    values["updated"] = values["updated"].cast(updated)
    return _struct(kind, values, len(ids), present)
