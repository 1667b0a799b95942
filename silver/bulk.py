"""Large batches, merged by Arrow: one pass over the files that hold their keys, written by it (`silver.files`).

A MERGE of Delta reduces a batch by two sorts, joins it with the table twice, and writes rows and change feed through
one writer, a row at a time: most of a large merge. Arrow does the same on columns. What bounds it is that the driver
holds the batch and the table's keys; a file is read and written a piece at a time. It is one of two places where rows
are compared outside of Spark (the other is `silver.reduction`), for types that Arrow compares exactly; `tests/silver`
holds both to one model. Anything else is left to the MERGE: see docs/adr/0014.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from lakeward import machine
from lakeward.kernel import Listing, listing
from lakeward.lake import Lake
from lakeward.position import Position
from lakeward.schema import TableSchema
from silver import files
from silver.columns import DELETED, META
from silver.local import FILES_MAX, as_now, opened, pieces
from silver.plan import TablePlan
from silver.reduction import LastChanges, last_changes
from silver.rows import Written

MEMORY_MAX = min(1 << 30, machine.memory() // 48)  # of a batch; of all keys
TABLE_BYTES_MAX = 2 << 30  # of its data files, compressed
ROWS_MAX = 50_000_000  # of a table
FILE_ROWS = 1 << 20  # of a file of new rows
FILES_AT_ONCE = 4
_NONE: Final = np.empty(0, np.int64)
_SNAPSHOT: Final = (
    *("after", "ts_ms", "transaction.id", "transaction.total_order", "source.snapshot", "source.generation"),
)
_one_at_a_time = threading.Lock()  # what is held is bounded for a run, not for each of its tables


@dataclass(frozen=True)
class _Part:
    """What came of a file, or of rows that have none yet."""

    written: files.Writer
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def merge(
    session: SparkSession, lake: Lake, location: str, plan: TablePlan, cut: Position, *, run: int, soft: bool
) -> Written | None:
    """What `silver.merge.merge` does with the plan's events, all of which have passed their gate, where they are of the
    stream alone or the table is empty; None, and nothing done, where it is not for Arrow."""
    if not plan.schema.keys or plan.schema.counted or plan.partial or plan.cascades >= 0:
        return None
    bronze = lake.table("bronze", plan.schema.name)
    with _one_at_a_time:
        table = files.take(session, lake, location, bytes_max=TABLE_BYTES_MAX)
        events = listing(session, bronze, plan.bronze_version, plan.since, most=FILES_MAX)
        if table is None or events is None or not events.plain or events.vectors or not _comparable(table, plan.schema):
            return None
        changes = last_changes(lake, plan, cut, events, memory_max=MEMORY_MAX)
        if changes is None:
            return None
        merging = _Merge(table, changes, plan.schema, soft)
        if plan.since is None:
            return merging.load(bronze, events, plan.generation, run=run)
        found = _found(table, changes, plan.schema)
        return None if found is None else merging.write(found, run=run)


def _comparable(table: files.Files, schema: TableSchema) -> bool:
    """Whether Arrow holds the same values to be equal as Spark does: not 0.0 and -0.0 as keys, and no lists."""
    kinds = {field.name: field.type for field in table.schema}
    if any(c.name not in kinds or not _flat(kinds[c.name]) for c in schema.columns):
        return False
    return not any(pa.types.is_floating(kinds[key]) or pa.types.is_nested(kinds[key]) for key in schema.keys)


def _flat(kind: pa.DataType) -> bool:
    return all(_flat(field.type) for field in kind) if pa.types.is_struct(kind) else not pa.types.is_nested(kind)


@dataclass(frozen=True)
class _Found:
    """Rows of a table that have a key of a batch, by their numbers in their files, in their order."""

    rows: dict[str, np.ndarray]
    changes: dict[str, np.ndarray]  # what each is of
    gone: dict[str, np.ndarray]  # the rows of each file that are the table's no more


def _found(table: files.Files, changes: LastChanges, schema: TableSchema) -> _Found | None:
    """None where two rows have one key, or the driver cannot hold the keys."""
    parts: list[pa.Table] = []
    first = [0]
    memory = MEMORY_MAX
    for name in table.listing.files:
        with opened(table.lake, table.location, name) as file:
            first.append(first[-1] + file.metadata.num_rows)
            if first[-1] > ROWS_MAX or not as_now(file.schema_arrow, table.listing.columns):
                return None
            for piece in pieces(file, schema.keys):
                parts.append(piece)
                memory -= piece.nbytes
                if memory < 0:
                    return None
    gone = {name: vector.rows() for name, vector in table.listing.vectors.items()}
    there = np.ones(first[-1], dtype=bool)
    for name, start in zip(table.listing.files, first, strict=False):
        there[gone.get(name, _NONE) + start] = False
    row, change = _NONE, _NONE
    if parts:
        row, change = _same_keys(pa.concat_tables(parts).filter(pa.array(there)), changes.rows, schema)
        row = np.flatnonzero(there)[row]
    if len(np.unique(change)) < len(change):
        return None
    bounds = {name: np.searchsorted(row, first[n : n + 2]) for n, name in enumerate(table.listing.files)}
    rows = {name: row[low:high] - start for (name, (low, high)), start in zip(bounds.items(), first, strict=False)}
    return _Found(rows, {name: change[low:high] for name, (low, high) in bounds.items()}, gone)


def _same_keys(left: pa.Table, right: pa.Table, schema: TableSchema) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of rows that have one key, in the order of the left ones."""
    names = [f"k{i}" for i in range(len(schema.keys))]
    left = left.select(schema.keys)
    both = [
        pa.table([*rows.columns, pa.array(np.arange(rows.num_rows))], names=[*names, side])
        for side, rows in (("left", left), ("right", right.select(schema.keys).cast(left.schema)))
    ]
    pairs = both[0].join(both[1], names, join_type="inner").sort_by("left")
    return pairs["left"].to_numpy(), pairs["right"].to_numpy()


