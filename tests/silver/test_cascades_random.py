"""Random traffic over tables that refer to each other: bronze's events and the cascades played over them give the
tables that the server has. No Spark: bronze's files are read as they are.

LAKEWARD_SEEDS is how many seeds to try (5), LAKEWARD_FIRST_SEED where to begin.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pymysql
import pytest
from servers.running import Database
from servers.sparkless import Sparkless

from lakeward.config import Config
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.embedded.server import EmbeddedServer
from lakeward.state import SilverState, SilverTable
from silver.cascades.play import Change, Done, Play, Trigger
from silver.cascades.run import graph, references
from silver.plan import plan_run

FIRST = int(os.environ.get("LAKEWARD_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("LAKEWARD_SEEDS", "5")))
KEYS = ("a", "A", "á", "b", "B ", "c")
RULES = ("", "CASCADE", "CASCADE", "SET NULL")
pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_events_and_the_cascades_played_over_them_give_what_the_server_has(
    unlogged_server: EmbeddedServer, tmp_path: Path, seed: int
) -> None:
    r = random.Random(seed)
    with Database.create(unlogged_server, f"played_{os.getpid()}_{seed}") as database:
        _make(database, r)
        _traffic(database, r, 30)
        lake = Sparkless(tmp_path, ensure_replicator(unlogged_server, [EVERY_SCHEMA]), [f"{database.name}.*"])
        lake.run(url_of(unlogged_server))
        silver = SilverState(run=1, cut=lake.state.checkpoint)
        for name, table in lake.state.tables.items():
            assert table.start is not None
            silver.tables[name] = SilverTable(lake.state.checkpoint.at, 1, table.batch, table.rows, 1)
        _traffic(database, r, 120)
        lake.run(url_of(unlogged_server))
        played = _played(lake, silver)
        assert played == _there(database, list(played))


def _make(database: Database, r: random.Random) -> None:
    def rules(nullable: bool = True) -> str:
        one, other = (r.choice(RULES if nullable else RULES[:3]) for _ in range(2))
        return (f" ON DELETE {one}" if one else "") + (f" ON UPDATE {other}" if other else "")

    text = "VARCHAR(5) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"
    for ddl in (
        f"a (k {text} PRIMARY KEY, v INT)",
        f"b (id INT PRIMARY KEY, k {text}, up INT, FOREIGN KEY (k) REFERENCES a (k){rules()}, "
        f"FOREIGN KEY (up) REFERENCES b (id){r.choice(['', ' ON DELETE CASCADE', ' ON DELETE SET NULL'])})",
        f"c (id INT, b INT, k {text}, PRIMARY KEY (id), UNIQUE (id, k), FOREIGN KEY (b) REFERENCES b (id){rules()}, "
        f"FOREIGN KEY (k) REFERENCES a (k){rules()})",
        f"d (c INT, n INT, v INT, PRIMARY KEY (c, n), FOREIGN KEY (c) REFERENCES c (id){rules(False)})",
        f"heap (c INT, k {text}, FOREIGN KEY (c, k) REFERENCES c (id, k){rules()}, "
        f"FOREIGN KEY (k) REFERENCES a (k){rules()})",
    ):
        database.execute(f"CREATE TABLE {ddl}")


def _traffic(database: Database, r: random.Random, transactions: int) -> None:
    def key() -> str:
        return "NULL" if r.random() < 0.1 else f"'{r.choice(KEYS)}'"

    def number() -> str:
        return "NULL" if r.random() < 0.1 else str(r.randint(1, 9))

    def row(table: str) -> str:
        values = {
            "a": lambda: f"{key()}, {number()}",
            "b": lambda: f"{number()}, {key()}, {number()}",
            "c": lambda: f"{number()}, {number()}, {key()}",
            "d": lambda: f"{number()}, {number()}, {number()}",
            "heap": lambda: f"{number()}, {key()}",
        }
        return f"({values[table]()})"

    columns = {"a": "kv", "b": ["id", "k", "up"], "c": ["id", "b", "k"], "d": "cnv", "heap": "ck"}

    def statement() -> str:
        table = r.choice(["a", "a", "b", "b", "c", "d", "heap"])
        column = r.choice(columns[table])
        value = key() if column == "k" else number()
        where = f"WHERE {column} {r.choice(['=', '=', '<'])} {key() if column == 'k' else number()}"
        kind = r.choices(["insert", "replace", "update", "delete", "upsert"], [8, 2, 5, 3, 2])[0]
        if kind == "delete":
            return f"DELETE FROM {table} {where}"
        if kind == "update":
            return f"UPDATE {table} SET {column} = {value} {where}"
        verb = "REPLACE" if kind == "replace" else "INSERT"
        more = f" ON DUPLICATE KEY UPDATE {column} = {value}" if kind == "upsert" else ""
        rows = ", ".join(row(table) for _ in range(r.choice([1, 1, 3])))
        return f"{verb} {'IGNORE ' if verb == 'INSERT' else ''}INTO {table} VALUES {rows}{more}"

    for _ in range(transactions):
        unchecked = r.random() < 0.05
        database.execute(f"SET foreign_key_checks = {0 if unchecked else 1}")
        database.execute("BEGIN")
        for _ in range(r.choice([1, 2, 5])):
            with contextlib.suppress(pymysql.MySQLError):  # a broken reference, a double key, a NULL in a key
                database.execute(statement())
        database.execute("COMMIT" if r.random() < 0.9 else "ROLLBACK")
    database.execute("SET foreign_key_checks = 1")


def _played(lake: Sparkless, silver: SilverState) -> dict[str, Counter[tuple[Any, ...]]]:
    """Each table's rows as text, from bronze's events and what the play tells."""
    plan = plan_run(lake.state, silver, lambda _: 1)
    assert plan is not None
    none: Any = None
    edges, members = graph(none, lake.lake, Config(), lake.state, silver, plan, references(lake.state, plan))
    images: list[tuple[Any, ...]] = []
    origins: list[dict[str, Any]] = []
    rows: list[Change] = []
    events: list[Change | Trigger] = []
    for name, member in members.items():
        for event in lake.events(name):
            source = event["source"]
            place = (source["epoch"], source["file"], source["pos"], source["row"], 0)
            states = []
            for half, side in enumerate(("before", "after")):
                if event[side] is not None:
                    images.append(tuple(None if v is None else str(v) for v in event[side].values()))
                    kept = tuple(images[-1][i] for i in member.table.kept)
                    states.append(Change(name, place, half, side == "before", kept, len(images) - 1))
            if event["op"] == "r":
                rows += states
                continue
            events += states
            old = next((s.values for s in states if s.gone), None)
            new = next((s.values for s in states if not s.gone), None)
            if old is not None and not source["unchecked"]:
                events.append(Trigger(name, place, old, new, len(origins)))
                origins.append(source)
    done = Play({n: m.table for n, m in members.items()}, edges).run(rows, events)
    return _applied(members, images, [*rows, *(e for e in events if isinstance(e, Change))], done, origins)


def _applied(
    members: Any, images: Any, changes: list[Change], done: list[Done], origins: Any
) -> dict[str, Counter[tuple[Any, ...]]]:
    steps = [(c.place, c.half, c.table, c.gone, images[c.image]) for c in changes]
    for d in done:
        source = origins[d.origin]
        place = (source["epoch"], source["file"], source["pos"], source["row"], d.number)
        for half, overlay in enumerate((d.before, d.after)):
            if overlay is not None:
                image = tuple(overlay.get(i, v) for i, v in enumerate(images[d.image]))
                steps.append((place, half, d.table, half == 0, image))
    found: dict[str, Counter[tuple[Any, ...]]] = {n.partition(".")[2]: Counter() for n in members}
    for _, _, table, gone, image in sorted(steps, key=lambda s: s[:2]):
        found[table.partition(".")[2]][image] += -1 if gone else 1
    return {n: Counter({row: k for row, k in rows.items() if k}) for n, rows in found.items()}


def _there(database: Database, tables: list[str]) -> dict[str, Counter[tuple[Any, ...]]]:
    def rows(table: str) -> Counter[tuple[Any, ...]]:
        found = database.query(f"SELECT * FROM {table}")
        return Counter(tuple(None if v is None else str(v) for v in row) for row in found)

    return {name: rows(name) for name in tables}
