"""Waits for a source that went away, with growing pauses, and gives up after a bounded number of them."""

from __future__ import annotations

import sys
from time import sleep

from lakeward.errors import ConnectionLostError

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)  # a server's restart takes less, a failover of its address about as much


class Outage:
    """One run's failures in a row. What was committed in between ends the row."""

    def __init__(self, server: str) -> None:
        self.server = server  # its address
        self.tries = 0
        self._batch: int | None = None

    def wait(self, error: ConnectionLostError, batch: int) -> None:
        """Pause before the next try, and say so; `batch` is the last one committed. Raises `error` after the last."""
        if batch != self._batch:
            self.tries, self._batch = 0, batch
        if self.tries == len(PAUSES_S):
            error.hint = "see whether the source runs and can be reached, then run the same command again"
            error.facts.setdefault("server", self.server)
            error.facts["tried"] = f"{self.tries} times more, over {sum(PAUSES_S):g} s"
            raise error
        pause = PAUSES_S[self.tries]
        self.tries += 1
        print(
            f"the source was lost ({error.message}); trying again in {pause:g} s ({self.tries} of {len(PAUSES_S)})",
            file=sys.stderr,
        )
        sleep(pause)
