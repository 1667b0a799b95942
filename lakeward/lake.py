"""The lake's folder: where each table is, the small documents that say how far each stage has come, and the lock.

A document under `<root>/_lakeward/` is replaced whole or not at all: on a local disk by write, fsync and rename;
on an object store by one PUT. Stages write only their own document, and only after the data it describes is
durable.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import pyarrow.fs as pafs

from lakeward.errors import LockedError, TerminalError, causes
from lakeward.names import TableName, encode_path
from lakeward.storage import ENDPOINT, REGION

Layer = Literal["bronze", "silver", "quarantine"]
STATE_FOLDER = "_lakeward"


class Lake:
    """A lake at `root`, an absolute path or a URI (s3a://)."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/") or "/"
        self.local = "://" not in root

    def table(self, layer: Layer, table: TableName, suffix: str = "") -> str:
        """The Delta table's location, for Spark: `<root>/<layer>/<schema>/<table><suffix>`."""
        return f"{self.root}/{layer}/{encode_path(table.schema)}/{encode_path(table.table)}{suffix}"

    def path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def filesystem(self) -> tuple[pafs.FileSystem, str]:
        """A pyarrow file system and the root's path in it."""
        if self.local:
            return pafs.LocalFileSystem(), self.root
        parts = urlsplit(self.root)
        if parts.scheme == "s3a" and (endpoint := os.environ.get(ENDPOINT)):
            region = os.environ.get(REGION, "us-east-1")
            return pafs.S3FileSystem(endpoint_override=endpoint, region=region), f"{parts.netloc}{parts.path}"
        fs, path = pafs.FileSystem.from_uri(self.root.replace("s3a:", "s3:", 1))
        return fs, path

    def read(self, document: str) -> dict[str, Any] | None:
        """The document `<root>/_lakeward/<document>.json`, or None where there is none yet."""
        fs, base = self.filesystem()
        path = f"{base}/{STATE_FOLDER}/{document}.json"
        if fs.get_file_info(path).type == pafs.FileType.NotFound:
            return None
        with fs.open_input_stream(path) as stream:
            found: dict[str, Any] = json.loads(stream.read())
        return found

    def write(self, document: str, doc: dict[str, Any]) -> None:
        """Replace a document, durably. Raises TerminalError when the lake cannot be written (disk full)."""
        self.replace(f"{STATE_FOLDER}/{document}.json", json.dumps(doc, indent=1, ensure_ascii=False).encode())

    def replace(self, relative: str, data: bytes) -> None:
        """Replace the file at `<root>/<relative>` whole, durably. Errors as `write`."""
        fs, base = self.filesystem()
        folder, _, name = f"{base}/{relative}".rpartition("/")
        try:
            if self.local:
                _replace(Path(folder), name, data)
            else:
                # Unasked, Arrow would compress what is called .gz, which is compressed already.
                with fs.open_output_stream(f"{folder}/{name}", compression=None) as stream:
                    stream.write(data)
        except OSError as error:
            raise lake_error(error, folder) from error

    @contextlib.contextmanager
    def lock(self, command: str) -> Iterator[None]:
        """Hold the lake for one run. Raises LockedError that names the holder.

        The operating system frees the lock when its holder dies, so a killed run leaves nothing to clean up.
        """
        if self.local:
            folder = Path(self.root) / STATE_FOLDER
        else:  # one machine runs a remote lake's pipeline; its lock is held there
            folder = Path(tempfile.gettempdir()) / f"lakeward-{hashlib.sha256(self.root.encode()).hexdigest()[:16]}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise lake_error(error, str(folder)) from error
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(handle, 1000, 0).decode(errors="replace").strip() or "another run"
                raise LockedError(
                    f"the lake {self.root} is held by {holder}", hint="wait until that run has ended, or stop it"
                ) from error
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"`lakeward {command}` with process id {os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)


def lake_error(error: OSError, where: str) -> TerminalError:
    """An OSError under the lake's root as an error with a remedy."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return TerminalError(
            f"the lake's disk is full: {where}",
            hint="free some space and run the same command again; nothing half written counts",
        )
    return TerminalError(f"the lake cannot be written at {where}: {error}", hint="mend the folder's permissions")


def disk_full(error: BaseException) -> TerminalError | None:
    """The error to show where `error`, from wherever in Spark or Arrow it came, says that a disk is full."""
    if any(said in str(each) for each in causes(error) for said in ("No space left on device", "Disk quota exceeded")):
        return lake_error(OSError(errno.ENOSPC, ""), "see its file system with `df`")
    return None


def _replace(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".{name}.{os.getpid()}"
    with temporary.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(folder / name)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
