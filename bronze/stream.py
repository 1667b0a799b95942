"""Reads one range of the binlog into data files: the task that a bronze batch runs on an executor.

A range begins at a resumable position and ends at one: at `stop`, or at the first transaction's end after `max_bytes`
have been read. Nothing it writes counts until the driver has committed it, so it may be killed and run again. Memory
is bounded by `PENDING_BYTES` of raw events and the writer's buffer, not by the size of a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from bronze.binlog.statements import Alter, Create, Drop, DropSchema, Effect, Rename, Truncate, Unknown, effects
from bronze.binlog.tablemap import TableMap
from bronze.binlog.transactions import Boundary, RowsEvent, Statement, Transaction, read
from bronze.binlog.wire import Dump
from bronze.conform import Conformed, conform
from bronze.decode.rows import decode_rows
from bronze.masking import masked
from bronze.source.server import Flavour
from bronze.stamp import EventStamp, Origin, stream_envelopes, truncate_envelope
from bronze.writer import EnvelopeWriter, Target
from lakeward.errors import FailClosedError, LakewardError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Position, binlog_name
from lakeward.schema import TableSchema

PENDING_BYTES = 24 << 20  # of raw row events, before they are decoded


@dataclass(frozen=True)
class Followed:
    """A table that the range may hold events of. Events before `start` belong to its snapshot."""

    schema: TableSchema
    start: Position
    target: Target
    excluded: tuple[str, ...] = ()
    truncate: bool = True


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


@dataclass
class Manifest:
    """What a range wrote and learnt; small, and all JSON."""

    end: dict[str, Any] = field(default_factory=dict)  # a Checkpoint
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    last: dict[str, dict[str, int]] = field(default_factory=dict)
    added: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # columns, as their tables now have them
    altered: dict[str, str] = field(default_factory=dict)  # tables to be read again, with the reason
    dropped: dict[str, str] = field(default_factory=dict)
    discover: bool = False  # a table was made or renamed: look at the catalog again
    zero_dates: int = 0
    bytes: int = 0


def read_range(work: Work) -> Manifest:
    """Read, decode and write one range. Raises what the wire and the decoder raise, with the position."""
    return _Range(work).run()


class _Range:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.origin = Origin(work.server, work.start.epoch)
        self.manifest = Manifest()
        self.schemas = {name: t.schema for name, t in work.tables.items()}
        self.writer = EnvelopeWriter(Lake(work.root), {name: t.target for name, t in work.tables.items()})
        self.pending: list[RowsEvent] = []
        self.pending_bytes = 0
        self.conformed: dict[tuple[int, int], tuple[TableMap, Conformed]] = {}
        self.payload = (-1, -1)  # (file, pos) of the payload whose rows are being numbered
        self.payload_rows = 0

    def run(self) -> Manifest:
        work = self.work
        dump = Dump(
            dict(work.settings),
            server_id=work.server_id,
            file=binlog_name(work.binlog, work.start.file),
            pos=work.start.pos,
            flavour=work.flavour,
            blocking=False,
            heartbeat_s=30,
        )
        end: Boundary | None = None
        try:
            for boundary in self._pump(dump):
                end = boundary
                here = Position(work.start.epoch, boundary.file, boundary.pos)
                if here >= work.stop or self.manifest.bytes >= work.max_bytes:
                    break
            self._flush()
            files = self.writer.close()
        except BaseException:
            self.writer.abandon()
            raise
        finally:
            dump.close()
        if end is not None:
            at = Position(work.start.epoch, end.file, end.pos)
            self.manifest.end = {**at.to_json(), "gtid": end.gtid, "ts_ms": end.ts_ms}
        self.manifest.files = {t: [f.to_json() for f in fs] for t, fs in files.items()}
        self.manifest.rows = {t: sum(f.rows for f in fs) for t, fs in files.items()}
        return self.manifest

    def _pump(self, dump: Dump) -> Iterator[Boundary]:
        def counted() -> Iterator[Any]:
            for raw in dump:
                self.manifest.bytes += len(raw)
                yield raw

        wanted = set(self.work.tables)
        items = read(counted(), file=self.work.start.file, wants=lambda t: str(t) in wanted, gtid_set=self.work.gtid)
        for item in items:
            if isinstance(item, RowsEvent):
                self._take(item)
            elif isinstance(item, Statement):
                self._statement(item)
            else:
                yield item

    def _take(self, event: RowsEvent) -> None:
        followed = self.work.tables[str(event.table_map.name)]
        if Position(self.work.start.epoch, event.file, event.pos) < followed.start:
            return
        self.pending.append(event)
        self.pending_bytes += len(event.images)
        if self.pending_bytes >= PENDING_BYTES:
            self._flush()

    def _statement(self, statement: Statement) -> None:
        here = Position(self.work.start.epoch, statement.file, statement.pos)
        for effect in effects(statement.sql, statement.schema):
            if isinstance(effect, Create):
                self.manifest.discover = True
            for name in self._concerned(effect):
                if here >= self.work.tables[name].start:
                    self._apply(effect, name, statement)

    def _concerned(self, effect: Effect) -> list[str]:
        """The followed tables that a statement is about. Names compare without case: a server may fold them."""
        if isinstance(effect, DropSchema):
            return [n for n, t in self.work.tables.items() if t.schema.name.schema.lower() == effect.schema.lower()]
        if isinstance(effect, Rename):
            self.manifest.discover = True
            named: tuple[TableName, ...] | None = (effect.old, effect.new)
        elif isinstance(effect, Unknown):
            named = effect.tables
        else:
            named = (effect.table,)
        folded = None if named is None else {str(t).lower() for t in named}
        return [n for n in self.work.tables if folded is None or n.lower() in folded]

    def _apply(self, effect: Effect, name: str, statement: Statement) -> None:
        where = f"at {statement.file}:{statement.pos}"
        if isinstance(effect, Truncate):
            if self.work.tables[name].truncate:
                self._truncate(name, statement)
        elif isinstance(effect, (Drop, DropSchema)):
            self.manifest.dropped[name] = f"dropped at the source {where}"
            self.manifest.discover = True
        elif isinstance(effect, Rename):
            if str(effect.old).lower() == name.lower():
                self.manifest.dropped[name] = f"renamed to {effect.new} {where}"
            else:
                self.manifest.altered[name] = f"{effect.old} was renamed to it {where}"
        elif isinstance(effect, Alter):
            rekeyed = effect.rekeys and self.work.tables[name].schema.key_kind == "unique"
            if not effect.harmless or rekeyed:
                self.manifest.altered[name] = f"altered {where}"
        elif isinstance(effect, Unknown):
            self.manifest.altered[name] = f"a statement that could not be read may have altered it {where}"

    def _truncate(self, name: str, statement: Statement) -> None:
        self._flush()
        transaction = statement.transaction
        stamp = self._stamp_of(transaction, self.schemas[name].name, statement.file, statement.pos, 0, 1)
        image = self.schemas[name].image()
        self.writer.write(name, truncate_envelope(image, stamp, self.origin))
        self._reached(name, statement.file, statement.pos)

    def _flush(self) -> None:
        """Decode what is pending, a table map at a time, and write it in the order of the stream."""
        events, self.pending, self.pending_bytes = self.pending, [], 0
        groups: dict[int, list[int]] = {}
        for i, event in enumerate(events):
            groups.setdefault(id(event.table_map), []).append(i)
        decoded = {}
        counts = np.zeros(len(events), dtype=np.int64)
        for key, members in groups.items():
            table_map = events[members[0]].table_map
            fit = self._fit(table_map)
            if fit.mismatch is not None:
                first = events[members[0]]
                why = f"its column {fit.mismatch} has another type since {first.file}:{first.pos}"
                self.manifest.altered.setdefault(str(table_map.name), why)
                continue
            decoded[key] = (fit, self._decode(fit, [events[i] for i in members]))
            counts[members] = decoded[key][1].counts
        stamps = [self._stamp(event, int(n)) for event, n in zip(events, counts, strict=True)]
        for key, members in groups.items():
            if key in decoded:
                self._land(events[members[0]].table_map.name, *decoded[key], [events[i] for i in members],
                           [stamps[i] for i in members])  # fmt: skip

    def _decode(self, fit: Conformed, events: list[RowsEvent]) -> Any:
        try:
            return decode_rows(fit.wire, [(e.op, e.images) for e in events])
        except LakewardError as error:
            first, last = events[0], events[-1]
            raise FailClosedError(
                error.message,
                hint=error.hint or f"report it, and go on with `lakeward resnapshot {first.table_map.name}`",
                **{**error.facts, "table": first.table_map.name, "between": f"{first.file}:{first.pos}",
                   "and": f"{last.file}:{last.pos}"},
            ) from error  # fmt: skip

    def _land(
        self, name: TableName, fit: Conformed, rows: Any, events: list[RowsEvent], stamps: list[EventStamp]
    ) -> None:
        self.manifest.zero_dates += rows.zero_dates
        table = str(name)
        schema, key = self.schemas[table], self.work.mask_key
        before, after = (masked(_kept(image, fit), schema, key) for image in (rows.before, rows.after))
        batch = stream_envelopes(before, after, [e.op for e in events], rows.counts, stamps, self.origin)
        self.writer.write(table, batch)
        self._reached(table, events[-1].file, events[-1].pos)

    def _fit(self, table_map: TableMap) -> Conformed:
        name = str(table_map.name)
        schema = self.schemas[name]
        known = self.conformed.get((id(table_map), id(schema)))
        if known is not None:
            return known[1]
        fit = conform(table_map, schema, self.work.tables[name].excluded)
        if fit.added and fit.mismatch is None:
            schema = self.schemas[name] = replace(schema, columns=(*schema.columns, *fit.added))
            self.manifest.added.setdefault(name, []).extend(c.to_json() for c in fit.added)
        # The table map is kept so that its id stays its own.
        self.conformed[id(table_map), id(schema)] = (table_map, fit)
        return fit

    def _stamp(self, event: RowsEvent, rows: int) -> EventStamp:
        first_row = 0
        if event.in_payload:
            if self.payload != (event.file, event.pos):
                self.payload, self.payload_rows = (event.file, event.pos), 0
            first_row = self.payload_rows
            self.payload_rows += rows
        return self._stamp_of(event.transaction, event.table_map.name, event.file, event.pos, first_row, rows)

    def _stamp_of(self, t: Transaction, name: TableName, file: int, pos: int, first_row: int, rows: int) -> EventStamp:
        before = t.counters.get(str(name), 0)
        stamp = EventStamp(file, pos, first_row, t.ts_ms, t.gtid, t.id, t.total_order + 1, before + 1)
        t.counters[str(name)] = before + rows
        t.total_order += rows
        return stamp

    def _reached(self, name: str, file: int, pos: int) -> None:
        here = Position(self.work.start.epoch, file, pos)
        known = self.manifest.last.get(name)
        if known is None or Position.from_json(known) < here:
            self.manifest.last[name] = here.to_json()


def _kept(image: pa.StructArray, fit: Conformed) -> pa.StructArray:
    """The image without excluded columns, under the registered names."""
    fields = [pa.field(fit.wire[i].column.name, image.type[i].type) for i in fit.kept]
    mask = image.is_null() if image.null_count else None
    return pa.StructArray.from_arrays([image.field(i) for i in fit.kept], fields=fields, mask=mask)
