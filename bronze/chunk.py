"""Reads one chunk of a table's snapshot into data files: the task that a snapshot runs on executors, in parallel.

All rows of a snapshot bear the one position it began at, so that for each key any event of the stream from there on
beats what a chunk saw, whenever it was read. Where rows are counted rather than replaced (`TableSchema.counted`) that
would count a change twice; such a table is read as one chunk, in one transaction whose position is exactly known.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bronze.masking import masked
from bronze.snapshot.bounds import Chunk
from bronze.snapshot.read import ChunkReader, read_chunk, read_exact
from bronze.snapshot.text import RowReader
from bronze.source.connection import open_connection
from bronze.source.server import exact_read
from bronze.stamp import Origin, snapshot_envelopes
from bronze.work import Manifest
from bronze.writer import EnvelopeWriter, Target
from lakeward.lake import Lake
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema

ROW_BITS = 40  # rows are numbered chunk << ROW_BITS | row in chunk, so chunks need not know each other's sizes


@dataclass(frozen=True)
class ChunkWork:
    """One chunk, and all that an executor needs to read it. `chunk` is None for an exact read of the whole table."""

    settings: Mapping[str, Any] = field(repr=False)
    mask_key: bytes | None = field(repr=False)
    server: str
    schema: TableSchema
    target: Target
    generation: int
    start: Checkpoint
    chunk: Chunk | None
    root: str
    condition: str = field(default="", repr=False)  # of the rows to read, as SQL; "" for all

    @property
    def number(self) -> int:
        return 0 if self.chunk is None else self.chunk.number


def read_part(work: ChunkWork) -> Manifest:
    """Read and write one chunk. `Manifest.end` is the position that its rows bear."""
    name = str(work.schema.name)
    manifest = Manifest()
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(EnvelopeWriter(Lake(work.root), {name: work.target}))
        start = work.start
        if work.chunk is None:
            connection = stack.enter_context(contextlib.closing(open_connection(dict(work.settings), proven=True)))
            start = exact_read(connection, work.start.at.epoch)
            batches: ChunkReader | RowReader = read_exact(connection, work.schema.clear(), work.condition)
        else:
            batches = read_chunk(dict(work.settings), work.schema.clear(), work.chunk, work.condition)
        origin = Origin(work.server, start.at.epoch)
        row = work.number << ROW_BITS
        for clear in batches:
            rows = masked(clear, work.schema, work.mask_key)
            writer.write(
                name,
                snapshot_envelopes(
                    rows,
                    at=start.at,
                    generation=work.generation,
                    first_row=row,
                    ts_ms=work.start.ts_ms,
                    gtid=start.gtid,
                    origin=origin,
                ),
            )
            row += len(rows)
        manifest.zero_dates, manifest.replaced = batches.zero_dates, batches.replaced
        files = writer.close()
    manifest.end = start.to_json()
    manifest.files = {t: [f.to_json() for f in fs] for t, fs in files.items()}
    manifest.rows = {t: sum(f.rows for f in fs) for t, fs in files.items()}
    manifest.last = {name: Position(*start.at[:3]).to_json()}
    return manifest
