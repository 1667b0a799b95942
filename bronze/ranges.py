"""Which stretch of the binlog each task of a batch reads. Pure.

A transaction never spans two binlog files, so a file's end is a resumable position: a backlog of several files is read
a file a task, in parallel. The last file is read up to the target, at most `max_bytes` a batch. Only an XA transaction
may be prepared in one file and ended in a later one; its range goes on to its end, and the run leaves the ranges that
it went into to the next batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakeward.position import FIRST, Position, binlog_number

UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Range:
    """From `start` to `stop`, both resumable. `number` counts a batch's ranges from 0."""

    number: int
    start: Position
    stop: Position
    max_bytes: int


def plan_ranges(
    start: Position, target: Position, logs: Sequence[tuple[str, int]], *, parallel: int, max_bytes: int
) -> list[Range]:
    """The ranges of the next batch, contiguous and in order, from `start` towards `target`.

    `logs` are (file name, bytes) of the files the server has. At most `parallel` ranges, and whole files only while
    their sum stays within `parallel` times `max_bytes`; at least one range.
    """
    sizes = {binlog_number(name): size for name, size in logs}
    ranges: list[Range] = []
    total = 0
    at = start
    while at.file < target.file and len(ranges) < parallel:
        size = sizes.get(at.file, 0) - at.pos
        total += size
        if total > parallel * max_bytes and (ranges or size > max_bytes):
            break
        stop = Position(at.epoch, at.file + 1, FIRST)
        ranges.append(Range(len(ranges), at, stop, UNBOUNDED))
        at = stop
    if not ranges or (at < target and at.file == target.file and len(ranges) < parallel):
        ranges.append(Range(len(ranges), at, target, max_bytes))
    return ranges
