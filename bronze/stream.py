"""Reads one range of the binlog into data files: the task that a bronze batch runs on an executor.

A range begins at a resumable position and ends at one: at `stop`, or at the first transaction's end after `max_bytes`
have been read. Nothing it writes counts until the driver has committed it, so it may be killed and run again. Memory
is bounded by `Work.task_bytes`, a part of it raw events and the rest the writer's, not by the size of a transaction.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from bronze.batches import Batches
from bronze.binlog.blocks import BLOCK_BYTES, Block
from bronze.binlog.bulk import RowsBatch, read_blocks
from bronze.binlog.gtid import gtids, union
from bronze.binlog.statements import Alter, Create, Effect, Truncate, effects
from bronze.binlog.tablemap import TableMap
from bronze.binlog.transactions import Boundary, RowsEvent, Statement, Transaction
from bronze.binlog.wire import Dump
from bronze.conform import Conformed, conform, require_shape
from bronze.decode.rows import DecodedRows, decode_rows
from bronze.filtered import Flags, require_told, untold, within
from bronze.masking import masked
from bronze.presence import unknown
from bronze.rowfilter import Capture
from bronze.schema_changes import Done, described
from bronze.stamp import EventStamp, Origin, stream_envelopes, truncate_envelope
from bronze.statements import Statements
from bronze.work import Manifest, Work
from bronze.writer import EnvelopeWriter
from lakeward.errors import FailClosedError, LakewardError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Position, binlog_name

RAW_SHARE = 5  # a fifth of a task's memory is for raw events, the rest for envelopes
BLOCK_BYTES_MIN = 4 << 10
Spot = tuple[int, int]  # file, position


def read_range(work: Work) -> Manifest:
    """Read, decode and write one range. Raises what the wire and the decoder raise, with the position."""
    return _Range(work).run()


class _Range:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.origin = Origin(work.server, work.start.epoch)
        self.manifest = Manifest()
        self.schemas = {name: t.schema for name, t in work.tables.items()}
        self.pending_max = work.task_bytes // RAW_SHARE
        targets = {name: t.target for name, t in work.tables.items()}
        self.writer = EnvelopeWriter(Lake(work.root), targets, buffer_bytes=work.task_bytes - self.pending_max)
        self.capture = Capture(work.settings)
        self.pending: list[RowsEvent] = []
        self.batches: list[RowsBatch] = []  # never beside single events: what is written keeps the stream's order
        self.pending_bytes = 0
        self.conformed: dict[tuple[int, int], tuple[TableMap, Conformed]] = {}
        self.payload = (-1, -1)  # (file, pos) of the payload whose rows are being numbered
        self.payload_rows = 0
        self.seen = gtids(work.flavour, work.seen) if work.seen else None
        self.judged: tuple[Transaction | None, bool] = (None, False)  # the last transaction asked about
        self.beyond = False  # something was read behind the last boundary
        self.statements = Statements(work, self.manifest, self.schemas)

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
        with contextlib.closing(dump), contextlib.closing(self.capture), self.writer:
            for boundary in self._pump(dump):
                end = boundary
                here = Position(work.start.epoch, boundary.file, boundary.pos)
                if self.statements.ends or here >= work.stop or self.manifest.bytes >= work.max_bytes:
                    break
            if self.beyond:
                self.writer.abandon()
            else:
                self._flush()
                files = self.writer.close()
        if self.beyond:
            return self._up_to(end)
        if end is not None:
            at = Position(work.start.epoch, end.file, end.pos)
            gtid = union(work.flavour, work.seen, end.gtid) if work.seen else end.gtid
            self.manifest.end = {**at.to_json(), "gtid": gtid, "ts_ms": end.ts_ms}
        self.manifest.files = {t: [f.to_json() for f in fs] for t, fs in files.items()}
        self.manifest.rows = {t: sum(f.rows for f in fs) for t, fs in files.items()}
        return self.manifest

    def _up_to(self, end: Boundary | None) -> Manifest:
        """The range once more, and no further than its last boundary: the log ended while an XA transaction was
        awaited, and what stands behind it comes again with the next batch."""
        if end is None:
            return Manifest()
        return _Range(replace(self.work, stop=Position(self.work.start.epoch, end.file, end.pos))).run()

    def _pump(self, dump: Dump) -> Iterator[Boundary]:
        work, wanted = self.work, set(self.work.tables)

        def counted() -> Iterator[Block]:
            for block in dump.blocks(max(BLOCK_BYTES_MIN, min(BLOCK_BYTES, work.max_bytes))):
                self.manifest.bytes += block.size
                yield block

        items = read_blocks(
            counted(),
            file=work.start.file,
            wants=lambda t: str(t) in wanted,
            gtid_set=work.gtid,
            stop=(work.stop.file, work.stop.pos),
        )
        for item in items:
            self.beyond = not isinstance(item, Boundary)
            if self.beyond and self.manifest.reshaped:
                self.statements.forgo_reshaping()
            if isinstance(item, RowsBatch):
                self._take_batch(item)
            elif not isinstance(item, Boundary) and self._read_before(item.transaction):
                continue
            elif isinstance(item, RowsEvent):
                self._take(item)
            elif isinstance(item, Statement):
                self._statement(item)
            else:
                yield item

    def _read_before(self, transaction: Transaction) -> bool:
        """Whether the transaction was read from another server's log."""
        if self.seen is None or not transaction.gtid:
            return False
        if self.judged[0] is not transaction:
            self.judged = (transaction, self.seen.holds(transaction.gtid))
        return self.judged[1]

    def _take_batch(self, batch: RowsBatch) -> None:
        if self.seen is not None or self.work.past:
            for event in batch.events():
                if not self._read_before(event.transaction):
                    self._take(event)
            return
        if self.pending:
            self._flush()
        self.batches.append(batch)
        self.pending_bytes += batch.data.size
        if self.pending_bytes >= self.pending_max:
            self._flush()

    def _take(self, event: RowsEvent) -> None:
        if self.batches:
            self._flush()
        followed = self.work.tables[str(event.table_map.name)]
        if not followed.takes(Position(self.work.start.epoch, event.file, event.pos)):
            return
        if self.work.past:
            fit = self._fit(event.table_map)
            require_shape(fit, event.table_map.name, f"{event.file}:{event.pos}")
            if followed.where is not None and not followed.counts:
                require_told(followed.where, event, fit, followed.schema)
        if self.work.past == "check":
            return
        self.pending.append(event)
        self.pending_bytes += event.weight
        if self.pending_bytes >= self.pending_max:
            self._flush()

    def _statement(self, statement: Statement) -> None:
        here = Position(self.work.start.epoch, statement.file, statement.pos)
        if self.work.past == "check":
            return
        for effect in effects(statement.sql, statement.schema):
            if isinstance(effect, Create):
                self.manifest.discover = True
            for name in self.statements.concerned(effect):
                if self.work.tables[name].takes(here):
                    self._change(statement, effect, name)

    def _change(self, statement: Statement, effect: Effect, name: str) -> None:
        if isinstance(effect, Truncate):
            done: Done = "ignored"
            if self.work.tables[name].truncate:
                self._truncate(name, statement)
                done = "followed"
        else:
            if isinstance(effect, Alter):
                self._flush()  # which may take up columns that were added before
            done = self.statements.apply(effect, name, f"at {statement.file}:{statement.pos}")
        followed = self.work.tables[name]
        hide = bool(followed.excluded) or followed.where is not None
        self.manifest.changes.append(described(statement, effect, self.schemas[name], done, self.origin, hide=hide))

    def _truncate(self, name: str, statement: Statement) -> None:
        self._flush()
        transaction = statement.transaction
        stamp = self._stamp_of(transaction, self.schemas[name].name, statement.file, statement.pos, 0, 1)
        image = self.schemas[name].image()
        self.writer.write(name, truncate_envelope(image, stamp, self.origin))
        self.manifest.truncated.append(name)
        self._reached(name, statement.file, statement.pos)

    def _flush(self) -> None:
        """Decode what is pending, a table map at a time, and write it in the order of the stream."""
        self._flush_batches()
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
                self._alter(table_map, fit, events[members[0]].file, events[members[0]].pos)
                continue
            decoded[key] = (fit, self._decode(fit, [events[i] for i in members]))
            counts[members] = decoded[key][1].counts
        stamps = [self._stamp(event, int(n)) for event, n in zip(events, counts, strict=True)]
        for key, members in groups.items():
            if key in decoded:
                self._land(events[members[0]].table_map.name, *decoded[key], [events[i] for i in members],
                           [stamps[i] for i in members])  # fmt: skip

    def _flush_batches(self) -> None:
        taken, self.batches = Batches(self.batches, self.work.start.epoch), []
        decoded = []
        for wanted in taken.tables({name: (t.start, t.stop) for name, t in self.work.tables.items()}):
            fit = self._fit(wanted.table_map)
            if fit.mismatch is not None:
                self._alter(wanted.table_map, fit, *wanted.first)
                continue
            rows = self._decoded(fit, wanted.table_map, wanted.images, (), wanted.first, wanted.last)
            taken.count(wanted, rows.counts)
            decoded.append((wanted, fit, rows))
        if decoded:
            stamps = taken.stamps()
            for wanted, fit, rows in decoded:
                self._write(wanted.table_map.name, fit, rows, wanted.ops, stamps.take(wanted.members), wanted.last)

    def _alter(self, table_map: TableMap, fit: Conformed, file: int, pos: int) -> None:
        why = f"its column {fit.mismatch} has another type since {file}:{pos}"
        self.manifest.altered.setdefault(str(table_map.name), why)

    def _decode(self, fit: Conformed, events: list[RowsEvent]) -> DecodedRows:
        first, last = events[0], events[-1]
        images, presences = [(e.op, e.images) for e in events], [e.presence for e in events]
        return self._decoded(fit, first.table_map, images, presences, (first.file, first.pos), (last.file, last.pos))

    def _decoded(
        self, fit: Conformed, table_map: TableMap, images: Any, presences: Any, first: Spot, last: Spot
    ) -> DecodedRows:
        try:
            return decode_rows(fit.wire, images, presences)
        except LakewardError as error:
            raise FailClosedError(
                error.message,
                hint=error.hint or f"report it, and go on with `lakeward resnapshot {table_map.name}`",
                **{**error.facts, "table": table_map.name, "between": f"{first[0]}:{first[1]}",
                   "and": f"{last[0]}:{last[1]}"},
            ) from error  # fmt: skip

    def _land(
        self, name: TableName, fit: Conformed, rows: DecodedRows, events: list[RowsEvent], stamps: list[EventStamp]
    ) -> None:
        gaps = unknown(events, fit, rows, self.schemas[str(name)], self.work.flavour)
        if gaps and gaps.why and self.work.tables[str(name)].counts:
            self.manifest.altered.setdefault(str(name), gaps.why)
        names = (gaps.absent, gaps.before_absent) if gaps else ((), ())
        if gaps and str(name) not in self.manifest.partial:
            self.manifest.partial.append(str(name))
        last, where = events[-1], self.work.tables[str(name)].where
        doubtful = untold(where, events, fit, rows, self.work.flavour) if where is not None else None
        more = (*names, [e.unchecked for e in events])
        self._write(name, fit, rows, [e.op for e in events], stamps, (last.file, last.pos), *more, doubtful=doubtful)

    def _write(
        self,
        name: TableName,
        fit: Conformed,
        rows: DecodedRows,
        ops: Any,
        stamps: Any,
        last: Spot,
        *names: Any,
        doubtful: Flags | None = None,
    ) -> None:
        self.manifest.zero_dates += rows.zero_dates
        self.manifest.replaced += rows.replaced
        schema, key = self.schemas[str(name)], self.work.mask_key
        before, after = (masked(fit.image(image), schema, key) for image in (rows.before, rows.after))
        envelopes = stream_envelopes(before, after, ops, rows.counts, stamps, self.origin, *names)
        if (where := self.work.tables[str(name)].where) is not None:
            envelopes, why = within(where, envelopes, fit, rows, schema, self.capture, doubtful)
            if why is not None and self.work.tables[str(name)].counts:
                self.manifest.altered.setdefault(str(name), f"{why}, before {last[0]}:{last[1]}")
        self.writer.write(str(name), envelopes)
        self._reached(str(name), *last)

    def _fit(self, table_map: TableMap) -> Conformed:
        name = str(table_map.name)
        schema = self.schemas[name]
        known = self.conformed.get((id(table_map), id(schema)))
        if known is not None:
            return known[1]
        fit = conform(table_map, schema, self.work.tables[name].excluded)
        if fit.added and fit.mismatch is None and self.work.tables[name].target.names is not None:
            # What Delta will call the column in files of a table with column mapping is not known before it is added.
            fit = replace(fit, mismatch=fit.added[0].name)
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
