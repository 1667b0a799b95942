"""Servers and schemas as tests hold them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymysql.connections import Connection
from servers.mysql_binaries import mysql_binary

from lakeward.artifacts import cache_dir
from lakeward.embedded.binaries import Flavour, ServerBinary, mariadb_from_maven, publish, server_on_path
from lakeward.embedded.options import RELAXED, RELAXED_OF_FLAVOUR, SOURCE, SOURCE_OF_FLAVOUR
from lakeward.embedded.process import command_line
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.server import EmbeddedServer
from lakeward.names import mysql_identifier


def binary(flavour: str) -> ServerBinary:
    """The program the tests run: MySQL as `mysql_binary` finds it; MariaDB from PATH, else from Maven Central."""
    if flavour == "mysql":
        found: ServerBinary = mysql_binary()
        return found
    return server_on_path("mariadb") or mariadb_from_maven()


def new_server(flavour: str, folder: Path, settings: Mapping[str, str]) -> EmbeddedServer:
    """A server with its data made, not started."""
    server = EmbeddedServer(binary(flavour), folder, settings)
    layout = any(re.match("innodb|lower_case", name) for name in settings)
    server.initialise(copy_of=None if layout else _template(server.binary))
    return server


def temporary_folder(flavour: str) -> Path:
    """A folder whose name says which process will remove it."""
    return Path(tempfile.mkdtemp(prefix=f"lakeward-{flavour}-{os.getpid()}-"))


def remove_orphans() -> None:
    """Ends the servers of test runs that were killed and could not do it themselves."""
    for folder in Path(tempfile.gettempdir()).glob("lakeward-m*-*-*"):
        owner = re.fullmatch(r"lakeward-(?:mysql|mariadb)-(\d+)-.+", folder.name)
        with contextlib.suppress(OSError):
            if owner and folder.stat().st_uid == os.geteuid() and not command_line(int(owner[1])):
                if server := EmbeddedServer.attach(folder):
                    server.kill()
                shutil.rmtree(folder)


def _template(program: ServerBinary) -> Path:
    """The data folder of a new server of this program, made once a user: MySQL takes three seconds to make one."""
    options = repr((program, SOURCE, SOURCE_OF_FLAVOUR, RELAXED, RELAXED_OF_FLAVOUR))
    name = f"{program.flavour}-data-{hashlib.sha256(options.encode()).hexdigest()[:12]}"
    home = cache_dir() / "servers" / name
    if not home.is_dir():
        with tempfile.TemporaryDirectory(prefix=f".{name}.", dir=home.parent) as draft:
            EmbeddedServer(program, Path(draft)).initialise()
            publish(Path(draft) / "data", home)
    return home


@contextlib.contextmanager
def running(flavour: str, settings: Mapping[str, str] | None = None) -> Iterator[EmbeddedServer]:
    """A new server with the replication user (SELECT on every schema); killed and removed at the end."""
    folder = temporary_folder(flavour)
    try:
        server = new_server(flavour, folder, settings or {})
        try:
            server.start()
            ensure_replicator(server, [EVERY_SCHEMA])
            yield server
        finally:
            # Its data goes with it: a clean end would only take time.
            server.kill()
            shutil.rmtree(server.socket.parent, ignore_errors=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Database:
    """A schema on a running server, and root's connection with that schema as its default."""

    name: str
    server: EmbeddedServer
    root: Connection

    @classmethod
    @contextlib.contextmanager
    def create(cls, server: EmbeddedServer, name: str) -> Iterator[Database]:
        with server.admin() as connection:
            made = cls(name, server, connection)
            made.execute(f"CREATE DATABASE {mysql_identifier(name)} CHARACTER SET utf8mb4")
            connection.select_db(name)
            try:
                yield made
            finally:
                made._drop()

    @property
    def flavour(self) -> Flavour:
        return self.server.flavour

    def connection(self) -> Connection:
        """Another connection to this schema: root, autocommit, utf8mb4, UTC. The caller closes it."""
        return self.server.admin(self.name)

    def execute(self, sql: str, args: Sequence[Any] | Mapping[str, Any] = ()) -> int:
        """Runs one statement on the schema's own connection. Returns the rows it touched."""
        with self.root.cursor() as cursor:
            touched: int = cursor.execute(sql, args or None)
            return touched

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        with self.root.cursor() as cursor:
            cursor.executemany(sql, rows)

    def query(self, sql: str, args: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of one SELECT."""
        with self.root.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def _drop(self) -> None:
        """Drops the schema, also when the test left its own connection broken, locked or in a transaction."""
        with self.server.admin() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (self.name,))
            for (session,) in cursor.fetchall():
                with contextlib.suppress(Exception):
                    cursor.execute(f"KILL {int(session)}")
            cursor.execute(f"DROP DATABASE {mysql_identifier(self.name)}")
