"""One table's part of a run, from its gated events to its Delta tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from bronze.commit import reshape_images
from lakeward.config import Outbox, TableConfig
from lakeward.delta import exists, snapshot, version
from lakeward.errors import ConfigError
from lakeward.lake import Lake
from lakeward.names import sql_literal
from lakeward.position import Position
from lakeward.state import SilverTable
from silver import bulk, delta, outbox, small
from silver.columns import DELETED, refuse_collisions
from silver.current import counted, kept, keyed
from silver.events import Truncation
from silver.history import BEFORE, HISTORY, merge_history, seed
from silver.merge import merge
from silver.plan import RunPlan, TablePlan
from silver.replay import passed_so_far
from silver.rows import Ending, Written, as_table
from silver.undouble import undouble

# Events for each row of a table, from where on a batch
BULK = 0.05  # is merged by Arrow, which writes the files of its keys anew
DENSE = 0.5  # has MERGE do that too, instead of giving them deletion vectors


@dataclass(frozen=True)
class Batch:
    """A table's new events before and after the gate."""

    events: DataFrame
    passed: DataFrame
    held: int
    hold: Callable[[], None]
    truncation: Truncation | None
    local: bool = False  # the driver holds its events


def refuse(plan: TablePlan, config: TableConfig) -> None:
    """Raises, before anything is written, for a table that silver cannot hold as it is asked to."""
    refuse_collisions(plan.schema)
    if config.history == "scd2" and not plan.schema.keys:
        raise ConfigError(
            f"{plan.name} has no key, so its rows have no history",
            hint=f'take history = "scd2" out of [tables."{plan.name}"], or name its keys there',
        )
    if config.outbox is not None:
        _refuse_outbox(plan, config, config.outbox)


def _refuse_outbox(plan: TablePlan, config: TableConfig, columns: Outbox) -> None:
    if config.history == "scd2":  # an event of the type `history` would have the history's name
        raise ConfigError(
            f"{plan.name} is an outbox, whose events are its history",
            hint=f'take history out of [tables."{plan.name}"]',
        )
    masked = {c.name: c.masked for c in plan.schema.columns}
    for name in columns.required(masked):
        if name not in masked:
            raise ConfigError(
                f"{plan.name} is an outbox, and has no column {name!r} (any more), or it is left out",
                hint=f'name the column in outbox of [tables."{plan.name}"], and not in exclude_columns',
            )
        if masked[name] and name in (columns.id, columns.type, columns.payload):
            raise ConfigError(
                f"{plan.name} is an outbox, and its column {name!r} is masked",
                hint=f'take it out of mask of [tables."{plan.name}"]',
            )


def follow_shape(session: SparkSession, lake: Lake, config: TableConfig, plan: TablePlan) -> None:
    """Bring what silver and the quarantine hold of the table to its columns, where it was not read anew."""
    if plan.since is None:
        return
    fields = delta.current_fields(plan.schema, soft=config.deletes == "soft")
    delta.follow(session, lake.table("silver", plan.schema.name), fields, plan.renamed, keep=_keeps(config))
    held = lake.table("quarantine", plan.schema.name)
    if plan.reshaped and exists(session, held):
        reshape_images(session, held, plan.schema, plan.renamed)


