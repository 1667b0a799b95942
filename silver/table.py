"""One table's part of a run, from its gated events to its Delta tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from lakeward.config import TableConfig
from lakeward.delta import snapshot, version
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake
from lakeward.names import sql_literal
from lakeward.state import SilverTable
from silver import delta
from silver.columns import DELETED, refuse_collisions
from silver.current import counted, kept, keyed
from silver.events import Truncation
from silver.history import merge_history, seed
from silver.merge import merge
from silver.plan import RunPlan, TablePlan
from silver.rows import Ending, Written, as_table


@dataclass(frozen=True)
class Batch:
    """A table's new events before and after the gate."""

    events: DataFrame
    passed: DataFrame
    held: int
    hold: Callable[[], None]
    truncation: Truncation | None


def refuse(plan: TablePlan, config: TableConfig) -> None:
    """Raises, before anything is written, for a table that silver cannot hold as it is asked to."""
    refuse_collisions(plan.schema)
    if config.history == "scd2" and not plan.schema.keys:
        raise ConfigError(
            f"{plan.name} has no key, so its rows have no history",
            hint=f'take history = "scd2" out of [tables."{plan.name}"], or name its keys there',
        )


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
    if config.history == "scd2":
        _write_history(session, lake, config, run, plan, batch, known)
    location, soft = lake.table("silver", plan.schema.name), config.deletes == "soft"
    written = Written(0, 0, 0)
    rows = None
    if delta.done(session, location, delta.APP_ID) < run.run:
        written = _write_current(session, location, run, plan, batch, soft=soft)
        if plan.since is not None and not soft and known is not None:
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
        events=plan.events + (known.events if known is not None and plan.since is not None else 0),
    )


def _write_current(
    session: SparkSession, location: str, run: RunPlan, plan: TablePlan, batch: Batch, *, soft: bool
) -> Written:
    fits = delta.ensure(session, location, delta.current_fields(plan.schema, soft=soft))
    if not fits and plan.since is not None:
        raise TerminalError(
            f"{plan.name} has another shape in silver than in bronze, without having been read anew",
            hint=f"lakeward resnapshot {plan.name}",
        )
    fresh = plan.since is None
    if fresh and (not fits or plan.rekeyed):
        rows = _rows(None, plan, batch, soft=soft)
        delta.overwrite(as_table(rows, plan.schema, soft=soft), location, app=delta.APP_ID, run=run.run)
        return Written(_count(session, location, soft=soft), 0, 0)
    current = session.read.format("delta").load(location)
    if fresh and snapshot(session, location).numOfFiles() == 0:
        rows = _rows(None, plan, batch, soft=soft)
        delta.append(as_table(rows, plan.schema, soft=soft), location, app=delta.APP_ID, run=run.run)
        return Written(_count(session, location, soft=soft), 0, 0)
    rows = _rows(current, plan, batch, soft=soft)
    if fresh and batch.held:
        rows = kept(batch.events, batch.passed, rows, plan.schema)
    return merge(
        session, location, rows, plan.schema, run=run.run, soft=soft, ending=_ending(run, plan, batch.truncation)
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
) -> None:
    location = lake.table("silver", plan.schema.name, "__history")
    if delta.done(session, location, delta.APP_ID) >= run.run:
        return
    delta.ensure_history(session, location, plan.schema, generation=plan.generation)
    unused = delta.done(session, location, delta.APP_ID) < 0
    if unused and known is not None and plan.since is not None:
        current = session.read.format("delta").load(lake.table("silver", plan.schema.name))
        seed(session, location, current, plan.schema, soft=config.deletes == "soft")
    merge_history(
        session,
        location,
        batch.passed,
        plan,
        run=run.run,
        truncate=batch.truncation is not None,
        gone_ms=run.cut.ts_ms,
    )


def _count(session: SparkSession, location: str, *, soft: bool) -> int:
    rows = session.read.format("delta").load(location)
    return rows.where(f"NOT {DELETED}").count() if soft else rows.count()
