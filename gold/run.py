"""`lakeward gold`: publish silver's cut as Iceberg mirrors, marts, Parquet exports and the freshness table.

Order is the promise. The gates of all tables come first: when one stops, nothing has been published. Then each
changed mirror is committed in one snapshot that names the cut, then its export, then the marts over them, then the
freshness table, which therefore never claims what is not there, and last gold.json. A run that is killed anywhere
is finished by the next: what is published is asked of each table's own snapshot (`gold.mirror`), so nothing is
applied twice. Tables whose silver version has not moved cost nothing.
"""

from __future__ import annotations

import fnmatch
import logging
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from gold import freshness, iceberg, marts, mirror
from gold.answers import unanswered
from gold.basis import basis, catalog_of
from gold.export import export
from gold.incremental import Basis
from gold.lanes import Lanes
from gold.marts import Input, Model
from gold.mirror import Prepared, Wanted
from gold.state import GoldState, GoldTable, load_gold, save_gold
from lakeward import catalog, crash
from lakeward.config import Config
from lakeward.errors import LakewardError, UsageError
from lakeward.lake import Lake, disk_full
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.spark import evaluate_for
from lakeward.state import BronzeState, SilverState, load_bronze, load_silver

CHECKED_MAX = 64  # unchanged tables that a run asks the catalog for; of more, others in the next run
Outcome = Literal["created", "rebuilt", "merged", "unchanged"]
log = logging.getLogger(__name__)


@dataclass
class GoldReport:
    """What a run did."""

    run: int = 0
    cut: Position | None = None  # None: silver has no cut yet
    tables: dict[str, Outcome] = field(default_factory=dict)  # mirrors and marts ("marts.<name>")
    rebuilt: dict[str, str] = field(default_factory=dict)  # why a mirror was rebuilt
    skipped: dict[str, str] = field(default_factory=dict)  # what was not published, and why
    withdrawn: list[str] = field(default_factory=list)  # no longer mirrored; their files stay where they are
    held: int = 0  # rows held back by the gates
    exported: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def published(self) -> int:
        """Tables that got a new snapshot."""
        return sum(outcome != "unchanged" for outcome in self.tables.values())


def run(spark: SparkSession, lake: Lake, config: Config, rebuild: Collection[str] = ()) -> GoldReport:
    """Publish silver's cut. The caller holds the lake's lock. `rebuild` names mirrors and marts to make anew from
    silver as a whole, though nothing asks for it; each is replaced in one commit.

    Raises UsageError for a table to rebuild that gold does not publish, ConfigError for a catalog or a mart that
    cannot be meant, GateStoppedError when a gate stops (nothing was published then), TerminalError when a mart fails
    (the mirrors and the other marts were published) or the disk is full.
    """
    started = time.monotonic()
    catalog.check(config.gold)
    models = marts.load_models(marts.models_folder(config))
    silver = load_silver(lake)
    report = GoldReport()
    if silver.cut is not None:
        try:
            _Run(spark, lake, config, models, silver, silver.cut, report, frozenset(rebuild)).publish()
        except (PySparkException, Py4JJavaError) as error:
            known = disk_full(error) or unanswered(error, catalog.settings(config.gold, lake.root))
            if known is not None:
                raise known from error
            raise
    report.seconds = time.monotonic() - started
    return report


