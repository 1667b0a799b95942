"""A large batch, held by the driver: the last change of each key, by Arrow.

What `silver.events` and `silver.current` say of a batch by Spark's expressions is said here once more, for keys that
Arrow compares exactly; `tests/silver` holds both to one model. See docs/adr/0014.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakeward.kernel import Listing
from lakeward.lake import Lake
from lakeward.position import Position
from lakeward.schema import TableSchema
from silver.columns import META
from silver.local import as_now, opened, pieces
from silver.plan import TablePlan

ROWS_MAX = 8_000_000
_PLACE: Final = ("epoch", "file", "pos", "row")
_FROM_BRONZE: Final = (
    *("op", "before", "after", "ts_ms", "transaction.id", "transaction.total_order"),
    *(f"source.{name}" for name in (*_PLACE, "snapshot")),
)


@dataclass(frozen=True)
class LastChanges:
    """The last change of each key, in the order of the source."""

    rows: pa.Table  # what each key's row is now, or was before it went: the source's columns, and META
    gone: np.ndarray  # whether the change is a delete


def last_changes(lake: Lake, plan: TablePlan, cut: Position, found: Listing, *, memory_max: int) -> LastChanges | None:
    """What the plan's events of the stream, in bronze's files `found`, come to; None where the driver cannot hold them.
    Keys are never NULL, nor floating."""
    parts: list[pa.Table] = []
    rows, memory = ROWS_MAX, memory_max
    for name in found.files:
        with opened(lake, lake.table("bronze", plan.schema.name), name) as file:
            if not as_now(file.schema_arrow, found.columns):
                return None
            if not parts:
                parts.append(_flat(file.schema_arrow.empty_table()))
            if all_of_snapshots(file):
                continue
            for piece in pieces(file, _FROM_BRONZE):
                parts.append(_wanted(piece, plan.since or plan.start, cut))
                rows, memory = rows - parts[-1].num_rows, memory - parts[-1].nbytes
                if rows < 0 or memory < 0:
                    return None
    return _reduced(pa.concat_tables(parts), plan.schema) if parts else None


def all_of_snapshots(file: pq.ParquetFile) -> bool:
    """Whether none of the file's events is of the stream: snapshots write files of their own."""
    return all(pc.all(pc.struct_field(p["source"], "snapshot")).as_py() for p in pieces(file, ["source.snapshot"]))


def _reduced(events: pa.Table, schema: TableSchema) -> LastChanges:
    event, gone = _last(events, schema)
    # A row that is gone is told by what it was.
    image = pa.array(np.where(gone, event, event + events.num_rows))
    rows: dict[str, pa.Array] = {}
    for column in schema.columns:
        halves = [pc.struct_field(events[half], column.name) for half in ("before", "after")]
        rows[column.name] = pa.chunked_array([c for h in halves for c in h.chunks], halves[0].type).take(image)
    for (name, _), field in zip(META, ("ts_ms", "id", "total_order"), strict=True):
        rows[name] = events[field].take(pa.array(event))
    return LastChanges(pa.table(rows).combine_chunks(), gone)


def _flat(stored: pa.Table) -> pa.Table:
    """op, before, after, ts_ms, id, total_order, epoch, file, pos, row."""
    flat = {name: stored[name] for name in ("op", "before", "after", "ts_ms")}
    flat |= {name: pc.struct_field(stored["transaction"], name) for name in ("id", "total_order")}
    return pa.table(flat | {name: pc.struct_field(stored["source"], name) for name in _PLACE})


def _wanted(stored: pa.Table, since: Position, cut: Position) -> pa.Table:
    """The events of rows in [since, cut) of the stream."""
    events = _flat(stored)
    wanted = pc.and_(pc.not_equal(events["op"], "t"), pc.invert(pc.struct_field(stored["source"], "snapshot")))
    wanted = pc.and_(wanted, _not_before(events, since))
    wanted = pc.and_(wanted, pc.invert(_not_before(events, cut)))
    return events if pc.all(wanted).as_py() else events.filter(wanted)


def _not_before(events: pa.Table, position: Position) -> Any:
    """As `silver.events.not_before`: whether an event stands at `position` or after it."""
    at_least: Any = pa.scalar(True)
    for name, bound in reversed(list(zip(_PLACE, position, strict=True))):
        later, same = pc.greater(events[name], bound), pc.equal(events[name], bound)
        at_least = pc.or_(later, pc.and_(same, at_least))
    return at_least


def _last(events: pa.Table, schema: TableSchema) -> tuple[np.ndarray, np.ndarray]:
    """The number of each key's last event, and whether that event deletes the key's row."""
    order = np.lexsort([events[name].to_numpy() for name in reversed(_PLACE)])
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    deletes = pc.equal(events["op"], "d")
    before, after = ({key: pc.struct_field(events[image], key) for key in schema.keys} for image in ("before", "after"))
    # An update that moves a row to another key is two changes: the old key's delete, and then the new key's upsert.
    moved = reduce(pc.or_, (pc.fill_null(pc.not_equal(before[key], after[key]), False) for key in schema.keys))
    moved = pc.and_(moved, pc.equal(events["op"], "u"))
    names = [f"k{i}" for i in range(len(schema.keys))]
    here = [pc.if_else(deletes, before[key], after[key]) for key in schema.keys]
    changes = pa.table([*here, pa.array(2 * rank + 1)], names=[*names, "at"])
    if pc.any(moved).as_py():
        away = [before[key].filter(moved) for key in schema.keys]
        left = pa.table([*away, pa.array(2 * rank[moved.to_numpy()])], names=[*names, "at"])
        changes = pa.concat_tables([changes, left])
    at = np.sort(changes.group_by(names).aggregate([("at", "max")])["at_max"].to_numpy())
    event = order[at // 2]
    return event, (at % 2 == 0) | deletes.to_numpy()[event]
