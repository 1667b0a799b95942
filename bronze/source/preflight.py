"""What the source must have before anything is copied, each finding with the statement or setting that mends it.

An `error` stops the run: what it names would lose or alter data, or fail later with a worse message. A `warning` is
printed and the run goes on. Settings are read from the server, privileges are found out by using them where that is
possible, since a role's or a wildcard's grants are too easy to misread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

import pymysql

from bronze.source.findings import Finding, error, warning
from bronze.source.prepared_preflight import check_prepared
from bronze.source.retention import kept_by
from bronze.source.server import Flavour, flavour_and_version, rows
from bronze.source.tables_preflight import check_tables
from lakeward.config import Config
from lakeward.errors import LakewardError, TerminalError

__all__ = ["Finding", "check", "require"]

FLOOR = {"mysql": (8, 0, 1), "mariadb": (10, 5, 0)}  # binlog_row_metadata: MySQL 8.0.1, MariaDB 10.5.0
DAY_S = 86_400
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
Settings = Mapping[str, str]


def check(conn: pymysql.Connection, config: Config, known: Collection[str] = ()) -> list[Finding]:
    """Every finding, errors first; the connection is the replication user's. `known` and ConfigError as `discover`."""
    flavour, version = flavour_and_version(conn)
    settings = {str(k).lower(): str(v) for k, v in rows(conn, "SHOW GLOBAL VARIABLES")}
    found = [*_version(flavour, version), *_binlog(flavour, settings), *_retention(flavour, settings)]
    if settings.get("log_bin") == "ON":
        found += _grants(conn, flavour)
    found += _replica(conn, settings)
    found += _server_id(conn, config, settings, flavour, version)
    found += _session(conn, config)
    found += check_prepared(conn, flavour)
    if flavour == "mysql" and settings.get("gtid_mode") != "ON":
        found.append(
            warning(
                f"gtid_mode is {settings.get('gtid_mode', 'OFF')}: after a failover the place in the new server's "
                "binlog cannot be found, and tables without a key are read under a weaker check",
                "gtid_mode = ON and enforce_gtid_consistency = ON (online: step by step, see 'Enabling GTID "
                "Transactions Online' in the MySQL manual)",
            )
        )
    found += check_tables(conn, config, known)
    return sorted(found, key=lambda f: f.level != "error")


def require(findings: list[Finding]) -> None:
    """Raises TerminalError that lists each error with what mends it; warnings pass."""
    errors = [f for f in findings if f.level == "error"]
    if errors:
        lines = "".join(f"\n  - {f.what}\n      {f.remedy}" for f in errors)
        raise TerminalError(
            f"the source is not ready to be copied:{lines}",
            hint="make the changes above, then run the same command again",
            errors=len(errors),
        )


def _version(flavour: Flavour, version: tuple[int, ...]) -> list[Finding]:
    if version >= FLOOR[flavour]:
        return []
    name = {"mysql": "MySQL", "mariadb": "MariaDB"}[flavour]
    at, floor = (".".join(map(str, v)) for v in (version, FLOOR[flavour]))
    return [error(f"{name} {at} cannot describe its row events", f"upgrade the server to {name} {floor} or later")]


def _binlog(flavour: Flavour, settings: Settings) -> list[Finding]:
    if settings.get("log_bin") != "ON":
        return [error("the binlog is off (log_bin)", "log_bin = binlog   # under [mysqld], then restart the server")]
    wanted = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL"}
    found = []
    for name, value in wanted.items():
        # binlog_format is deprecated: a server that no longer has it knows row events alone.
        now = settings.get(name, value if name == "binlog_format" else "absent")
        if now.upper() != value:
            found.append(error(f"{name} is {now}, and has to be {value}", _set(flavour, settings, name, value)))
    if "PARTIAL_JSON" in settings.get("binlog_row_value_options", ""):
        found.append(
            warning(
                "binlog_row_value_options is PARTIAL_JSON: updates of JSON columns are logged as differences, which "
                "are read one event at a time and not many at once",
                _set(flavour, settings, "binlog_row_value_options", ""),
            )
        )
    return found


def _set(flavour: Flavour, settings: Settings, name: str, value: str) -> str:
    if _on_rds(settings):
        return f"set {name} = {value} in the DB (cluster) parameter group, then reboot if it says pending-reboot"
    line = f"{name} = {value}" if value else f"{name} ="
    if flavour == "mysql":
        return f"SET PERSIST {name} = '{value}';   -- or under [mysqld]: {line}"
    return f"SET GLOBAL {name} = '{value}';   -- and under [mariadb], to survive a restart: {line}"


def _on_rds(settings: Settings) -> bool:
    return "/rdsdbbin" in settings.get("basedir", "")