def write_table(
    session: SparkSession,
    lake: Lake,
    config: TableConfig,
    run: RunPlan,
    plan: TablePlan,
    batch: Batch,
    known: SilverTable | None,
) -> tuple[Written, SilverTable]:
    """Bring the history table, where there is one, and then the current-state table to the run's cut."""
    location, soft = lake.table("silver", plan.schema.name), config.deletes == "soft"
    beside: dict[str, int] = {}
    if config.history == "scd2":
        beside[HISTORY] = _write_history(session, lake, config, run, plan, batch, known)
    if config.outbox is not None:
        beside |= _write_outbox(session, lake, config.outbox, run, plan, batch, known)
    written = Written(0, 0, 0)
    rows = None
    if delta.done(session, location, delta.APP_ID) < run.run:
        written = _write_current(session, lake, location, run, plan, batch, config, known)
        rows = written.rows
        if rows is None and plan.since is not None and not soft and known is not None and not plan.repaired:
            rows = known.rows + written.inserted - written.deleted
    if rows is None:
        rows = _count(session, location, soft=soft)
    return written, SilverTable(
        cut=run.cut.at,
        generation=plan.generation,
        batch=plan.batch,
        rows=rows,
        version=version(session, location),
        keys=list(plan.schema.keys),
        events=plan.events - plan.cascaded + (known.events if known is not None and plan.since is not None else 0),
        cascades=plan.cascades if plan.cascades >= 0 or known is None else known.cascades,
        beside=beside,
    )


def _keeps(config: TableConfig) -> bool:
    return config.dropped_columns == "keep"


def _write_current(
    session: SparkSession,
    lake: Lake,
    location: str,
    run: RunPlan,
    plan: TablePlan,
    batch: Batch,
    config: TableConfig,
    known: SilverTable | None,
) -> Written:
    soft = config.deletes == "soft"
    fields = delta.current_fields(plan.schema, soft=soft)
    kept_but = config.exclude_columns if _keeps(config) else None
    fits = plan.since is not None or delta.ensure(session, location, fields, kept_but=kept_but)
    fresh = plan.since is None
    if fresh and (not fits or plan.rekeyed):
        rows = _rows(None, plan, batch, soft=soft)
        delta.overwrite(as_table(rows, plan.schema, soft=soft), location, app=delta.APP_ID, run=run.run)
        return _loaded(session, location, soft=soft)
    held = small.take(session, lake, location) if fresh and batch.local else None
    if fresh and (held.empty if held else snapshot(session, location).numOfFiles() == 0):
        rows = _rows(None, plan, batch, soft=soft)
        if held:
            return held.merge(rows, plan.schema, run=run.run, soft=soft)
        if not (batch.held or batch.truncation or plan.repaired):
            written = bulk.merge(session, lake, location, plan, run.cut.at, run=run.run, soft=soft)
            if written is not None:
                return replace(written, rows=None if soft else written.inserted)
        delta.append(as_table(rows, plan.schema, soft=soft), location, app=delta.APP_ID, run=run.run)
        return _loaded(session, location, soft=soft)
    if plan.repaired:  # a MERGE would update both of two rows with one key
        undouble(session, location, None if fresh else batch.passed, plan.schema, run=run.run)
    ending = _ending(run, plan, batch.truncation)
    # Where a table is replaced, the rows to write without a key are not the batch's alone.
    few = batch.local and ending is None
    held = small.take(session, lake, location) if few else None
    share = 0.0 if fresh or known is None or not plan.events else plan.events / max(known.rows, 1)
    if share > BULK and not (held or ending or batch.held or plan.repaired):
        written = bulk.merge(session, lake, location, plan, run.cut.at, run=run.run, soft=soft)
        if written is not None:
            return written
    current = held.frame() if held else session.read.format("delta").load(location)
    rows = _rows(current, plan, batch, soft=soft)
    if held:
        return held.merge(rows, plan.schema, run=run.run, soft=soft)
    if fresh and batch.held:
        rows = kept(batch.events, batch.passed, rows, plan.schema)
    return merge(
        session, location, rows, plan.schema, run=run.run, soft=soft, ending=ending, few=few, dense=share > DENSE
    )


def _rows(current: DataFrame | None, plan: TablePlan, batch: Batch, *, soft: bool) -> DataFrame:
    """The rows to write (see `silver.current`); `current` is what is there, None for nothing."""
    frames = []
    if plan.schema.keys:
        frames.append(keyed(batch.passed, plan, batch.truncation, soft=soft))
    if plan.schema.counted:
        frames.append(counted(batch.passed, current, plan, batch.truncation, soft=soft))
    return frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])


