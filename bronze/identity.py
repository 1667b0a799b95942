"""Whether the server that answers is the one the checkpoint speaks of, and still has what comes after it.

A file name and an offset mean something on one server only, and only while it keeps the file. Going on elsewhere would
"succeed" with events missing; so each way in which it can happen is told apart, with the exact gap and the ways on.
"""

from __future__ import annotations

import pymysql

from bronze.binlog.gtid import GtidPosition
from bronze.source.server import ServerFacts, binary_logs, facts, rows
from lakeward.errors import WrongServerError
from lakeward.position import Checkpoint, binlog_name, binlog_number
from lakeward.state import BronzeState

_WAYS_ON = "`lakeward resnapshot --all` reads every table afresh from this server"


def check_server(connection: pymysql.Connection, state: BronzeState) -> None:
    """Note the server's facts in `state`, or raise WrongServerError."""
    now = facts(connection)
    known = state.server.get("uuid")
    at = state.checkpoint
    if known is not None and known != now.uuid and at is not None:
        raise WrongServerError(
            "this is not the server that the lake was read from",
            hint=f"point [source] url back at it, or {_WAYS_ON}",
            expected=known,
            found=now.uuid,
            checkpoint=at.at,
        )
    if at is not None:
        logs = {binlog_number(name): size for name, size in binary_logs(connection)}
        first, last = min(logs), max(logs)
        if at.at.file < first:
            raise WrongServerError(
                f"the source has purged its binlog up to file number {first}; the checkpoint is in {at.at.file}",
                hint=f"{_WAYS_ON}; keep the binlog longer (binlog_expire_logs_seconds)",
                missing=f"{at.at} to {at.at.epoch}:{first}:4",
            )
        if at.at.file > last or at.at.pos > logs.get(at.at.file, at.at.pos):
            raise WrongServerError(
                f"the source's binlog was reset: it ends at file number {last}, before the checkpoint",
                hint=_WAYS_ON,
                checkpoint=at.at,
                ends=f"{last}:{logs[last]}",
            )
        _check_gtids(connection, now, at)
    state.server = now.to_json()
    state.server["uuid"] = known or now.uuid


def _check_gtids(connection: pymysql.Connection, now: ServerFacts, at: Checkpoint) -> None:
    """The transactions before the checkpoint have to be the ones that were read, not just as many bytes of others."""
    if not at.gtid:
        return
    if now.flavour == "mysql":
        missing = str(rows(connection, "SELECT GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)", (at.gtid,))[0][0] or "")
        same = not missing.strip()
    else:
        file = binlog_name(now.binlog_name, at.at.file)
        found = str(rows(connection, "SELECT BINLOG_GTID_POS(%s, %s)", (file, at.at.pos))[0][0] or "")
        missing = f"{at.gtid} (the server has {found or 'none'} there)"
        same = GtidPosition(found) == GtidPosition(at.gtid)
    if not same:
        raise WrongServerError(
            "the source's history is not the one that was read: transactions of the lake are not in it",
            hint=_WAYS_ON,
            checkpoint=at.at,
            missing=missing,
        )
