"""Which stretch of the binlog each task of a batch reads. Pure.

A transaction never spans two binlog files, so a file's end is a resumable position: a backlog of several files is read
by several tasks at once, each a run of files, as equal in bytes as the files allow. The last file is read up to the
target. Only an XA transaction may be prepared in one file and ended in a later one; its range goes on to its end, and
the run leaves the ranges that it went into to the next batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from lakeward.position import FIRST, Position, binlog_number

UNBOUNDED = 1 << 62


@dataclass(frozen=True)
class Range:
    """From `start` to `stop`, both resumable. `number` counts a batch's ranges from 0."""

    number: int
    start: Position
    stop: Position
    max_bytes: int


@dataclass(frozen=True)
class _Piece:
    """A file, or what is wanted of it. Where it is `cut`, `stop` is farther than `size` bytes reach."""

    stop: Position
    size: int
    cut: bool = False


def plan_ranges(
    start: Position, target: Position, logs: Sequence[tuple[str, int]], *, parallel: int, max_bytes: int
) -> list[Range]:
    """The ranges of the next batch, contiguous and in order, from `start` towards `target`.

    `logs` are (file name, bytes) of the files the server has. At most `parallel` ranges, which together read at most
    `parallel` times `max_bytes`, and at least one. A range of several files reads at most `max_bytes`; one of a single
    file reads it whole, or where that is too much, up to the first transaction's end after `max_bytes`.
    """
    fitting = _packed(_pieces(start, target, logs, parallel, max_bytes), max_bytes)[:parallel]
    ranges: list[Range] = []
    for run in _balanced(list(chain(*fitting)), parallel, max_bytes):
        size = sum(piece.size for piece in run) if run[-1].cut else UNBOUNDED
        ranges.append(Range(len(ranges), ranges[-1].stop if ranges else start, run[-1].stop, size))
    return ranges or [Range(0, start, target, max_bytes)]


def _pieces(
    start: Position, target: Position, logs: Sequence[tuple[str, int]], parallel: int, max_bytes: int
) -> list[_Piece]:
    """The files from `start` to `target`, as long as `parallel` times `max_bytes` have room for them."""
    sizes = {binlog_number(name): size for name, size in logs}
    room = parallel * max_bytes
    pieces: list[_Piece] = []
    at = start
    while at < target and room > 0:
        last = at.file == target.file
        size = max(0, (target.pos if last else sizes.get(at.file, 0)) - at.pos)
        if size > (min(room, max_bytes) if last else room):
            if last or not pieces:  # only one that no other follows may end anywhere
                pieces.append(_Piece(target, min(room, max_bytes), cut=True))
            break
        at = target if last else Position(at.epoch, at.file + 1, FIRST)
        pieces.append(_Piece(at, size))
        room -= size
    return pieces


def _packed(pieces: Sequence[_Piece], limit: int) -> list[list[_Piece]]:
    """Runs of at most `limit` bytes, each as long as can be. A larger piece stands alone."""
    runs: list[list[_Piece]] = []
    filled = 0
    for piece in pieces:
        if not runs or filled + piece.size > limit:
            runs.append([])
            filled = 0
        runs[-1].append(piece)
        filled += piece.size
    return runs


def _balanced(pieces: Sequence[_Piece], parallel: int, limit: int) -> list[list[_Piece]]:
    """At most `parallel` runs, of which the largest is as small as can be. `limit` is known to be enough."""
    low, high = 0, limit
    while low < high:
        middle = (low + high) // 2
        if len(_packed(pieces, middle)) <= parallel:
            high = middle
        else:
            low = middle + 1
    return _packed(pieces, high)
