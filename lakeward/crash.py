"""Named moments at which a test can kill the process, so that each window between two durable writes is proved.

`LAKEWARD_CRASH_AT=silver.after_intent` kills the process with SIGKILL the first time it passes that point;
`silver.between_merges#3` at the third. A process that dies so runs no handler and flushes nothing, like one that lost
its machine. Unset, a point costs one look at the environment.
"""

from __future__ import annotations

import collections
import os
import signal
import threading

VARIABLE = "LAKEWARD_CRASH_AT"

_passes: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()


def point(name: str) -> None:
    """Die here, if the environment says so."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    target, _, number = wanted.partition("#")
    if target != name:
        return
    with _lock:
        _passes[name] += 1
        reached = _passes[name] >= int(number or 1)
    if reached:
        os.kill(os.getpid(), signal.SIGKILL)
