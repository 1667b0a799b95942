"""Batches of rows events, from raw images to envelopes in data files: the usual path of the stream.

Everything here is per table and batch; nothing runs per event but compiled code. The transactions in a batch are whole,
so the order of their rows begins with them, which is what tells this path from the one for single events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from bronze.binlog.blocks import Int64s
from bronze.binlog.bulk import RowsBatch
from bronze.binlog.tablemap import TableMap
from bronze.decode.walk import Images
from bronze.stamp import Stamps
from lakeward.position import Position

_OPS = pa.array(["c", "u", "d"], pa.string())


@dataclass(frozen=True)
class Wanted:
    """The events of one table map among several batches. `members` are their numbers over all batches."""

    table_map: TableMap
    members: Int64s
    images: Images
    first: tuple[int, int]  # (file, position), and of the last one
    last: tuple[int, int]

    @property
    def ops(self) -> pa.StringArray:
        return _OPS.take(pa.array(self.images.ops))


class Batches:
    """Batches taken together, after which nothing else may come before they are written."""

    def __init__(self, batches: Sequence[RowsBatch], epoch: int) -> None:
        self._batches = batches
        self._epoch = epoch
        self._first = np.cumsum([0, *(b.table.size for b in batches)])
        self._counts = np.zeros(self._first[-1], np.int64)
        self._table = np.zeros(self._first[-1], np.int64)
        self._names: dict[str, int] = {}

    def tables(self, spans: Mapping[str, tuple[Position, Position | None]]) -> Iterator[Wanted]:
        """The events by table map, those outside of their table's span left out."""
        found: dict[int, tuple[TableMap, list[tuple[int, Int64s]]]] = {}
        for n, batch in enumerate(self._batches):
            for place in np.unique(batch.table).tolist():
                table_map = batch.maps[place]
                assert table_map is not None  # no event of an unwanted table is in a batch
                chosen = np.flatnonzero(batch.table == place)
                chosen = chosen[self._within(batch.file, batch.pos[chosen], *spans[str(table_map.name)])]
                if chosen.size:
                    found.setdefault(id(table_map), (table_map, []))[1].append((n, chosen))
        for table_map, parts in found.values():
            members = np.concatenate([self._first[n] + chosen for n, chosen in parts])
            self._table[members] = self._names.setdefault(str(table_map.name), len(self._names))
            yield Wanted(
                table_map, members, self._images(parts), self._place(*parts[0], 0), self._place(*parts[-1], -1)
            )

    def count(self, wanted: Wanted, counts: Int64s) -> None:
        """Say how many rows the events have; those of which it is not said have none."""
        self._counts[wanted.members] = counts

    def stamps(self) -> Stamps:
        """Of all events, once every table's rows are counted."""
        batches = self._batches
        begins = np.cumsum([0, *(b.ts_ms.size for b in batches)])
        transaction = np.concatenate([b.transaction + begin for b, begin in zip(batches, begins[:-1], strict=True)])
        order, table_order = np.empty_like(self._counts), np.empty_like(self._counts)
        _orders(transaction, self._table, self._counts, max(1, len(self._names)), order, table_order)
        which = pa.array(transaction)
        return Stamps(
            file=np.repeat([b.file for b in batches], [b.table.size for b in batches]),
            pos=np.concatenate([b.pos for b in batches]),
            first_row=np.zeros(self._counts.size, np.int64),
            ts_ms=np.concatenate([b.ts_ms for b in batches])[transaction],
            gtid=pa.concat_arrays([b.gtid for b in batches]).take(which),
            transaction_id=pa.concat_arrays([b.id for b in batches]).take(which),
            first_order=order,
            first_table_order=table_order,
        )

    def _within(self, file: int, pos: Int64s, start: Position, stop: Position | None) -> npt.NDArray[np.bool_]:
        inside = np.ones(pos.size, np.bool_)
        if (start.epoch, start.file) >= (self._epoch, file):
            inside &= (start.epoch, start.file) == (self._epoch, file) and pos >= start.pos
        if stop is not None and (stop.epoch, stop.file) <= (self._epoch, file):
            inside &= (stop.epoch, stop.file) == (self._epoch, file) and pos < stop.pos
        return inside

    def _images(self, parts: Sequence[tuple[int, Int64s]]) -> Images:
        chosen = [(self._batches[n], members) for n, members in parts]
        return Images.gathered([(b.data, b.start[m], b.end[m], b.op[m]) for b, m in chosen])

    def _place(self, n: int, chosen: Int64s, which: int) -> tuple[int, int]:
        return self._batches[n].file, int(self._batches[n].pos[chosen[which]])


@njit(cache=True, nogil=True)
def _orders(transaction, table, counts, tables, order, table_order):  # type: ignore[no-untyped-def]
    """The number of each event's first row in its transaction, and in its transaction's rows of its table."""
    current = transaction[0] - 1
    rows = counts[0] * 0
    last = np.full(tables, -1, np.int64)
    of_table = np.zeros(tables, np.int64)
    for i in range(transaction.size):
        t = transaction[i]
        if t != current:
            current = t
            rows = 0
        k = table[i]
        if last[k] != t:
            last[k] = t
            of_table[k] = 0
        order[i] = rows + 1
        table_order[i] = of_table[k] + 1
        rows += counts[i]
        of_table[k] += counts[i]
