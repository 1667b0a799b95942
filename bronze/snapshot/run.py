"""Takes the snapshots that tables wait for: chunks in parallel, committed wave by wave, resumed where they stopped.

One position is taken before the first chunk and another after a table's last; once the stream has passed the second,
the table streams. Nothing is locked, and a run that dies goes on with the chunks that are not yet in bronze.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pyspark.sql import SparkSession

from bronze.batch import land
from bronze.chunk import ChunkWork, read_part
from bronze.commit import ensure_table, physical_names
from bronze.masking import mask_key
from bronze.rowfilter import digest
from bronze.snapshot.bounds import Chunk, plan
from bronze.snapshot.outlook import predict, remaining_rows, require_fit
from bronze.snapshot.progress import SnapshotProgress
from bronze.source.catalog import describe, filter_condition
from bronze.source.server import position_now, safe_start
from bronze.tasks import run_tasks
from bronze.work import Manifest
from bronze.writer import Target
from lakeward.config import Config
from lakeward.errors import LakewardError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint
from lakeward.state import BronzeState, BronzeTable, save_bronze

WAVE = 8  # chunks a wave: what is read again, at most, after a crash


@dataclass
class Snapshotter:
    """Reads the tables of `state` that wait for a snapshot, or whose snapshot was interrupted."""

    spark: SparkSession
    lake: Lake
    config: Config
    state: BronzeState
    connection: pymysql.Connection
    settings: dict[str, Any] = field(repr=False)
    anyway: bool = False  # begin even where the source may purge its binlog first

    def run(self) -> None:
        """Take them all. A table that has gone from the source is stopped with the reason, and one that is altered
        while it is read waits for the next snapshot; the others go on.

        Raises TerminalError before the first chunk is read where the snapshot would outlast the source's binlog.
        """
        for table in self.state.tables.values():
            if table.status == "snapshot" and self._unread(table):
                self._let_go(table)  # of a run that was killed, and what it was to read may not be there any more
        waiting = [t for t in self.state.tables.values() if t.status == "waiting for snapshot"]
        if waiting:
            start = safe_start(self.connection, self.state.epoch)
            if self.state.checkpoint is None:
                self.state.checkpoint = start
            for table in waiting:
                self._begin(table, start)
            save_bronze(self.lake, self.state)
        pending = [t for t in self.state.tables.values() if t.status == "snapshot"]
        expected = remaining_rows(self.connection, pending)
        if not self.anyway:
            self._require_fit(pending, expected)
        works = self._works(pending)
        with SnapshotProgress(expected, len(pending)) as progress:
            while wave := list(itertools.islice(works, WAVE)):
                progress.landed(self._wave([w for w in wave if self._table(w).status == "snapshot"]))
        for table in pending:
            self._end(table)
        save_bronze(self.lake, self.state)

    def _require_fit(self, pending: list[BronzeTable], expected: int) -> None:
        largest = max(pending, key=lambda t: len(t.chunks) - len(t.chunks_done), default=None)
        work = next(self._works([largest] if largest else []), None)
        parallel = max(1, self.spark.sparkContext.defaultParallelism)
        require_fit(predict(self.connection, expected, work, parallel))

    def _begin(self, table: BronzeTable, start: Checkpoint) -> None:
        schema = describe(self.connection, self.config, table.name)
        if schema is None:
            self._gone(table, "it is not at the source any more")
            return
        names = {c.name for c in schema.columns}
        had = [*table.left, *(c.name for c in table.schema.columns)]
        table.renamed, table.added, table.left = [], [], [n for n in dict.fromkeys(had) if n not in names]
        table.excluded = list(self.config.table(table.name).exclude_columns)
        table.schema = schema
        table.filter = digest(self.config.table(table.name).filter, mask_key(self.config))
        table.status = "snapshot"
        table.generation += 1
        table.start, table.high = start.at, None
        table.chunks_done, table.snapshot_rows, table.dropped, table.unfinished = [], 0, False, None
        chunks = [] if schema.counted else plan(self.connection, schema.clear(), self.config.source.chunk_rows)
        table.chunks = [c.to_json() for c in chunks]
        if ensure_table(self.spark, self.lake.table("bronze", table.name), schema) == "replaced":
            table.rows, table.since = 0, start.at

    def _works(self, tables: list[BronzeTable]) -> Iterator[ChunkWork]:
        for table in tables:
            target = self._target(table.name)
            condition = filter_condition(self.connection, self.config, table.name)
            for chunk in self._unread(table):
                yield self._work(table, target, chunk, condition)

    def _unread(self, table: BronzeTable) -> list[Chunk | None]:
        """The chunks that are not in bronze yet; None is the whole table."""
        chunks = [Chunk.from_json(c) for c in table.chunks] if table.chunks else [None]
        return [c for c in chunks if (0 if c is None else c.number) not in table.chunks_done]

    def _work(self, table: BronzeTable, target: Target, chunk: Chunk | None, condition: str) -> ChunkWork:
        assert table.start is not None
        start = Checkpoint(table.start)
        server = str(self.state.server.get("uuid", ""))
        key = mask_key(self.config)
        generation, root = table.generation, self.lake.root
        return ChunkWork(self.settings, key, server, table.schema, target, generation, start, chunk, root, condition)

    def _target(self, name: TableName) -> Target:
        location = self.lake.table("bronze", name)
        return Target(f"bronze/{name.folder}", physical_names(self.spark, location))

    def _wave(self, wave: list[ChunkWork]) -> int:
        """Read and land them. The rows that landed."""
        answers = run_tasks(self.spark, read_part, wave)
        landed: list[Manifest] = []
        chunks: dict[str, list[int]] = {}
        start: dict[str, dict[str, Any]] = {}
        failed: LakewardError | None = None
        for work, answer in zip(wave, answers, strict=True):
            name = str(work.schema.name)
            if isinstance(answer, Manifest):
                landed.append(answer)
                chunks.setdefault(name, []).append(work.number)
                start[name] = answer.end
            elif self._table(work).status == "snapshot" and not self._let_go(self._table(work)):
                failed = failed or answer
        if landed:
            land(self.spark, self.lake, self.state, landed, chunks=chunks, start=start)
        if failed is not None:
            raise failed
        return sum(sum(manifest.rows.values()) for manifest in landed)

    def _end(self, table: BronzeTable) -> None:
        if table.status == "snapshot":
            table.high = position_now(self.connection, self.state.epoch).at
            assert self.state.checkpoint is not None
            if self.state.checkpoint.at >= table.high:
                table.status, table.reason = "streaming", None

    def _let_go(self, table: BronzeTable) -> bool:
        """Whether what is to be read of the table is not at the source any more as it was planned."""
        now = describe(self.connection, self.config, table.name)
        if now is None:
            self._gone(table, "it disappeared while its snapshot was read")
        elif now.columns != table.schema.columns:
            table.status, table.reason = "waiting for snapshot", "it was altered while its snapshot was read"
        return table.status != "snapshot"

    def _gone(self, table: BronzeTable, reason: str) -> None:
        table.stop(reason, dropped=True)
        print(f"warning: {table.name} is stopped: {table.reason}", file=sys.stderr)

    def _table(self, work: ChunkWork) -> BronzeTable:
        return self.state.tables[str(work.schema.name)]
