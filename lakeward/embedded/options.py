"""The option file of an embedded server: what Lakeward asks every source for, and what makes a throw-away one quick.

Promise: the settings under SOURCE are the ones that the preflight asks a user's own server for, word for word. The
ones under RELAXED give up durability on a power cut and nothing else: a log is still written to the operating system
at each commit, so a killed server loses no transaction. They do not belong on a server that matters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from lakeward.embedded.binaries import ServerBinary
from lakeward.embedded.certificates import CA, CERTIFICATE, KEY

SOURCE: dict[str, str] = {
    "log-bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "default-time-zone": "+00:00",
    "character-set-server": "utf8mb4",
    "max_allowed_packet": "1G",
    # Functions of the demo and of tests are made by a user without SUPER; MySQL will drop the variable.
    "loose-log_bin_trust_function_creators": "ON",
}
SOURCE_OF_FLAVOUR: dict[str, dict[str, str]] = {
    "mysql": {"gtid_mode": "ON", "enforce_gtid_consistency": "ON"},
    "mariadb": {"gtid_strict_mode": "ON"},
}
RELAXED: dict[str, str] = {
    "sync_binlog": "0",
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_doublewrite": "OFF",
    "innodb_buffer_pool_size": "64M",
    "performance_schema": "OFF",
    "table_open_cache": "800",
    "max_connections": "100",
    "skip-name-resolve": "",
    "bind-address": "127.0.0.1",
}
RELAXED_OF_FLAVOUR: dict[str, dict[str, str]] = {
    "mysql": {"mysqlx": "OFF", "secure-file-priv": "NULL"},
    "mariadb": {"innodb_log_file_size": "64M"},
}


def option_file(
    binary: ServerBinary, folder: Path, *, socket: Path, port: int, server_id: int, settings: Mapping[str, str]
) -> str:
    """The text of `my.cnf` for the server in `folder`.

    `settings` come last and win; names may be written with `-` or `_`, and an empty value means a bare option
    (`skip-log-bin`).
    """
    options = {
        "basedir": str(binary.basedir),
        "datadir": str(folder / "data"),
        "tmpdir": str(folder / "tmp"),
        "socket": str(socket),
        "port": str(port),
        "pid-file": str(folder / "server.pid"),
        "log-error": str(folder / "error.log"),
        "ssl-ca": str(folder / "tls" / CA),
        "ssl-cert": str(folder / "tls" / CERTIFICATE),
        "ssl-key": str(folder / "tls" / KEY),
        "server-id": str(server_id),
        **SOURCE,
        **SOURCE_OF_FLAVOUR[binary.flavour],
        **RELAXED,
        **RELAXED_OF_FLAVOUR[binary.flavour],
    }
    given = {_canonical(name) for name in settings}
    kept = {name: value for name, value in options.items() if _canonical(name) not in given}
    lines = [_line(name, value) for name, value in {**kept, **settings}.items()]
    return "\n".join(["[mysqld]", *lines, ""])


def initialisation(binary: ServerBinary, data: Path) -> tuple[list[str], str | None]:
    """The options, and what goes to standard input, with which `binary` makes the data folder `data` and ends.

    Raises FileNotFoundError when the package lacks what that takes.
    """
    here = [f"--datadir={data}", *binary.arguments, *run_as()]
    if binary.flavour == "mysql":
        return [*here, "--initialize-insecure"], None
    bootstrap = ["--bootstrap", "--skip-log-bin", "--log-warnings=0", "--enforce-storage-engine="]
    return [*here, *bootstrap], bootstrap_sql(binary.basedir)


def bootstrap_sql(basedir: Path) -> str:
    """What `mariadb-install-db` feeds a MariaDB in bootstrap mode, less the help tables and the open accounts.

    Done here because the script wants programs (`resolveip`) that a server-only package leaves out. root keeps the
    socket alone, which lies in a folder of this user. Raises FileNotFoundError when the package lacks the scripts.
    """
    share = next(
        (f for f in (basedir / "share", *(basedir / "share").glob("m*")) if (f / "fill_help_tables.sql").is_file()),
        basedir / "share",
    )
    names = ("system_tables.sql", "performance_tables.sql", "system_tables_data.sql", "sys_schema.sql")
    return "".join(
        [
            "CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\n",
            "SET @auth_root_socket = NULL;\nSET @current_hostname = 'localhost';\n",
            *(_script(share, name) for name in names),
            "USE mysql;\nDELETE FROM global_priv WHERE Host <> 'localhost';\n",
            "DELETE FROM proxies_priv WHERE Host <> 'localhost';\n",
        ]
    )


def _script(share: Path, name: str) -> str:
    for prefix in ("mariadb_", "mysql_"):
        if (share / f"{prefix}{name}").is_file():
            return (share / f"{prefix}{name}").read_text(encoding="utf-8")
    raise FileNotFoundError(f"{share} holds no mariadb_{name}")


def run_as() -> tuple[str, ...]:
    """The `--user` a server started by root needs: it refuses to run as root unless root is named."""
    return ("--user=root",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()


def _canonical(name: str) -> str:
    return re.sub("^loose[-_]", "", name).replace("-", "_").lower()


def _line(name: str, value: str) -> str:
    return f"{name}={_quoted(value)}" if value else name


def _quoted(value: str) -> str:
    """A value as an option file takes it: `#` starts a comment and blanks end it, unless it is quoted."""
    if not re.search(r"[#;'\"\s\\]", value):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
