"""How far each stage has come, as typed documents over `Lake.read` and `Lake.write`.

bronze.json, silver.json and gold.json each belong to one stage: it alone writes it, later stages read it. A batch
that writes to several tables is first written down as an *intent* (its number, its range and what it will commit),
then committed table by table under that number (Delta's `txn` action makes a repeat a no-op), then written down as
done: whatever moment a run is killed at, the next one finishes that same batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema

FORMAT = 1
Status = Literal["waiting for snapshot", "snapshot", "streaming", "stopped"]


@dataclass
class BronzeTable:
    """A source table as bronze knows it."""

    schema: TableSchema
    status: Status = "waiting for snapshot"
    reason: str | None = None  # why it is stopped, or why it is to be read again
    generation: int = 0  # number of the snapshot, from 1; the stream's events carry 0
    start: Position | None = None  # the snapshot's rows bear it; stream events count from it on
    high: Position | None = None  # taken after the last chunk; once the stream has passed it, the table streams
    chunks: list[list[Any]] = field(default_factory=list)  # of the running snapshot: [number, bounds], in order
    chunks_done: list[int] = field(default_factory=list)
    snapshot_rows: int = 0
    rows: int = 0  # envelopes in bronze
    last: Position | None = None  # of the newest envelope
    batch: int = 0  # that last wrote to it
    dropped: bool = False
    since: Position | None = None  # bronze holds no event of the stream before it; None where that is not known
    partial: int = 0  # the last batch with an event that lacks columns
    truncated: int = 0  # the last batch with a TRUNCATE
    repaired: int = 0  # the last batch with rows that a repair read
    begun: dict[str, Any] | None = None  # without a snapshot: {"asked", "generation"}
    foreign_keys: list[dict[str, Any]] | None = None  # with unlogged cascades; None: not read yet
    filter: str | None = None  # digest of the row filter that this generation was read by; None where it has none
    reshaped: int = 0  # the last batch with a change of its columns that was followed
    renamed: list[list[str]] = field(default_factory=list)  # columns of this generation, in turn: [old, new]
    left: list[str] = field(default_factory=list)  # names that bronze's images still have, or had, for other columns
    excluded: list[str] = field(default_factory=list)  # what was left out when it was last read afresh
    added: list[str] = field(default_factory=list)  # columns that a statement added and no event has shown yet
    unfinished: str | None = None  # why this generation's last events do not tell its rows: silver may not have them

    @property
    def name(self) -> TableName:
        return self.schema.name

    def stop(self, reason: str, *, dropped: bool = False) -> None:
        """Follow it no further. One that was yet to be read again never will be, and its reason says so."""
        self.status, self.reason, self.dropped = "stopped", reason, self.dropped or dropped
        if self.unfinished:
            self.reason += f"; before that it was to be read again ({self.unfinished}), so silver keeps what it has"


@dataclass
class BronzeState:
    """bronze.json."""

    server: dict[str, Any] = field(default_factory=dict)  # flavour, version, uuid, binlog (a file's name), server_id
    epoch: int = 1
    servers: list[dict[str, Any]] = field(default_factory=list)  # that were read, in turn: uuid, epoch, since_ms
    seen: dict[str, Any] | None = None  # after a failover: GTIDs the log has again up to a place: {"gtid", "until"}
    earlier: dict[str, Any] | None = None  # events before `since` being read: {"at", "tables": {name: [from, until]}}
    gaps: list[dict[str, Any]] = field(default_factory=list)  # that were accepted: why, missing, from, to, tables …
    checkpoint: Checkpoint | None = None  # every event before it is in bronze, or of no table that is followed
    batch: int = 0  # the last one committed
    intent: dict[str, Any] | None = None
    tables: dict[str, BronzeTable] = field(default_factory=dict)
    zero_dates: int = 0  # that became NULL, over all runs
    replaced: int = 0  # text values that held bytes which are no text, over all runs
    current_ms: int = 0  # when the checkpoint was last known to be the source's end

    def seen_from(self, place: Position) -> str:
        """GTIDs that the log may have from `place` on though another server's log had them and they were read there."""
        return str(self.seen["gtid"]) if self.seen and place < Position.from_json(self.seen["until"]) else ""


@dataclass
class SilverTable:
    """A silver table: merged up to `cut` from bronze's batches up to `batch`."""

    cut: Position
    generation: int
    batch: int
    rows: int
    version: int  # of the Delta table after the merge
    keys: list[str] = field(default_factory=list)  # it was merged by
    events: int = 0  # envelopes that bronze held of it
    cascades: int = -1  # version of its table of cascades, -1 where nothing ever cascaded to it
    beside: dict[str, int] = field(default_factory=dict)  # suffix → version of its history and its outbox's events


@dataclass
class SilverState:
    """silver.json. After a run has ended well every table of `tables` stands at `cut`."""

    run: int = 0
    cut: Checkpoint | None = None
    intent: dict[str, Any] | None = None  # {"run": n, "cut": …, "batch": n}: a run that has begun to merge
    tables: dict[str, SilverTable] = field(default_factory=dict)


def load_bronze(lake: Lake) -> BronzeState:
    doc = _read(lake, "bronze")
    if doc is None:
        return BronzeState()
    tables = {}
    for name, t in doc.pop("tables").items():
        places = {k: Position.from_json(t[k]) if t.get(k) else None for k in ("start", "high", "last", "since")}
        tables[name] = BronzeTable(**{**t, **places, "schema": TableSchema.from_json(t["schema"])})
    checkpoint = doc.pop("checkpoint")
    return BronzeState(**doc, checkpoint=Checkpoint.from_json(checkpoint) if checkpoint else None, tables=tables)


def save_bronze(lake: Lake, state: BronzeState) -> None:
    tables = {}
    for name, t in state.tables.items():
        places = {k: getattr(t, k).to_json() if getattr(t, k) else None for k in ("start", "high", "last", "since")}
        tables[name] = {**vars(t), **places, "schema": t.schema.to_json()}
    checkpoint = state.checkpoint.to_json() if state.checkpoint else None
    _write(lake, "bronze", {**vars(state), "checkpoint": checkpoint, "tables": tables})


def load_silver(lake: Lake) -> SilverState:
    doc = _read(lake, "silver")
    if doc is None:
        return SilverState()
    tables = {n: SilverTable(**{**t, "cut": Position.from_json(t["cut"])}) for n, t in doc.pop("tables").items()}
    cut = doc.pop("cut")
    return SilverState(**doc, cut=Checkpoint.from_json(cut) if cut else None, tables=tables)


def save_silver(lake: Lake, state: SilverState) -> None:
    tables = {n: {**asdict(t), "cut": t.cut.to_json()} for n, t in state.tables.items()}
    cut = state.cut.to_json() if state.cut else None
    _write(lake, "silver", {**vars(state), "cut": cut, "tables": tables})


def _read(lake: Lake, document: str) -> dict[str, Any] | None:
    doc = lake.read(document)
    if doc is not None and doc.pop("format", None) != FORMAT:
        raise TerminalError(
            f"{lake.path('_lakeward', document + '.json')} is of another version of Lakeward",
            hint="run the version that wrote it, or start a new lake root",
        )
    return doc


def _write(lake: Lake, document: str, doc: Mapping[str, Any]) -> None:
    lake.write(document, {"format": FORMAT, **doc})
