"""Which transactions have been seen: MySQL's GTID sets and MariaDB's GTID positions.

MySQL names a transaction `uuid[:tag]:number`, and a set of them by intervals; MariaDB names it
`domain-server-sequence` and says only the last of each domain. Both print as the server itself prints them (sorted,
joined, lower case, no line breaks), so two that are equal are equal as text.

Source: MySQL manual, "GTID Format and Storage"; MySQL source, sql/rpl_gtid_set.cc; MariaDB knowledge base, "Global
Transaction ID".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from lakeward.errors import TerminalError

Flavour = Literal["mysql", "mariadb"]
Interval = tuple[int, int]  # first and last number, both in
_UUID = re.compile(r"[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
_TAG = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")


class GtidSet:
    """A set of MySQL GTIDs. Grows in place; `str` is the server's own spelling, `""` the empty set."""

    def __init__(self, text: str = "") -> None:
        """Raises TerminalError for text that is no GTID set."""
        self._members: dict[tuple[str, str], list[Interval]] = {}
        for member in "".join(text.lower().split()).split(","):
            if member:
                self._parse(member)

    def _parse(self, member: str) -> None:
        uuid, *parts = member.split(":")
        tag = ""
        if not _UUID.fullmatch(uuid) or not parts:
            raise TerminalError(f"{member!r} is not a member of a GTID set")
        bare = uuid.replace("-", "")
        uuid = "-".join((bare[:8], bare[8:12], bare[12:16], bare[16:20], bare[20:]))
        for part in parts:
            interval = _INTERVAL.fullmatch(part)
            if interval:
                first = int(interval[1])
                last = int(interval[2] or first)
                if first < 1 or last < first:
                    raise TerminalError(f"{member!r} is not a member of a GTID set")
                self.add_interval(uuid, tag, first, last)
            elif _TAG.fullmatch(part):
                tag = part
            else:
                raise TerminalError(f"{member!r} is not a member of a GTID set")

    def add(self, uuid: str, number: int, tag: str = "") -> None:
        """Put one GTID in. Usually it follows the last one, which costs no search."""
        runs = self._members.get((uuid, tag))
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            self.add_interval(uuid, tag, number, number)

    def add_interval(self, uuid: str, tag: str, first: int, last: int) -> None:
        """Put the GTIDs `first` to `last` in, both included."""
        runs = self._members.get((uuid, tag), [])
        self._members[uuid, tag] = _joined([*runs, (first, last)])

    def update(self, other: GtidSet) -> None:
        """Become the union with `other`."""
        for key, runs in other._members.items():
            self._members[key] = _joined([*self._members.get(key, []), *runs])

    def union(self, other: GtidSet) -> GtidSet:
        result = self.copy()
        result.update(other)
        return result

    def subtract(self, other: GtidSet) -> GtidSet:
        """The GTIDs that are here and not in `other`."""
        result = GtidSet()
        for key, runs in self._members.items():
            left = _without(runs, other._members.get(key, []))
            if left:
                result._members[key] = left
        return result

    def contains(self, other: GtidSet) -> bool:
        """Whether every GTID of `other` is here."""
        return not other.subtract(self)._members

    def holds(self, gtid: str) -> bool:
        """Whether the one GTID `uuid[:tag]:number`, as `str` of it prints, is here."""
        uuid, *tag, number = gtid.split(":")
        at = int(number)
        return any(first <= at <= last for first, last in self._members.get((uuid, tag[0] if tag else ""), []))

    def copy(self) -> GtidSet:
        result = GtidSet()
        result._members = {key: list(runs) for key, runs in self._members.items()}
        return result

    def __bool__(self) -> bool:
        return bool(self._members)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._members == other._members

    __hash__ = None  # type: ignore[assignment]  # it changes in place

    def __str__(self) -> str:
        parts: dict[str, list[str]] = {}
        for uuid, tag in sorted(self._members):  # the empty tag first, as the server prints
            runs = self._members[uuid, tag]
            spelled = [f"{first}-{last}" if last > first else str(first) for first, last in runs]
            parts.setdefault(uuid, []).extend([tag, *spelled] if tag else spelled)
        return ",".join(f"{uuid}:{':'.join(spelled)}" for uuid, spelled in parts.items())

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"


class GtidPosition:
    """MariaDB: the last GTID of each domain, as in `gtid_binlog_pos`."""

    def __init__(self, text: str = "") -> None:
        """Raises TerminalError for text that is no list of `domain-server-sequence`."""
        self._last: dict[int, tuple[int, int]] = {}
        for member in "".join(text.split()).split(","):
            if not member:
                continue
            match = re.fullmatch(r"(\d+)-(\d+)-(\d+)", member)
            if match is None:
                raise TerminalError(f"{member!r} is not a MariaDB GTID")
            self.add(int(match[1]), int(match[2]), int(match[3]))

    def add(self, domain: int, server: int, sequence: int) -> None:
        """Note a GTID as the last of its domain."""
        self._last[domain] = (server, sequence)

    def update(self, other: GtidPosition) -> None:
        """Take over the domains of `other`, which comes later."""
        self._last.update(other._last)

    def contains(self, other: GtidPosition) -> bool:
        """Whether, domain by domain, this stands at or after `other`.

        Sequence numbers only grow within a domain where the server keeps `gtid_strict_mode`; without it the answer
        is a strong hint, no proof.
        """
        return all(d in self._last and self._last[d][1] >= last[1] for d, last in other._last.items())

    def holds(self, gtid: str) -> bool:
        """Whether `domain-server-sequence` stands at or before this. As sure as `contains`."""
        domain, _, sequence = map(int, gtid.split("-"))
        return domain in self._last and self._last[domain][1] >= sequence

    def union(self, other: GtidPosition) -> GtidPosition:
        """Domain by domain the later of the two. As sure as `contains`."""
        result = self.copy()
        for domain, (server, sequence) in other._last.items():
            if domain not in self._last or self._last[domain][1] < sequence:
                result.add(domain, server, sequence)
        return result

    def domains(self) -> dict[int, tuple[int, int]]:
        """{domain: (server, sequence)}."""
        return dict(self._last)

    def copy(self) -> GtidPosition:
        result = GtidPosition()
        result._last = dict(self._last)
        return result

    def __bool__(self) -> bool:
        return bool(self._last)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidPosition) and self._last == other._last

    __hash__ = None  # type: ignore[assignment]  # it changes in place

    def __str__(self) -> str:
        return ",".join(f"{d}-{server}-{sequence}" for d, (server, sequence) in sorted(self._last.items()))

    def __repr__(self) -> str:
        return f"GtidPosition({str(self)!r})"


def gtids(flavour: Flavour, text: str) -> GtidSet | GtidPosition:
    """What `text` says, in the flavour's own terms."""
    return GtidSet(text) if flavour == "mysql" else GtidPosition(text)


def union(flavour: Flavour, one: str, other: str) -> str:
    """Everything that is in either."""
    if flavour == "mysql":
        return str(GtidSet(one).union(GtidSet(other)))
    return str(GtidPosition(one).union(GtidPosition(other)))


def _joined(runs: Iterable[Interval]) -> list[Interval]:
    result: list[Interval] = []
    for first, last in sorted(runs):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return result


def _without(runs: list[Interval], taken: list[Interval]) -> list[Interval]:
    result: list[Interval] = []
    for first, last in runs:
        at = first
        for start, end in taken:
            if end < at or start > last:
                continue
            if start > at:
                result.append((at, start - 1))
            at = end + 1
        if at <= last:
            result.append((at, last))
    return result