def _retention(flavour: Flavour, settings: Settings) -> list[Finding]:
    if _on_rds(settings):
        # RDS purges by a setting of its own, which a replication user cannot read.
        return [
            warning(
                "on RDS and Aurora the binlog is kept for as long as 'binlog retention hours' says, which is not at "
                "all unless it has been set",
                "CALL mysql.rds_set_configuration('binlog retention hours', 168);",
            )
        ]
    seconds = kept_by(settings)
    if not seconds or seconds >= 7 * DAY_S:
        return []
    hours = seconds / 3600
    risk = "a run that starts later than that" if seconds >= DAY_S else "a snapshot or a pause longer than that"
    return [
        warning(
            f"the binlog is kept for {hours:g} hours: {risk} has to begin all over; 7 days are advised",
            _set(flavour, settings, "binlog_expire_logs_seconds", str(7 * DAY_S)).replace(
                f"'{7 * DAY_S}'", str(7 * DAY_S)
            ),
        )
    ]


def _grants(conn: pymysql.Connection, flavour: Flavour) -> list[Finding]:
    user = rows(conn, "SELECT CURRENT_USER()")[0][0]
    name, _, host = str(user).rpartition("@")
    account = f"'{name.replace(chr(39), chr(39) * 2)}'@'{host}'"
    monitor = "BINLOG MONITOR" if flavour == "mariadb" else "REPLICATION CLIENT"
    missing = []
    if not _allowed(lambda: rows(conn, "SHOW BINARY LOGS")):
        missing.append(monitor)
    granted = " ".join(str(row[0]).upper() for row in rows(conn, "SHOW GRANTS"))
    held = any(word in granted for word in ("REPLICATION SLAVE", "REPLICATION REPLICA", "ALL PRIVILEGES ON *.*"))
    # MySQL asks for REPLICATION SLAVE here, so a role's grant counts too; MariaDB asks for BINLOG MONITOR.
    if not held and not (flavour == "mysql" and _allowed(lambda: rows(conn, "SHOW BINLOG EVENTS LIMIT 1"))):
        missing.append("REPLICATION SLAVE")
    return [error(f"the user {user} lacks {m}", f"GRANT {m} ON *.* TO {account};") for m in missing]


def _allowed(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except TerminalError as failure:
        if failure.facts.get("error") in (1044, 1045, 1142, 1143, 1227):
            return False
        raise
    return True


def _replica(conn: pymysql.Connection, settings: Settings) -> list[Finding]:
    old = "log_slave_updates" in settings and "log_replica_updates" not in settings
    logs = settings.get("log_slave_updates" if old else "log_replica_updates", "ON")
    try:
        upstream = rows(conn, "SHOW SLAVE STATUS" if old else "SHOW REPLICA STATUS")
    except LakewardError:  # MariaDB wants REPLICA MONITOR for this; without it, what is unknown stays unsaid
        return []
    if not upstream:
        return []
    found = []
    if logs != "ON":
        name = "log_slave_updates" if old else "log_replica_updates"
        found.append(
            error(
                f"the source is a replica and {name} is off: what it replicates is not in its binlog",
                f"{name} = ON   # under [mysqld], then restart the server",
            )
        )
    found += [
        warning(f"{name} is OFF: this replica commits in an order its source never had", f"{name} = ON")
        for name in ("replica_preserve_commit_order", "slave_preserve_commit_order")
        if settings.get(name) == "OFF"
    ]
    return found


def _server_id(
    conn: pymysql.Connection, config: Config, settings: Settings, flavour: Flavour, version: tuple[int, ...]
) -> list[Finding]:
    ours = config.source.server_id
    remedy = "[source] server_id = a number that no server of this replication group has"
    if settings.get("server_id") == str(ours):
        return [error(f"[source] server_id = {ours} is the source server's own", remedy)]
    if settings.get("server_id") == "0":
        return [error("the source's server_id is 0, with which it serves no replica", "SET GLOBAL server_id = 1;")]
    modern = flavour == "mysql" and version >= (8, 0, 22)
    try:
        replicas = rows(conn, "SHOW REPLICAS" if modern else "SHOW SLAVE HOSTS")
    except LakewardError:  # a privilege of its own on MariaDB
        return []
    if any(str(row[0]) == str(ours) for row in replicas):
        return [warning(f"a replica with server_id {ours} is connected: the two would throw each other out", remedy)]
    return []


def _session(conn: pymysql.Connection, config: Config) -> list[Finding]:
    found = []
    host = "127.0.0.1" if config.source.embedded else config.source.address()[1]
    cipher = rows(conn, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
    if host not in _LOOPBACK and not (cipher and cipher[0][1]):
        found.append(
            warning(
                f"the connection to {host} is not encrypted", '[source] tls = { mode = "verify_identity", ca = "…" }'
            )
        )
    skew = float(rows(conn, "SELECT UNIX_TIMESTAMP(NOW(6))")[0][0]) - time.time()
    if abs(skew) > 30:
        found.append(
            warning(
                f"the source's clock is {skew:+.0f} s off this machine's: lag is shown wrong by as much",
                "run NTP on both",
            )
        )
    return found
