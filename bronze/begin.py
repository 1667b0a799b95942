"""`--from`: begins tables at a point in time instead of a snapshot, and adds earlier events to what bronze holds.

A table that bronze has never read begins at the point, without a snapshot. Of a table that it has, the events from the
point up to the first one it holds (`BronzeTable.since`) are added to the change log; silver, which counts from the
table's start, never reads them. What is before a table's `since` is not in bronze and what is after it is not read
again, so nothing is doubled; and the range is written down first (`BronzeState.earlier`), so a killed run goes on.
See docs/adr/0005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakeward.errors import TerminalError, UsageError
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeState, BronzeTable


@dataclass(frozen=True)
class Begin:
    """What the command line asked for: the point as it was written, and tables (all where there is none)."""

    point: str
    tables: tuple[str, ...] = ()


def begin(state: BronzeState, found: Sequence[TableSchema], asked: Begin, at: Checkpoint) -> list[str]:
    """Put what `asked` means into `state`; what there is to say about it.

    Raises UsageError for a table that the source has not, and for a point that comes after what is read; TerminalError
    where earlier events cannot be told from the ones that bronze holds.
    """
    _refuse_in_a_failover(state)
    known = {str(s.name): s for s in found}
    unknown = [t for t in asked.tables if t not in known]
    if unknown:
        raise UsageError(
            f"--table {', '.join(unknown)} is not followed", hint=f"followed are: {', '.join(sorted(known))}"
        )
    if state.checkpoint is None:
        state.checkpoint = at
    said: list[str] = []
    earlier: dict[str, list[dict[str, int]]] = {}
    for name in asked.tables or sorted(known):
        table = state.tables.get(name)
        if table is None or table.generation == 0:
            table = state.tables[name] = _begun(known[name], asked, at)
            until: Position | None = state.checkpoint.at
        else:
            until = _earliest(table, state.epoch)
        if until is not None and at.at < until:
            earlier[name] = [at.at.to_json(), until.to_json()]
        elif table.begun is None or table.start != at.at:
            said.append(f"bronze holds every event of {name} from {until} on already: nothing is added before")
    if earlier:
        state.earlier = {"at": at.to_json(), "tables": earlier}
    return said


@dataclass(frozen=True)
class Earlier:
    """How far the earlier events have been read, and of which tables which stretches."""

    at: Position
    spans: dict[str, tuple[Position, Position]]

    @property
    def until(self) -> Position:
        return max(stop for _, stop in self.spans.values())

    @classmethod
    def of(cls, state: BronzeState) -> Earlier | None:
        """What is left to read; None where nothing is."""
        if state.earlier is None:
            return None
        spans = {n: (Position.from_json(a), Position.from_json(b)) for n, (a, b) in state.earlier["tables"].items()}
        return cls(Position.from_json(state.earlier["at"]), spans)._left()

    def after(self, end: Mapping[str, Any]) -> Earlier | None:
        return Earlier(Position.from_json(dict(end)), self.spans)._left()

    def _left(self) -> Earlier | None:
        return self if self.at < self.until else None


def finish_earlier(state: BronzeState) -> bool:
    """Note that what was to be added is there; whether anything was to be."""
    if state.earlier is None:
        return False
    for name, (first, _) in state.earlier["tables"].items():
        state.tables[name].since = Position.from_json(first)
    state.earlier = None
    return True


def _begun(schema: TableSchema, asked: Begin, at: Checkpoint) -> BronzeTable:
    """A table that needs no chunk of a snapshot, and streams once the stream has passed the position of now."""
    return BronzeTable(
        schema,
        status="snapshot",
        generation=1,
        start=at.at,
        since=at.at,
        chunks_done=[0],
        begun={"asked": asked.point, "generation": 1},
    )


def _earliest(table: BronzeTable, epoch: int) -> Position:
    since = table.since or (table.start if table.generation == 1 else None)
    if since is None:
        raise TerminalError(
            f"from where on bronze holds {table.name}'s events is not known: an earlier version of Lakeward wrote them",
            hint="name the other tables with --table",
        )
    if since.epoch != epoch:
        raise TerminalError(
            f"bronze holds {table.name} from {since} on, of a server before this one, whose log has what is earlier",
            hint="name the other tables with --table",
        )
    return since


def _refuse_in_a_failover(state: BronzeState) -> None:
    if state.checkpoint and state.seen_from(state.checkpoint.at):
        raise TerminalError(
            "bronze has not yet caught up with the server it went over to",
            hint="run `lakeward bronze` first, and then again with --from",
        )
