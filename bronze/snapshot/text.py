"""Result sets of the text protocol, read in bulk and turned into Arrow without a Python object per value.

PyMySQL sends the query and reads the column descriptions; from the first row on the socket's bytes go into one buffer,
a kernel splits them into (offset, length) per value, and each column is converted at once. Memory is bounded by a
batch (BATCH_ROWS rows or BATCH_BYTES) or by one row, whichever is more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.protocol import MysqlPacket

from bronze.snapshot import kernels
from bronze.snapshot.convert import Converter
from bronze.source.connection import translated
from lakeward.errors import ConnectionLostError, FailClosedError
from lakeward.schema import TableSchema

BATCH_ROWS = 65_536
BATCH_BYTES = 32 << 20
_FIRST_BUFFER = 4 << 20


class RowReader:
    """Iterates over `pa.StructArray`s of type `schema.image()`; `zero_dates` counts dates that became NULL so far,
    `replaced` texts that the server sent with bytes which are no UTF-8.

    Raises ConnectionLostError when the connection is lost or silent, TransientError when the server ends the query for
    a passing reason, TerminalError for other server errors (a table that is gone), FailClosedError for a value that
    cannot be read. An iteration that is not finished closes the connection: what is left of a result set has no other
    end.
    """

    def __init__(self, conn: pymysql.Connection, schema: TableSchema, sql: str) -> None:
        self._conn, self._schema, self._sql = conn, schema, sql
        self.zero_dates = 0
        self.replaced = 0
        self._under_way = False  # rows are still to come on the connection
        self._drained = False  # nothing of the result set is left in PyMySQL's own buffer

    def __iter__(self) -> Iterator[pa.StructArray]:
        try:
            yield from self._batches()
        except (pymysql.Error, OSError) as error:
            raise translated(error, self._schema.name) from error
        finally:
            if self._under_way:
                self._abandon()

    def _batches(self) -> Iterator[pa.StructArray]:
        result = self._started()
        columns = len(self._schema.columns)
        offsets = np.empty((columns, BATCH_ROWS), np.int64)
        lengths = np.empty((columns, BATCH_ROWS), np.int64)
        buffer, start, end, row = np.empty(_FIRST_BUFFER, np.uint8), 0, 0, 0
        sequence = self._conn._next_seq_id
        convert = Converter(self._schema)
        while True:
            state, start, sequence, row = kernels.split_rows(buffer, start, end, sequence, offsets, lengths, row)
            if state == kernels.MORE and start < BATCH_BYTES:
                if end == buffer.size:
                    buffer = np.concatenate((buffer, np.empty(buffer.size, np.uint8)))
                end += self._receive(buffer, end)
                continue
            if state == kernels.BROKEN:
                raise FailClosedError(
                    f"the server's answer for {self._schema.name} is not a result set of {columns} columns"
                )
            if row:
                batch = convert(buffer, offsets[:, :row], lengths[:, :row])
                self.zero_dates, self.replaced = convert.zero_dates, convert.replaced
                yield batch
            if state in (kernels.END, kernels.ERROR):
                self._finish(result, buffer[start:end].tobytes())
                return
            buffer[: end - start] = buffer[start:end].copy()
            start, end, row = 0, end - start, 0
            if buffer.size > 4 * BATCH_BYTES and end < BATCH_BYTES:
                buffer = buffer[: 2 * BATCH_BYTES].copy()  # after a huge row

    def _started(self) -> Any:
        self._conn.query(self._sql, unbuffered=True)
        self._under_way, self._drained = True, False
        result = self._conn._result
        if result is None or result.field_count != len(self._schema.columns):
            raise FailClosedError(f"the SELECT for {self._schema.name} does not give one value a column")
        return result

    def _receive(self, buffer: Any, end: int) -> int:
        stream: Any = self._conn._rfile
        room = memoryview(buffer)[end:]
        if self._drained:
            got = stream.raw.readinto(room)
        else:
            # What PyMySQL read ahead of the last description comes first. Not readinto1: it goes on to a read of the
            # socket after it has handed out what it held, and waits for ever when that was all.
            ahead = stream.peek()
            got = len(ahead)
            room[:got] = stream.read(got)
            self._drained = True
        if not got:
            raise ConnectionLostError(
                f"the source closed the connection while {self._schema.name} was being read",
                hint="run the same command again",
            )
        return int(got)

    def _finish(self, result: Any, packet: bytes) -> None:
        """Hands the last packet, EOF or an error, to PyMySQL, so that the connection can be used again."""
        size = int.from_bytes(packet[:3], "little")
        while len(packet) < size + 4:
            packet += self._conn._read_bytes(size + 4 - len(packet))
        self._under_way = False
        result.unbuffered_active = False
        result.connection = None
        self._conn._result = None
        self._conn._next_seq_id = (packet[3] + 1) % 256
        last = MysqlPacket(packet[4 : 4 + size], "utf8mb4")
        if last.is_error_packet():
            last.raise_for_error()

    def _abandon(self) -> None:
        if self._conn.open:
            self._conn._force_close()
        if self._conn._result is not None:
            self._conn._result.unbuffered_active = False


def read_rows(conn: pymysql.Connection, schema: TableSchema, sql: str) -> RowReader:
    """The rows of `sql`, which gives `schema`'s columns in order as `select` writes them. See RowReader."""
    return RowReader(conn, schema, sql)
