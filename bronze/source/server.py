"""What the source server is and where it stands in its binlog.

Two positions are made here that the whole of bronze rests on. A transaction reaches the binlog (its flush stage) before
it is committed in the engine, so the end of the binlog runs ahead of what a SELECT sees: `safe_start` gives a position
whose past is visible for certain, `exact_read` a transaction that sees one position's state and nothing else. Neither
locks anything. Sources: MySQL `sql/binlog.cc` (ordered_commit: flush, sync, commit), `sql/rpl_gtid_state.cc` (ownership
ends after the engine's commit); MariaDB knowledge base, 'Enhancements for START TRANSACTION WITH CONSISTENT SNAPSHOT'.
"""

from __future__ import annotations

import hashlib
import re
import time
from dataclasses import asdict, dataclass
from typing import Any, Literal

import pymysql
from pymysql.constants import ER

from bronze.source.connection import translated
from lakeward.errors import TerminalError, TransientError
from lakeward.position import Checkpoint, Position, binlog_number

Flavour = Literal["mysql", "mariadb"]
SETTLE_S = 1.0
_COM_SET_OPTION = 0x1B
_PATIENCE_S = 60.0
_WRITTEN_WITHIN_S = 1.0


@dataclass(frozen=True)
class ServerFacts:
    """The server's identity: `uuid` tells one server from another over its restarts.

    MySQL has server_uuid. MariaDB's own server_uid is made of a network card's address and the port, and so changes
    when a container is made anew; here it is a digest of what replication itself takes for identity (server_id, GTID
    domain) and the binlog's name. That two such servers are not one is seen in their GTIDs.
    """

    flavour: Flavour
    version: tuple[int, ...]
    uuid: str
    server_id: int
    binlog_name: str  # the current file
    gtid_mode: bool

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "version": list(self.version)}


