"""The part of a server's binlog that a test writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from servers.running import Database

from bronze.binlog.items import Boundary, RowsEvent, Statement
from bronze.binlog.transactions import read
from bronze.binlog.wire import Dump
from bronze.source.connection import settings
from bronze.source.server import position_now
from lakeward.config import Source
from lakeward.embedded.replicator import ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.position import Checkpoint, Position, binlog_name


class Log:
    """What is written to the binlog from here on, read as a replica reads it."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.server = database.server
        self.start: Checkpoint = position_now(database.root, 1)
        self.url = url_of(self.server)
        self.settings = settings(Source(url=self.url), ensure_replicator(self.server, ["*"]))

    def name(self, number: int) -> str:
        """The name of the binlog file with this number."""
        return binlog_name(self.database.query("SHOW BINARY LOGS")[-1][0], number)

    def raw(self, *, at: Position | None = None) -> Iterator[Any]:
        """The raw events."""
        at = at or self.start.at
        dump = Dump(
            self.settings,
            server_id=4711,
            file=self.name(at.file),
            pos=at.pos,
            flavour=self.server.flavour,
            blocking=False,
            heartbeat_s=10,
        )
        try:
            yield from dump
        finally:
            dump.close()

    def read(
        self, raw: Iterable[Any] | None = None, *, start: Checkpoint | None = None, gtid: str | None = None
    ) -> list[RowsEvent | Statement | Boundary]:
        """What reading the raw events, or those given, yields of this database."""
        start = start or self.start
        return list(
            read(
                self.raw(at=start.at) if raw is None else raw,
                file=start.at.file,
                wants=lambda table: table.schema == self.database.name,
                gtid_set=start.gtid if gtid is None else gtid,
            )
        )

    def rows(self) -> list[RowsEvent]:
        return [item for item in self.read() if isinstance(item, RowsEvent)]
