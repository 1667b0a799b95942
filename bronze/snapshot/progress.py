"""Says on stderr how far a snapshot is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

LINE_EVERY_S = 15.0


class SnapshotProgress:
    """While it is entered: progress towards `expected` rows, which is an estimate; more may come."""

    def __init__(self, expected: int, tables: int) -> None:
        self._expected, self._tables = expected, tables
        self._rows, self._began = 0, time.monotonic()
        self._said = self._began
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("snapshot"), BarColumn(), TextColumn("{task.completed:,.0f} of about {task.total:,.0f} rows"),
            TextColumn("{task.fields[rate]:,.0f} rows/s"), TimeRemainingColumn(), console=console, transient=True,
        ) if console.is_terminal else None  # fmt: skip
        self._task = self._bar.add_task("snapshot", total=max(1, expected), rate=0.0) if self._bar else None

    def __enter__(self) -> SnapshotProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.stop()

    def landed(self, rows: int) -> None:
        """`rows` more are in bronze."""
        self._rows += rows
        now = time.monotonic()
        if self._bar is not None and self._task is not None:
            total = max(self._expected, self._rows, 1)
            self._bar.update(self._task, completed=self._rows, total=total, rate=self._rate(now))
        elif now - self._said >= LINE_EVERY_S:
            self._said = now
            print(self.line(now), file=sys.stderr, flush=True)

    def line(self, now: float) -> str:
        """Rows so far, their share, rows a second, and the time left by both."""
        rate, left = self._rate(now), max(0, self._expected - self._rows)
        share = 100 * self._rows / max(self._expected, self._rows, 1)
        return (
            f"snapshot of {self._tables} tables: {self._rows:,} of about {max(self._expected, self._rows):,} rows "
            f"({share:.0f} %), {rate:,.0f} rows/s, about {left / rate if rate else 0:.0f} s left"
        )

    def _rate(self, now: float) -> float:
        return self._rows / max(now - self._began, 1e-3)
