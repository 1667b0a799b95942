"""Where an event stands in a source's history, as numbers.

Binlog files are named by a counter that outgrows its padding (`.999999` is followed by `.1000000`), so names must
never be compared as text; a position carries the file's number. The epoch grows when the source server changes,
since a new server counts its files afresh.

Two positions have two names. `Position` says where an event is. A *resumable* position is one at the end of a
transaction; only `Checkpoint` holds such a one, and only checkpoints are ever stored.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from lakeward.errors import TerminalError

FIRST = 4  # the offset of a binlog file's first event


class Position(NamedTuple):
    """(epoch, binlog file number, byte offset of the event in the file, row in event). Ordered as numbers."""

    epoch: int
    file: int
    pos: int
    row: int = 0

    def __str__(self) -> str:
        return f"{self.epoch}:{self.file}:{self.pos}" + (f":{self.row}" if self.row else "")

    @property
    def place(self) -> tuple[int, int, int]:
        """Where it is in the source's log. A repair adds rows at a place that the log has none at (see
        `silver.proof.repair`), so a checkpoint behind them is at the same place and at a later row."""
        return self[:3]

    def to_json(self) -> dict[str, int]:
        return {"epoch": self.epoch, "file": self.file, "pos": self.pos, **({"row": self.row} if self.row else {})}

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Position:
        return cls(int(doc["epoch"]), int(doc["file"]), int(doc["pos"]), int(doc.get("row", 0)))


class Checkpoint(NamedTuple):
    """A resumable position: the end of a transaction, with the GTIDs executed up to it where the server has them.

    `gtid` is MySQL's GTID set or MariaDB's `gtid_binlog_pos`; `""` where GTIDs are off. `ts_ms` is the source's
    commit time of the last transaction before it, in milliseconds since 1970 UTC, 0 where none was seen.
    """

    at: Position
    gtid: str = ""
    ts_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        return {**self.at.to_json(), "gtid": self.gtid, "ts_ms": self.ts_ms}

    @classmethod
    def from_json(cls, doc: dict[str, Any]) -> Checkpoint:
        return cls(Position.from_json(doc), str(doc.get("gtid", "")), int(doc.get("ts_ms", 0)))


def binlog_number(file_name: str) -> int:
    """`mysql-bin.000012` → 12."""
    match = re.search(r"\.(\d+)$", file_name)
    if match is None:
        raise TerminalError(f"binlog file name {file_name!r} does not end in a number")
    return int(match.group(1))


def binlog_name(like: str, number: int) -> str:
    """The file with `number` of the sequence that `like` belongs to: MySQL pads the number to six digits at least."""
    return f"{like.rpartition('.')[0]}.{number:06d}"
