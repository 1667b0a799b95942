"""Small batches and tables, held by the driver: read once, then a local relation for the gate and for the MERGE.

Of a table with ten changed rows nearly all time is Spark's jobs, and each use of a batch would read it again from
bronze. The driver holds a bounded amount, whatever the number of tables: what goes beyond stays where it lies. It reads
the data files by Arrow, as bronze has written them, so that Spark need not look into the table.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from bronze.writer import GROUP_ROWS
from lakeward.kernel import Listing, listing
from lakeward.lake import Lake
from lakeward.position import Position
from silver.events import wanted
from silver.plan import TablePlan

ROWS_MAX = 20_000  # of one table
FILES_MAX = 200
BYTES_MAX = 4 << 20  # of one table's data files, compressed
RUN_BYTES_MAX = 32 << 20  # of all tables of a run
PIECE_BYTES = 64 << 20
_BATCH_ROWS = 16_384


class Held:
    """What a run holds on the driver. Safe for threads."""

    def __init__(self) -> None:
        self._left = RUN_BYTES_MAX
        self._lock = threading.Lock()

    def take(self, session: SparkSession, lake: Lake, plan: TablePlan, cut: Position) -> DataFrame | None:
        """What `silver.fill.whole_events` gives, as a local relation; None where it is not small, or not in bronze's
        data files alone as it is wanted."""
        if plan.events > ROWS_MAX or plan.partial or plan.cascades >= 0:
            return None
        bronze = lake.table("bronze", plan.schema.name)
        found = listing(session, bronze, plan.bronze_version, plan.since, most=FILES_MAX)
        if found is None or not found.plain or found.vectors:
            return None
        with self._lock:
            if found.size > min(BYTES_MAX, self._left):
                return None
            self._left -= found.size
        rows = read(lake, bronze, found)
        if rows is None:
            with self._lock:
                self._left += found.size  # for the tables after it
            return None
        return local(session, rows, found.columns).where(wanted(plan, cut))


def read(
    lake: Lake,
    location: str,
    found: Listing,
    *,
    columns: Sequence[str] | None = None,
    rows_max: int | None = None,
    memory_max: int = sys.maxsize,
) -> pa.Table | None:
    """The rows of the table's files, of these columns where some are named (`outer.field` for one of a struct); None
    where they are more than `rows_max` (ROWS_MAX) or take more memory, or a file has not all of the table's columns as
    they are now."""
    parts: list[pa.Table] = []
    rows, memory = ROWS_MAX if rows_max is None else rows_max, memory_max
    for name in found.files:
        with opened(lake, location, name) as file:
            rows -= file.metadata.num_rows
            if rows < 0 or not as_now(file.schema_arrow, found.columns):
                return None
            for piece in pieces(file, columns or found.columns.names):
                memory -= piece.nbytes
                if memory < 0:
                    return None
                parts.append(piece)
    return pa.concat_tables(parts) if parts else None


@contextmanager
def opened(lake: Lake, location: str, name: str) -> Iterator[pq.ParquetFile]:
    """A data file of the table."""
    filesystem, root = lake.filesystem()
    path = f"{root}{location.removeprefix(lake.root)}/{name}"
    with filesystem.open_input_file(path) as stream, pq.ParquetFile(stream) as file:
        yield file


def pieces(file: pq.ParquetFile, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Its rows in their order, as many at once as make a row group, or as take PIECE_BYTES."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in file.iter_batches(_BATCH_ROWS, columns=list(columns)):
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= GROUP_ROWS or size >= PIECE_BYTES:
            yield _joined(held, columns)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held, columns)


def _joined(batches: Sequence[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    table = pa.Table.from_batches(batches).replace_schema_metadata(None)
    outer = dict.fromkeys(name.partition(".")[0] for name in columns)  # awkward names are in no plain file
    return table.select(list(outer)).combine_chunks()


def as_now(schema: pa.Schema, columns: StructType) -> bool:
    """Whether a file has the columns, by names, order and types, all the way down. It may have more of its own: Delta's
    MERGE leaves two that it splits the change feed by (`_change_type`, `__is_cdc`)."""
    if len(set(schema.names)) < len(schema.names) or not set(columns.names) <= set(schema.names):
        return False
    present = pa.struct([schema.field(name) for name in columns.names])
    return _shape(present) == _shape(pa.struct(list(to_arrow_schema(columns))))


def _shape(kind: pa.DataType) -> object:
    """A type without what no value shows: what may be NULL, and what a list calls its elements."""
    if pa.types.is_struct(kind):
        return [(field.name, _shape(field.type)) for field in kind]
    return [_shape(kind.value_type)] if pa.types.is_list(kind) else str(kind)


def local(session: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """`rows`, which the driver holds, as a relation that reads nothing. Arrow alters no value on its way."""
    return session.createDataFrame(rows, schema=schema)
