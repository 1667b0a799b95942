"""A stage that dies at one of its named moments, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pytest

from lakeward import crash


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
