"""Brings single rows up to date from bronze, after the quarantine has released events of theirs.

A row's state is its last event that passed. An event released late is seldom the last, so it is not applied: the rows
it touched are computed anew from everything of the generation in bronze that is not held, up to the table's cut. Doing
that again changes nothing.
"""

from __future__ import annotations

import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward.config import Config
from lakeward.delta import version
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.position import Position
from lakeward.schema import TableSchema
from lakeward.state import load_bronze, load_silver, save_silver
from silver import delta, outbox
from silver.current import counted, keyed
from silver.events import truncations
from silver.fill import whole_events
from silver.history import HISTORY, merge_recomputed
from silver.merge import merge
from silver.plan import TablePlan, renames

APP_ID = "lakeward-silver-replay"
PLACE = ("epoch", "file", "pos", "row", "generation", "cascade")


def recompute(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    schema: TableSchema,
    keys: DataFrame,
    *,
    held: DataFrame | None = None,
) -> None:
    """Bring the rows with `keys` to what bronze's passed events say. A history follows from now on; its past stays.

    `keys` has the key's columns, all columns for a table without a key. `held` names the events that have not passed
    [epoch, file, pos, row, generation, cascade]; by default it is what the table's quarantine holds. A table
    that silver does not have in its present generation is left to the next run.

    Raises TerminalError when a killed run has to be finished first.
    """
    state = load_silver(lake)
    if state.intent is not None:
        raise TerminalError("a silver run has not ended", hint="lakeward silver, and then replay again")
    known, table = state.tables.get(str(schema.name)), load_bronze(lake).tables.get(str(schema.name))
    if known is None or table is None or table.start is None or known.generation != table.generation:
        return
    plan = TablePlan(
        schema=schema,
        generation=table.generation,
        start=table.start,
        since=None,
        rekeyed=False,
        batch=known.batch,
        bronze_version=version(spark, lake.table("bronze", schema.name)),
        partial=table.partial > 0,
        cascades=known.cascades,
        renamed=renames(table.renamed),
    )
    settings, location = config.table(schema.name), lake.table("silver", schema.name)
    soft, session = settings.deletes == "soft", delta.sibling(spark)
    passed = passed_so_far(session, lake, plan, known.cut, held)
    truncation = truncations({plan.name: passed}).get(plan.name) if settings.truncate == "apply" else None
    number = time.time_ns()
    if settings.outbox is not None:
        app = f"{outbox.APP_ID}-replay"
        known.beside |= outbox.write_events(
            session, lake, settings.outbox, passed, schema, run=number, app=app, again=True
        )
    frames = []
    if schema.keys:
        rows = keyed(passed, plan, truncation, soft=soft, only=keys)
        if settings.history == "scd2":
            history = lake.table("silver", schema.name, HISTORY)
            merge_recomputed(session, history, rows, schema, app=APP_ID, run=number)
            known.beside[HISTORY] = version(session, history)
        frames.append(rows)
    if schema.counted:
        current = session.read.format("delta").load(location)
        frames.append(counted(passed, current, plan, truncation, soft=soft, only=keys))
    rows = frames[0] if len(frames) == 1 else frames[0].unionByName(frames[1])
    merge(session, location, rows, schema, run=number, soft=soft, ending=None, app=APP_ID)
    now = session.read.format("delta").load(location)
    known.rows = now.where("NOT __deleted").count() if soft else now.count()
    known.version = version(session, location)
    save_silver(lake, state)


def passed_so_far(
    session: SparkSession, lake: Lake, plan: TablePlan, cut: Position, held: DataFrame | None = None
) -> DataFrame:
    """A table's events from `plan.since`, or its snapshot, up to `cut` but those in `held` [epoch, file, pos, row,
    generation, cascade]: by default what its quarantine holds."""
    events = whole_events(session, lake, plan, cut)
    return _without(events, held if held is not None else _quarantined(session, lake, plan.schema))


def _without(events: DataFrame, held: DataFrame | None) -> DataFrame:
    if held is None:
        return events
    named = held.select(*(F.col(c).alias(f"held_{c}") for c in PLACE))
    return events.join(named, on=[F.expr(f"source.{c} <=> held_{c}") for c in PLACE], how="left_anti")


def _quarantined(spark: SparkSession, lake: Lake, schema: TableSchema) -> DataFrame | None:
    # Great Expectations takes seconds to import, and whoever names the held events does not need it.
    from lakeward.quality import held_positions

    return held_positions(spark, lake, schema.name)
