"""Bronze, from where it stands to a target fixed when it starts: every change of the followed tables, once.

The order is what makes it exact. The server is checked against the checkpoint first; a batch that was left half done
is finished; tables that wait are snapshotted from a position at or after the checkpoint; then the binlog is read up to
the target, or past the last position a snapshot needs. A table that the stream saw altered is snapshotted anew in the
same run, so that every followed table streams, or is stopped with a reason, when it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pyspark.sql import SparkSession

from bronze.batch import finish, land
from bronze.commit import physical_names
from bronze.identity import check_server
from bronze.masking import mask_key
from bronze.ranges import Range, plan_ranges
from bronze.snapshot.run import Snapshotter
from bronze.source.catalog import discover
from bronze.source.connection import open_connection, settings
from bronze.source.preflight import check, require
from bronze.source.server import binary_logs, position_now
from bronze.stream import Followed, Manifest, Work, read_range
from bronze.tasks import first_error, run_tasks
from bronze.writer import Target
from lakeward.config import Config
from lakeward.errors import FailClosedError, TransientError
from lakeward.lake import Lake
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeState, BronzeTable, load_bronze, save_bronze

ROUNDS_MAX = 8  # of snapshot and stream: a table altered again and again is left to the next run
STILL_S_MAX = 60.0  # without progress towards the target


@dataclass(frozen=True)
class BronzeReport:
    """What a run did: events by table, and where bronze stands after it."""

    events: dict[str, int]
    checkpoint: Checkpoint | None
    zero_dates: int
    seconds: float
    warnings: tuple[str, ...] = field(default=())


class Ingest:
    """One run of bronze over one connection to the source."""

    def __init__(self, spark: Callable[[], SparkSession], lake: Lake, config: Config, password: str | None) -> None:
        self.spark = spark
        self.lake = lake
        self.config = config
        self.settings: dict[str, Any] = settings(config.source, password)
        self.connection: pymysql.Connection = open_connection(self.settings)
        self.state: BronzeState = load_bronze(lake)
        self.warnings: list[str] = []

    def close(self) -> None:
        self.connection.close()

    def run(self, until: Checkpoint | None = None) -> BronzeReport:
        """Catch up to `until`, or to the source's position now."""
        began = time.monotonic()
        findings = check(self.connection, self.config)
        require(findings)
        if self.state.checkpoint is None:
            self.warnings += [f"{f.what} ({f.remedy})" if f.remedy else f.what for f in findings]
        check_server(self.connection, self.state)
        if self.state.intent is not None:
            finish(self.spark(), self.lake, self.state)
        before = {name: t.rows for name, t in self.state.tables.items()}
        zero_dates = self.state.zero_dates
        fixed_ms = int(time.time() * 1000)
        target = until or position_now(self.connection, self.state.epoch)
        for _ in range(ROUNDS_MAX):
            found = discover(self.connection, self.config)
            self._register(found)
            self._snapshot()
            self._stream(max([target.at, *(t.high for t in self.state.tables.values() if t.high)]))
            self._compare(found)
            if not any(t.status in ("waiting for snapshot", "snapshot") for t in self.state.tables.values()):
                break
        self.state.current_ms = fixed_ms
        save_bronze(self.lake, self.state)
        events = {n: t.rows - before.get(n, 0) for n, t in self.state.tables.items()}
        return BronzeReport(
            {n: e for n, e in events.items() if e},
            self.state.checkpoint,
            self.state.zero_dates - zero_dates,
            time.monotonic() - began,
            tuple(self.warnings),
        )

    def _register(self, found: list[TableSchema]) -> None:
        """Follow what the catalog has and the configuration wants; leave what it does not want any more."""
        for schema in found:
            table = self.state.tables.get(str(schema.name))
            if table is None:
                self.state.tables[str(schema.name)] = BronzeTable(schema)
            elif table.status == "stopped":
                table.status, table.reason, table.dropped = "waiting for snapshot", "it is back", False
        for table in self.state.tables.values():
            if table.status != "stopped" and not self.config.source.wants(table.name):
                table.status, table.reason = "stopped", "left out by the configuration"
        if self.state.checkpoint is None and not found:
            self.warnings.append("no table of the source is followed: check [source] include and the user's grants")

    def _snapshot(self) -> None:
        if any(t.status in ("waiting for snapshot", "snapshot") for t in self.state.tables.values()):
            Snapshotter(self.spark(), self.lake, self.config, self.state, self.connection, self.settings).run()

    def _stream(self, target: Position) -> None:
        """Batches from the checkpoint to `target`."""
        moved = time.monotonic()
        while self.state.checkpoint is not None and self.state.checkpoint.at < target:
            before = self.state.checkpoint.at
            self._batch(target)
            if self.state.checkpoint.at > before:
                moved = time.monotonic()
            elif time.monotonic() - moved > STILL_S_MAX:
                raise TransientError(
                    f"the source sends nothing more, though its binlog reaches {target}",
                    hint="run the same command again",
                    checkpoint=before,
                )
            else:
                time.sleep(0.2)

    def _batch(self, target: Position) -> None:
        assert self.state.checkpoint is not None
        spark = self.spark()
        logs = binary_logs(self.connection)
        parallel = max(1, spark.sparkContext.defaultParallelism)
        ranges = plan_ranges(
            self.state.checkpoint.at, target, logs, parallel=parallel, max_bytes=self.config.source.max_batch_bytes
        )
        tables = self._followed(spark)
        works = [self._work(r, tables, logs[0][0]) for r in ranges]
        manifests = first_error(run_tasks(spark, read_range, works))
        end = self._end(ranges, manifests)
        self._refuse_zero_dates(manifests)
        if end is not None and (any(m.files or m.altered or m.dropped or m.added for m in manifests)):
            land(spark, self.lake, self.state, manifests, end=end)
        elif end is not None:  # nothing of a followed table: only the checkpoint moves
            land(spark, self.lake, self.state, [], end=end)

    def _end(self, ranges: list[Range], manifests: list[Manifest]) -> dict[str, Any] | None:
        """The checkpoint after the batch. Every range but the last has to have reached its end, or events between
        two ranges would be missing."""
        for planned, manifest in zip(ranges[:-1], manifests[:-1], strict=True):
            if not manifest.end or Position.from_json(manifest.end) < planned.stop:
                raise TransientError(
                    f"the binlog ended early: {planned.start} to {planned.stop} was asked for",
                    hint="run the same command again",
                    reached=manifest.end,
                )
        return next((m.end for m in reversed(manifests) if m.end), None)

    def _refuse_zero_dates(self, manifests: list[Manifest]) -> None:
        if self.config.source.zero_dates == "fail" and any(m.zero_dates for m in manifests):
            raise FailClosedError(
                'the source holds zero or partial dates, and [source] zero_dates is "fail"',
                hint='mend the rows at the source, or set zero_dates = "null"',
                tables=", ".join(sorted({t for m in manifests if m.zero_dates for t in m.files})),
            )

    def _followed(self, spark: SparkSession) -> dict[str, Followed]:
        found = {}
        for name, table in self.state.tables.items():
            if table.status in ("streaming", "snapshot") and table.start is not None:
                options = self.config.table(table.name)
                names = physical_names(spark, self.lake.table("bronze", table.name))
                found[name] = Followed(
                    table.schema,
                    table.start,
                    Target(f"bronze/{table.name.folder}", names),
                    options.exclude_columns,
                    options.truncate == "apply",
                )
        return found

    def _work(self, part: Range, tables: dict[str, Followed], binlog: str) -> Work:
        assert self.state.checkpoint is not None
        gtid = self.state.checkpoint.gtid if part.start == self.state.checkpoint.at else ""
        server = self.state.server
        return Work(
            self.settings, mask_key(self.config), server["flavour"], self.config.source.server_id + part.number,
            server["uuid"], binlog, part.start, gtid, part.stop, part.max_bytes, self.lake.root, tables,
        )  # fmt: skip

    def _compare(self, found: list[TableSchema]) -> None:
        """A table whose definition is not what bronze has, though no statement of the stream said so, is read again:
        its settings were changed, or a table map could not tell its type."""
        for schema in found:
            table = self.state.tables[str(schema.name)]
            if table.status != "streaming":
                continue
            shape = [(c.name, c.arrow, c.masked, c.kind in ("uuid", "inet4", "inet6")) for c in schema.columns]
            known = [(c.name, c.arrow, c.masked, c.kind in ("uuid", "inet4", "inet6")) for c in table.schema.columns]
            if sorted(shape, key=str) != sorted(known, key=str) or set(schema.keys) != set(table.schema.keys):
                table.status, table.reason = "waiting for snapshot", "its definition is not what it was"
            else:
                table.schema = schema


def run(
    spark: Callable[[], SparkSession],
    lake: Lake,
    config: Config,
    password: str | None,
    *,
    until: Checkpoint | None = None,
) -> BronzeReport:
    """Catch bronze up. `spark` is called only when there is something to write. Errors as the modules above."""
    ingest = Ingest(spark, lake, config, password)
    try:
        report = ingest.run(until)
    finally:
        ingest.close()
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return report


def begun(lake: Lake) -> bool:
    """Whether bronze has ever run on this lake."""
    return load_bronze(lake).checkpoint is not None
