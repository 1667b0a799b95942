"""A real replica of a test's server, by the servers' own GTID replication, to be promoted when the first one dies."""

from __future__ import annotations

import shutil
import time
from typing import Any

from lakeward.embedded.server import EmbeddedServer

# The replica applies in parallel and commits out of order, so its binlog is another one than its source's.
SETTINGS: dict[str, dict[str, str]] = {
    "mysql": {
        "log_replica_updates": "ON",
        "replica_parallel_workers": "4",
        "replica_preserve_commit_order": "OFF",
        "skip_replica_start": "ON",
    },
    "mariadb": {
        "log_slave_updates": "ON",
        "slave_parallel_threads": "4",
        "slave_parallel_mode": "optimistic",
        "skip_slave_start": "ON",
    },
}
WAIT_S = 60.0


def replicate(source: EmbeddedServer, replica: EmbeddedServer, *, new: bool = True) -> None:
    """Make `replica` a replica of `source` and start it: a new server from the beginning of the source's log.

    The source's replication user then comes along in the log, and so its password is taken over.
    """
    reset = {"mysql": "RESET BINARY LOGS AND GTIDS", "mariadb": "RESET MASTER"}[replica.flavour]
    with source.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE USER IF NOT EXISTS 'follower'@'127.0.0.1' IDENTIFIED BY 'follower'")
        cursor.execute("GRANT REPLICATION SLAVE ON *.* TO 'follower'@'127.0.0.1'")
    with replica.admin() as connection, connection.cursor() as cursor:
        if new:
            cursor.execute("DROP USER IF EXISTS 'replicator'@'127.0.0.1'")
            cursor.execute(reset)
        cursor.execute(_CHANGE[source.flavour].format(port=source.port))
        cursor.execute("START REPLICA")
    if new:
        shutil.copy(source.folder / "password", replica.folder / "password")


_CHANGE = {
    "mysql": "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'follower', "
    "SOURCE_PASSWORD = 'follower', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
    "mariadb": "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'follower', "
    "MASTER_PASSWORD = 'follower', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1, "
    "MASTER_SSL_VERIFY_SERVER_CERT = 0",
}


def promote(replica: EmbeddedServer, executed: str | None = None) -> None:
    """Apply what has arrived, all of `executed` at least where it is given, end the replication, and take writes."""
    if executed is not None:
        await_executed(replica, executed)
    with replica.admin() as connection, connection.cursor() as cursor:
        stop = "STOP REPLICA IO_THREAD" if replica.flavour == "mysql" else "STOP SLAVE IO_THREAD"
        cursor.execute(stop)
        deadline = time.monotonic() + WAIT_S
        while not _applied(cursor, replica.flavour):
            if time.monotonic() > deadline:
                raise TimeoutError("the replica has not applied what it received")
            time.sleep(0.02)
        cursor.execute("STOP REPLICA")


def _applied(cursor: Any, flavour: str) -> bool:
    cursor.execute("SHOW REPLICA STATUS")
    found = dict(zip([d[0] for d in cursor.description], cursor.fetchone(), strict=True))
    failed = found.get("Last_SQL_Error")
    if failed:
        raise RuntimeError(f"the replica stopped: {failed}")
    if flavour == "mysql":
        cursor.execute("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (found["Retrieved_Gtid_Set"],))
        return bool(cursor.fetchone()[0])
    same_file = found["Master_Log_File"] == found["Relay_Master_Log_File"]
    return bool(same_file and found["Read_Master_Log_Pos"] == found["Exec_Master_Log_Pos"])


def hold(replica: EmbeddedServer) -> None:
    """Nothing of the source reaches `replica` any more."""
    with replica.admin() as connection, connection.cursor() as cursor:
        cursor.execute("STOP REPLICA")


def caught_up(source: EmbeddedServer, replica: EmbeddedServer) -> None:
    """Wait until `replica` has all that `source` has committed."""
    name = {"mysql": "gtid_executed", "mariadb": "gtid_binlog_pos"}[source.flavour]
    with source.admin() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT @@GLOBAL.{name}")
        await_executed(replica, str(cursor.fetchone()[0]))


def await_executed(replica: EmbeddedServer, gtids: str) -> None:
    """Wait until `replica` has these transactions."""
    wait = {"mysql": "WAIT_FOR_EXECUTED_GTID_SET", "mariadb": "MASTER_GTID_WAIT"}[replica.flavour]
    with replica.admin() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT {wait}(%s, %s)", (gtids, WAIT_S))
        if cursor.fetchone()[0] != 0:
            raise TimeoutError("the replica does not catch up")
