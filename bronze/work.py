"""What a bronze task is given and what it answers: the words that the driver and the executors share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bronze.source.server import Flavour
from bronze.writer import Target
from lakeward.position import Position
from lakeward.rowfilter import Filter
from lakeward.schema import TableSchema

Past = Literal["", "check", "read"]


@dataclass(frozen=True)
class Followed:
    """A table that the range may hold events of. Events before `start` belong to its snapshot."""

    schema: TableSchema
    start: Position
    target: Target
    excluded: tuple[str, ...] = ()
    where: Filter | None = field(default=None, repr=False)
    truncate: bool = True
    stop: Position | None = None
    reshapes: bool = False  # its schema is exact where the stream stands, so that changes of it can be followed
    left: tuple[str, ...] = ()  # names that no column may get again before the table is read afresh
    counts: bool = True  # silver reads the events, so what none of them tells has the table read again

    def takes(self, here: Position) -> bool:
        return here >= self.start and (self.stop is None or here < self.stop)


@dataclass(frozen=True)
class Work:
    """One range, and all that an executor needs to read it."""

    settings: Mapping[str, Any] = field(repr=False)
    mask_key: bytes | None = field(repr=False)
    flavour: Flavour
    server_id: int
    server: str
    binlog: str  # any file's name of the sequence
    start: Position
    gtid: str
    stop: Position
    max_bytes: int
    root: str
    tables: Mapping[str, Followed]
    seen: str = ""  # GTIDs that were read before and may come again (see bronze/failover.py)
    # Before what bronze holds, where what was done to a table's shape was done long ago: to see that it can be read, or
    # to read it.
    past: Past = ""
    task_bytes: int = 120 << 20  # of events in memory, before they are decoded and written out


@dataclass
class Manifest:
    """What a range wrote and learnt; small, and all JSON."""

    end: dict[str, Any] = field(default_factory=dict)  # a Checkpoint
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    last: dict[str, dict[str, int]] = field(default_factory=dict)
    added: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # columns, as their tables now have them
    announced: dict[str, list[str]] = field(default_factory=dict)  # columns that a statement added
    reshaped: dict[str, dict[str, Any]] = field(default_factory=dict)  # `Reshaped.to_json`, after all events
    altered: dict[str, str] = field(default_factory=dict)  # tables to be read again, with the reason
    dropped: dict[str, str] = field(default_factory=dict)  # also where they were altered before
    discover: bool = False  # a table was made or renamed: look at the catalog again
    zero_dates: int = 0  # that became NULL
    replaced: int = 0  # text values with bytes that are no text
    partial: list[str] = field(default_factory=list)  # tables with events that lack columns
    truncated: list[str] = field(default_factory=list)  # tables with a TRUNCATE
    repaired: list[str] = field(default_factory=list)  # tables with rows that a repair read
    changes: list[dict[str, Any]] = field(default_factory=list)  # of schemas, see `bronze.schema_changes`
    bytes: int = 0