def rows(conn: pymysql.Connection, sql: str, args: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
    """All rows of a small query. PyMySQL's errors come out as Lakeward's."""
    try:
        with conn.cursor() as cursor:
            cursor.execute(sql, args)
            return list(cursor.fetchall())
    except (pymysql.Error, OSError) as error:
        raise translated(error, sql) from error


def flavour_and_version(conn: pymysql.Connection) -> tuple[Flavour, tuple[int, ...]]:
    """`("mariadb", (11, 4, 5))`, from VERSION()."""
    text = str(rows(conn, "SELECT VERSION()")[0][0])
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    if numbers is None:
        raise TerminalError(f"the server's version {text!r} is not one Lakeward can read")
    return "mariadb" if "mariadb" in text.lower() else "mysql", tuple(int(n) for n in numbers.groups())


def facts(conn: pymysql.Connection) -> ServerFacts:
    """The server's facts. Raises TerminalError when its binlog is off."""
    flavour, version = flavour_and_version(conn)
    name = _status(conn, flavour, version)[0]
    server_id = int(rows(conn, "SELECT @@global.server_id")[0][0])
    if flavour == "mysql":
        uuid, mode = rows(conn, "SELECT @@global.server_uuid, @@global.gtid_mode")[0]
        return ServerFacts(flavour, version, str(uuid), server_id, name, mode == "ON")
    domain = rows(conn, "SELECT @@global.gtid_domain_id")[0][0]
    seed = f"{server_id} {domain} {name.rpartition('.')[0]}"
    return ServerFacts(flavour, version, hashlib.sha256(seed.encode()).hexdigest()[:32], server_id, name, True)


def binary_logs(conn: pymysql.Connection) -> list[tuple[str, int]]:
    """(file name, size in bytes) of each binlog the server still has, oldest first."""
    return [(str(r[0]), int(r[1])) for r in rows(conn, "SHOW BINARY LOGS")]


def binlog_events(conn: pymysql.Connection, file: str, where: str = "") -> list[tuple[Any, ...]]:
    """SHOW BINLOG EVENTS of a file; `where` is its FROM and LIMIT.

    MySQL can read an event that is just being written and call it truncated, so that is asked again for a second.
    Raises TerminalError (fact `error` 1220) where it stays so: no event begins at FROM.
    """
    deadline = time.monotonic() + _WRITTEN_WITHIN_S
    while True:
        try:
            return rows(conn, f"SHOW BINLOG EVENTS IN %s{where}", (file,))
        except TerminalError as error:
            if error.facts.get("error") != ER.ERROR_WHEN_EXECUTING_COMMAND or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def position_now(conn: pymysql.Connection, epoch: int) -> Checkpoint:
    """The end of the binlog. Good as a target.

    Its GTIDs may lack transactions that are being committed, so nothing may ever be resumed from them.
    """
    flavour, version = flavour_and_version(conn)
    name, pos, gtid = _status(conn, flavour, version)
    if flavour == "mariadb":
        gtid = _text(rows(conn, "SELECT @@global.gtid_binlog_pos")[0][0])
    return Checkpoint(Position(epoch, binlog_number(name), pos), gtid)


def safe_start(conn: pymysql.Connection, epoch: int) -> Checkpoint:
    """A position whose every earlier transaction a SELECT begun after this call sees. Its GTID set is exact.

    MariaDB gives the position of a consistent snapshot. MySQL with GTIDs: a transaction owns its GTID from the flush
    stage until it is committed in the engine, so once those owned after the position was read are released, all before
    it are visible; the set is what is executed then, less what the binlog holds from the position on. MySQL without
    GTIDs shows no such thing: the position is left to settle for SETTLE_S, which covers the commit stage, an in-memory
    step after the binlog's fsync, with a wide margin. Raises TransientError when the wait ends after a minute.
    """
    flavour, version = flavour_and_version(conn)
    if flavour == "mariadb":
        try:
            return _mariadb_snapshot(conn, epoch)
        finally:
            rows(conn, "ROLLBACK")
    name, pos, gtid = _status(conn, flavour, version)
    at = Position(epoch, binlog_number(name), pos)
    if rows(conn, "SELECT @@global.gtid_mode")[0][0] != "ON":
        time.sleep(SETTLE_S)
        return Checkpoint(at)
    _await_released(conn, _owned(conn))
    executed = _text(rows(conn, "SELECT @@global.gtid_executed")[0][0])
    if executed != gtid:
        later = ",".join(_gtids_from(conn, name, pos))
        executed = _text(rows(conn, "SELECT GTID_SUBTRACT(%s, %s)", (executed, later))[0][0])
    return Checkpoint(at, _one_line(executed))


def exact_read(conn: pymysql.Connection, epoch: int, *, patience_s: float = _PATIENCE_S) -> Checkpoint:
    """Opens a REPEATABLE READ transaction on `conn` that sees the state at one position, and returns that position.

    Every transaction before the position is visible in it and none after. The caller ends it (COMMIT or ROLLBACK).
    MariaDB says the snapshot's position. On MySQL a moment is awaited at which the binlog's end is the same before and
    after the snapshot was made and nothing was being committed (with GTIDs: none is owned; without: the end had been
    still for 50 ms, since a commit in flight does not show). The tries go to the server in one packet, so a moment of
    a hundred microseconds is enough; a lock is never taken. Raises TransientError after `patience_s` seconds.
    """
    flavour, version = flavour_and_version(conn)
    rows(conn, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if flavour == "mariadb":
        return _mariadb_snapshot(conn, epoch)
    gtids = rows(conn, "SELECT @@global.gtid_mode")[0][0] == "ON"
    show = _show_status(flavour, version)
    _multi_statements(conn, on=True)
    try:
        deadline = time.monotonic() + patience_s
        tries = 0
        while time.monotonic() < deadline:
            tries += 1
            found = _try_exact(conn, show, gtids)
            if found is not None:
                name, pos, gtid = found
                return Checkpoint(Position(epoch, binlog_number(name), pos), _one_line(gtid) if gtids else "")
            time.sleep(min(0.02, 0.0005 * (tries % 40)))
    except (pymysql.Error, OSError) as error:
        raise translated(error, "the start of a consistent read") from error
    finally:
        if conn.open:
            _multi_statements(conn, on=False)
    raise TransientError(
        f"no quiet moment of the source's binlog was found in {patience_s:.0f} s",
        hint="run again when fewer transactions are being committed; give tables a primary key, "
        "since only tables without one are read like this",
        tries=tries,
    )


def _try_exact(conn: pymysql.Connection, show: str, gtids: bool) -> tuple[str, int, str] | None:
    if not gtids:
        still = _status_row(rows(conn, show))
        time.sleep(0.05)
    batch = f"{show}; SELECT @@global.gtid_owned; START TRANSACTION WITH CONSISTENT SNAPSHOT; {show}"
    results = []
    with conn.cursor() as cursor:
        cursor.execute(batch)
        results.append(list(cursor.fetchall()))
        while cursor.nextset():
            results.append(list(cursor.fetchall()))
    before, owned, _, after = results
    exact = before == after and not owned[0][0] and (gtids or still == _status_row(before))
    if exact:
        return _status_row(before)
    rows(conn, "ROLLBACK")
    return None


def _mariadb_snapshot(conn: pymysql.Connection, epoch: int) -> Checkpoint:
    rows(conn, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    rows(conn, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
    found = {str(k).lower(): v for k, v in rows(conn, "SHOW STATUS LIKE 'binlog_snapshot_%'")}
    name, pos = found.get("binlog_snapshot_file", ""), int(found.get("binlog_snapshot_position", 0))
    if not name:
        raise _binlog_off()
    gtid = rows(conn, "SELECT BINLOG_GTID_POS(%s, %s)", (name, pos))[0][0]
    return Checkpoint(Position(epoch, binlog_number(name), pos), _text(gtid))


def _show_status(flavour: Flavour, version: tuple[int, ...]) -> str:
    """The statement was renamed in MySQL 8.2 and the old name taken away in 8.4."""
    return "SHOW BINARY LOG STATUS" if flavour == "mysql" and version >= (8, 4) else "SHOW MASTER STATUS"


def _status(conn: pymysql.Connection, flavour: Flavour, version: tuple[int, ...]) -> tuple[str, int, str]:
    return _status_row(rows(conn, _show_status(flavour, version)))


def _status_row(found: list[tuple[Any, ...]]) -> tuple[str, int, str]:
    if not found:
        raise _binlog_off()
    row = found[0]
    return str(row[0]), int(row[1]), _one_line(_text(row[4])) if len(row) > 4 else ""


def _binlog_off() -> TerminalError:
    return TerminalError("the source writes no binlog", hint="set log_bin in the server's configuration and restart it")


def _owned(conn: pymysql.Connection) -> set[str]:
    """GTIDs owned now: `uuid:5#123:7#124, uuid2:9#125` (GTID, then the thread that owns it)."""
    found = set()
    for part in _text(rows(conn, "SELECT @@global.gtid_owned")[0][0]).split(","):
        uuid, *numbers = part.strip().split(":")
        tag = ""
        for number in numbers:
            if "#" in number:
                found.add(f"{uuid}{tag}:{number.partition('#')[0]}")
            else:
                tag = f":{number}"  # MySQL 8.3 and later: uuid:tag:5#123
    return found


def _await_released(conn: pymysql.Connection, owned: set[str]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while owned:
        if time.monotonic() > deadline:
            raise TransientError(
                f"a transaction of the source has been committing for {_PATIENCE_S:.0f} s",
                hint="run again when it has ended (SHOW PROCESSLIST on the source)",
                gtids=", ".join(sorted(owned)[:5]),
            )
        time.sleep(0.005)
        owned &= _owned(conn)


def _gtids_from(conn: pymysql.Connection, name: str, pos: int) -> list[str]:
    """GTIDs of the transactions from `pos` of file `name` to the end of the binlog: those of the last moments."""
    files = [f for f, _ in binary_logs(conn) if binlog_number(f) >= binlog_number(name)]
    found = []
    for file in files:
        start = f" FROM {pos:d}" if file == name else ""
        for event in binlog_events(conn, file, start):
            if str(event[2]).lower().startswith("gtid"):
                match = re.search(r"'([0-9a-fA-F-]{36}:[^']+)'", str(event[5]))
                if match is None:
                    raise TerminalError(f"the GTID event at {file}:{event[1]} cannot be read: {event[5]}")
                found.append(match.group(1))
    return found


def _multi_statements(conn: pymysql.Connection, *, on: bool) -> None:
    """COM_SET_OPTION: for these tries only, so that no other statement could ever smuggle in a second one."""
    conn._execute_command(_COM_SET_OPTION, (b"\0\0" if on else b"\1\0"))
    conn._read_packet()


def _text(value: object) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else "" if value is None else str(value)


def _one_line(gtids: str) -> str:
    """MySQL breaks the lines of a GTID set."""
    return gtids.replace("\n", "").replace(" ", "")
