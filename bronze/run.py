"""Bronze, from where it stands to a target fixed when it starts: every change of the followed tables, once.

The order is what makes it exact. The server is checked against the checkpoint first; a batch that was left half done
is finished; tables that wait are snapshotted from a position at or after the checkpoint; then the binlog is read up to
the target, or past the last position a snapshot needs. A table that the stream saw altered is snapshotted anew in the
same run, so that every followed table streams, or is stopped with a reason, when it ends.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pymysql
from pyspark.sql import SparkSession

from bronze.batch import finish, land
from bronze.begin import Begin, Earlier, begin, finish_earlier
from bronze.commit import ensure_table, physical_names
from bronze.identity import check_server
from bronze.masking import mask_key
from bronze.outage import Outage
from bronze.ranges import Range, plan_ranges
from bronze.references import read_children_again, register
from bronze.report import BronzeReport, report
from bronze.rowfilter import digest
from bronze.seek import Seeker
from bronze.snapshot.run import Snapshotter
from bronze.source.catalog import discover
from bronze.source.connection import open_connection, settings
from bronze.source.foreign_keys import of_tables, unlogged
from bronze.source.preflight import check, require
from bronze.source.server import binary_logs, position_now
from bronze.stream import read_range
from bronze.tasks import first_error, run_tasks
from bronze.work import Followed, Manifest, Past, Work
from bronze.writer import Target
from lakeward.config import Config
from lakeward.errors import ConnectionLostError, FailClosedError, TransientError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeState, BronzeTable, load_bronze, save_bronze

ROUNDS_MAX = 8  # of snapshot and stream: a table altered again and again is left to the next run
STILL_S_MAX = 60.0  # without progress towards the target


class Ingest:
    """One run of bronze over one connection to the source."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        lake: Lake,
        config: Config,
        password: str | None,
        *,
        accept_gap: bool = False,
        begin_at: Begin | None = None,
        snapshot_anyway: bool = False,
        proven: bool = False,
    ) -> None:
        self.spark = spark
        self.accept_gap = accept_gap
        self.snapshot_anyway = snapshot_anyway
        self.begin_at = begin_at
        self.lake = lake
        self.config = config
        self.settings: dict[str, Any] = settings(config.source, password)
        self.connection: pymysql.Connection = open_connection(self.settings, proven=proven)
        self.state: BronzeState = load_bronze(lake)
        self.warnings: list[str] = []
        self.changed: dict[str, Position] = {}  # where a statement last changed a table
        self.look_again = False  # a table was made, renamed or dropped since the catalog was read

    def close(self) -> None:
        self.connection.close()

    def run(self, until: Checkpoint | None = None) -> None:
        """Catch up to `until`, or to the source's position now."""
        if self.state.intent is not None:  # first, since it moves the checkpoint; it asks nothing of the source
            finish(self.spark(), self.lake, self.state)
        findings = check(self.connection, self.config, self.state.tables)
        require(findings)
        if self.state.checkpoint is None:
            self.warnings += [f"{f.what} ({f.remedy})" if f.remedy else f.what for f in findings]
        if check_server(self.connection, self.state, accept_gap=self.accept_gap):
            save_bronze(self.lake, self.state)
        fixed_ms = int(time.time() * 1000)
        target = until or position_now(self.connection, self.state.epoch)
        self._earlier()
        self._begin()
        for _ in range(ROUNDS_MAX):
            self.look_again = False
            found = discover(self.connection, self.config, self.state.tables)
            self._register(found)
            keys = of_tables(unlogged(self.connection, found))
            register(self.state, keys, None)
            self._snapshot()
            self._stream(max([target.at, *(t.high for t in self.state.tables.values() if t.high)]))
            self._compare(found)
            register(self.state, keys, self.changed)
            waits = any(t.status in ("waiting for snapshot", "snapshot") for t in self.state.tables.values())
            if not waits and not self.look_again:
                break
        self.state.current_ms = fixed_ms
        save_bronze(self.lake, self.state)

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
                table.stop("left out by the configuration")
            elif table.status in ("streaming", "snapshot") and table.filter != self._filter(table.name):
                # Before anything is read: what the old filter let in and the new one would not must not go on mixed.
                table.status, table.reason = "waiting for snapshot", "its row filter (where) is not what it was"
                table.unfinished = table.reason
                self.warnings.append(f"{table.name} is read anew: {table.reason}; bronze keeps the events it has")
        if self.state.checkpoint is None and not found:
            self.warnings.append("no table of the source is followed: check [source] include and the user's grants")

    def _filter(self, name: TableName) -> str | None:
        return digest(self.config.table(name).filter, mask_key(self.config))

    def _snapshot(self) -> None:
        read_children_again(self.state)
        if any(t.status in ("waiting for snapshot", "snapshot") for t in self.state.tables.values()):
            Snapshotter(
                self.spark(), self.lake, self.config, self.state, self.connection, self.settings, self.snapshot_anyway
            ).run()

    def _begin(self) -> None:
        """What `--from` asks for: once, before anything is snapshotted."""
        asked = self.begin_at
        if asked is None:
            return
        found = discover(self.connection, self.config, self.state.tables)
        seeker = Seeker(self.connection, self.settings, self.config.source.server_id)
        self.warnings += begin(self.state, found, asked, seeker.find(asked.point, self.state.epoch))
        for table in self.state.tables.values():
            if table.begun is not None and table.status == "snapshot":
                table.filter = self._filter(table.name)
                ensure_table(self.spark(), self.lake.table("bronze", table.name), table.schema)
        at = Earlier.of(self.state)
        while at is not None:  # once through before anything is written down: it is added whole or not at all
            at = at.after(self._read_earlier(at, "check")[1])
        save_bronze(self.lake, self.state)
        self.begin_at = None
        self._earlier()

    def _earlier(self) -> None:
        """Add the events before those that bronze holds, where that was asked for."""
        while (at := Earlier.of(self.state)) is not None:
            manifests, end = self._read_earlier(at, "read")
            land(self.spark(), self.lake, self.state, [m for m in manifests if m.files or m.altered], earlier=end)
        if finish_earlier(self.state):
            save_bronze(self.lake, self.state)

    def _read_earlier(self, at: Earlier, past: Past) -> tuple[list[Manifest], dict[str, Any]]:
        spark = self.spark()
        followed = self._followed(spark, list(at.spans))
        tables = {
            n: replace(f, start=at.spans[n][0], stop=at.spans[n][1], counts=f.start <= at.spans[n][0])
            for n, f in followed.items()
        }
        manifests, end = self._read(spark, at.at, at.until, tables, past=past)
        if end is None:
            raise TransientError(f"the source sends nothing from {at.at} on", hint="run the same command again")
        return manifests, end

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
        manifests, end = self._read(spark, self.state.checkpoint.at, target, self._followed(spark))
        if end is not None:
            land(spark, self.lake, self.state, manifests, end=end)
            for change in (c for m in manifests for c in m.changes if c["change"] != "truncate"):
                at = Position.from_json(change["source"])
                self.changed[f"{change['schema']}.{change['table']}"] = at
            self.look_again = self.look_again or any(m.discover for m in manifests)

    def _read(
        self, spark: SparkSession, start: Position, target: Position, tables: dict[str, Followed], *, past: Past = ""
    ) -> tuple[list[Manifest], dict[str, Any] | None]:
        """The ranges of one batch, read; and the checkpoint after them."""
        logs = binary_logs(self.connection)
        parallel = max(1, spark.sparkContext.defaultParallelism)
        ranges = plan_ranges(start, target, logs, parallel=parallel, max_bytes=self.config.source.max_batch_bytes)
        works = [self._work(r, tables, logs[0][0], past=past) for r in ranges]
        manifests = _contiguous(ranges, first_error(run_tasks(spark, read_range, works)))
        end = manifests[-1].end or None
        if end is not None and not end["ts_ms"] and self.state.checkpoint is not None:
            end["ts_ms"] = self.state.checkpoint.ts_ms  # no transaction was read: the last one is still the last
        self._refuse_zero_dates(manifests)
        return manifests, end

    def _refuse_zero_dates(self, manifests: list[Manifest]) -> None:
        if self.config.source.zero_dates == "fail" and any(m.zero_dates for m in manifests):
            raise FailClosedError(
                'the source holds zero or partial dates, and [source] zero_dates is "fail"',
                hint='mend the rows at the source, or set zero_dates = "null"',
                tables=", ".join(sorted({t for m in manifests if m.zero_dates for t in m.files})),
            )

    def _followed(self, spark: SparkSession, chosen: Sequence[str] | None = None) -> dict[str, Followed]:
        """The tables whose events are read: those named, or those that take part in the stream."""
        found = {}
        for name, table in self.state.tables.items():
            takes_part = table.status in ("streaming", "snapshot") if chosen is None else name in chosen
            if takes_part and table.start is not None:
                options = self.config.table(table.name)
                names = physical_names(spark, self.lake.table("bronze", table.name))
                found[name] = Followed(
                    table.schema,
                    table.start,
                    Target(f"bronze/{table.name.folder}", names),
                    tuple({*options.exclude_columns, *table.excluded}),  # also before one got another name
                    options.filter,
                    options.truncate == "apply",
                    reshapes=chosen is None and table.status == "streaming",
                    left=tuple(table.left),
                )
        return found

    def _work(self, part: Range, tables: dict[str, Followed], binlog: str, *, past: Past) -> Work:
        assert self.state.checkpoint is not None
        gtid = self.state.checkpoint.gtid if part.start == self.state.checkpoint.at else ""
        server = self.state.server
        return Work(
            self.settings, mask_key(self.config), server["flavour"], self.config.source.server_id + part.number,
            server["uuid"], binlog, part.start, gtid, part.stop, part.max_bytes, self.lake.root, tables,
            "" if past else self.state.seen_from(part.start), past, self.config.source.max_task_bytes,
        )  # fmt: skip

    def _compare(self, found: list[TableSchema]) -> None:
        """A table whose definition is not what bronze has, though no statement of the stream said so, is read again:
        its settings were changed, or a table map could not tell its type. Columns that a statement added, and of which
        there is no event yet, are taken from the catalog."""
        suspects = [s for s in found if self._differs(s)]
        if not suspects:
            return
        # The catalog may be ahead of the stream. It is not where nothing was altered around the time it is read.
        self._stream(position_now(self.connection, self.state.epoch).at)
        before = {str(s.name): self._shape_of(s) for s in suspects}
        found = discover(self.connection, self.config, self.state.tables)
        self._stream(position_now(self.connection, self.state.epoch).at)
        for schema in found:
            name = str(schema.name)
            if name not in before or not self._differs(schema):
                continue
            if self._shape_of(schema) != before[name]:
                self.look_again = True
            elif not self._take_up(schema):
                table = self.state.tables[name]
                table.status, table.reason = "waiting for snapshot", "its definition is not what it was"
                table.unfinished = table.reason

    def _shape_of(self, schema: TableSchema) -> tuple[Any, ...]:
        table = self.state.tables[str(schema.name)]
        return table.schema, table.status, table.generation, list(table.added)

    def _differs(self, schema: TableSchema) -> bool:
        table = self.state.tables.get(str(schema.name))
        if table is None or table.status != "streaming":
            return False
        return set(_shape(schema)) != set(_shape(table.schema)) or set(schema.keys) != set(table.schema.keys)

    def _take_up(self, schema: TableSchema) -> bool:
        """Whether added columns are all that the catalog has and bronze has not; these are added."""
        name = str(schema.name)
        table = self.state.tables[name]
        known = set(_shape(table.schema))
        new = [c for c, shape in zip(schema.columns, _shape(schema), strict=True) if shape not in known]
        taken = {c.name.lower() for c in table.schema.columns}
        if set(schema.keys) != set(table.schema.keys) or not known <= set(_shape(schema)):
            return False
        if any(c.name not in table.added or c.name.lower() in taken for c in new):
            return False
        land(self.spark(), self.lake, self.state, [Manifest(added={name: [c.to_json() for c in new]})])
        return True


