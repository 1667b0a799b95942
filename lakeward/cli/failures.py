"""What a run does when a stage fails that others do not depend on.

Landing, the sink, gold and what follows gold each serve somebody else: one that fails is no reason for the others to
stand still. So each is tried; then a run ends with the first failure, and one that is to go on until stopped says it
and tries again in its next round.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from lakeward.errors import LakewardError, UsageError


class Failures:
    """Of one run. `continuous`: it is to go on until stopped."""

    def __init__(self, *, continuous: bool = False) -> None:
        self._continuous, self._first_round = continuous, True
        self._found: list[LakewardError] = []
        self._said: set[str] = set()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Whatever fails on purpose within it waits for the round's end."""
        try:
            yield
        except LakewardError as error:
            self._found.append(error)

    def end_round(self) -> None:
        """Raise the first failure, after the others were said; or say those that the round before did not have.

        What is wrong in the configuration ends a continuous run, too, while it is young enough for somebody to look.
        """
        found, said = self._found, self._said
        self._found, self._said = [], {str(error) for error in found}
        first_round, self._first_round = self._first_round, False
        ending = [e for e in found if not self._continuous or (first_round and isinstance(e, UsageError))]
        raised = ending[:1]
        for error in found:
            if error not in raised and str(error) not in said:
                print(f"error: {error}", file=sys.stderr, flush=True)
        if raised:
            raise raised[0]
