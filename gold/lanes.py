"""A few threads, each with a Spark session of its own, that work on several tables at once.

A table stays in its lane from its gate to its commit: a DataFrame belongs to the session that made it, and the
summary of a commit is taken from that session's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TypeVar

from pyspark.sql import SparkSession

LANES = 2
Result = TypeVar("Result")


class Lanes:
    """`open_session` is called once a lane, at its first table."""

    def __init__(self, open_session: Callable[[], SparkSession], count: int = LANES) -> None:
        self._open = open_session
        self._sessions: dict[int, SparkSession] = {}
        self._threads = [ThreadPoolExecutor(1, thread_name_prefix=f"gold-{i}") for i in range(count)]
        self._places: dict[str, int] = {}

    def __enter__(self) -> Lanes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for thread in self._threads:
            thread.shutdown(wait=True, cancel_futures=True)

    @property
    def session(self) -> SparkSession:
        """The first lane's session, for work between two calls of `each`."""
        return self._session(0)

    def each(self, names: Iterable[str], work: Callable[[SparkSession, str], Result]) -> dict[str, Result]:
        """`work(session, name)` of every name, by name. All are tried; then the first failure is raised."""
        futures: dict[str, Future[Result]] = {}
        for name in names:
            lane = self._places.setdefault(name, len(self._places) % len(self._threads))
            futures[name] = self._threads[lane].submit(self._work, work, lane, name)
        for future in futures.values():
            future.exception()
        return {name: future.result() for name, future in futures.items()}

    def _work(self, work: Callable[[SparkSession, str], Result], lane: int, name: str) -> Result:
        return work(self._session(lane), name)

    def _session(self, lane: int) -> SparkSession:
        if lane not in self._sessions:
            self._sessions[lane] = self._open()
        return self._sessions[lane]
