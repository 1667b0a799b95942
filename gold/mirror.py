"""An Iceberg mirror of one silver table: what has to be done to it, and the one commit that does it.

In two steps, since nothing may be published before the gates of all tables have passed. `prepare` finds out how far
the mirror has come (from the summary of its own snapshot, so that a killed run repeats nothing), reads what silver
changed since, and asks the gate. `publish` commits.

A mirror follows the change feed. Where silver's columns were renamed, dropped, added or widened, it follows by
Iceberg's own ALTER, in the commit that brings the rows (`gold.columns`). It is rebuilt in one replacing snapshot where
the feed cannot say what changed: the feed was vacuumed, the silver table is a new one, holds a new generation or has
other keys, a column has a type that Iceberg does not widen the old one to, or another program wrote the mirror.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gold import changes, export, iceberg, overwrite
from gold.columns import Change, Columns, Silver, compared, describe
from gold.iceberg import Standing
from gold.merge import lowered, merge_counted, merge_keyed
from gold.state import GoldTable
from lakeward.config import Config
from lakeward.lake import Lake
from lakeward.names import spark_identifier
from lakeward.position import Checkpoint
from lakeward.schema import TableSchema

if TYPE_CHECKING:
    from lakeward.quality import GateResult

Action = Literal["created", "rebuilt", "merged", "unchanged"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Wanted:
    """The silver table that a mirror has to equal."""

    schema: TableSchema
    cut: Checkpoint
    version: int
    generation: int


@dataclass(frozen=True)
class Decision:
    action: Action
    reason: str = ""  # why a rebuild
    since: int = -1  # merged: the version that the mirror holds
    change: Change = field(default_factory=Change)  # merged: of the columns


@dataclass
class Prepared:
    """A mirror's work after its gate: `gated` is None where there are no rows to write."""

    wanted: Wanted
    identifier: str
    decision: Decision
    silver: Silver
    standing: Standing | None
    gated: GateResult | None


def decide(wanted: Wanted, silver: Silver, standing: Standing | None, known: GoldTable | None) -> Decision:
    """What makes the mirror `standing` equal to `wanted`. `known` is what gold.json says of it."""
    if standing is None:
        return Decision("created")
    said = standing.lakeward
    if "silver-version" not in said or "silver-id" not in said:
        return Decision("rebuilt", "another program wrote its newest snapshot, or altered it")
    version, generation = int(said["silver-version"]), int(said.get("generation", 0))
    if known is not None and known.snapshot == standing.snapshot and known.silver_id == said["silver-id"]:
        version = max(version, known.silver_version)  # versions that changed no row made no snapshot
    if said["silver-id"] != silver.id:
        return Decision("rebuilt", "its silver table was created anew")
    if generation != wanted.generation:
        return Decision("rebuilt", f"the source table was read anew (generation {wanted.generation})")
    if version > wanted.version:
        return Decision("rebuilt", f"its silver table went back from version {version} to {wanted.version}")
    change = compared(standing.columns, json.loads(said["physical"]) if "physical" in said else None, silver)
    if change.refused:
        return Decision("rebuilt", f"columns were altered as Iceberg cannot follow: {', '.join(change.refused)}")
    keys = [key.lower() for key in json.loads(said.get("keys", "[]"))]
    if [change.names.get(key) for key in keys] != [key.lower() for key in wanted.schema.keys]:
        return Decision("rebuilt", f"its keys are now {', '.join(wanted.schema.keys) or 'the whole row'}")
    if version == wanted.version:
        if change:
            return Decision("rebuilt", "its columns are not those of silver's version that it holds")
        return Decision("unchanged", since=version)
    return Decision("merged", since=version, change=change)


