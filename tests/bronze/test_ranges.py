"""What each task of a batch is given to read, for backlogs of every shape."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from bronze.ranges import UNBOUNDED, Range, plan_ranges
from lakeward.position import FIRST, Position


def _at(file: int, pos: int = FIRST) -> Position:
    return Position(1, file, pos)


def _logs(*sizes: int) -> list[tuple[str, int]]:
    return [(f"binlog.{n:06d}", size) for n, size in enumerate(sizes, 1)]


def _stops(ranges: list[Range]) -> list[tuple[int, int]]:
    return [(r.stop.file, r.stop.pos) for r in ranges]


def test_many_small_files_are_one_batch_of_equal_ranges() -> None:
    ranges = plan_ranges(_at(1), _at(8, 100), _logs(*[100] * 8), parallel=2, max_bytes=1000)
    assert _stops(ranges) == [(5, FIRST), (8, 100)]
    assert [r.max_bytes for r in ranges] == [UNBOUNDED, UNBOUNDED]


def test_files_are_balanced_by_bytes_and_not_by_number() -> None:
    ranges = plan_ranges(_at(1), _at(6), _logs(400, 50, 50, 300, 60, 9), parallel=3, max_bytes=1000)
    assert _stops(ranges) == [(2, FIRST), (4, FIRST), (6, FIRST)]


def test_a_range_of_several_files_stays_within_the_limit() -> None:
    # 1,200 bytes fit into two ranges of 1,000, but not so that none of them is above it.
    ranges = plan_ranges(_at(1), _at(4), _logs(600, 600, 600, 0), parallel=2, max_bytes=1000)
    assert _stops(ranges) == [(2, FIRST), (3, FIRST)]


def test_a_file_above_the_limit_is_read_whole_where_the_batch_has_room_for_it() -> None:
    ranges = plan_ranges(_at(1), _at(3, 50), _logs(1500, 300, 50), parallel=2, max_bytes=1000)
    assert _stops(ranges) == [(2, FIRST), (3, 50)]
    assert plan_ranges(_at(1), _at(3, 50), _logs(2500, 300, 50), parallel=2, max_bytes=1000) == [
        Range(0, _at(1), _at(3, 50), 1000)
    ]


def test_the_last_file_is_read_a_part_at_a_time() -> None:
    ranges = plan_ranges(_at(1), _at(2, 5000), _logs(300, 6000), parallel=2, max_bytes=1000)
    assert ranges == [Range(0, _at(1), _at(2), UNBOUNDED), Range(1, _at(2), _at(2, 5000), 1000)]


def test_a_range_is_made_even_of_nothing() -> None:
    assert plan_ranges(_at(7), _at(7), _logs(1), parallel=2, max_bytes=10) == [Range(0, _at(7), _at(7), 10)]


_SIZES = st.lists(st.integers(FIRST, 3000), min_size=1, max_size=12)


@given(_SIZES, st.data(), st.integers(1, 5), st.integers(1, 2500))
def test_any_backlog_is_read_in_order_within_its_limits(
    sizes: list[int], data: st.DataObject, parallel: int, limit: int
) -> None:
    start = _at(1, data.draw(st.integers(FIRST, sizes[0])))
    target = max(start, _at(len(sizes), data.draw(st.integers(FIRST, sizes[-1]))))
    logs = _logs(*sizes)
    ranges = plan_ranges(start, target, logs, parallel=parallel, max_bytes=limit)
    assert ranges[0].start == start
    assert ranges[-1].stop <= target
    assert 1 <= len(ranges) <= parallel
    assert all(a.stop == b.start for a, b in pairwise(ranges))
    assert [r.number for r in ranges] == list(range(len(ranges)))
    assert all(r.max_bytes == UNBOUNDED for r in ranges[:-1])  # the next one begins where it ends

    def size(r: Range) -> int:
        before = sum(sizes[n - 1] - FIRST for n in range(r.start.file, r.stop.file))
        return min(before + r.stop.pos - r.start.pos, r.max_bytes)

    assert sum(map(size, ranges)) <= parallel * limit
    assert all(size(r) <= limit for r in ranges if r.stop > _at(r.start.file + 1))
    if start < target:  # and on and on it gets there
        assert ranges[0].stop > start