def _shape(schema: TableSchema) -> list[tuple[Any, ...]]:
    return [(c.name, c.arrow, c.masked, c.kind in ("uuid", "inet4", "inet6")) for c in schema.columns]


def _contiguous(ranges: list[Range], manifests: list[Manifest]) -> list[Manifest]:
    """The manifests up to the first that does not end where the next one begins: the others are read again.

    A range goes beyond its file where an XA transaction is prepared in it and ended in a later one. It ends early
    where a table changes its shape.
    """
    for n, (planned, manifest) in enumerate(zip(ranges, manifests, strict=True)):
        if not manifest.end:
            return manifests[: max(n, 1)]
        if Position.from_json(manifest.end) != planned.stop or manifest.reshaped:
            return manifests[: n + 1]
    return manifests


def run(
    spark: Callable[[], SparkSession],
    lake: Lake,
    config: Config,
    password: str | None,
    *,
    until: Checkpoint | None = None,
    accept_gap: bool = False,
    begin_at: Begin | None = None,
    snapshot_anyway: bool = False,
) -> BronzeReport:
    """Catch bronze up. `spark` is called only when there is something to write. Errors as the modules above.

    `accept_gap` goes on where the source lacks transactions, `snapshot_anyway` where it may purge its binlog before a
    snapshot ends.

    A source that goes away is waited for, and the run goes on from what is committed, as the next run would.
    """
    began, before = time.monotonic(), load_bronze(lake)
    outage, warnings = Outage("{1}:{2}".format(*config.source.address())), list[str]()
    while True:
        ingest = None
        try:
            ingest = Ingest(
                spark,
                lake,
                config,
                password,
                accept_gap=accept_gap,
                begin_at=begin_at,
                snapshot_anyway=snapshot_anyway,
                proven=outage.tries > 0,
            )
            ingest.run(until)
            break
        except ConnectionLostError as error:
            outage.wait(error, load_bronze(lake).batch)
        finally:
            if ingest is not None:
                begin_at = ingest.begin_at
                warnings += ingest.warnings
                ingest.close()
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    return report(before, ingest.state, time.monotonic() - began, warnings)


def begun(lake: Lake) -> bool:
    """Whether bronze has ever run on this lake."""
    return load_bronze(lake).checkpoint is not None
