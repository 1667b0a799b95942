"""Named moments at which a test may kill the process, so that every crash window has a name and a test."""

from __future__ import annotations

import os
import signal
from collections import Counter

_passes: Counter[str] = Counter()


def point(name: str) -> None:
    """SIGKILL this process when LAKEWARD_CRASH_AT is `name`, or `name#3` at the third time it is passed."""
    wanted = os.environ.get("LAKEWARD_CRASH_AT")
    if wanted is None:
        return
    _passes[name] += 1
    at, _, times = wanted.partition("#")
    if at == name and _passes[name] == int(times or 1):
        os.kill(os.getpid(), signal.SIGKILL)
