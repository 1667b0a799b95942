"""The user that Lakeward connects as, with the least it can work with.

REPLICATION SLAVE asks for the binlog, REPLICATION CLIENT (BINLOG MONITOR, as MariaDB prints it) for the server's
position, and SELECT, on the schemas that are copied alone, for the snapshot and for `verify`. No lock, no write, no
RELOAD. The same statements are in the README for a server of one's own.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from lakeward.embedded.server import EmbeddedServer

USER = "replicator"
EVERY_SCHEMA = "*"


def replicator_sql(schemas: Sequence[str], password: str, *, host: str) -> list[str]:
    """The statements that make the user anew; `schemas` may be `*` for all. `password` holds no quote or backslash."""
    user = f"'{USER}'@'{host}'"
    return [
        f"DROP USER IF EXISTS {user}",
        f"CREATE USER {user} IDENTIFIED BY '{password}'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}",
        *(f"GRANT SELECT ON {_grant_scope(schema)} TO {user}" for schema in schemas),
    ]


def ensure_replicator(server: EmbeddedServer, schemas: Sequence[str]) -> str:
    """The user's password. Made with the user on the first call, and kept in `<folder>/password`, mode 0600."""
    file = server.folder / "password"
    if file.exists():
        return file.read_text(encoding="ascii").strip()
    password = secrets.token_urlsafe(24)
    with server.admin() as connection, connection.cursor() as cursor:
        for statement in replicator_sql(schemas, password, host=server.host):
            cursor.execute(statement)
    _write_private(file, password)
    return password


def replicator_url(server: EmbeddedServer) -> str:
    return f"mysql://{USER}@{server.host}:{server.port}"


def _grant_scope(schema: str) -> str:
    """A schema's name in GRANT is a pattern: `_` and `%` stand for any character unless they are escaped."""
    if schema == EVERY_SCHEMA:
        return "*.*"
    escaped = schema.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%").replace("`", "``")
    return f"`{escaped}`.*"


def _write_private(file: Path, text: str) -> None:
    draft = file.with_name(f"{file.name}.draft")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(text + "\n")
    draft.replace(file)
