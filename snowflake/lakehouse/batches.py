"""When a MERGE into Snowflake begins: by rows and by seconds.

A warehouse bills by the time it runs, so changes are worth gathering; a batch that grows without bound is not worth
retrying. Both bounds are [snowflake] sink_batch_rows and sink_batch_seconds. Pure, but for the clock that is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


def steps(rows: Mapping[int, int], last: int, rows_max: int) -> list[int]:
    """The versions of silver to stop at on the way to `last`: `rows` changes by version, at most `rows_max` a batch.

    A commit of silver is one state of the table, and is never cut in two, however large it is.
    """
    stops: list[int] = []
    held = 0
    before: int | None = None
    for version in sorted(v for v in rows if v <= last):
        if before is not None and held + rows[version] > rows_max:
            stops.append(before)
            held = 0
        held += rows[version]
        before = version
    return [*stops, last]


@dataclass
class Waiting:
    """Changes that silver has and Snowflake does not, in a run that goes on.

    They are due at its start: an earlier run may have ended while some waited, and only Snowflake knows.
    """

    rows_max: int
    seconds_max: float
    rows: int = 0
    since: float | None = None  # when the first of them came
    unknown: bool = True  # until the first batch of this run

    def add(self, rows: int, now: float) -> None:
        if rows and self.since is None:
            self.since = now
        self.rows += rows

    def due(self, now: float) -> bool:
        """Whether they have been enough, or long enough."""
        if self.unknown:
            return True
        return self.since is not None and (self.rows >= self.rows_max or now - self.since >= self.seconds_max)

    def done(self) -> None:
        self.rows, self.since, self.unknown = 0, None, False
