"""The embedded source: a server with the demo database, found or made, and what the commands of `demo` do with it.

Promise: whoever asks first makes it, everybody else finds it. A file lock on the folder keeps two commands from making
it at once, and a load that was interrupted is begun anew, before anybody could have read from it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lakeward.embedded.binaries import find_server
from lakeward.embedded.demo.load import DATABASE, load
from lakeward.embedded.demo.traffic import TrafficReport, burst
from lakeward.embedded.replicator import ensure_replicator, replicator_url
from lakeward.embedded.server import EmbeddedServer
from lakeward.errors import TerminalError


@dataclass(frozen=True)
class EmbeddedSource:
    """A running server as a source: `url` and `password` are what a configuration would hold."""

    url: str
    password: str = field(repr=False)
    server: EmbeddedServer


def embedded_source(folder: Path, *, basedir: Path | None = None) -> EmbeddedSource:
    """The source in `folder`, started if it does not run, made with the demo database if there is none.

    `basedir` names the server to make it with; default: `find_server`'s choice. Raises TerminalError when there is no
    server program, or when the one the data belongs to is gone.
    """
    with _locked(folder):
        return _source(folder, basedir)


def demo_up(folder: Path) -> str:
    """Starts the embedded source. Returns what to tell the user."""
    source = embedded_source(folder)
    server = source.server
    version = ".".join(map(str, server.version))
    return (
        f"{server.flavour} {version} runs on {server.host}:{server.port} (pid {server.pid}), database {DATABASE}\n"
        f"  {source.url}, password in {server.folder / 'password'}\n"
        f"  as root: mysql --user=root --socket={server.socket} {DATABASE}"
    )


def demo_traffic(folder: Path, seed: int | None = None, transactions: int = 200) -> TrafficReport:
    """One burst of changes. `seed` None means the next one: 1 for the first burst, then 2 …"""
    with _locked(folder):
        server = _source(folder, None).server
        bursts = _bursts(server) or 0
        with server.admin(DATABASE) as connection:
            report = burst(connection, seed=bursts + 1 if seed is None else seed, transactions=transactions)
        _keep_bursts(server, bursts + 1)
        return report


def demo_down(folder: Path) -> str:
    """Stops the embedded server; its data stays. Returns what to tell the user."""
    if not folder.is_dir():
        return f"no embedded server was ever made in {folder}"
    with _locked(folder):
        server = EmbeddedServer.attach(folder)
        if server is None:
            return f"no embedded server runs in {folder}"
        server.stop()
        return f"stopped {server.flavour} on {server.host}:{server.port}; its data stays in {folder}"


def _source(folder: Path, basedir: Path | None) -> EmbeddedSource:
    server = _found(folder) if (folder / "server.json").is_file() else EmbeddedServer(find_server(basedir), folder)
    if not (server.folder / "data").is_dir():
        server.initialise()
    server.start()
    password = ensure_replicator(server, [DATABASE])
    if _bursts(server) is None:
        with server.admin() as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
            connection.select_db(DATABASE)
            load(connection)
        _keep_bursts(server, 0)
    return EmbeddedSource(replicator_url(server), password, server)


def _found(folder: Path) -> EmbeddedServer:
    """The server of `folder`; where its program has moved, with another one of the same flavour, not older."""
    server = EmbeddedServer.open(folder)
    if server.binary.executable.is_file() or server.is_running():
        return server
    other = find_server()
    if other.flavour != server.flavour or other.version < server.version:
        raise TerminalError(
            f"the server program {server.binary.executable}, whose data {folder} holds, is gone",
            hint=f"install {server.flavour} {'.'.join(map(str, server.version))} again, or remove {folder}",
        )
    server.binary = other
    return server


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _bursts(server: EmbeddedServer) -> int | None:
    """How many bursts the demo database has seen; None when it is not loaded whole."""
    try:
        return int(json.loads((server.folder / "demo.json").read_text(encoding="utf-8"))["bursts"])
    except FileNotFoundError:
        return None


def _keep_bursts(server: EmbeddedServer, bursts: int) -> None:
    draft = server.folder / "demo.json.draft"
    draft.write_text(json.dumps({"bursts": bursts}) + "\n", encoding="utf-8")
    draft.replace(server.folder / "demo.json")
