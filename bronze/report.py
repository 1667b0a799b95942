"""What a run of bronze did, for whoever started it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakeward.position import Checkpoint
from lakeward.state import BronzeState


@dataclass(frozen=True)
class BronzeReport:
    """What a run did: events by table, and where bronze stands after it."""

    events: dict[str, int]
    checkpoint: Checkpoint | None
    zero_dates: int
    replaced: int  # text values that held bytes which are no text
    seconds: float
    warnings: tuple[str, ...] = field(default=())


def report(before: BronzeState, after: BronzeState, seconds: float, warnings: Sequence[str]) -> BronzeReport:
    """The difference between two states of bronze."""
    had = {name: table.rows for name, table in before.tables.items()}
    events = {n: t.rows - had.get(n, 0) for n, t in after.tables.items()}
    return BronzeReport(
        {n: e for n, e in events.items() if e},
        after.checkpoint,
        after.zero_dates - before.zero_dates,
        after.replaced - before.replaced,
        seconds,
        tuple(warnings),
    )
