"""When maintenance is due: `_lakeward/maintenance.json` says when it was last done, so that a restart forgets nothing.

The command line alone writes it, under the lake's lock. A lake that never was maintained is due when it has been
counted on for as long: its first run has nothing to put together yet. One that failed is tried again after an hour,
and not at every round of a run that goes on.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

from lakeward.errors import TerminalError
from lakeward.lake import Lake

DOCUMENT = "maintenance"
FORMAT = 1
HOUR_MS = 3_600_000


@dataclass
class MaintenanceState:
    """maintenance.json."""

    since_ms: int  # when every table was last maintained; of a lake that never was, when the count began
    done: bool = False  # whether it ever was
    failed_ms: int | None = None  # when it last failed since then, and why
    reason: str | None = None


def load_maintenance(lake: Lake) -> MaintenanceState | None:
    """The state of `lake`, or None where none was counted. Raises TerminalError for another version's document."""
    doc = lake.read(DOCUMENT)
    if doc is None:
        return None
    if doc.pop("format", None) != FORMAT:
        raise TerminalError(
            f"{lake.path('_lakeward', DOCUMENT + '.json')} is of another version of Lakeward",
            hint="run the version that wrote it, or delete that file: it holds but when maintenance was last done",
        )
    return MaintenanceState(**doc)


def due(lake: Lake, every_hours: float, now_ms: int | None = None) -> bool:
    """Whether maintenance is to be done now, being done every so many hours; never with 0. Begins to count on a lake
    that has no count."""
    if not every_hours:
        return False
    now, state, every = now_ms or _now(), load_maintenance(lake), every_hours * HOUR_MS
    if state is None:
        _save(lake, MaintenanceState(now))
        return False
    if now - state.since_ms < every:
        return False
    return state.failed_ms is None or now - state.failed_ms >= min(HOUR_MS, every)


def note_done(lake: Lake, now_ms: int | None = None) -> None:
    """Every table was maintained: the count begins anew."""
    _save(lake, MaintenanceState(now_ms or _now(), done=True))


def note_failed(lake: Lake, reason: str, now_ms: int | None = None) -> None:
    """It was tried, and `reason` is why it failed."""
    state = load_maintenance(lake) or MaintenanceState(now_ms or _now())
    state.failed_ms, state.reason = now_ms or _now(), reason
    _save(lake, state)


def _now() -> int:
    return int(time.time() * 1000)


def _save(lake: Lake, state: MaintenanceState) -> None:
    lake.write(DOCUMENT, {"format": FORMAT, **asdict(state)})
