"""When a batch of the sink begins and ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snowflake.lakehouse.batches import Waiting, steps


@given(st.dictionaries(st.integers(1, 50), st.integers(0, 20), max_size=12), st.integers(1, 30))
def test_batches_cover_every_commit_once_and_hold_no_more_rows_than_asked_unless_one_commit_does(rows, rows_max):
    last = max(rows, default=7)
    stops = steps(rows, last, rows_max)
    assert stops == sorted(set(stops))
    assert stops[-1] == last
    for first, stop in zip([0, *stops], stops, strict=False):
        held = {v: n for v, n in rows.items() if first < v <= stop and n}
        assert sum(held.values()) <= rows_max or len(held) == 1


@pytest.mark.parametrize(
    ("rows", "seconds", "due"), [(0, 100, False), (9, 9, False), (10, 0, True), (1, 10, True), (1, 9.9, False)]
)
def test_changes_are_due_by_rows_or_by_seconds(rows, seconds, due):
    waiting = Waiting(10, 10)
    assert waiting.due(0.0)  # what an earlier run has left
    waiting.done()
    waiting.add(rows, now=50.0)
    waiting.add(0, now=59.0)
    assert waiting.due(50.0 + seconds) is due
    waiting.done()
    assert not waiting.due(1000.0)