def _ending(run: RunPlan, plan: TablePlan, truncation: Truncation | None) -> Ending | None:
    if truncation is not None:
        tx_id = "NULL" if truncation.tx_id is None else sql_literal(truncation.tx_id)
        order = "NULL" if truncation.tx_order is None else str(truncation.tx_order)
        return Ending(f"{truncation.ts_ms}L", tx_id, order)
    if plan.since is None:
        return Ending(f"{run.cut.ts_ms}L", "NULL", "NULL")
    return None


def _write_history(
    session: SparkSession,
    lake: Lake,
    config: TableConfig,
    run: RunPlan,
    plan: TablePlan,
    batch: Batch,
    known: SilverTable | None,
) -> int:
    """The version of the history table."""
    location = lake.table("silver", plan.schema.name, HISTORY)
    if delta.done(session, location, delta.APP_ID) >= run.run:
        return version(session, location)
    renamed = None if plan.since is None else plan.renamed
    delta.ensure_history(session, location, plan.schema, generation=plan.generation, renamed=renamed)
    unused = delta.done(session, location, delta.APP_ID) < 0
    if unused and known is not None and plan.since is not None:
        current = session.read.format("delta").load(lake.table("silver", plan.schema.name))
        seed(session, location, current, plan.schema, soft=config.deletes == "soft")
    if not unused and (behind := _left_behind(plan, known)) is not None:
        _follow_up(session, lake, location, config, run, plan, behind)
    merge_history(
        session,
        location,
        batch.passed,
        plan,
        run=run.run,
        truncate=batch.truncation is not None,
        gone_ms=run.cut.ts_ms,
    )
    return version(session, location)


def _left_behind(plan: TablePlan, known: SilverTable | None) -> Position | None:
    """Where silver stood, if bronze was ahead of it when the table was read anew: it lacks what came in between."""
    return known.cut if known is not None and plan.since is None and known.cut < plan.start else None


def _follow_up(
    session: SparkSession,
    lake: Lake,
    location: str,
    config: TableConfig,
    run: RunPlan,
    plan: TablePlan,
    behind: Position,
) -> None:
    """Bring a history from `behind` to where a generation begins, by what bronze holds of that: no snapshot tells what
    the rows had been in between.

    An image that lacks columns is left out: what would fill it may be why the table was read anew.
    """
    before = replace(plan, since=behind, partial=False, renamed=())
    events = passed_so_far(session, lake, before, plan.start)
    events = events.where("source.absent IS NULL AND source.before_absent IS NULL")
    truncate = config.truncate == "apply" and not events.where("op = 't'").isEmpty()
    merge_history(session, location, events, before, run=run.run, truncate=truncate, app=BEFORE)


def _write_outbox(
    session: SparkSession,
    lake: Lake,
    columns: Outbox,
    run: RunPlan,
    plan: TablePlan,
    batch: Batch,
    known: SilverTable | None,
) -> dict[str, int]:
    """The versions of the outbox's event tables, by their suffix. Only inserts count, whose images are whole."""
    before = {} if known is None else {suffix: v for suffix, v in known.beside.items() if suffix != HISTORY}
    late = known is not None and plan.since is not None and not before  # an outbox only since this run
    events = batch.passed
    if late:
        events = passed_so_far(session, lake, replace(plan, since=None, partial=False), run.cut.at)
    elif (behind := _left_behind(plan, known)) is not None:
        events = passed_so_far(session, lake, replace(plan, start=behind, partial=False), run.cut.at)
    return before | outbox.write_events(session, lake, columns, events, plan.schema, run=run.run, again=late)


def _loaded(session: SparkSession, location: str, *, soft: bool) -> Written:
    rows = _count(session, location, soft=soft)
    return Written(rows, 0, 0, rows)


def _count(session: SparkSession, location: str, *, soft: bool) -> int:
    rows = session.read.format("delta").load(location)
    return rows.where(f"NOT {DELETED}").count() if soft else rows.count()
