"""Small batches, held by the driver: read once, then a local relation for the gate and for the MERGE.

Of a table with ten changed rows nearly all time is Spark's jobs, and each use of a batch would read it again from
bronze. The driver holds a bounded amount, whatever the number of tables: what goes beyond stays where it lies.
"""

from __future__ import annotations

import threading

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

ROWS_MAX = 20_000  # of one table
BYTES_MAX = 4 << 20  # of one table's data files, compressed
RUN_BYTES_MAX = 32 << 20  # of all tables of a run


class Held:
    """What a run holds on the driver. Safe for threads."""

    def __init__(self) -> None:
        self._left = RUN_BYTES_MAX
        self._lock = threading.Lock()

    def take(self, frame: DataFrame, rows: int) -> DataFrame | None:
        """`frame`, of about `rows` rows, as a local relation; None where it is not small."""
        if rows > ROWS_MAX:
            return None
        size = _bytes(frame)
        with self._lock:
            if not 0 <= size <= min(BYTES_MAX, self._left):
                return None
            self._left -= size
        return local(frame.sparkSession, frame.toArrow(), frame.schema)


def local(session: SparkSession, rows: pa.Table, schema: StructType) -> DataFrame:
    """`rows`, which the driver holds, as a relation that reads nothing. Arrow alters no value on its way."""
    return session.createDataFrame(rows, schema=schema)


def _bytes(frame: DataFrame) -> int:
    """Of the data files that are read, after those of other positions are skipped."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())
