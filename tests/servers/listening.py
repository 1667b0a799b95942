"""Programs that listen on a port of this machine, each for one block."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

STARTS_S = 60.0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextlib.contextmanager
def listening(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """`command` as a process that writes to `log`; within the block it answers on `port`, and it ends with the block.

    Raises RuntimeError with what it said where it does not start.
    """
    with log.open("wb") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=environment, start_new_session=True)
    try:
        _wait(process, port, log, command[0])
        yield
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path, program: str) -> None:
    until = time.monotonic() + STARTS_S
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"{program} does not listen on {port}: {log.read_text(errors='replace')[-2000:]}")
