"""A binlog file on disk as raw events, for whoever has the file and not the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from bronze.binlog.blocks import BLOCK_BYTES, Block, split
from bronze.binlog.events import HEADER, HEADER_SIZE, MAGIC
from lakeward.errors import TerminalError


def read_file(path: Path) -> Iterator[bytes]:
    """The events of one file, one by one. An event that is cut off comes as what is there of it.

    Raises TerminalError for a file that is no binlog, or is encrypted as a whole (MySQL's binlog_encryption).
    """
    with _opened(path) as file:
        while head := file.read(HEADER_SIZE):
            rest = file.read(max(0, HEADER.unpack(head)[3] - HEADER_SIZE)) if len(head) == HEADER_SIZE else b""
            yield head + rest


def file_blocks(path: Path) -> Iterator[Block]:
    """The same in blocks. An event that is cut off comes alone and last, as what is there of it."""
    with _opened(path) as file:
        rest = b""
        while data := file.read(BLOCK_BYTES):
            block, whole = split(np.frombuffer(rest + data, np.uint8))
            rest = block.data[whole:].tobytes()
            if len(block):
                yield block
        if rest:
            yield Block.of([rest])


def _opened(path: Path) -> BinaryIO:
    """The file, at its first event."""
    file = path.open("rb")
    if file.read(len(MAGIC)) != MAGIC:
        file.close()
        raise TerminalError(f"{path} is no binlog file, or an encrypted one", hint="read it through the server")
    return file
