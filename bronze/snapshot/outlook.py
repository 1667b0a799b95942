"""How long the snapshots that wait will take, before they begin: against how long the source keeps its binlog.

A snapshot is of use only if the stream can go on from where it began. A binlog file is purged a fixed time after its
last event, so a snapshot that takes longer than that may end with nothing to go on from.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pymysql

from bronze.chunk import ChunkWork
from bronze.snapshot.read import read_chunk
from bronze.source.catalog import estimated_rows
from bronze.source.retention import kept_s
from lakeward.errors import TerminalError
from lakeward.state import BronzeTable

SAMPLE_ROWS = 250_000
SAMPLE_S = 2.0
SLOWEST = 2_000  # rows a second of a source that is far away or of wide rows: what fits even so is not measured
WRITING = 0.5  # the share of a task's time in which it reads; the rest goes into Parquet. Measured with bench.snapshot


@dataclass(frozen=True)
class Outlook:
    """`rows` by the engine's estimates; `rate` in rows a second of all tasks together; `kept_s` as in retention."""

    rows: int
    rate: float | None  # None where the tables are too small to measure one
    kept_s: int

    @property
    def seconds(self) -> float:
        return self.rows / self.rate if self.rate else 0.0

    @property
    def fits(self) -> bool:
        return not self.kept_s or self.seconds <= self.kept_s


def remaining_rows(conn: pymysql.Connection, tables: Sequence[BronzeTable]) -> int:
    """About how many rows the unfinished snapshots of `tables` have still to read."""
    total = 0.0
    for table in tables:
        left = 1 - len(table.chunks_done) / max(1, len(table.chunks))
        total += estimated_rows(conn, table.name) * left
    return round(total)


def predict(conn: pymysql.Connection, expected: int, largest: ChunkWork | None, parallel: int) -> Outlook:
    """The outlook for `expected` rows, from the first rows of the chunk `largest`, read as its task would."""
    kept = kept_s(conn)
    if not kept or expected <= SLOWEST * kept or largest is None or largest.chunk is None:
        return Outlook(expected, None, kept)
    rate = _rate(largest)
    return Outlook(expected, rate and rate * parallel * WRITING, kept)


def require_fit(outlook: Outlook) -> None:
    """Raises TerminalError where the snapshot would outlast the binlog."""
    if not outlook.fits:
        raise TerminalError(
            f"the snapshot of about {outlook.rows:,} rows would take about {_span(outlook.seconds)}, and the source "
            f"keeps its binlog for {_span(outlook.kept_s)}: it could be purged before the stream gets to it",
            hint=f"SET GLOBAL binlog_expire_logs_seconds = {int(outlook.seconds * 4)} at the source, or add "
            "--snapshot-anyway",
        )


def _rate(work: ChunkWork) -> float | None:
    """Rows a second of one connection; the first batch, in which kernels are compiled, is not counted."""
    assert work.chunk is not None
    began, found = None, 0
    with contextlib.closing(read_chunk(dict(work.settings), work.schema.clear(), work.chunk).batches()) as batches:
        for batch in batches:
            if began is None:
                began = time.perf_counter()
                continue
            found += len(batch)
            if found >= SAMPLE_ROWS or time.perf_counter() - began > SAMPLE_S:
                break
    if began is None:
        return None
    return found / (time.perf_counter() - began) if found else None


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
