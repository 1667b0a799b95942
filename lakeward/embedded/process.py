"""A server's process as others see it: by its number, and by proof that the number is still this server's.

A pid file outlives its process, and the system gives the number to another one. So a pid counts only when that
process's command line names this server's own option file. A zombie has no command line and counts as gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from lakeward.errors import TerminalError

_POLL_S = 0.02


def command_line(pid: int) -> list[str]:
    """The words of a process's command line; empty when there is no such process, or only its zombie."""
    is_running_child(pid)
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            return []
    said = subprocess.run(["ps", "-ww", "-p", str(pid), "-o", "command="], capture_output=True, text=True, check=False)
    return said.stdout.split()


def spawn(command: Sequence[str], *, output: Path) -> int:
    """Starts a process in a session of its own, so that it outlives this one and its terminal. Returns its pid.

    `output` gets its standard output and error, appended. Not `subprocess`: a Popen that is dropped while its
    process runs is a ResourceWarning.
    """
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, log, 1),
            (os.POSIX_SPAWN_DUP2, log, 2),
        ]
        environment = {**os.environ, "TZ": "UTC"}
        return os.posix_spawn(command[0], list(command), environment, file_actions=actions, setsid=True)
    except OSError as error:
        raise TerminalError(f"{command[0]} cannot be started: {error.strerror}") from error
    finally:
        os.close(log)


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def is_running_child(pid: int) -> bool:
    """Whether this is a child of this process that has not ended; one that has is reaped.

    Proof enough without the command line, which is empty for a moment after the start: nobody else gets the number
    of a child that is not reaped.
    """
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == 0
    except ChildProcessError:
        return False


def _is_ending(pid: int) -> bool:
    """Whether a killed process, whose command line is gone already, still holds its files and locks."""
    try:
        named = bool(Path(f"/proc/{pid}/cmdline").read_bytes())
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return not named and state not in "ZX"


def wait_until_gone(pid: int, mark: str, *, seconds: float) -> bool:
    """Whether the process whose command line holds `mark` ended within `seconds`, its files closed."""
    deadline = time.monotonic() + seconds
    while mark in command_line(pid) or _is_ending(pid) or is_running_child(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True
