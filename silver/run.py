"""One silver run: gate every table's new events, then bring all tables to one cut.

What is promised, and by what: nothing of a batch passes in any table when a gate stops in one, since all gates have
passed before the first merge. A run killed at any moment is finished by the next one as it was planned, since its plan
is written down before the first merge and every merge is made once (`silver.delta.once`). Tables without new events
cost nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession

from lakeward import crash
from lakeward.config import Config
from lakeward.kernel import latest_version
from lakeward.lake import Lake
from lakeward.position import Checkpoint
from lakeward.spark import INTERPRETED_ROWS_MAX, evaluate_for
from lakeward.state import SilverState, SilverTable, load_bronze, load_silver, save_silver
from silver import delta
from silver.cascades.run import carry_out
from silver.events import truncations
from silver.fill import whole_events
from silver.local import Held
from silver.plan import RunPlan, TablePlan, plan_run
from silver.table import Batch, follow_shape, refuse, write_table

MERGES_AT_ONCE = 4
GATES_AT_ONCE = 4
Done = TypeVar("Done")
log = logging.getLogger(__name__)


class Gated(Protocol):
    """What a gate gives back: the events that passed, how many did not, and how to put those into quarantine."""

    @property
    def passed(self) -> DataFrame: ...
    @property
    def held(self) -> int: ...
    def hold(self) -> None: ...


class Gate(Protocol):
    def __call__(self, frame: DataFrame, plan: TablePlan, run: int) -> Gated: ...


@dataclass(frozen=True)
class TableReport:
    """What a run did to one table. Rows of the current-state table; events held back by the gate."""

    inserted: int
    updated: int
    deleted: int
    held: int
    rows: int
    seconds: float


@dataclass
class SilverReport:
    """What a run did. `run` is 0 where there was nothing to do; `resumed` is a killed run that was finished first."""

    run: int = 0
    cut: Checkpoint | None = None
    resumed: int | None = None
    tables: dict[str, TableReport] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)  # tables that took no part → bronze's status


def run(
    spark: SparkSession, lake: Lake, config: Config, *, now_ms: int | None = None, gate: Gate | None = None
) -> SilverReport:
    """Bring silver to bronze's checkpoint. `gate` replaces the gate of `lakeward.quality` (tests).

    Raises GateStoppedError when a gate stops; nothing has been merged then.
    """
    report = SilverReport()
    quality = _Quality(lake, config)
    judge = gate or quality
    state = load_silver(lake)
    if state.intent is not None:
        plan = RunPlan.from_json(state.intent)
        log.info("silver: finishing run %d, which did not end", plan.run)
        report.resumed = plan.run
        _execute(spark, lake, config, state, plan, judge, report)
    bronze = load_bronze(lake)

    def bronze_version(schema: Any) -> int:
        return latest_version(spark, lake.table("bronze", schema.name))

    next_plan = plan_run(bronze, state, bronze_version)
    if next_plan is not None:
        next_plan = carry_out(spark, lake, config, bronze, state, next_plan)
        _execute(spark, lake, config, state, next_plan, judge, report)
    quality.publish(state.run)
    report.cut = state.cut
    report.waiting = {n: t.status for n, t in bronze.tables.items() if t.status != "streaming"}
    return report


def _execute(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    state: SilverState,
    plan: RunPlan,
    gate: Gate,
    report: SilverReport,
) -> None:
    for table in plan.tables:
        refuse(table, config.table(table.schema.name))
    batches = _gated(spark, lake, config, plan, gate)
    crash.point("silver.before_intent")
    if plan.tables and state.intent is None:
        state.intent = plan.to_json()
        save_silver(lake, state)
    crash.point("silver.after_intent")
    results = _merge_all(spark, lake, config, state, plan, batches, report)
    crash.point("silver.after_merges")
    state.tables |= results
    for name in plan.idle:
        if name in state.tables:
            state.tables[name].cut = plan.cut.at
    state.run, state.cut, state.intent = plan.run, plan.cut, None
    save_silver(lake, state)
    crash.point("silver.after_state")
    report.run = plan.run


def _gated(spark: SparkSession, lake: Lake, config: Config, plan: RunPlan, gate: Gate) -> dict[str, Batch]:
    """Every table's events after its gate. Raises GateStoppedError, and then nothing has been written."""
    if not plan.tables:
        return {}
    small, large = (evaluate_for(delta.sibling(spark), rows) for rows in (0, INTERPRETED_ROWS_MAX + 1))
    held = Held()

    def one(table: TablePlan) -> tuple[str, tuple[DataFrame, Gated, bool]]:
        session = small if table.events <= INTERPRETED_ROWS_MAX else large
        here = held.take(session, lake, table, plan.cut.at)
        events = whole_events(session, lake, table, plan.cut.at) if here is None else here
        return table.name, (events, gate(events, table, plan.run), here is not None)

    judged = dict(_at_once(spark, "gate", GATES_AT_ONCE, one, plan.tables))
    follow = [t.name for t in plan.tables if t.truncated and config.table(t.schema.name).truncate == "apply"]
    found = truncations({name: judged[name][1].passed for name in follow})
    return {n: Batch(events, g.passed, g.held, g.hold, found.get(n), here) for n, (events, g, here) in judged.items()}


