"""Stamps decoded rows with where they stand: position, transaction and order, as columns of the envelope.

Pure over Arrow arrays and numbers; both paths into bronze end here, so an envelope has one shape whatever it came by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bronze.envelope import envelope_arrow
from lakeward.position import Position


@dataclass(frozen=True)
class Origin:
    """What is the same for every event of a batch: the server's identity and its epoch."""

    server: str
    epoch: int


@dataclass(frozen=True)
class EventStamp:
    """Where one rows event stands, and the order of its first row in its transaction and table (both from 1)."""

    file: int
    pos: int
    first_row: int
    ts_ms: int
    gtid: str
    transaction_id: str
    first_order: int
    first_table_order: int


def stream_envelopes(
    before: pa.StructArray,
    after: pa.StructArray,
    ops: Sequence[str],
    counts: np.ndarray,
    stamps: Sequence[EventStamp],
    origin: Origin,
) -> pa.RecordBatch:
    """Envelopes of the rows of `len(stamps)` events; event i has `counts[i]` rows and the op `ops[i]`."""
    counts = np.asarray(counts, dtype=np.int64)
    total = int(counts.sum())
    event = np.repeat(np.arange(len(stamps)), counts)
    row = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)

    def numbers(name: str) -> np.ndarray:
        return np.fromiter((getattr(s, name) for s in stamps), dtype=np.int64, count=len(stamps))[event]

    def words(values: Sequence[str]) -> pa.Array:
        distinct = pa.array(values, type=pa.string())
        return distinct.take(pa.array(event))

    source = _struct(
        {
            "server": _constant(origin.server, pa.string(), total),
            "epoch": _constant(origin.epoch, pa.int32(), total),
            "file": pa.array(numbers("file")),
            "pos": pa.array(numbers("pos")),
            "row": pa.array(numbers("first_row") + row),
            "gtid": words([s.gtid for s in stamps]),
            "snapshot": _constant(False, pa.bool_(), total),
            "generation": _constant(0, pa.int32(), total),
        }
    )
    transaction = _struct(
        {
            "id": words([s.transaction_id for s in stamps]),
            "total_order": pa.array(numbers("first_order") + row),
            "data_collection_order": pa.array(numbers("first_table_order") + row),
        }
    )
    return _batch(words(list(ops)), before, after, pa.array(numbers("ts_ms")), source, transaction)


def snapshot_envelopes(
    rows: pa.StructArray, *, at: Position, generation: int, first_row: int, ts_ms: int, gtid: str, origin: Origin
) -> pa.RecordBatch:
    """Envelopes (op r) of rows read by the snapshot `generation` that began at `at`; `first_row` numbers them."""
    total = len(rows)
    number = pa.array(np.arange(first_row, first_row + total, dtype=np.int64))
    source = _struct(
        {
            "server": _constant(origin.server, pa.string(), total),
            "epoch": _constant(at.epoch, pa.int32(), total),
            "file": _constant(at.file, pa.int64(), total),
            "pos": _constant(at.pos, pa.int64(), total),
            "row": number,
            "gtid": _constant(gtid, pa.string(), total),
            "snapshot": _constant(True, pa.bool_(), total),
            "generation": _constant(generation, pa.int32(), total),
        }
    )
    transaction = _struct(
        {
            "id": _constant(f"snapshot:{generation}:{at.file}:{at.pos}", pa.string(), total),
            "total_order": number,
            "data_collection_order": number,
        }
    )
    before = pa.nulls(total, rows.type)
    op, ts = _constant("r", pa.string(), total), _constant(ts_ms, pa.int64(), total)
    return _batch(op, before, rows, ts, source, transaction)


def truncate_envelope(image: pa.StructType, stamp: EventStamp, origin: Origin) -> pa.RecordBatch:
    """The one envelope (op t) of a TRUNCATE."""
    nothing = pa.nulls(1, image)
    return stream_envelopes(nothing, nothing, ["t"], np.ones(1, dtype=np.int64), [stamp], origin)


def _batch(
    op: pa.Array,
    before: pa.StructArray,
    after: pa.StructArray,
    ts_ms: pa.Array,
    source: pa.StructArray,
    transaction: pa.StructArray,
) -> pa.RecordBatch:
    schema = envelope_arrow(after.type)
    return pa.RecordBatch.from_arrays([op, before, after, ts_ms, source, transaction], schema=schema)


def _struct(fields: dict[str, pa.Array]) -> pa.StructArray:
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields))


def _constant(value: object, kind: pa.DataType, length: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, type=kind), length)
