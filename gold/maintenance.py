"""`lakeward maintain`: puts small files together and removes what no reader can need any more, in every layer.

Promise: whatever gold published stays readable for `[lake] keep_days` after something newer took its place: the
metadata file that a reader was given, and every file it leads to. A snapshot is therefore judged not by its age but by
when it ceased to be the current one: a table that had not changed for a month, and changed a minute ago, keeps the
month-old snapshot. Rows are never altered. Each step is a commit of Delta's or Iceberg's own, so that a run killed
anywhere leaves whole tables and is made up for by the next one.

Other stages read Delta tables by a version that they remember. The caller holds the lake's lock, so none of them is at
work; a run that was killed has to be finished first, since its plan names versions. Of a table that a later stage has
yet to read (gold silver's changes, landing bronze's commits) nothing is removed. What foreign keys did
(`<table>__cascades`) is left as it is: silver knows it by its version.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from gold import freshness, iceberg
from gold.state import GoldState, GoldTable, load_gold, save_gold
from lakeward import crash, delta
from lakeward.config import Config
from lakeward.errors import TerminalError, UsageError
from lakeward.lake import Lake
from lakeward.names import spark_identifier
from lakeward.state import BronzeState, BronzeTable, SilverState, load_bronze, load_silver, save_silver
from silver.events import not_before

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
DELTA_FILE_BYTES = 256 << 20  # of silver's and bronze's; gold's files are smaller
_APPEND_ONLY = "delta.appendOnly"
_REMEMBERED = "delta.deletedFileRetentionDuration"  # how long Delta's log says of a file that it was removed
REMEMBERED_DAYS = 7  # where a table does not say
FILES_MIN = 5  # of a table or partition, before they are worth rewriting
_SETTINGS = {
    # Nobody else writes while the lake is held, and readers have `keep_days`, whatever Delta thinks of that.
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    # Else VACUUM goes by what the table says, and by no other number of days that it is given but 0.
    "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled": "false",
    # A commit that says that files were removed is a version that nobody waits for: other stages name versions.
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    # VACUUM lists a table's folders by so many tasks, however few the folders are; the default is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "32",
    # What was put together once is not again at every run.
    "spark.databricks.delta.optimize.minFileSize": str(DELTA_FILE_BYTES // 2),
    "spark.databricks.delta.optimize.maxFileSize": str(DELTA_FILE_BYTES),
}


@dataclass
class MaintenanceReport:
    """What a run did, over all tables."""

    tables: int = 0
    compacted: int = 0  # Iceberg and Delta tables whose small files were put together
    expired: int = 0  # Iceberg snapshots
    orphans: int = 0  # files of Iceberg tables that no kept metadata names
    forgotten: int = 0  # events of bronze that no later stage can read, older than [lake] bronze_days
    kept: dict[str, str] = field(default_factory=dict)  # Delta tables of which nothing was removed, and why
    seconds: float = 0.0


def run(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    tables: Collection[str] = (),
    *,
    unlanded: Collection[str] = (),
    now_ms: int | None = None,
) -> MaintenanceReport:
    """Maintain the source tables `tables`, or all of them with gold's marts and freshness table.

    `unlanded` names tables whose bronze commits the landing has yet to read. `now_ms` is the time to judge events and
    Iceberg's snapshots by, milliseconds since 1970 UTC. Raises UsageError for a table that the lake does not have,
    TerminalError when a killed run has to be finished first.
    """
    started = time.monotonic()
    work = _Maintenance(spark, lake, config, frozenset(tables), frozenset(unlanded), now_ms or int(time.time() * 1000))
    work.delta_tables()
    crash.point("maintain.between_layers")
    work.gold_tables()
    work.report.seconds = time.monotonic() - started
    return work.report


class _Maintenance:
    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        config: Config,
        names: frozenset[str],
        unlanded: frozenset[str],
        now_ms: int,
    ) -> None:
        self.lake, self.config, self.names, self.unlanded, self.now_ms = lake, config, names, unlanded, now_ms
        self.bronze: BronzeState = load_bronze(lake)
        self.silver: SilverState = load_silver(lake)
        self.gold: GoldState = load_gold(lake)
        self.report = MaintenanceReport()
        # Gold's intent names no table where all that is left to do is a mart that failed.
        begun = self.gold.intent is not None and self.gold.intent["tables"]
        for stage, intent in (("bronze", self.bronze.intent), ("silver", self.silver.intent), ("gold", begun)):
            if intent:
                raise TerminalError(f"a run of {stage} has not ended", hint=f"`lakeward {stage}`, and then this again")
        there = {*self.bronze.tables, *self.silver.tables, *self.gold.tables}
        for name in sorted(names - there):
            raise UsageError(f"the lake has no table {name}", hint="`lakeward status` names those it has")
        self.session = iceberg.catalog_session(spark, lake, config.gold)
        for key, value in _SETTINGS.items():
            self.session.conf.set(key, value)

    def delta_tables(self) -> None:
        for name, table in sorted(self.bronze.tables.items()):
            if self.names and name not in self.names:
                continue
            bronze = self.lake.table("bronze", table.name)
            if name in self.unlanded:
                self.report.kept[bronze] = "the landing has yet to read its events"
            elif delta.exists(self.session, bronze):
                self._remember(bronze)
                self._forget(table, bronze)
                self._compact(bronze)
                self._vacuum(bronze)
            quarantine = self.lake.table("quarantine", table.name)
            if delta.exists(self.session, quarantine):
                self._remember(quarantine)
                self._compact(quarantine)
                self._vacuum(quarantine)
            self._silver(name, table)

    def _silver(self, name: str, table: BronzeTable) -> None:
        merged, mirrored = self.silver.tables.get(name), self.gold.tables.get(name)
        if merged is None:
            return
        behind = mirrored is not None and mirrored.kind == "mirror" and mirrored.silver_version < merged.version
        for suffix in ("", *sorted(merged.beside)):
            location = self.lake.table("silver", table.name, suffix)
            if not delta.exists(self.session, location):
                continue
            self._remember(location)
            self._compact(location)
            crash.point("maintain.after_optimize")
            # Gold reads these at a version, and files of an earlier one may go.
            now = delta.version(self.session, location)
            if suffix:
                self._stand_at(f"{name}{suffix}", merged.beside[suffix], now)
                merged.beside[suffix] = now
            else:
                merged.version = now
            save_silver(self.lake, self.silver)
            if behind and not suffix:
                self.report.kept[location] = "gold has yet to read its changes"
            else:
                self._vacuum(location)

    def _stand_at(self, name: str, before: int, now: int) -> None:
        """The input `name` of marts has the same rows in other files: no reason to compute any of them anew."""
        for mart, table in self.gold.tables.items():
            if table.inputs.get(name) == before != now:
                self.gold.tables[mart] = replace(table, inputs={**table.inputs, name: now})
                save_gold(self.lake, self.gold)

    def _compact(self, location: str) -> None:
        self.report.tables += 1
        before = delta.snapshot(self.session, location)
        if before.numOfFiles() >= FILES_MIN:
            DeltaTable.forPath(self.session, location).optimize().executeCompaction()
            self.report.compacted += delta.version(self.session, location) != int(before.version())

    def _remember(self, location: str) -> None:
        """Let the log say for `keep_days` that a file was removed. One that it says nothing of passes for a stray, and
        VACUUM judges a stray by its own age: of a table that had not changed for a month it would go at once."""
        days = max(self.config.lake.keep_days, REMEMBERED_DAYS)
        said = delta.snapshot(self.session, location).metadata().configuration().get(_REMEMBERED)
        now = str(said.get()) if said.isDefined() else f"interval {REMEMBERED_DAYS} days"
        if now != f"interval {days} days":
            self._set(location, _REMEMBERED, f"interval {days} days")

    def _vacuum(self, location: str) -> None:
        DeltaTable.forPath(self.session, location).vacuum(self.config.lake.keep_days * 24)

    def _forget(self, table: BronzeTable, location: str) -> None:
        """Remove old events that no stage can read again: those from before the table's present snapshot."""
        append_only = delta.snapshot(self.session, location).metadata().configuration().get(_APPEND_ONLY)
        if not (append_only.isDefined() and append_only.get() == "true"):
            self._set(location, _APPEND_ONLY, "true")  # a run was killed below, before it had done so itself
        days = self.config.lake.bronze_days
        if days is None or table.start is None or table.status != "streaming":
            return
        old = (
            f"ts_ms < {self.now_ms - days * DAY_MS} AND NOT {not_before(table.start)}"
            f" AND NOT (source.snapshot AND source.generation = {table.generation})"
        )
        rows = DeltaTable.forPath(self.session, location)
        count = rows.toDF().where(old).count()
        if count:
            self._set(location, _APPEND_ONLY, "false")
            try:
                rows.delete(old)
            finally:
                self._set(location, _APPEND_ONLY, "true")
            self.report.forgotten += count

    def _set(self, location: str, key: str, value: str) -> None:
        name = spark_identifier(location)
        self.session.sql(f"ALTER TABLE delta.{name} SET TBLPROPERTIES ('{key}' = '{value}')")

    def gold_tables(self) -> None:
        changed = False
        for name, table in sorted(self.gold.tables.items()):
            source = name if table.kind == "mirror" else None
            if self.names and (source is None or source not in self.names):
                continue
            changed = self._maintain_iceberg(name, table) or changed
        if changed and self.gold.cut is not None:
            # Freshness names metadata files: the ones that are current now.
            stands = freshness.write(self.session, self.gold.tables.values(), self.gold.cut, self.gold.run)
            own = f"{freshness.SCHEMA}.{freshness.TABLE}"
            self.gold.tables[own] = _standing_at(self.gold.tables[own], stands)
            save_gold(self.lake, self.gold)

    def _maintain_iceberg(self, name: str, table: GoldTable) -> bool:
        """Whether the table's current metadata file is another one now."""
        found = iceberg.load(self.session, table.identifier)
        if found is None:
            return False
        self.report.tables += 1
        self.report.compacted += iceberg.compact(self.session, table.identifier, FILES_MIN)
        crash.point("maintain.after_compaction")
        # Written down before anything goes: until then gold.json names what the compaction has replaced.
        changed = self._note(name)
        found.refresh()
        since = _current_at(found, self.now_ms - self.config.lake.keep_days * DAY_MS)
        if since is not None:
            actions = iceberg.actions(self.session)
            held = len(list(found.snapshots()))
            if since > min(s.timestampMillis() for s in found.snapshots()):
                actions.expireSnapshots(found).expireOlderThan(since).retainLast(1).execute()
                found.refresh()
            self.report.expired += held - len(list(found.snapshots()))
            # A metadata file bears the time at which the store got it, by the store's clock.
            orphans = actions.deleteOrphanFiles(found).olderThan(since - HOUR_MS).execute()
            self.report.orphans += len(list(orphans.orphanFileLocations()))
        return self._note(name) or changed

    def _note(self, name: str) -> bool:
        """Write down what stands of the table now; whether that is something else."""
        table = self.gold.tables[name]
        stands = iceberg.standing(self.session, table.identifier)
        assert stands is not None
        if stands.metadata_file == table.metadata_file:
            return False
        self.gold.tables[name] = _standing_at(table, stands)
        self._stand_at(name, table.snapshot, stands.snapshot)
        save_gold(self.lake, self.gold)
        return True


def _standing_at(table: GoldTable, stands: iceberg.Standing) -> GoldTable:
    exported = table.export_metadata == table.metadata_file
    return replace(
        table,
        snapshot=stands.snapshot,
        metadata_file=stands.metadata_file,
        export_metadata=stands.metadata_file if exported else table.export_metadata,
    )


def _current_at(table: Any, moment_ms: int) -> int | None:
    """When the snapshot that was current at `moment_ms` was committed. All before it had been replaced by then, and
    no file that is older leads to one that is kept. None where there was no snapshot yet."""
    earlier = [s.timestampMillis() for s in table.snapshots() if s.timestampMillis() <= moment_ms]
    return max(earlier, default=None)