Work = Callable[[], _Part]


@dataclass(frozen=True)
class _Merge:
    table: files.Files
    changes: LastChanges
    schema: TableSchema
    soft: bool

    def load(self, bronze: str, events: Listing, generation: int, *, run: int) -> Written | None:
        """Into an empty table: the rows that a snapshot read, but for the keys that the stream has touched since."""
        if self.table.listing.files:
            return None
        work: list[Work] = [partial(self._loaded, bronze, name, generation) for name in events.files]
        new = np.arange(len(self.changes.gone)) if self.soft else np.flatnonzero(~self.changes.gone)
        return self._commit([], [*work, *self._new(new)], run=run)

    def write(self, found: _Found, *, run: int) -> Written:
        # A file that holds none of the keys stays as it is.
        touched = [name for name, rows in found.rows.items() if len(rows)]
        work: list[Work] = [partial(self._rewritten, name, found) for name in touched]
        new = np.ones(len(self.changes.gone), dtype=bool)
        for change in found.changes.values():
            new[change] = False
        work += self._new(np.flatnonzero(new if self.soft else new & ~self.changes.gone))
        return self._commit(touched, work, run=run)

    def _new(self, change: np.ndarray) -> list[Work]:
        pieces_of = range(0, len(change), FILE_ROWS)
        return [partial(self._inserted, change[start : start + FILE_ROWS]) for start in pieces_of]

    def _commit(self, touched: list[str], work: list[Work], *, run: int) -> Written:
        """Do the work, of which the first is that of the files `touched`."""
        with ThreadPoolExecutor(min(FILES_AT_ONCE, machine.cores()), "files") as pool:
            parts = list(pool.map(lambda each: each(), work))
        removed = [name for name, part in zip(touched, parts, strict=False) if part.written.files]
        if any(part.written.files for part in parts):
            self.table.commit(removed, [part.written for part in parts], run=run)
        inserted, updated, deleted = (sum(getattr(p, n) for p in parts) for n in ("inserted", "updated", "deleted"))
        return Written(inserted, updated, deleted)

    def _loaded(self, bronze: str, name: str, generation: int) -> _Part:
        """What a file of bronze has of a snapshot."""
        count = 0
        with self.table.writer() as writer, opened(self.table.lake, bronze, name) as file:
            for piece in pieces(file, _SNAPSHOT):
                read, told = (pc.struct_field(piece["source"], n) for n in ("snapshot", "generation"))
                stored = piece.filter(pc.and_(read, pc.equal(told, generation)))
                if not stored.num_rows:
                    continue
                rows = {c.name: pc.struct_field(stored["after"], c.name) for c in self.schema.columns}
                meta = [stored["ts_ms"], *(pc.struct_field(stored["transaction"], n) for n in ("id", "total_order"))]
                rows |= dict(zip((n for n, _ in META), meta, strict=True))
                flat = pa.table(rows)
                stays = np.ones(flat.num_rows, dtype=bool)
                if len(self.changes.gone):
                    stays[_same_keys(flat, self.changes.rows, self.schema)[0]] = False
                left = self._as_table(flat, np.zeros(flat.num_rows, dtype=bool), None).filter(pa.array(stays))
                writer.write(left, files.told(left.schema))
                count += left.num_rows
        return _Part(writer, inserted=count)

    def _inserted(self, change: np.ndarray) -> _Part:
        rows = self._rows(change, None)
        with self.table.writer() as writer:  # of what comes into an empty table, the rows are the change feed
            told = files.told(rows.schema, inserted=rows if self.table.listing.files else None)
            writer.write(rows, told)
        return _Part(writer, inserted=rows.num_rows)

    def _rewritten(self, name: str, found: _Found) -> _Part:
        table, first, updated, deleted = self.table, 0, 0, 0
        with table.writer() as writer, opened(table.lake, table.location, name) as file:
            for piece in pieces(file, table.schema.names):
                low, high = np.searchsorted(found.rows[name], (first, first + piece.num_rows))
                here, of = found.rows[name][low:high] - first, found.changes[name][low:high]
                stays = np.ones(piece.num_rows, dtype=bool)
                if name in found.gone:
                    low, high = np.searchsorted(found.gone[name], (first, first + piece.num_rows))
                    stays[found.gone[name][low:high] - first] = False
                first += piece.num_rows
                rows = piece.cast(table.schema)
                old = rows.take(pa.array(here))
                new = self._rows(of, old)
                gone = self.changes.gone[of] & (not self.soft)
                differs = self._differs(old, new) & ~gone
                stays[here[gone | differs]] = False
                before, after = old.filter(pa.array(differs)), new.filter(pa.array(differs))
                feed = files.told(rows.schema, before=before, after=after, deleted=old.filter(pa.array(gone)))
                writer.write(pa.concat_tables([rows.filter(pa.array(stays)), after]), feed)
                updated += after.num_rows
                deleted += int(gone.sum())
            if not updated and not deleted:
                writer.abandon()
        return _Part(writer, updated=updated, deleted=deleted)

    def _rows(self, change: np.ndarray, old: pa.Table | None) -> pa.Table:
        """What the table shall hold of the keys of these changes, in its columns."""
        return self._as_table(self.changes.rows.take(pa.array(change)), self.changes.gone[change], old)

    def _as_table(self, rows: pa.Table, gone: np.ndarray, old: pa.Table | None) -> pa.Table:
        columns = []
        for field in self.table.schema:
            if field.name in rows.schema.names:
                columns.append(rows[field.name].cast(field.type))
            elif self.soft and field.name == DELETED:
                columns.append(pa.chunked_array([pa.array(gone)]))
            elif old is not None:  # one that the source has dropped, and silver keeps
                columns.append(old[field.name])
            else:
                columns.append(pa.chunked_array([pa.nulls(len(gone), field.type)]))
        return pa.table(columns, schema=self.table.schema)

    def _differs(self, old: pa.Table, new: pa.Table) -> np.ndarray:
        compared = [c.name for c in self.schema.columns] + ([DELETED] if self.soft else [])
        found: np.ndarray = np.logical_or.reduce([_distinct(old[name], new[name]).to_numpy() for name in compared])
        return found


def _distinct(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    """As not `silver.columns.same`: whether a reader could tell two values apart."""
    unlike = pc.xor(pc.is_valid(left), pc.is_valid(right))
    if pa.types.is_struct(left.type):
        fields = [_distinct(pc.struct_field(left, f.name), pc.struct_field(right, f.name)) for f in left.type]
        return reduce(pc.or_, fields, unlike)
    differs = pc.not_equal(left, right)
    if pa.types.is_floating(left.type):  # NaN is NaN, and 0.0 is not -0.0
        signs = pc.xor(pc.less(pc.divide(1.0, left), 0.0), pc.less(pc.divide(1.0, right), 0.0))
        nan = pc.and_(pc.is_nan(left), pc.is_nan(right))
        differs = pc.and_(pc.or_(differs, pc.and_(pc.equal(left, 0.0), signs)), pc.invert(nan))
    return pc.or_(unlike, pc.fill_null(differs, False))
