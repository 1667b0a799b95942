"""Finds the place that `--from` means: a binlog file and offset, a GTID set, or a time.

The answer is always a resumable position with the exact GTIDs before it, since everything later rests on those. It is
found by reading: from the file's beginning, whose GTIDs the file itself says, transaction by transaction.
"""

from __future__ import annotations

import datetime
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql

from bronze.binlog.events import FORMAT_DESCRIPTION, HEADER
from bronze.binlog.gtid import Flavour, gtids
from bronze.binlog.transactions import Boundary, read
from bronze.binlog.wire import Dump
from bronze.failover import executed, never_had
from bronze.source.binlogs import Binlogs
from bronze.source.server import flavour_and_version
from lakeward.errors import TerminalError, UsageError, WrongServerError
from lakeward.position import FIRST, Checkpoint, Position

_PLACE = re.compile(r"(?:\S*\.)?(\d+):(\d+)")
_EARLIEST = "`--from` with a later point, or none for a snapshot"
_HEARTBEAT_S = 30.0


class Seeker:
    """Looks for places in one server's binlog."""

    def __init__(self, connection: pymysql.Connection, settings: dict[str, Any], server_id: int) -> None:
        self._connection = connection
        self._settings = settings
        self._server_id = server_id
        self._flavour: Flavour = flavour_and_version(connection)[0]
        self._logs = Binlogs(connection, self._flavour)

    def find(self, text: str, epoch: int) -> Checkpoint:
        """The place that `text` means. Raises UsageError for text that is none of the three, TerminalError for a place
        that is not between two transactions, WrongServerError for what the server no longer has or never had."""
        place = _PLACE.fullmatch(text.strip())
        if place is not None:
            found = self._at(int(place[1]), int(place[2]))
        else:
            when = _time(text)
            found = self._from_time(text, when) if when is not None else self._after(text)
        return Checkpoint(Position(epoch, found.file, found.pos), found.gtid, found.ts_ms)

    def _at(self, file: int, pos: int) -> Boundary:
        if file < self._logs.first:
            raise self._purged(f"file number {file}")
        if file > self._logs.last or pos > self._logs.sizes[file]:
            last = self._logs.last
            raise WrongServerError(
                f"the source's binlog ends before {file}:{pos}",
                hint=f"it ends at {last}:{self._logs.sizes[last]}",
            )
        before = self._beginning(file)
        if pos == FIRST:
            return before
        for place in self._places(file):
            if (place.file, place.pos) == (file, pos):
                return place
            if (place.file, place.pos) > (file, pos):
                raise TerminalError(
                    f"{file}:{pos} does not stand between two transactions",
                    hint=f"the nearest places that do are {before.file}:{before.pos} and {place.file}:{place.pos}",
                )
            before = place
        raise TerminalError(
            f"{file}:{pos} does not stand between two transactions",
            hint=f"the last place that does is {before.file}:{before.pos}",
        )

    def _from_time(self, text: str, when_ms: int) -> Boundary:
        """The place before the first transaction that was committed at `when_ms` or later."""
        if when_ms > time.time() * 1000:
            raise UsageError(f"--from {text} lies in the future", hint="a time without a zone is taken as UTC")
        # A file's transactions are as old as the file or younger, in seconds; what is before them is older.
        file = self._logs.newest(lambda number: (self._created_s(number) + 1) * 1000 <= when_ms)
        if file is None:
            file = self._logs.first
            if self._logs.executed_before(file) or file > 1:
                made = datetime.datetime.fromtimestamp(self._created_s(file), datetime.UTC).isoformat()
                raise self._purged(f"{text}: its oldest file is of {made}")
        return self._before_first(file, lambda place: place.ts_ms >= when_ms)

    def _after(self, text: str) -> Boundary:
        """The place before the first transaction that is not in the GTID set (MariaDB: position) `text`."""
        try:
            wanted = gtids(self._flavour, text)
        except TerminalError as error:
            raise UsageError(
                f"--from {text!r} is no place, GTID set or time",
                hint="write binlog.000042:1234, the GTIDs that were read already, or 2026-11-21T08:00:00Z",
            ) from error
        missing = never_had(self._flavour, str(wanted), executed(self._connection, self._flavour))
        if missing:
            raise WrongServerError("the source never had all of the GTIDs of --from", hint="mend them", missing=missing)
        file = self._logs.newest_within(str(wanted))
        if file is None:
            raise self._purged(f"{text}: before its oldest file stands {self._logs.executed_before(self._logs.first)}")
        return self._before_first(file, lambda place: not _within(self._flavour, place.gtid, wanted))

    def _before_first(self, file: int, beyond: Callable[[Boundary], bool]) -> Boundary:
        before = self._beginning(file)
        for place in self._places(file):
            if beyond(place):
                break
            before = place
        return before

    def _beginning(self, file: int) -> Boundary:
        return Boundary(file, FIRST, self._logs.executed_before(file), 0)

    def _places(self, file: int) -> Iterator[Boundary]:
        """Every resumable place from the beginning of a file to the end of the log."""
        dump = self._dump(file)
        try:
            items = read(dump, file=file, wants=lambda _: False, gtid_set=self._logs.executed_before(file))
            yield from (item for item in items if isinstance(item, Boundary))
        finally:
            dump.close()

    def _created_s(self, file: int) -> int:
        dump = self._dump(file)
        try:
            return next(int(seconds) for seconds, kind in map(_head, dump) if kind == FORMAT_DESCRIPTION)
        finally:
            dump.close()

    def _dump(self, file: int) -> Dump:
        return Dump(
            self._settings,
            server_id=self._server_id,
            file=self._logs.names[file],
            pos=FIRST,
            flavour=self._flavour,
            blocking=False,
            heartbeat_s=_HEARTBEAT_S,
        )

    def _purged(self, what: str) -> WrongServerError:
        return WrongServerError(
            f"the source has purged its binlog up to file number {self._logs.first}, and with it {what}",
            hint=f"{_EARLIEST}; keep the binlog longer (binlog_expire_logs_seconds)",
            oldest=f"{self._logs.first}:{FIRST}",
        )


def _head(raw: Any) -> tuple[int, int]:
    seconds, kind, *_ = HEADER.unpack_from(raw)
    return seconds, kind


def _within(flavour: Flavour, some: str, wanted: Any) -> bool:
    return bool(wanted.contains(gtids(flavour, some)))


def _time(text: str) -> int | None:
    """Milliseconds since 1970 UTC of an ISO 8601 time; without a zone it is UTC. None where it is none."""
    try:
        found = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    return int(found.timestamp() * 1000)
