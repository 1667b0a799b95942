"""A database that nobody designed for, under traffic of all sorts: what bronze holds comes to what the source holds.

`tests/end_to_end/test_random_databases.py` does it through the whole pipeline; here it is bronze alone, without Spark,
so that hundreds of seeds can be tried. After each run the events are folded to the tables they leave behind
(`servers/folded.py`), and those are compared with a fresh snapshot and with what SELECT prints.

LAKEWARD_SEEDS is how many seeds to try on each server (6), LAKEWARD_FIRST_SEED where to begin.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
from databases.random_database import random_tables
from databases.random_sessions import Traffic
from databases.selected import selected
from servers.folded import Row, assert_each_once_and_in_order, folded, names_of, row_of
from servers.running import Database, running
from servers.sparkless import Sparkless

from bronze.snapshot.bounds import Chunk
from bronze.snapshot.read import read_chunk
from bronze.source.catalog import discover
from bronze.source.connection import open_connection, settings
from lakeward.config import parse
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.embedded.server import EmbeddedServer
from lakeward.schema import TableSchema

FLAVOURS = [name for name in ("mysql", "mariadb") if name in os.environ.get("LAKEWARD_TEST_SERVERS", "mysql,mariadb")]
FIRST = int(os.environ.get("LAKEWARD_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("LAKEWARD_SEEDS", "6")))
RUNS = 4
SHOWN = 4  # rows of a difference


@pytest.fixture(scope="module", params=FLAVOURS)
def source(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A server of the module's own: global settings are changed, and its logs are purged."""
    with running(request.param) as server:
        yield server


@pytest.mark.parametrize("seed", SEEDS)
def test_what_bronze_holds_of_a_random_database_comes_to_what_the_source_holds(
    source: EmbeddedServer, seed: int
) -> None:
    with Database.create(source, f"random_{seed}") as database, tempfile.TemporaryDirectory() as folder:
        world = World(database, Path(folder), seed)
        with world.traffic as traffic, mock.patch("bronze.binlog.groups.XA_WAIT_S", world.xa_wait_s):
            traffic.create()
            for run in range(RUNS):
                traffic.burst(3)
                if world.xa_wait_s < 0:
                    traffic.leave_prepared()
                world.bronze.run(url_of(source))
                world.check(f"seed {seed} on {source.flavour}, run {run}")


class World:
    """A random database, its traffic, and a lake."""

    def __init__(self, database: Database, folder: Path, seed: int) -> None:
        r = random.Random(f"{seed} {database.flavour} settings")
        self.database = database
        _fresh_log(database, compress=r.random() < 0.5)
        self.traffic = Traffic(seed, database, random_tables(seed, database.flavour))
        self.xa_wait_s = r.choice([*[300] * 9, -1])  # -1: bronze goes on while one is prepared
        sizes = {"chunk_rows": r.choice([5, 40, 250_000]), "max_batch_bytes": r.choice([3_000, 100_000, 1 << 28])}
        password = ensure_replicator(database.server, [EVERY_SCHEMA])
        # Each connection with TLS takes 40 ms, and there are many.
        self.bronze = Sparkless(folder, password, [f"{database.name}.*"], tls={"mode": "disabled"}, **sizes)

    def check(self, where: str) -> None:
        """That the lake is the source. Both stand still."""
        state = self.bronze.state
        assert state.checkpoint is not None
        events = {name: self.bronze.events(name) for name in state.tables}
        assert_each_once_and_in_order(events.values())
        fresh = self.fresh()
        assert {n for n, t in state.tables.items() if t.status == "streaming"} == {str(s.name) for s in fresh}, where
        for schema, rows in fresh.items():
            name = str(schema.name)
            table = state.tables[name]
            assert sorted(map(str, table.schema.image())) == sorted(map(str, schema.image())), f"{where}: {name}"
            lake = folded(events[name], table, state.checkpoint.at)
            _same(f"{where}: {name}, bronze and a fresh snapshot", schema, lake, rows)
            columns, printed = selected(self.database.root, schema)
            if not columns:  # all are FLOAT, which a SELECT rounds
                continue
            chosen = replace(schema, columns=tuple(c for c in schema.columns if c.name in columns))
            plain = Counter(row_of(chosen, row) for row in printed)
            part: Counter[Row] = Counter()
            places = [i for i, name in enumerate(names_of(schema)) if name in columns]
            for row, n in lake.items():
                part[tuple(row[i] for i in places)] += n
            _same(f"{where}: {name}, bronze and SELECT", chosen, part, plain)

    def fresh(self) -> dict[TableSchema, Counter[Row]]:
        """The tables as Lakeward reads them now."""
        config = parse({"source": {"url": url_of(self.database.server), **self.bronze.source}})
        connecting = settings(config.source, self.bronze.password)
        connection = open_connection(connecting)
        try:
            schemas = discover(connection, config)
        finally:
            connection.close()
        found = {}
        for schema in schemas:
            batches = read_chunk(connecting, schema, Chunk(0))
            found[schema] = Counter(row_of(schema, row) for batch in batches for row in batch.to_pylist())
        return found


def _same(where: str, schema: TableSchema, lake: Counter[Row], source: Counter[Row]) -> None:
    """Raises AssertionError with some of the rows that differ, by the columns that do."""
    if lake == source:
        return
    only_lake, only_source = lake - source, source - lake
    lines = [f"{where}: {only_lake.total()} rows of bronze and {only_source.total()} of the source are not the same"]
    lines.append(f"keys {schema.keys}, columns {[(c.name, c.kind) for c in schema.columns]}")
    for side, rows in (("bronze", only_lake), ("source", only_source)):
        for row in sorted(rows)[:SHOWN]:
            values = dict(zip(names_of(schema), row, strict=True))
            lines.append(f"{side}: {rows[row]} of { ({k: v[:80] for k, v in values.items()}) }")
    raise AssertionError("\n".join(lines))


def _fresh_log(database: Database, *, compress: bool) -> None:
    """A new binlog file, and none before it."""
    if database.flavour == "mariadb":
        database.execute(f"SET GLOBAL log_bin_compress = {'ON' if compress else 'OFF'}")
        database.execute("SET GLOBAL log_bin_compress_min_len = 10")
    database.execute("FLUSH BINARY LOGS")
    database.execute("PURGE BINARY LOGS TO %s", (database.query("SHOW BINARY LOGS")[-1][0],))
