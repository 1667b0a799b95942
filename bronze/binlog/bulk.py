"""Blocks of raw events in, the rows of whole plain transactions out as columns; everything else as `transactions` does.

What is said of the reader in `transactions` holds here too, for it is that reader: plain transactions (see `scan`) are
taken many at a time, and any other is read by it event by event. A Boundary follows each batch, and none stands between
the transactions of one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bronze.binlog import events, scan
from bronze.binlog.blocks import Block, Bytes, Int64s
from bronze.binlog.gtid import GtidSet
from bronze.binlog.items import Boundary, RowsEvent, Statement, Transaction
from bronze.binlog.scan import ANYWHERE, Catalogue, Plain
from bronze.binlog.tablemap import TableMap
from bronze.binlog.transactions import Reader
from lakeward.names import TableName

_MAPS_MAX: Final = 4096
_TAIL_BYTES_MAX: Final = 1 << 20  # of a transaction that goes on in the next block, to be taken whole with it
_OPS: Final[tuple[events.Op, ...]] = ("c", "u", "d")


@dataclass(frozen=True, slots=True)
class RowsBatch:
    """What a RowsEvent each would say of the rows events of many transactions, in their order.

    An event's images are `data[start:end]`, its table `maps[table]`, its op 0 c, 1 u, 2 d, and every column is in them.
    `transaction` counts the transactions of the batch, which are complete in it; `gtid` is "" where there is none.
    """

    data: Bytes
    maps: list[TableMap | None]
    file: int
    table: npt.NDArray[np.int32]
    op: Bytes
    start: Int64s
    end: Int64s
    pos: Int64s
    transaction: Int64s
    ts_ms: Int64s  # of a transaction, as are the next two
    gtid: pa.StringArray
    id: pa.StringArray

    def events(self) -> Iterator[RowsEvent]:
        """The same one by one."""
        transactions: dict[int, Transaction] = {}
        whole = self.data.data
        for i, t in enumerate(self.transaction.tolist()):
            if t not in transactions:
                transactions[t] = Transaction(self.id[t].as_py(), self.gtid[t].as_py(), int(self.ts_ms[t]))
            table_map = self.maps[self.table[i]]
            assert table_map is not None  # no event of an unwanted table is in a batch
            images = whole[self.start[i] : self.end[i]]
            yield RowsEvent(table_map, _OPS[self.op[i]], images, self.file, int(self.pos[i]), False, transactions[t])


def read_blocks(
    blocks: Iterable[Block],
    *,
    file: int,
    wants: Callable[[TableName], bool],
    gtid_set: str,
    stop: tuple[int, int] | None = None,
) -> Iterator[RowsBatch | RowsEvent | Statement | Boundary]:
    """As `transactions.read` with the same arguments. No batch goes beyond the first transaction that ends at `stop`
    (file, position) or later; to stop reading there is the caller's business. Errors as `transactions.read`.
    """
    reader = _BulkReader(file, wants, gtid_set, stop)
    for block in blocks:
        yield from reader.block(block)
    yield from reader.rest()
    yield from reader.end(time.time())


class _BulkReader(Reader):
    def __init__(
        self, file: int, wants: Callable[[TableName], bool], gtid_set: str, stop: tuple[int, int] | None
    ) -> None:
        super().__init__(file, wants, gtid_set)
        self.stop = stop
        self.catalogue = Catalogue(_MAPS_MAX)
        self.places: dict[bytes, int] = {}
        self.maps: list[TableMap | None] = []
        self.tail: Block | None = None

    def block(self, block: Block) -> Iterator[RowsBatch | RowsEvent | Statement | Boundary]:
        if self.tail is not None:
            block, self.tail = self.tail.followed_by(block), None
        i = 0
        while i < len(block):
            described = self.frame.described
            if described and described.flavour == "mysql" and self.group is None and not self.prepared:
                plain = scan.scan(block, i, self.frame.pos, self._stop(), described.checksum, self.catalogue)
                if plain.taken > i:
                    i = plain.taken
                    yield from self._accept(block, plain)
                    continue
                if plain.short and block.after(i).size <= _TAIL_BYTES_MAX:
                    self.tail = block.after(i)
                    return
            yield from self._one(block.event(i))
            i += 1

    def rest(self) -> Iterator[RowsEvent | Statement | Boundary]:
        """What was kept for a block that did not come."""
        tail, self.tail = self.tail, None
        for raw in tail or ():
            yield from self._one(raw)

    def _stop(self) -> int:
        if self.stop is None or self.frame.file < self.stop[0]:
            return ANYWHERE
        return self.stop[1] if self.frame.file == self.stop[0] else 0

    def _one(self, raw: memoryview) -> Iterator[RowsEvent | Statement | Boundary]:
        yield from self.event(raw)
        if raw[4] == events.TABLE_MAP:
            assert self.frame.described is not None
            tail = -events.CHECKSUM_SIZE if self.frame.described.checksum else None
            self._learn(bytes(raw[events.HEADER_SIZE : tail]))

    def _learn(self, body: bytes) -> None:
        """Let the scan know a table map."""
        if body in self.places:
            return
        if len(self.maps) == _MAPS_MAX:
            self.catalogue.clear()
            self.places, self.maps = {}, []
        table_map = self.tables.described(body)
        self.places[body] = self.catalogue.put(
            body, wanted=table_map is not None, width=len(table_map.columns) if table_map else 0
        )
        self.maps.append(table_map)

    def _accept(self, block: Block, plain: Plain) -> Iterator[RowsBatch | Boundary]:
        frame = self.frame
        gtid = self._gtids(block, plain)
        ids = gtid
        anonymous = plain.uuid < 0
        if anonymous.any():
            places = pa.array([f"{frame.file}:{pos}" for pos in plain.begin.tolist()], pa.string())
            ids = pc.if_else(pa.array(anonymous), places, gtid)
        frame.pos, frame.just_described = plain.pos, False
        self.ts_ms = int(plain.ts_ms[-1])
        if plain.table.size:
            yield RowsBatch(
                block.data, self.maps, frame.file, plain.table, plain.op, plain.start, plain.end, plain.at,
                plain.transaction, plain.ts_ms, gtid, ids,
            )  # fmt: skip
        yield Boundary(frame.file, frame.pos, self.gtid_text if self.gtids is None else str(self.gtids), self.ts_ms)

    def _gtids(self, block: Block, plain: Plain) -> pa.StringArray:
        """The transactions' GTIDs, which are also put into the set."""
        count = plain.uuid.size
        named = plain.uuid >= 0
        found = block.data[np.maximum(plain.uuid, 0)[:, None] + np.arange(16)]
        found[~named] = 0
        changes = np.ones(count, np.bool_)
        changes[1:] = (found[1:] != found[:-1]).any(axis=1)
        breaks = changes.copy()
        breaks[1:] |= np.diff(plain.number) != 1
        begins = np.flatnonzero(breaks)
        ends = np.append(begins[1:], count) - 1
        hexes = found[changes].tobytes().hex()
        uuids = ["-".join((h[:8], h[8:12], h[12:16], h[16:20], h[20:])) for h in
                 (hexes[n : n + 32] for n in range(0, len(hexes), 32))]  # fmt: skip
        which = np.cumsum(changes) - 1
        if isinstance(self.gtids, GtidSet):
            for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
                if named[begin]:
                    self.gtids.add_interval(uuids[which[begin]], "", int(plain.number[begin]), int(plain.number[end]))
        texts = pa.array(uuids, pa.string()).take(pa.array(which))
        numbers = pa.array(plain.number).cast(pa.string())
        return pc.if_else(pa.array(named), pc.binary_join_element_wise(texts, numbers, ":"), "")
