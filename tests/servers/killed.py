"""The named moments of the stages of a run, and a stage that dies at one of them, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from lakeward import crash

STREAM = [f"bronze.{m}" for m in ("before_intent", "after_intent", "between_commits", "after_commits", "after_state")]
SILVER = [
    f"silver.{m}"
    for m in ("before_intent", "after_intent", "before_commit", "between_merges", "after_merges", "after_state")
]
GOLD = ["gold.before_intent", "gold.after_intent", "gold.between_tables", "gold.after_tables", "gold.after_freshness"]


class Killed(BaseException):
    """Stands for SIGKILL: nothing may catch it."""


@contextmanager
def killed_at(moment: str) -> Iterator[None]:
    """What runs in this block dies whenever it comes to `moment` (see `lakeward.crash`), and has to come there."""

    def die(name: str) -> None:
        if name == moment:
            raise Killed(name)

    with mock.patch.object(crash, "point", die), pytest.raises(Killed):
        yield
