"""How long a server keeps its binlog, by its own settings."""

from __future__ import annotations

from collections.abc import Mapping

import pymysql

from bronze.source.server import rows

_DAY_S = 86_400


def kept_s(conn: pymysql.Connection) -> int:
    """Seconds that a binlog file is kept after its last event; 0 where it is kept until it is purged by hand."""
    return kept_by({str(k).lower(): str(v) for k, v in rows(conn, "SHOW GLOBAL VARIABLES LIKE '%expire_logs%'")})


def kept_by(settings: Mapping[str, str]) -> int:
    """`kept_s` from global variables that were read already; names in lower case."""
    seconds = int(settings.get("binlog_expire_logs_seconds") or 0)
    return seconds or int(float(settings.get("expire_logs_days") or 0) * _DAY_S)
