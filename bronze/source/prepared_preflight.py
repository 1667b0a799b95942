"""XA transactions that were prepared and that nobody has ended: the lake waits for them, and their rows are locked."""

from __future__ import annotations

import pymysql

from bronze.source.findings import Finding, warning
from bronze.source.server import Flavour, rows
from lakeward.errors import LakewardError

_NAMED_MAX = 5


def check_prepared(conn: pymysql.Connection, flavour: Flavour) -> list[Finding]:
    """A warning for each, with the statement that ends it. MySQL asks for XA_RECOVER_ADMIN to see them, which the
    replication user need not have: without it nothing is said."""
    sql = "XA RECOVER CONVERT XID" if flavour == "mysql" else "XA RECOVER FORMAT='SQL'"
    try:
        found = rows(conn, sql)
    except LakewardError:
        return []
    warnings = []
    for number, global_bytes, _, data in found[:_NAMED_MAX]:
        xid = _hexadecimal(str(data), int(global_bytes), int(number)) if flavour == "mysql" else str(data)
        warnings.append(
            warning(
                f"the XA transaction {xid} is prepared: until it ends, its changes are not in the lake, and the lake's "
                "position may wait for it",
                f"if the program that prepared it is gone: XA ROLLBACK {xid};   -- or XA COMMIT {xid};",
            )
        )
    return warnings


def _hexadecimal(data: str, global_bytes: int, number: int) -> str:
    """MySQL's `0x…` of both parts of the name, as XA COMMIT takes it."""
    digits = data.removeprefix("0x")
    return f"X'{digits[: 2 * global_bytes]}',X'{digits[2 * global_bytes :]}',{number}"