class _Run:
    """One run towards one cut."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        config: Config,
        models: list[Model],
        silver: SilverState,
        cut: Checkpoint,
        report: GoldReport,
        rebuild: frozenset[str],
    ) -> None:
        self.spark, self.lake, self.config, self.models = spark, lake, config, models
        self.cut, self.report, self.rebuild = cut, report, rebuild
        self.state = load_gold(lake)
        self._choose_catalog()
        bronze = load_bronze(lake)
        self.basis = basis(config, bronze, silver)
        self.beside = marts.of_silver(lake, bronze, silver)
        self.wanted = wanted_mirrors(config, bronze, silver, cut, report.skipped)
        self._known(rebuild)
        self.rows = sum(silver.tables[name].rows for name in self.wanted)
        self.number = _number(self.state, self.wanted)
        report.run, report.cut = self.number, cut.at

    def publish(self) -> None:
        with Lanes(lambda: evaluate_for(self.session(), self.rows)) as lanes:
            self._mirrors(lanes)
            failed = self._marts(lanes.session)
            self._withdraw()
            crash.point("gold.after_tables")
            self._freshness(lanes.session)
            crash.point("gold.after_freshness")
        self.state.run, self.state.cut, self.state.intent = self.number, self.cut, None
        self.state.basis = "" if failed else self.basis  # the next run has to try again, whatever stands still
        save_gold(self.lake, self.state)
        if failed:
            raise failed[0]

    def _choose_catalog(self) -> None:
        chosen = catalog_of(self.config.gold)
        if self.state.tables and self.state.catalog not in ("", chosen):
            log.warning("[gold] catalog is another one now: each table is published there anew")
            self.state.tables.clear()
        self.state.catalog = chosen

    def _known(self, names: Collection[str]) -> None:
        there = {*self.wanted, *(f"{marts.SCHEMA}.{m.name}" for m in self.models)}
        for name in sorted(set(names) - there):
            raise UsageError(
                f"gold publishes no table {name}", hint=f"it publishes {', '.join(sorted(there)) or 'none yet'}"
            )

    def session(self) -> SparkSession:
        return iceberg.catalog_session(self.spark, self.lake, self.config.gold)

    def _mirrors(self, lanes: Lanes) -> None:
        tables = self.state.tables
        moved = {n: w for n, w in self.wanted.items() if n in self.rebuild or not _stands(tables.get(n), w)}
        quiet = [n for n in self.wanted if n not in moved]
        first = self.number * CHECKED_MAX % max(1, len(quiet))
        asked = (quiet[first:] + quiet[:first])[:CHECKED_MAX]
        there = lanes.each(asked, lambda session, name: iceberg.exists(session, tables[name].identifier))
        for name in (n for n, found in there.items() if not found):
            log.warning("%s: the catalog no longer has its table %s: made anew", name, tables[name].identifier)
            moved[name] = self.wanted[name]
        prepared = lanes.each(
            moved,
            lambda session, name: mirror.prepare(
                session, self.lake, self.config, self.wanted[name], tables.get(name), self.number, name in self.rebuild
            ),
        )
        gates = [p.gated for p in prepared.values() if p.gated is not None]
        if gates:
            from lakeward.quality import publish_docs  # slow to import

            publish_docs([r for g in gates for r in g.results], self.config, self.lake, run=self.number)
        crash.point("gold.before_intent")
        if prepared:
            versions = {n: p.wanted.version for n, p in prepared.items()}
            self.state.intent = {"run": self.number, "cut": self.cut.to_json(), "tables": versions}
            save_gold(self.lake, self.state)
        crash.point("gold.after_intent")
        for gated in gates:
            gated.hold()
            self.report.held += gated.held
        for name, wanted in self.wanted.items():
            if name not in prepared:
                tables[name] = replace(tables[name], cut=wanted.cut)
                self.report.tables[name] = "unchanged"
        lanes.each(self.wanted, lambda session, name: self._publish(session, name, prepared.get(name)))

    def _publish(self, session: SparkSession, name: str, work: Prepared | None) -> None:
        if work is not None:
            stands = mirror.publish(session, work, self.number)
            self.state.tables[name] = mirror.record(work, stands, self.lake, self.state.tables.get(name))
            self.report.tables[name] = work.decision.action
            if work.decision.action == "rebuilt":
                self.report.rebuilt[name] = work.decision.reason
            crash.point("gold.between_tables")
        self._export(session, name)

    def _export(self, session: SparkSession, name: str) -> None:
        table = self.state.tables[name]
        if not _matches(name, self.config.gold.export):
            self.state.tables[name] = replace(table, export_location=None, export_metadata=None)
        elif table.export_metadata != table.metadata_file:
            stands = iceberg.standing(session, table.identifier)
            assert stands is not None
            source = self.wanted[name].schema.name
            keep, by = self.config.gold.export_keep_minutes, self.config.table(source).export_by
            place = export(session, self.lake, source, table.identifier, stands, table.cut, keep_minutes=keep, by=by)
            self.state.tables[name] = replace(table, export_location=place, export_metadata=stands.metadata_file)
            self.report.exported.append(name)

    def _marts(self, session: SparkSession) -> list[LakewardError]:
        failed: list[LakewardError] = []
        for model in self.models:
            name = f"{marts.SCHEMA}.{model.name}"
            published = self.state.tables.values()
            inputs = self.beside | {
                TableName(t.schema, t.table): Input(t.snapshot, t.cut, identifier=t.identifier) for t in published
            }
            absent = [str(t) for t in model.inputs if t not in inputs]
            if absent or name in self.wanted:
                self.report.skipped[name] = (
                    f"not in this lake: {', '.join(absent)}" if absent else "a source table has its place"
                )
                if absent:
                    self.state.tables.pop(name, None)
                continue
            try:
                self._mart(session, name, model, inputs)
            except marts.SkippedError as error:
                self.report.skipped[name] = str(error)
                self.state.tables.pop(name, None)
            except LakewardError as error:
                failed.append(error)
        return failed

    def _mart(self, session: SparkSession, name: str, model: Model, found: dict[TableName, Input]) -> None:
        inputs = {str(t): found[t].version for t in model.inputs}
        known = self.state.tables.get(name)
        # It is as fresh as the input that is least so: a table that is stopped, or a mart that failed.
        cut = min((found[t].cut for t in model.inputs), key=lambda c: c.at, default=self.cut)
        same = known is not None and known.inputs == inputs and known.model == model.digest
        if known is not None and same and name not in self.rebuild and iceberg.exists(session, known.identifier):
            self.state.tables[name] = replace(known, cut=cut)
            self.report.tables[name] = "unchanged"
            return
        since = None
        if known is not None and known.model == model.digest and name not in self.rebuild:
            standing = iceberg.standing(session, known.identifier)
            if standing is not None and standing.lakeward.get("model") == model.digest:
                since = Basis(known.inputs, inputs)
        stands, merged = marts.materialize(session, model, found, cut, self.number, since)
        entry = _entry(session, self.lake, marts.SCHEMA, model.name, "mart", stands, cut)
        self.state.tables[name] = replace(entry, inputs=inputs, model=model.digest)
        self.report.tables[name] = "created" if known is None else "merged" if merged else "rebuilt"

    def _withdraw(self) -> None:
        kept = {*self.wanted, *(f"{marts.SCHEMA}.{m.name}" for m in self.models), _FRESHNESS}
        for name in [n for n in self.state.tables if n not in kept]:
            del self.state.tables[name]
            self.report.withdrawn.append(name)

    def _freshness(self, session: SparkSession) -> None:
        tables = self.state.tables
        if self.report.published or self.report.withdrawn or self.state.cut != self.cut or _FRESHNESS not in tables:
            stands = freshness.write(session, tables.values(), self.cut, self.number)
            entry = _entry(session, self.lake, freshness.SCHEMA, freshness.TABLE, "freshness", stands, self.cut)
            tables[_FRESHNESS] = entry


_FRESHNESS = f"{freshness.SCHEMA}.{freshness.TABLE}"


def wanted_mirrors(
    config: Config, bronze: BronzeState, silver: SilverState, cut: Checkpoint, skipped: dict[str, str]
) -> dict[str, Wanted]:
    """The silver tables that [gold] mirror picks, by name; `skipped` gets the reasons for those that cannot be."""
    wanted = {}
    for name, table in sorted(silver.tables.items()):
        if not _matches(name, config.gold.mirror):
            continue
        if name not in bronze.tables:
            skipped[name] = "bronze does not know it any more"
        elif name == _FRESHNESS:
            skipped[name] = "Lakeward's own freshness table has its place"
        else:
            schema = replace(bronze.tables[name].schema, keys=tuple(table.keys))
            own = cut if table.cut == cut.at else Checkpoint(table.cut)  # a stopped table stands where it stopped
            wanted[name] = Wanted(schema, own, table.version, table.generation)
    return wanted


def _number(state: GoldState, wanted: dict[str, Wanted]) -> int:
    """This run's number. A run that was killed is repeated under its own, so that it holds no row back twice; but not
    when silver has moved since, for then other rows may be held."""
    if state.intent is None:
        return state.run + 1
    same = all(n in wanted and wanted[n].version == v for n, v in state.intent["tables"].items())
    return int(state.intent["run"]) + (0 if same else 1)


def _stands(known: GoldTable | None, wanted: Wanted) -> bool:
    return (
        known is not None
        and known.kind == "mirror"
        and (known.silver_version, known.generation) == (wanted.version, wanted.generation)
    )


def _matches(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _entry(
    session: SparkSession,
    lake: Lake,
    schema: str,
    table: str,
    kind: Literal["mart", "freshness"],
    stands: iceberg.Standing,
    cut: Checkpoint,
) -> GoldTable:
    return GoldTable(
        schema=schema,
        table=table,
        kind=kind,
        identifier=iceberg.identifier(session, schema, table),
        location=iceberg.location(lake, schema, table),
        metadata_file=stands.metadata_file,
        snapshot=stands.snapshot,
        columns=[list(c) for c in stands.columns],
        rows=stands.rows,
        cut=cut,
        published_ms=stands.committed_ms,
    )
