"""What one silver run does, decided from the two state documents alone and written down before anything is merged.

A plan names everything its result depends on: the bronze table's version, the range of positions, the shape. So a
run that was killed is finished later as it was meant, whatever bronze has done since (new batches, a new generation,
another shape).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeState, BronzeTable, SilverState


@dataclass(frozen=True)
class TablePlan:
    """One table's part of a run: its events in [since, cut), or its whole generation where `since` is None."""

    schema: TableSchema
    generation: int
    start: Position  # the snapshot's position; the stream's events count from it on
    since: Position | None  # the table's last cut; None where this generation replaces what is there
    rekeyed: bool  # what is there was merged by other keys, so it is written anew and not merged into
    batch: int  # bronze's last batch of this table
    bronze_version: int  # of the bronze Delta table
    events: int = 0  # about how many there are
    partial: bool = False  # some lack columns
    truncated: bool = True  # some are a TRUNCATE
    repaired: bool = False  # some are a repair's
    version: int = -1  # of the silver Delta table before the run
    reshaped: bool = False  # columns were renamed, dropped or widened since
    renamed: tuple[tuple[str, str], ...] = ()  # columns of the generation, in turn: (old, new)

    @property
    def name(self) -> str:
        return str(self.schema.name)

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "schema": self.schema.to_json(),
            "start": self.start.to_json(),
            "since": self.since.to_json() if self.since else None,
            "renamed": [list(pair) for pair in self.renamed],
        }

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> TablePlan:
        return cls(
            **{
                **doc,
                "schema": TableSchema.from_json(doc["schema"]),
                "start": Position.from_json(doc["start"]),
                "since": Position.from_json(doc["since"]) if doc["since"] else None,
                "renamed": renames(doc.get("renamed", ())),
            }
        )


@dataclass(frozen=True)
class RunPlan:
    """One run: every table that streams stands at `cut` after it. `idle` tables have no new events."""

    run: int
    cut: Checkpoint
    tables: tuple[TablePlan, ...]
    idle: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "cut": self.cut.to_json(),
            "batch": max((t.batch for t in self.tables), default=0),
            "tables": [t.to_json() for t in self.tables],
            "idle": list(self.idle),
        }

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> RunPlan:
        return cls(
            doc["run"],
            Checkpoint.from_json(doc["cut"]),
            tuple(TablePlan.from_json(t) for t in doc["tables"]),
            tuple(doc["idle"]),
        )


def plan_run(bronze: BronzeState, silver: SilverState, version_of: Callable[[TableSchema], int]) -> RunPlan | None:
    """The next run, or None where silver already stands where bronze does.

    `version_of` looks up the version of a bronze Delta table; it is asked only for tables with new events.
    """
    if bronze.checkpoint is None:
        return None
    tables, idle = [], []
    for name, table in sorted(bronze.tables.items()):
        if not takes_part(table, silver, bronze.checkpoint.at):
            continue
        if plan := _plan_table(table, silver, version_of):
            tables.append(plan)
        elif table.status == "streaming":
            idle.append(name)
    if not tables and silver.cut == bronze.checkpoint:
        return None
    return RunPlan(silver.run + 1, bronze.checkpoint, tuple(tables), tuple(idle))


def takes_part(table: BronzeTable, silver: SilverState, cut: Position) -> bool:
    """Whether bronze holds all of a table's events before `cut`, or all that there will ever be.

    A stopped table keeps what it has. It goes on to its last event where its generation is in silver, or was whole
    when the source dropped it; not where it was to be read again first, since no event tells some of its values.
    """
    if table.status == "streaming":
        return True
    if table.status != "stopped" or table.unfinished:
        return False
    known = silver.tables.get(str(table.name))
    if known is not None and known.generation == table.generation:
        return True
    return table.dropped and table.start is not None and table.high is not None and table.high <= cut


def _plan_table(table: BronzeTable, silver: SilverState, version_of: Callable[[TableSchema], int]) -> TablePlan | None:
    known = silver.tables.get(str(table.name))
    same = known if known is not None and known.generation == table.generation else None
    if same is not None and table.batch <= same.batch:
        return None
    assert table.start is not None, f"{table.name} streams without a snapshot's position"
    return TablePlan(
        schema=table.schema,
        generation=table.generation,
        start=table.start,
        since=same.cut if same else None,
        rekeyed=known is not None and _called_now(known.keys, table) != list(table.schema.keys),
        batch=table.batch,
        bronze_version=version_of(table.schema),
        events=table.rows - (same.events if same else 0),
        partial=table.partial > (same.batch if same else 0),
        truncated=table.truncated > (same.batch if same else 0),
        repaired=table.repaired > (same.batch if same else 0),
        version=same.version if same else -1,
        reshaped=table.reshaped > (same.batch if same else 0),
        renamed=renames(table.renamed),
    )


def renames(pairs: Iterable[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Pairs of names as they are read from JSON."""
    return tuple((old, new) for old, new in pairs)


def _called_now(names: Sequence[str], table: BronzeTable) -> list[str]:
    found = list(names)
    for old, new in table.renamed:
        found = [new if name == old else name for name in found]
    return found
