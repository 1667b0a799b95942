"""Raw binlog events in, the rows and statements of committed transactions out, with the places one may resume at.

Pure over the raw events, so that a file on disk and a server's dump are read by the same code. What it promises:
- an event it does not know or cannot read raises FailClosedError with its position; nothing is skipped that could have
  changed a wanted table;
- an event's position is counted from the start of its file, since the header's own wraps at 4 GiB, and must agree
  with the header's: no event can go missing in between;
- a Boundary comes after everything before it and before anything after it; none stands inside a transaction or
  while an XA transaction is prepared, since reading from there could not tell what its commit makes effective. One
  that stays prepared is not waited for (see `groups.Prepared`): its commit is then a Statement to who resumes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from bronze.binlog import bodies, events
from bronze.binlog.compressed import MALFORMED, payload_events
from bronze.binlog.events import HEADER, HEADER_SIZE, Place, Raw
from bronze.binlog.frame import WRAP, Frame
from bronze.binlog.groups import Group, Item, Prepared
from bronze.binlog.gtid import Flavour, GtidPosition, GtidSet
from bronze.binlog.items import Boundary, RowsEvent, Statement, Transaction
from bronze.binlog.queries import Kind, classify
from bronze.binlog.rows import Tables
from bronze.binlog.statements import written_tables
from lakeward.errors import FailClosedError
from lakeward.names import TableName

__all__ = ["Boundary", "RowsEvent", "Statement", "Transaction", "read"]


def read(
    raw_events: Iterable[Raw], *, file: int, wants: Callable[[TableName], bool], gtid_set: str
) -> Iterator[RowsEvent | Statement | Boundary]:
    """Read events that begin at a boundary of the file numbered `file`, until `raw_events` ends.

    `gtid_set` is what is executed up to there, `""` for nothing or where GTIDs are off. Raises FailClosedError for
    what cannot be read and WrongServerError where files go backwards.
    """
    reader = Reader(file, wants, gtid_set)
    for raw in raw_events:
        yield from reader.event(raw)
    yield from reader.end(time.time())


@dataclass(slots=True)
class _Event:
    kind: int
    body: memoryview  # without header and checksum
    place: Place
    seconds: int
    server: int
    flags: int
    inner: bool  # of a compressed transaction


class Reader:
    """The state of one read; `event` takes the next raw event."""

    def __init__(self, file: int, wants: Callable[[TableName], bool], gtid_set: str) -> None:
        self.frame = Frame(file)
        self.wants = wants
        self.gtid_text = gtid_set
        self.gtids: GtidSet | GtidPosition | None = None  # until the format description says which
        self.group: Group | None = None
        self.prepared = Prepared()
        self.ts_ms = 0
        self.tables = Tables(wants)

    def event(self, raw: Raw) -> Iterator[Item | Boundary]:
        """Everything that becomes known with this event."""
        frame = self.frame
        place, artificial = frame.place(raw)
        seconds, kind, server, _, _, flags = HEADER.unpack_from(raw)
        file = frame.file
        try:
            if kind == events.FORMAT_DESCRIPTION:
                self._file_begins(frame.describe(raw, place), place, artificial)
            elif kind == events.ROTATE:
                frame.rotate(raw, place, artificial)
            elif kind == events.TRANSACTION_PAYLOAD:
                for inner in payload_events(bytes(frame.body(raw, place))):
                    seconds, kind, server, _, _, flags = HEADER.unpack_from(inner)
                    body = memoryview(inner)[HEADER_SIZE:]
                    yield from self._dispatch(_Event(kind, body, place, seconds, server, flags, True))
            elif kind not in events.HEARTBEATS:
                body = frame.body(raw, place)
                yield from self._dispatch(_Event(kind, body, place, seconds, server, flags, False))
        except MALFORMED as error:
            raise place.error(
                f"the binlog event of type {kind} is not of the form that Lakeward knows: {error}",
                hint="use a version of Lakeward that knows this server, or `lakeward resnapshot` of all tables",
                event_type=kind,
            ) from error
        except FailClosedError as error:
            error.facts.setdefault("binlog_file_number", place.file)
            error.facts.setdefault("position", place.pos)
            raise
        if frame.file != file:
            self._abandon(place)
        elif artificial:
            return
        if self.group is None and not self.prepared.awaited(seconds) and frame.pos < WRAP:
            yield self._boundary()

    def end(self, now: float) -> Iterator[Boundary]:
        """What becomes known when no event follows; `now` is in seconds since 1970 UTC."""
        if self.group is None and self.prepared and not self.prepared.awaited(now) and self.frame.pos < WRAP:
            yield self._boundary()

    def _boundary(self) -> Boundary:
        gtid = self.gtid_text if self.gtids is None else str(self.gtids)
        return Boundary(self.frame.file, self.frame.pos, gtid, self.ts_ms)

    def _file_begins(self, flavour: Flavour, place: Place, artificial: bool) -> None:
        if self.gtids is None:
            self.gtids = GtidPosition(self.gtid_text) if flavour == "mariadb" else GtidSet(self.gtid_text)
        if not artificial:
            self._abandon(place)

    def _abandon(self, place: Place) -> None:
        """A file ends or begins. A transaction still open was cut off by a crash of the server, which undid it."""
        self.tables.forget()
        if self.group is not None:
            self.group.roll_back(place)
            self.group = None

    def _dispatch(self, e: _Event) -> Iterable[Item]:
        kind = e.kind
        if kind in events.ROWS:
            return self._rows(e)
        if kind == events.TABLE_MAP:
            assert self.frame.flavour is not None  # there is no body without it
            self.tables.describe(bytes(e.body), self.frame.flavour)
        elif kind in (events.QUERY, events.MARIADB_QUERY_COMPRESSED, events.EXECUTE_LOAD_QUERY):
            return self._query(e)
        elif kind == events.XID:
            return self._commit(e.place)
        elif kind in (events.GTID, events.ANONYMOUS_GTID, events.GTID_TAGGED):
            self._mysql_gtid(e)
        elif kind == events.MARIADB_GTID:
            self._mariadb_gtid(e)
        elif kind == events.PREVIOUS_GTIDS and isinstance(self.gtids, GtidSet):
            self.gtids.update(bodies.parse_previous_gtids(bytes(e.body)))
        elif kind == events.MARIADB_GTID_LIST and isinstance(self.gtids, GtidPosition):
            self.gtids.update(bodies.parse_mariadb_gtid_list(bytes(e.body)))
        elif kind == events.XA_PREPARE:
            return self._xa_prepare(e)
        elif kind not in events.PASSED_OVER and not e.flags & events.IGNORABLE:
            raise events.refused(kind, e.place)
        return ()

    # The beginnings and ends of transactions.

    def _mysql_gtid(self, e: _Event) -> None:
        parsed = (bodies.parse_gtid_tagged if e.kind == events.GTID_TAGGED else bodies.parse_gtid)(bytes(e.body))
        named = e.kind != events.ANONYMOUS_GTID
        group = self._begin(str(parsed) if named else "", parsed.ts_ms or e.seconds * 1000, e.place, begun=False)
        group.gtid = parsed if named else None

    def _mariadb_gtid(self, e: _Event) -> None:
        parsed = bodies.parse_mariadb_gtid(bytes(e.body), e.server)
        group = self._begin(str(parsed), e.seconds * 1000, e.place, begun=not parsed.standalone)
        group.gtid = parsed
        group.xa = parsed.xa
        group.effective = parsed.alter not in ("start", "rollback")

    def _begin(self, gtid: str, ts_ms: int, place: Place, *, begun: bool) -> Group:
        if self.group is not None:
            raise place.error(
                "a transaction begins inside another one",
                hint="run again; if it stays so, `lakeward resnapshot` of all tables",
                transaction=self.group.transaction.id,
            )
        transaction = Transaction(gtid or f"{place.file}:{place.pos}", gtid, ts_ms)
        self.group = Group(transaction, place, begun=begun)
        return self.group

    def _end(self) -> None:
        group, self.group = self.group, None
        if group is None:
            return
        self.ts_ms = group.transaction.ts_ms
        if isinstance(group.gtid, bodies.Gtid) and isinstance(self.gtids, GtidSet):
            self.gtids.add(group.gtid.uuid, group.gtid.number, group.gtid.tag)
        elif isinstance(group.gtid, bodies.MariadbGtid) and isinstance(self.gtids, GtidPosition):
            self.gtids.add(group.gtid.domain, group.gtid.server, group.gtid.sequence)

    def _commit(self, place: Place) -> Iterable[Item]:
        group = self._open(place)
        self._end()
        return group.held

    def _open(self, place: Place) -> Group:
        if self.group is None:
            raise place.error(
                "the binlog has a part of a transaction whose beginning was not read",
                hint="run again; if it stays so, `lakeward resnapshot` of all tables",
            )
        return self.group

    def _xa_prepare(self, e: _Event) -> Iterable[Item]:
        xid, one_phase = bodies.parse_xa_prepare(bytes(e.body))
        group = self._open(e.place)
        if one_phase:
            return self._commit(e.place)
        self.prepared.put(xid, group, e.seconds)
        self._end()
        return ()

    # Statements.

    def _query(self, e: _Event) -> Iterable[Item]:
        query = bodies.parse_query(
            bytes(e.body),
            post_header=26 if e.kind == events.EXECUTE_LOAD_QUERY else 13,
            compressed=e.kind == events.MARIADB_QUERY_COMPRESSED,
        )
        kind, name = classify(query.sql)
        place = e.place
        group = self.group or self._begin("", e.seconds * 1000, place, begun=False)
        if kind in (Kind.BEGIN, Kind.XA_START):
            group.begun = True
            group.xa = kind == Kind.XA_START
        elif kind == Kind.COMMIT:
            return self._commit(place)
        elif kind == Kind.ROLLBACK:
            group.roll_back(place)
            self._end()
        elif kind == Kind.SAVEPOINT:
            group.savepoint(name)
        elif kind == Kind.ROLLBACK_TO:
            group.rollback_to(name, place)
        elif kind in (Kind.XA_COMMIT, Kind.XA_ROLLBACK):
            return self._xa_end(kind, name, query, e, group)
        elif kind == Kind.ROWS:
            self._refuse_rows_as_text(query, place)
            self._end_if_alone(group)
        elif kind == Kind.OTHER:
            items = self._statement(query, e, group) if group.effective else ()
            self._end_if_alone(group)
            return items
        return ()

    def _end_if_alone(self, group: Group) -> None:
        if not group.begun:
            self._end()

    def _statement(self, query: bodies.Query, e: _Event, group: Group) -> Iterable[Item]:
        at, ts_ms = e.place, group.transaction.ts_ms
        # Inside a payload the frame's position is the payload's end, as it should be.
        item = Statement(query.schema, query.sql, at.file, at.pos, self.frame.pos, ts_ms, group.transaction)
        return group.hold(item) if group.begun else (item,)

    def _xa_end(self, kind: Kind, xid: str, query: bodies.Query, e: _Event, group: Group) -> Iterable[Item]:
        items = self.prepared.take(xid, e.place, group.transaction)
        if kind == Kind.XA_ROLLBACK:
            items = []
        elif items is None:  # prepared before this read began: what it changes is unknown, which its text stands for
            group.begun = False
            items = list(self._statement(query, e, group))
        self._end()
        return items

    def _refuse_rows_as_text(self, query: bodies.Query, place: Place) -> None:
        tables = written_tables(query.sql, query.schema)
        wanted = None if tables is None else [t for t in tables if self.wants(t)]
        if wanted == []:
            return
        raise place.error(
            "rows were changed in statement format, so the binlog does not say which",
            hint="SET GLOBAL binlog_format='ROW', reconnect the writers, then `lakeward resnapshot` the tables",
            tables=", ".join(map(str, wanted)) if wanted else "unknown",
        )

    def _rows(self, e: _Event) -> Iterable[Item]:
        found = self.tables.rows(e.kind, e.body, e.place)
        if found is None:
            return ()
        table_map, op, images, presence = found
        group = self._open(e.place)
        at = e.place
        unchecked = bool(e.body[6] & events.NO_FOREIGN_KEY_CHECKS)
        event = RowsEvent(table_map, op, images, at.file, at.pos, e.inner, group.transaction, presence, unchecked)
        return group.hold(event)
