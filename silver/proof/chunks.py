"""Which chunk of a table a row belongs to, decided from the row itself, so that both sides of a proof agree on it.

A key that is one integer is cut into ranges, and the source can then read a chunk by its index. The lake cannot order
any other key as the source's collations do; there a chunk is what the key's hash says, and a chunk of the source is
found by reading through the table. A table without a key has the whole row for its key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from bronze.snapshot.bounds import plan
from bronze.snapshot.select import compared
from lakeward.schema import TableSchema
from silver.checksum import row_hashes
from silver.columns import key_numbers

CHUNK_ROWS = 8192
CHUNKS_MAX = 16_384  # of a table: what is held of it in memory


@dataclass(frozen=True)
class Chunking:
    """`keys` are the numbers of the columns that name a row. `ends` are the last keys (int64, ascending) of all chunks
    but the last, which has no end; None where the key's hash says the chunk. `key` is the key's expression in SQL."""

    keys: tuple[int, ...]
    count: int
    ends: np.ndarray | None = None
    key: str = ""

    def key_hashes(self, rows: pa.StructArray) -> np.ndarray:
        """uint64 per row."""
        return row_hashes(rows, self.keys)

    def of(self, rows: pa.StructArray, key_hashes: np.ndarray) -> np.ndarray:
        """The chunk of each row, int64."""
        if self.count == 1:
            return np.zeros(len(rows), np.int64)
        if self.ends is None:
            return np.asarray((key_hashes % np.uint64(self.count)).astype(np.int64))
        values = pc.cast(rows.flatten()[self.keys[0]], pa.int64()).fill_null(0).to_numpy()
        return np.asarray(np.searchsorted(self.ends, values, side="left"), np.int64)

    def where(self, chunks: Sequence[int]) -> str:
        """The WHERE clause, with its leading space, of a SELECT that has the rows of `chunks` and perhaps others."""
        if self.ends is None or len(chunks) == self.count:
            return ""
        parts = []
        for first, last in _runs(chunks):
            above = [f"{self.key} > {self.ends[first - 1]:d}"] if first else []
            up_to = [f"{self.key} <= {self.ends[last]:d}"] if last < self.count - 1 else []
            parts.append(f"({' AND '.join(above + up_to)})")
        return f" WHERE {' OR '.join(parts)}" if parts else " WHERE false"

    def mask(self, chunks: np.ndarray) -> np.ndarray:
        """Per chunk whether it is one of `chunks`."""
        found = np.zeros(self.count, np.bool_)
        found[chunks] = True
        return found


def cut(connection: pymysql.Connection, schema: TableSchema, rows: int) -> Chunking:
    """Chunks of about CHUNK_ROWS rows of a table of about `rows`; more in each where there would be too many."""
    keys = tuple(key_numbers(schema)) or tuple(range(len(schema.columns)))
    count = min(CHUNKS_MAX, rows // CHUNK_ROWS + 1)
    column = schema.columns[keys[0]]
    if count > 1 and len(keys) == 1 and schema.keys and column.arrow in (pa.int32(), pa.int64()):
        chunks = plan(connection, schema.clear(), max(CHUNK_ROWS, rows // count))
        if chunks[0].keys == (compared(column),) and len(chunks) <= 2 * CHUNKS_MAX:
            ends = [int(c.upper[0].value) for c in chunks if c.upper is not None]
            return Chunking(keys, len(chunks), np.array(ends, np.int64), compared(column))
    return Chunking(keys, count)


def _runs(chunks: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) of the runs of neighbours."""
    runs: list[tuple[int, int]] = []
    for chunk in sorted(chunks):
        if runs and runs[-1][1] == chunk - 1:
            runs[-1] = (runs[-1][0], chunk)
        else:
            runs.append((chunk, chunk))
    return runs
