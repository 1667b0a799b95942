"""Reading a table: a chunk on an executor by a connection of its own, or a whole table inside an exact transaction."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pyarrow as pa
import pymysql

from bronze.snapshot.bounds import Chunk
from bronze.snapshot.select import filtered, select
from bronze.snapshot.text import RowReader, read_rows
from bronze.source.connection import open_connection
from bronze.source.server import flavour_and_version, rows
from lakeward.schema import TableSchema


class ChunkReader:
    """Iterates over a chunk's rows as struct arrays of `schema.image()`; `zero_dates` and `replaced`
    count as RowReader's do.

    It connects when the iteration begins and closes when it ends. Raises TransientError when the server cannot be
    reached or is lost, else as RowReader.
    """

    def __init__(self, settings: dict[str, Any], schema: TableSchema, chunk: Chunk, condition: str = "") -> None:
        self._settings, self._schema, self._where = settings, schema, filtered(chunk.where(), condition)
        self.zero_dates = 0
        self.replaced = 0

    def __iter__(self) -> Iterator[pa.StructArray]:
        return self.batches()

    def batches(self) -> Generator[pa.StructArray, None, None]:
        """The same as iterating; closing it before its end ends the query at the server."""
        conn = open_connection(self._settings, proven=True)
        try:
            reader = _reader(conn, self._schema, self._where)
            for batch in reader:
                self.zero_dates, self.replaced = reader.zero_dates, reader.replaced
                yield batch
        finally:
            if conn.open:
                conn.close()


def read_chunk(settings: dict[str, Any], schema: TableSchema, chunk: Chunk, condition: str = "") -> ChunkReader:
    """The rows of `chunk` of which `condition` is true (`bronze.rowfilter`). See ChunkReader."""
    return ChunkReader(settings, schema, chunk, condition)


def read_exact(conn: pymysql.Connection, schema: TableSchema, condition: str = "", *, where: str = "") -> RowReader:
    """A table's rows of which `condition` is true, on `conn`, inside the transaction that `exact_read` opened there:
    all of them, or those of a WHERE clause with its leading space. See RowReader."""
    return _reader(conn, schema, filtered(where, condition))


def _reader(conn: pymysql.Connection, schema: TableSchema, where: str) -> RowReader:
    return read_rows(conn, schema, select(schema, where, versioned=_versioned(conn, schema)))


def _versioned(conn: pymysql.Connection, schema: TableSchema) -> bool:
    if flavour_and_version(conn)[0] != "mariadb":
        return False
    found = rows(
        conn,
        "SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        tuple(schema.name),
    )
    return bool(found) and found[0][0] == "SYSTEM VERSIONED"
