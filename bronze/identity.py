"""Whether the server that answers is the one the checkpoint speaks of, and still has what comes after it.

A file name and an offset mean something on one server only, and only while it keeps the file. Going on elsewhere would
"succeed" with events missing; so each way in which it can happen is told apart, with the exact gap and the ways on.
On another server of the same replication the place is found by GTIDs (`bronze/failover.py`), and a new epoch begins.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pymysql
from pymysql.constants import ER

from bronze.binlog.gtid import GtidPosition, GtidSet, union
from bronze.failover import executed, found_by_gtid, never_had, not_read
from bronze.source.binlogs import Binlogs
from bronze.source.server import ServerFacts, binlog_events, facts, position_now, rows
from lakeward.errors import TerminalError, WrongServerError
from lakeward.position import FIRST, Checkpoint, Position, binlog_name
from lakeward.state import BronzeState

RESNAPSHOT = "`lakeward resnapshot --all`, which reads every table afresh from this server"
ACCEPT = "`lakeward bronze --accept-gap`, which goes on without them; `lakeward status` then names the gap"


@dataclass(frozen=True)
class Break:
    """The place of the checkpoint is not to be gone on from. `missing` is what is lost: exact GTIDs where there are
    any, else positions; empty where nothing is. `to` is where the log goes on, and None where that cannot be told;
    `seen` are transactions from there on that were read before."""

    what: str
    missing: str
    to: Checkpoint | None
    seen: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


def check_server(connection: pymysql.Connection, state: BronzeState, *, accept_gap: bool = False) -> bool:
    """Note the server in `state`; whether the checkpoint moved to another place of the same history.

    Raises WrongServerError where transactions are missing, unless `accept_gap`: then the gap stands in `state.gaps`.
    """
    now = facts(connection)
    at = state.checkpoint
    known = state.server.get("uuid")
    moved = False
    if at is not None:
        if not state.seen_from(at.at):
            state.seen = None
        if known is not None and (known != now.uuid or state.server.get("flavour", now.flavour) != now.flavour):
            found: Break | None = _other_server(connection, state, now, at)
        else:
            found = _same_server(connection, state, now, at)
        if found is not None:
            _go_on(connection, state, now, at, found, accept_gap)
            moved = True
    if known != now.uuid or not state.servers:
        state.servers.append({"uuid": now.uuid, "epoch": state.epoch, "since_ms": int(time.time() * 1000)})
    state.server = now.to_json()
    return moved


def _go_on(
    connection: pymysql.Connection, state: BronzeState, now: ServerFacts, at: Checkpoint, found: Break, accept_gap: bool
) -> None:
    if found.missing and not (accept_gap and found.to):
        ways = f"{RESNAPSHOT}; or {ACCEPT}" if found.to else f"point [source] url back, or {RESNAPSHOT}"
        raise WrongServerError(found.what, hint=ways, checkpoint=at.at, missing=found.missing, **found.facts)
    assert found.to is not None
    if found.missing:
        _note_gap(state, found.what, found.missing, at.at, found.to.at)
    if found.missing or found.to.at.epoch != at.at.epoch:
        for table in state.tables.values():
            if table.status == "snapshot":  # its chunks may hold what this server never had, or lack what is lost
                table.status, table.reason = "waiting for snapshot", "the source changed while it was read"
    state.epoch, state.checkpoint = found.to.at.epoch, found.to
    end = position_now(connection, state.epoch).at
    state.seen = {"gtid": found.seen, "until": end.to_json()} if found.seen else None


def _note_gap(state: BronzeState, what: str, missing: str, start: Position, end: Position) -> None:
    concerned = {n: t.generation for n, t in state.tables.items() if t.status == "streaming"}
    state.gaps.append(
        {
            "why": what,
            "missing": missing,
            "from": str(start),
            "to": str(end),
            "accepted_ms": int(time.time() * 1000),
            "accepted_by": "--accept-gap",
            "tables": concerned,
        }
    )


def _other_server(connection: pymysql.Connection, state: BronzeState, now: ServerFacts, at: Checkpoint) -> Break:
    what = "this is not the server that the lake was read from"
    told = {"expected": state.server.get("uuid"), "found": now.uuid}
    if now.flavour != state.server.get("flavour", now.flavour) or not now.gtid_mode or not at.gtid:
        missing = "not to be told: without GTIDs on both, a place of one server cannot be found on another"
        return Break(what, missing, None, facts=told)
    found = found_by_gtid(connection, now.flavour, at.gtid)
    to = Checkpoint(Position(state.epoch + 1, found.file, FIRST), found.executed, at.ts_ms)
    if found.missing:
        what += ", and it lacks transactions of the lake" if found.lost else ", and its log begins after the checkpoint"
    return Break(what, found.missing, to, found.seen, told)


def _same_server(connection: pymysql.Connection, state: BronzeState, now: ServerFacts, at: Checkpoint) -> Break | None:
    logs = Binlogs(connection, now.flavour)
    if at.at.file < logs.first:
        return _purged(connection, logs, now, at)
    if at.at.file > logs.last:
        what = f"the source's binlog was reset: it ends at file number {logs.last}, before the checkpoint"
        return _begun_anew(connection, logs, now, at, what)
    if at.at.pos > logs.sizes[at.at.file]:
        what = (
            f"the source's binlog file number {at.at.file} ends at {logs.sizes[at.at.file]}, before the checkpoint: "
            "it was reset, or cut short by a crash"
        )
        cut_short = logs.first < at.at.file < logs.last  # a new file is begun after a crash
        return _begun_anew(connection, logs, now, at, what, at.at.file + 1 if cut_short else None)
    if not at.gtid or _same_history(connection, state, now, logs, at):
        return None
    what = "the source's history is not the one that was read: transactions of the lake are not in it"
    return _begun_anew(connection, logs, now, at, what)


def _purged(connection: pymysql.Connection, logs: Binlogs, now: ServerFacts, at: Checkpoint) -> Break:
    before = logs.executed_before(logs.first) if now.gtid_mode else ""
    if now.gtid_mode and at.gtid:
        missing = not_read(now.flavour, before, at.gtid)
    else:
        missing = f"{at.at} to {at.at.epoch}:{logs.first}:{FIRST}"
    to = Position(at.at.epoch, logs.first, FIRST)
    what = f"the source has purged its binlog up to file number {logs.first}; the checkpoint is in {at.at.file}"
    told = {"keep_it_longer": "binlog_expire_logs_seconds"}
    return Break(what, missing, Checkpoint(to, union(now.flavour, at.gtid, before), at.ts_ms), facts=told)


def _begun_anew(
    connection: pymysql.Connection, logs: Binlogs, now: ServerFacts, at: Checkpoint, what: str, file: int | None = None
) -> Break:
    """The same server with another log, which is new from `file` on (the oldest where it is None). It may give a GTID
    to a second transaction, so none is recognised by name."""
    file = logs.first if file is None else file
    before = logs.executed_before(file) if now.gtid_mode else ""
    missing = ""
    if at.gtid and now.gtid_mode:
        missing = never_had(now.flavour, at.gtid, executed(connection, now.flavour))
    missing = missing or f"whatever was written after {at.at} and before {file}:{FIRST}"
    to = Checkpoint(Position(at.at.epoch + 1, file, FIRST), before, at.ts_ms)
    return Break(what, missing, to, facts={"ends": f"{logs.last}:{logs.sizes[logs.last]}"})


def _same_history(
    connection: pymysql.Connection, state: BronzeState, now: ServerFacts, logs: Binlogs, at: Checkpoint
) -> bool:
    """Whether the transactions before the checkpoint are the ones that were read, not just as many bytes of others."""
    overlap = bool(state.seen_from(at.at))
    if now.flavour == "mysql":
        all_there = executed(connection, "mysql")
        if never_had("mysql", at.gtid, all_there):
            return False
        return overlap or GtidSet(all_there) == GtidSet(at.gtid) or _new_there(connection, logs, at)
    if overlap:
        return not never_had("mariadb", at.gtid, executed(connection, "mariadb"))
    file = binlog_name(now.binlog_name, at.at.file)
    found = str(rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, at.at.pos))[0][0] or "")
    return GtidPosition(found) == GtidPosition(at.gtid)


def _new_there(connection: pymysql.Connection, logs: Binlogs, at: Checkpoint) -> bool:
    """Whether a transaction that was not read begins at the checkpoint, or the file ends there. A server that was reset
    gives the same GTIDs again."""
    try:
        found = binlog_events(connection, logs.names[at.at.file], f" FROM {at.at.pos:d} LIMIT 1")
    except TerminalError as error:
        if error.facts.get("error") == ER.ERROR_WHEN_EXECUTING_COMMAND:  # no event begins there
            return False
        raise
    for _, pos, kind, _, _, info in found:
        if int(pos) != at.at.pos:  # it may take the next event where none begins at the place
            return at.at.pos == FIRST
        if str(kind).lower().startswith("gtid"):
            return not GtidSet(at.gtid).holds(str(info).split("'")[1])
    return True
