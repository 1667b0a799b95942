"""The place in another server's binlog at which all that a lake has not read is still to come.

A replica writes its source's transactions into a log of its own, in files of its own and, where it applies in parallel,
in another order. So the place is the beginning of a file before which nothing stands that was not read, and from there
on the transactions that were read are told by their GTIDs and passed over (`Found.seen`).

MariaDB names only the last transaction of each domain; within a domain its sequence numbers grow (it makes sure of that
itself with gtid_strict_mode), so an earlier number of the domain has been read.
"""

from __future__ import annotations

from dataclasses import dataclass

import pymysql

from bronze.binlog.gtid import Flavour, GtidPosition, GtidSet
from bronze.source.binlogs import Binlogs
from bronze.source.server import binlog_events, rows

_PAGE = 1000


@dataclass(frozen=True)
class Found:
    """`lost`: the lake read them, the server never had them. `gone`: the server had them, its log has not."""

    file: int  # its beginning is the place
    executed: str  # what was read, so far as this server knows it, and what is gone
    seen: str  # transactions after the place that were read; "" for none
    lost: str
    gone: str

    @property
    def missing(self) -> str:
        return ",".join(part for part in (self.lost, self.gone) if part)


def found_by_gtid(connection: pymysql.Connection, flavour: Flavour, read: str) -> Found:
    """Where to go on on this server, when `read` (a GTID set or position) is what was read of another."""
    logs = Binlogs(connection, flavour)
    return _mysql(connection, logs, GtidSet(read)) if flavour == "mysql" else _mariadb(connection, logs, read)


def executed(connection: pymysql.Connection, flavour: Flavour) -> str:
    """What the server has executed: MySQL's GTID set; on MariaDB the last GTID of each domain and server."""
    names = {"mysql": "@@GLOBAL.gtid_executed", "mariadb": "@@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos"}
    return ",".join(str(value) for value in rows(connection, f"SELECT {names[flavour]}")[0] if value)


def never_had(flavour: Flavour, read: str, executed: str) -> str:
    """The transactions of `read` that a server with `executed` never had, exactly; "" for none."""
    if flavour == "mysql":
        return str(GtidSet(read).subtract(GtidSet(executed)))
    state = _by_server(executed)
    found = []
    for domain, (server, sequence) in sorted(GtidPosition(read).domains().items()):
        reached = _reached(state, domain, server, sequence)
        if reached < sequence:
            found.append(_run(domain, server, reached + 1, sequence))
    return ",".join(found)


def not_read(flavour: Flavour, before: str, read: str) -> str:
    """The transactions of `before`, which a log no longer has, that were not read, exactly; "" for none."""
    if flavour == "mysql":
        return str(GtidSet(before).subtract(GtidSet(read)))
    known = GtidPosition(read).domains()
    found = []
    for domain, (server, sequence) in sorted(GtidPosition(before).domains().items()):
        reached = known[domain][1] if domain in known else 0
        if reached < sequence:
            found.append(_run(domain, server, reached + 1, sequence))
    return ",".join(found)


def _mysql(connection: pymysql.Connection, logs: Binlogs, read: GtidSet) -> Found:
    purged = str(rows(connection, "SELECT @@GLOBAL.gtid_purged")[0][0] or "")
    lost = GtidSet(never_had("mysql", str(read), executed(connection, "mysql")))
    gone = GtidSet(not_read("mysql", purged, str(read)))
    known = read.subtract(lost)
    file = logs.newest_within(str(known)) or logs.first
    seen = known.subtract(GtidSet(logs.executed_before(file)))
    return Found(file, str(known.union(gone)), str(seen), str(lost), str(gone))


def _mariadb(connection: pymysql.Connection, logs: Binlogs, read: str) -> Found:
    state = executed(connection, "mariadb")
    lost = never_had("mariadb", read, state)
    there = _by_server(state)
    known = GtidPosition()
    for domain, (server, sequence) in GtidPosition(read).domains().items():
        reached = _reached(there, domain, server, sequence)
        if reached:
            known.add(domain, server, min(reached, sequence))
    first = logs.first
    gone = not_read("mariadb", _before_log(connection, logs, known), str(known))
    file = logs.newest_within(str(known)) or first
    before = GtidPosition(logs.executed_before(file)).domains()
    seen = GtidPosition()
    for domain, (server, sequence) in known.domains().items():
        if domain not in before or before[domain][1] < sequence:
            seen.add(domain, server, sequence)
    whole = known.union(GtidPosition(logs.executed_before(first)))
    return Found(file, str(whole), str(seen), lost, gone)


def _before_log(connection: pymysql.Connection, logs: Binlogs, known: GtidPosition) -> str:
    """What MariaDB executed before its oldest file. The file says so; but a replica that was made from a backup never
    logged its beginning, so there it is what comes before the first number of each domain that it did log."""
    result = GtidPosition(logs.executed_before(logs.first))
    wanted = set(known.domains()) - set(result.domains())
    for gtid in first_gtids(connection, logs, wanted):
        domain, server, sequence = map(int, gtid.split("-"))
        if sequence > 1:
            result.add(domain, server, sequence - 1)
    return str(result)


def first_gtids(connection: pymysql.Connection, logs: Binlogs, domains: set[int]) -> list[str]:
    """The first GTID of each of `domains` in MariaDB's log, where there is one; page by page from the oldest file."""
    left, found = set(domains), []
    for number in sorted(logs.names):
        offset = 0
        while left:
            page = binlog_events(connection, logs.names[number], f" LIMIT {offset:d}, {_PAGE}")
            for event in page:
                gtid = str(event[5]).split("GTID ")[-1].split()[0] if str(event[2]) == "Gtid" else ""
                if gtid and int(gtid.split("-")[0]) in left:
                    left.remove(int(gtid.split("-")[0]))
                    found.append(gtid)
            if len(page) < _PAGE:
                break
            offset += _PAGE
    return found


def _reached(state: dict[int, dict[int, int]], domain: int, server: int, sequence: int) -> int:
    """The last number of `domain` up to `sequence` that a MariaDB with `state` (`_by_server`) has."""
    there = state.get(domain, {})
    # Numbers of other servers below it were given before it: it builds on them.
    return there.get(server, max((n for n in there.values() if n < sequence), default=0))


def _by_server(text: str) -> dict[int, dict[int, int]]:
    """{domain: {server: last sequence}}."""
    result: dict[int, dict[int, int]] = {}
    for member in "".join(text.split()).split(","):
        if member:
            domain, server, sequence = map(int, member.split("-"))
            there = result.setdefault(domain, {})
            there[server] = max(sequence, there.get(server, 0))
    return result


def _run(domain: int, server: int, first: int, last: int) -> str:
    one, other = f"{domain}-{server}-{first}", f"{domain}-{server}-{last}"
    return one if first == last else f"{one} to {other}"
