"""How often a run that goes on publishes gold: `[gold] every`.

A publication is a snapshot of each table that changed, and of the freshness table, whose metadata files list all that
are kept. So bronze and silver follow the source in each round, and gold waits where it has published lately. The first
round of a run always publishes: what an earlier one left is finished there.
"""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Of one run. `every`: seconds from the begin of one publication to that of the next; 0: in each round."""

    def __init__(self, every: float) -> None:
        self.every = every
        self._began: float | None = None  # the last publication, where it ended well
        self.held = False  # whether silver has what gold was made to wait with

    def left(self) -> float:
        """Seconds for which gold is to wait."""
        return 0.0 if self._began is None else max(0.0, self._began + self.every - _now())

    def publish(self, gold: Callable[[], bool]) -> None:
        """Run `gold`, which says whether there was anything to publish. One that fails is not to wait after that."""
        began, before, self._began = _now(), self._began, None
        self._began = began if gold() else before
        self.held = False


def _now() -> float:
    return time.monotonic()