def _merge_all(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    state: SilverState,
    plan: RunPlan,
    batches: dict[str, Batch],
    report: SilverReport,
) -> dict[str, SilverTable]:
    """Merge every table of the plan, a few at a time. Raises the first error once all have ended."""
    sessions = _Sessions(spark)

    def one(table: TablePlan) -> tuple[str, SilverTable]:
        began = time.monotonic()
        batch = batches[table.name]
        known = state.tables.get(table.name)
        rows = table.events + (known.rows if known is not None else 0)
        with sessions.borrow(rows) as session, delta.naming(f"silver's {table.name}"):
            follow_shape(session, lake, config.table(table.schema.name), table)
            batch.hold()
            written, result = write_table(session, lake, config.table(table.schema.name), plan, table, batch, known)
        seconds = time.monotonic() - began
        counts = written.inserted, written.updated, written.deleted
        report.tables[table.name] = TableReport(*counts, held=batch.held, rows=result.rows, seconds=seconds)
        crash.point("silver.between_merges")
        return table.name, result

    if len(plan.tables) < 2:
        return dict(map(one, plan.tables))
    return dict(_at_once(spark, "silver", MERGES_AT_ONCE, one, plan.tables))


def _at_once(
    spark: SparkSession, name: str, most: int, work: Callable[[TablePlan], Done], tables: Sequence[TablePlan]
) -> list[Done]:
    """`work` of each table, `most` at a time, in threads with the caller's job group and properties.

    Raises the first table's error once all have ended.
    """
    with ThreadPoolExecutor(min(most, len(tables)), name) as pool:
        # Each table gets a copy of the properties: what is wrapped once shares one, and Spark keeps a query's number
        # in it ("Cannot parse null string" where another thread has just taken it out).
        running = [pool.submit(inheritable_thread_target(spark)(work), table) for table in tables]
    return [done.result() for done in running]


class _Sessions:
    """Sessions for merges, each used by one thread at a time: a session's configuration names the merge it makes."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._idle: dict[bool, SimpleQueue[SparkSession]] = {True: SimpleQueue(), False: SimpleQueue()}

    @contextmanager
    def borrow(self, rows: int) -> Iterator[SparkSession]:
        """One that suits a merge of `rows` rows."""
        idle = self._idle[rows <= INTERPRETED_ROWS_MAX]
        try:
            session = idle.get_nowait()
        except Empty:
            session = evaluate_for(delta.sibling(self._spark), rows)
        try:
            yield session
        finally:
            idle.put(session)


class _Quality:
    """The gate of `lakeward.quality`, and the pages of what it found in a run."""

    def __init__(self, lake: Lake, config: Config) -> None:
        self._lake, self._config = lake, config
        self._results: list[Any] = []

    def __call__(self, frame: DataFrame, plan: TablePlan, run: int) -> Gated:
        # Great Expectations takes seconds to import, and a run without new events does not need it.
        from lakeward.quality import gate

        result = gate(
            frame,
            schema=plan.schema,
            layer="silver",
            config=self._config,
            lake=self._lake,
            run=run,
            begun=(plan.start, plan.generation),
            rows=plan.events,
        )
        self._results += result.results
        return result

    def publish(self, run: int) -> None:
        if self._results:
            from lakeward.quality import publish_docs

            publish_docs(self._results, self._config, self._lake, run)
            self._results = []