def prepare(
    session: SparkSession,
    lake: Lake,
    config: Config,
    wanted: Wanted,
    known: GoldTable | None,
    run: int,
    rebuild: bool = False,
) -> Prepared:
    """Read what changed, or everything to `rebuild`, and ask the gate; nothing is written. Raises GateStoppedError, and
    ConfigError for an export that cannot be meant."""
    path = lake.table("silver", wanted.schema.name)
    silver = describe(session, path, wanted.version)
    if any(fnmatch.fnmatchcase(str(wanted.schema.name), glob) for glob in config.gold.export):
        export.check(lake, wanted.schema.name, dict(silver.columns), config.table(wanted.schema.name).export_by)
    name = iceberg.identifier(session, *wanted.schema.name)
    standing = iceberg.standing(session, name)
    decision = decide(wanted, silver, standing, known)
    followed, change = decision.action in ("merged", "unchanged"), decision.change
    if rebuild and standing is not None:
        decision = Decision("rebuilt", "it was asked for")
    schema = narrowed(wanted.schema, silver.columns)
    frame: DataFrame | None = None
    if decision.action == "merged":
        versions = (decision.since + 1, wanted.version)
        try:
            frame = _changes(session, path, versions, schema, silver)
        except changes.FeedGoneError as error:
            log.warning("%s: silver's change feed is gone: %s", wanted.schema.name, str(error).splitlines()[0])
            decision = Decision("rebuilt", f"silver's change feed of versions {versions[0]} to {versions[1]} is gone")
        else:
            if frame.isEmpty():
                frame = None
                decision = decision if decision.change else Decision("unchanged", since=wanted.version)
    if decision.action in ("created", "rebuilt"):
        frame = changes.state_at(session, path, wanted.version)
    gated = None
    if frame is not None:
        # Great Expectations takes seconds to import, and most runs of a quiet source have nothing to judge.
        from lakeward.quality import gate

        gated = gate(frame, schema=schema, layer="gold", config=config, lake=lake, run=run)
        if gated.held and followed and decision.action == "rebuilt" and not schema.counted:
            mirror = session.table(name)
            mirror = change.rows(mirror) if change else mirror
            passed = _with_last_passed(mirror, frame, gated.passed, schema.keys)
            gated = dataclasses.replace(gated, passed=passed)
    return Prepared(wanted, name, decision, silver, standing, gated)


def _with_last_passed(mirror: DataFrame, rows: DataFrame, passed: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The rows that passed, and of each key whose row did not the one that the mirror has: its last that did.

    For a mirror that could have been merged into. One that could not be, its table having been read anew, may hold
    values that are masked now.
    """
    rows, passed = lowered(rows), lowered(passed)
    names = [spark_identifier(k.lower()) for k in keys]
    held = rows.select(*names).exceptAll(passed.select(*names)).alias("h")
    same = [F.col(f"m.{n}").eqNullSafe(F.col(f"h.{n}")) for n in names]
    kept = mirror.alias("m").join(held, on=same, how="left_semi").localCheckpoint(eager=True)
    return passed.unionByName(kept, allowMissingColumns=True)


def _changes(
    session: SparkSession, path: str, versions: tuple[int, int], schema: TableSchema, silver: Silver
) -> DataFrame:
    def read() -> DataFrame:
        if schema.counted:
            return changes.net_per_value(session, path, versions, silver.fields)
        return changes.last_per_key(session, path, versions, schema.keys, silver.fields)

    try:
        return read()
    except changes.FeedAlteredError:
        with changes.across(session):
            return read()


def narrowed(schema: TableSchema, columns: Columns) -> TableSchema:
    """`schema` without the columns that silver does not have yet: bronze may be ahead by an ALTER."""
    there = {c for c, _ in columns}
    return dataclasses.replace(schema, columns=tuple(c for c in schema.columns if c.name.lower() in there))


def publish(session: SparkSession, work: Prepared, run: int) -> Standing:
    """Commit what was prepared, in one snapshot, and say what stands then."""
    name, decision = work.identifier, work.decision
    if work.standing is not None and decision.action == "unchanged":
        return work.standing
    with iceberg.summary(session, properties(work, run)):
        if work.gated is None:
            overwrite.alter(session, name, decision.change)
        elif decision.action != "merged":
            iceberg.replace(lowered(work.gated.passed), name)
        elif work.wanted.schema.counted:
            merge_counted(work.gated.passed, name, decision.change)
        else:
            merge_keyed(work.gated.passed, name, work.wanted.schema.keys, decision.change)
    stands = iceberg.standing(session, name)
    assert stands is not None, f"{name} was committed and is not there"
    return stands


def properties(work: Prepared, run: int) -> dict[str, str]:
    """What the snapshot's summary says of itself, under `iceberg.PREFIX`."""
    return {
        "run": str(run),
        "cut": str(work.wanted.cut.at),
        "cut-gtid": work.wanted.cut.gtid,
        "silver-version": str(work.wanted.version),
        "silver-id": work.silver.id,
        "generation": str(work.wanted.generation),
        "keys": json.dumps(work.wanted.schema.keys),
        "physical": json.dumps(work.silver.marks),
    }


def record(work: Prepared, stands: Standing, lake: Lake, known: GoldTable | None) -> GoldTable:
    """The table's entry in gold.json; its export is carried over from `known`."""
    schema, table = work.wanted.schema.name
    return GoldTable(
        schema=schema,
        table=table,
        kind="mirror",
        identifier=work.identifier,
        location=iceberg.location(lake, schema, table),
        metadata_file=stands.metadata_file,
        snapshot=stands.snapshot,
        columns=[list(c) for c in stands.columns],
        rows=stands.rows,
        cut=work.wanted.cut,
        published_ms=stands.committed_ms,
        silver_version=work.wanted.version,
        silver_id=work.silver.id,
        generation=work.wanted.generation,
        export_location=known.export_location if known else None,
        export_metadata=known.export_metadata if known else None,
    )
