"""A real MySQL or MariaDB server in a folder: for trying Lakeward out, and for its tests.

Promise: the server is the folder. What it was started with (program, port, settings) stands in `server.json`, so a
later process finds it running or starts it again with the same address and data. It runs in a session of its own and
outlives the command that started it. Every wait is bounded, and an error carries the last lines of the server's log.

It listens on 127.0.0.1 alone. root has no password and is reached only through a socket in a folder that belongs to
this user and that nobody else may enter.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import signal
import socket as sockets
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pymysql
from pymysql.connections import Connection

from lakeward.embedded import process
from lakeward.embedded.binaries import Flavour, ServerBinary, Version
from lakeward.embedded.certificates import make_certificates
from lakeward.embedded.options import initialisation, option_file, run_as
from lakeward.errors import LakewardError, TerminalError, TransientError

INITIALISE_TIMEOUT_S = 180
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 90
KILL_TIMEOUT_S = 30
# sun_path holds 108 bytes with its end mark; the server makes `<socket>.lock` beside it.
SOCKET_PATH_MAX = 100
_LOG_LINES = 15
_PORT_TRIES = 3
_POLL_S = 0.03


class EmbeddedServer:
    """One server in one folder. Not initialised or started by being constructed.

    `port` None means a free one, chosen once and kept. `settings` are server variables that win over Lakeward's
    (an empty value is a bare option, as `skip-log-bin`).
    """

    host = "127.0.0.1"

    def __init__(
        self, binary: ServerBinary, folder: Path, settings: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        self.binary = binary
        self.folder = folder.absolute()
        self.settings = dict(settings or {})
        self.server_id = secrets.randbelow(2**31 - 1) + 1
        self._port_is_given = port is not None
        self.port = port or _free_port()
        self._spawned: int | None = None
        self.socket = _socket_path(self.folder)

    @property
    def flavour(self) -> Flavour:
        return self.binary.flavour

    @property
    def version(self) -> Version:
        return self.binary.version

    @property
    def error_log(self) -> Path:
        return self.folder / "error.log"

    @property
    def pid(self) -> int | None:
        """The running server's process number; None when it does not run."""
        if self._spawned and process.is_running_child(self._spawned):
            return self._spawned
        try:
            pid = int((self.folder / "server.pid").read_text())
        except (OSError, ValueError):
            return None
        return pid if self._mark in process.command_line(pid) else None

    def is_running(self) -> bool:
        return self.pid is not None

    @classmethod
    def open(cls, folder: Path) -> EmbeddedServer:
        """The server that was made in `folder`, running or not. Raises TerminalError when there is none."""
        try:
            kept = json.loads((folder / "server.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TerminalError(f"{folder} holds no embedded server", hint="`lakeward demo up` makes one") from error
        binary = ServerBinary(
            Path(kept["executable"]),
            Path(kept["basedir"]),
            kept["flavour"],
            (kept["version"][0], kept["version"][1], kept["version"][2]),
            tuple(kept["arguments"]),
        )
        server = cls(binary, folder, kept["settings"], kept["port"])
        server.server_id = kept["server_id"]
        return server

    @classmethod
    def attach(cls, folder: Path) -> EmbeddedServer | None:
        """The server running in `folder`, or None: also when its pid file names a process that is not it."""
        if not (folder / "server.json").is_file():
            return None
        server = cls.open(folder)
        return server if server.is_running() else None

    def initialise(self, *, copy_of: Path | None = None) -> None:
        """Makes the data folder, whole or not at all. Raises TerminalError when there is one already.

        `copy_of` is the data folder of a server of the same program that was initialised and never started; a copy is
        several times quicker.
        """
        if (self.folder / "data").exists():
            raise TerminalError(f"{self.folder} holds a server already")
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)
        draft = self.folder / "data.draft"
        shutil.rmtree(draft, ignore_errors=True)
        make_certificates(self.folder / "tls")
        self._write_options()
        if copy_of is None:
            self._make_data(draft)
        else:
            # auto.cnf holds the server's UUID, and two servers must not share one.
            shutil.copytree(copy_of, draft, ignore=shutil.ignore_patterns("auto.cnf"))
        draft.rename(self.folder / "data")
        self._save()

    def _make_data(self, draft: Path) -> None:
        try:
            options, given = initialisation(self.binary, draft)
        except FileNotFoundError as error:
            raise TerminalError(f"MariaDB's package is not whole: {error}", hint="install mariadb-server") from error
        if given is not None:
            draft.mkdir(mode=0o700)
        try:
            done = subprocess.run(
                [str(self.binary.executable), self._mark, *options],
                input=given,
                stdin=subprocess.DEVNULL if given is None else None,
                capture_output=True,
                text=True,
                timeout=INITIALISE_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise self._error(f"its data was not made within {INITIALISE_TIMEOUT_S} s", TransientError) from error
        if done.returncode != 0:
            raise self._error(f"its data could not be made (exit {done.returncode}): {done.stderr[-2000:].strip()}")

    def start(self) -> None:
        """Starts the server and returns when it answers. Nothing happens when it runs already."""
        if self.is_running():
            self._wait_until_ready()
            return
        first = not (self.folder / "data" / "started").exists() and not self._port_is_given
        # MySQL refuses the socket when its lock file names a process that exists: a zombie, or one with the old number.
        for leftover in (self.socket, self.socket.with_name(f"{self.socket.name}.lock")):
            leftover.unlink(missing_ok=True)
        for left in reversed(range(_PORT_TRIES if first else 1)):
            self._write_options()
            began = self.error_log.stat().st_size if self.error_log.exists() else 0
            command = [str(self.binary.executable), self._mark, *self.binary.arguments, *run_as()]
            self._spawned = process.spawn(command, output=self.error_log)
            try:
                self._wait_until_ready()
                break
            except LakewardError as error:
                said = self.error_log.read_text(encoding="utf-8", errors="replace")[began:]
                if "ddress already in use" not in said:
                    raise
                if left == 0:
                    error.hint = f"free port {self.port}, or make the server anew in another folder"
                    raise
                self.port = _free_port()
                self._save()
        (self.folder / "data" / "started").touch()

    def stop(self) -> None:
        """A clean end: everything committed is on disk. Raises TransientError when it takes too long."""
        self._end(signal.SIGTERM, STOP_TIMEOUT_S)

    def kill(self) -> None:
        """The end that a crash is: SIGKILL, with no chance to write anything."""
        self._end(signal.SIGKILL, KILL_TIMEOUT_S)

    def restart(self) -> None:
        self.stop()
        self.start()

    def admin(self, database: str | None = None) -> Connection:
        """A connection as root, autocommit, utf8mb4, session time zone UTC."""
        return pymysql.connect(
            unix_socket=str(self.socket),
            user="root",
            database=database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=20,
            read_timeout=600,
            init_command="SET time_zone = '+00:00'",
        )

    def log_tail(self, lines: int = _LOG_LINES) -> str:
        """The error log's last lines."""
        try:
            said = self.error_log.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return "(the server wrote no log)"
        return "\n".join(said[-lines:])

    @property
    def _mark(self) -> str:
        """The first argument of the server's command line; no other process has it."""
        return f"--defaults-file={self.folder / 'my.cnf'}"

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                # Knocking first: pymysql leaks its socket when nobody is at home.
                with sockets.socket(sockets.AF_UNIX) as knock:
                    knock.connect(str(self.socket))
                self.admin().close()
                return
            except (pymysql.MySQLError, OSError) as error:
                if not self.is_running():
                    raise self._error("it ended while it was starting") from error
                if time.monotonic() > deadline:
                    raise self._error(f"it does not answer after {START_TIMEOUT_S} s", TransientError) from error
            time.sleep(_POLL_S)

    def _end(self, how: signal.Signals, seconds: float) -> None:
        pid = self.pid
        if pid is None:
            return
        process.send(pid, how)
        if not process.wait_until_gone(pid, self._mark, seconds=seconds):
            raise self._error(f"it still runs {seconds:.0f} s after {how.name} (pid {pid})", TransientError)
        self._spawned = None

    def _write_options(self) -> None:
        (self.folder / "tmp").mkdir(exist_ok=True)
        self.socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = self.socket.parent.stat()
        if owner.st_uid != os.geteuid() or owner.st_mode & 0o077:
            raise TerminalError(f"{self.socket.parent} is open to other users", hint="remove that folder")
        text = option_file(
            self.binary,
            self.folder,
            socket=self.socket,
            port=self.port,
            server_id=self.server_id,
            settings=self.settings,
        )
        (self.folder / "my.cnf").write_text(text, encoding="utf-8")

    def _save(self) -> None:
        kept = {
            "executable": str(self.binary.executable),
            "basedir": str(self.binary.basedir),
            "flavour": self.flavour,
            "version": self.version,
            "arguments": self.binary.arguments,
            "settings": self.settings,
            "port": self.port,
            "server_id": self.server_id,
        }
        draft = self.folder / "server.json.draft"
        draft.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.folder / "server.json")

    def _error(self, what: str, kind: type[LakewardError] = TerminalError) -> LakewardError:
        return kind(
            f"the {self.flavour} server in {self.folder}: {what}",
            hint=f"read {self.error_log}",
            log="\n    ".join(["", *self.log_tail().splitlines()]),
        )


def _free_port() -> int:
    with sockets.socket() as probe:
        probe.bind((EmbeddedServer.host, 0))
        port: int = probe.getsockname()[1]
        return port


def _socket_path(folder: Path) -> Path:
    """`<folder>/socket/s`, or one in the temporary folder where that is too long for a Unix socket."""
    path = folder / "socket" / "s"
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        return path
    short = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"lakeward-{os.geteuid()}-{short}" / "s"
