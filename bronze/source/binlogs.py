"""The binlog files that a server still has, and which transactions stand before each of them.

A file begins by saying so: MySQL writes the GTID set executed before it (PREVIOUS_GTIDS), MariaDB the last GTID of each
domain and server (GTID_LIST). Both only grow from file to file, so the file to begin at is found by bisection.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable

import pymysql

from bronze.binlog.gtid import Flavour, GtidPosition, GtidSet
from bronze.source.server import binary_logs, binlog_events
from lakeward.errors import TerminalError
from lakeward.position import binlog_number

_FIRST_EVENTS = 4  # the description, MariaDB's START_ENCRYPTION, then what was executed before
_SAYS = ("previous_gtids", "gtid_list")


class Binlogs:
    """What `SHOW BINARY LOGS` says, by file number."""

    def __init__(self, connection: pymysql.Connection, flavour: Flavour) -> None:
        self._connection = connection
        self._flavour = flavour
        found = binary_logs(connection)
        self.names = {binlog_number(name): name for name, _ in found}
        self.sizes = {binlog_number(name): size for name, size in found}
        self._before: dict[int, str] = {}

    @property
    def first(self) -> int:
        return min(self.sizes)

    @property
    def last(self) -> int:
        return max(self.sizes)

    def executed_before(self, number: int) -> str:
        """The GTID set (MySQL) or position (MariaDB) at the beginning of a file."""
        if number not in self._before:
            self._before[number] = self._read_executed_before(self.names[number])
        return self._before[number]

    def newest(self, fits: Callable[[int], bool]) -> int | None:
        """The newest file that fits, where every older one does too; None where none does."""
        numbers = sorted(self.sizes)
        fitting = bisect.bisect_left(numbers, True, key=lambda number: not fits(number))
        return numbers[fitting - 1] if fitting else None

    def newest_within(self, executed: str) -> int | None:
        """The newest file before which nothing stands but what is in `executed`; None where there is none."""
        return self.newest(lambda number: self._within(self.executed_before(number), executed))

    def _within(self, before: str, executed: str) -> bool:
        if self._flavour == "mysql":
            return GtidSet(executed).contains(GtidSet(before))
        return GtidPosition(executed).contains(GtidPosition(before))

    def _read_executed_before(self, name: str) -> str:
        for event in binlog_events(self._connection, name, f" LIMIT {_FIRST_EVENTS}"):
            if str(event[2]).lower() in _SAYS:
                return "".join(str(event[5]).strip("[]").split())
        raise TerminalError(
            f"the binlog file {name} does not say which transactions stand before it",
            hint="`lakeward resnapshot --all` goes on without that file",
        )
