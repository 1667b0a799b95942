"""Stamps decoded rows with where they stand: position, transaction and order, as columns of the envelope.

Pure over Arrow arrays and numbers; both paths into bronze end here, so an envelope has one shape whatever it came by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from bronze.envelope import envelope_arrow
from lakeward.position import Position

_NAMES = pa.list_(pa.string())


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


@dataclass(frozen=True)
class Stamps:
    """Many EventStamps as columns: the arrays of numbers are of int64, those of words of strings."""

    file: np.ndarray
    pos: np.ndarray
    first_row: np.ndarray
    ts_ms: np.ndarray
    gtid: pa.StringArray
    transaction_id: pa.StringArray
    first_order: np.ndarray
    first_table_order: np.ndarray

    @classmethod
    def of(cls, stamps: Sequence[EventStamp]) -> Stamps:
        columns = {f.name: [getattr(s, f.name) for s in stamps] for f in fields(EventStamp)}
        words = {name: pa.array(columns.pop(name), pa.string()) for name in ("gtid", "transaction_id")}
        return cls(**{name: np.array(column, np.int64) for name, column in columns.items()}, **words)

    def take(self, chosen: np.ndarray) -> Stamps:
        """Those at the numbers `chosen`."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return Stamps(
            **{n: v[chosen] if isinstance(v, np.ndarray) else v.take(pa.array(chosen)) for n, v in found.items()}
        )


def stream_envelopes(
    before: pa.StructArray,
    after: pa.StructArray,
    ops: Sequence[str] | pa.StringArray,
    counts: np.ndarray,
    stamps: Sequence[EventStamp] | Stamps,
    origin: Origin,
    absent: Sequence[Sequence[str]] = (),
    before_absent: Sequence[Sequence[str]] = (),
) -> pa.RecordBatch:
    """Envelopes of the rows of `len(counts)` events; event i has `counts[i]` rows and the op `ops[i]`.

    `absent[i]` and `before_absent[i]` are the columns that its images do not tell; () where every event tells all.
    """
    counts = np.asarray(counts, dtype=np.int64)
    total = int(counts.sum())
    columns = stamps if isinstance(stamps, Stamps) else Stamps.of(stamps)
    event = np.repeat(np.arange(counts.size), counts)
    row = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)

    def words(values: Sequence[str] | pa.StringArray) -> pa.Array:
        distinct = values if isinstance(values, pa.Array) else pa.array(values, type=pa.string())
        return distinct.take(pa.array(event))

    def names(values: Sequence[Sequence[str]]) -> pa.Array:
        if not any(values):
            return pa.nulls(total, _NAMES)
        return pa.array([list(v) or None for v in values], type=_NAMES).take(pa.array(event))

    source = _struct(
        {
            "server": _constant(origin.server, pa.string(), total),
            "epoch": _constant(origin.epoch, pa.int32(), total),
            "file": pa.array(columns.file[event]),
            "pos": pa.array(columns.pos[event]),
            "row": pa.array(columns.first_row[event] + row),
            "gtid": words(columns.gtid),
            "snapshot": _constant(False, pa.bool_(), total),
            "generation": _constant(0, pa.int32(), total),
            "absent": names(absent),
            "before_absent": names(before_absent),
        }
    )
    transaction = _struct(
        {
            "id": words(columns.transaction_id),
            "total_order": pa.array(columns.first_order[event] + row),
            "data_collection_order": pa.array(columns.first_table_order[event] + row),
        }
    )
    return _batch(words(ops), before, after, pa.array(columns.ts_ms[event]), source, transaction)


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
            "absent": pa.nulls(total, _NAMES),
            "before_absent": pa.nulls(total, _NAMES),
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


def repair_envelopes(
    rows: pa.StructArray, *, gone: bool, at: Position, first_row: int, ts_ms: int, gtid: str, origin: Origin
) -> pa.RecordBatch:
    """Envelopes of rows that a repair read inside a transaction at exactly `at`: op r for what the source holds there,
    d for what it does not (`gone`). They are of the stream, since they stand in its order: an event of the log begins
    before the place or behind it."""
    total = len(rows)
    stamp = EventStamp(
        at.file, at.pos, first_row, ts_ms, gtid, f"repair:{at.epoch}:{at.file}:{at.pos}", first_row + 1, first_row + 1
    )
    nothing = pa.nulls(total, rows.type)
    before, after, op = (rows, nothing, "d") if gone else (nothing, rows, "r")
    return stream_envelopes(before, after, [op], np.array([total]), [stamp], origin)


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
