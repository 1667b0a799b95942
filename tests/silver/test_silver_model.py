"""Random histories of several tables, cut into random runs, against a model of a few lines.

The model applies each statement to plain Python lists. Silver sees the same as envelopes, and at the end of each run
every table has to hold exactly the model's rows (counted, floats compared by their bits), the change feed has to add up
to them, and a history table has to hold exactly the model's versions. LAKEWARD_TEST_SEEDS=2,3,4 tries other histories.
"""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pytest

from lakeward.config import TableConfig
from lakeward.schema import TableSchema
from lakeward.state import load_silver

SIZES: list[dict[str, int]] = [  # how large Silver takes a table and its batch to be: each way of writing is tried
    {"silver.small.BYTES_MAX": -1, "silver.local.ROWS_MAX": -1, "silver.bulk.TABLE_BYTES_MAX": -1},
    {},
    {"silver.small.BYTES_MAX": -1, "silver.bulk.TABLE_BYTES_MAX": -1},
    {"silver.small.BYTES_MAX": -1},
    {
        "silver.small.BYTES_MAX": -1,
        "silver.bulk.TABLE_BYTES_MAX": -1,
        "silver.merge.REWRITTEN_BYTES_MAX": -1,
        "silver.prune.LISTED_BYTES_MIN": 0,
        "silver.table.DENSE": 1_000_000,
    },
]
SEEDS = [int(s) for s in os.environ.get("LAKEWARD_TEST_SEEDS", "1").split(",")]
VALUES: dict[str, list[Any]] = {
    "int": list(range(6)),
    "varchar(9)": ["a", "A", "a ", "", None, "é"],
    "double": [0.0, -0.0, 1.5, None],
    "date": [date(2024, 1, 1), date(1, 1, 1), None],
    "varbinary(4)": [b"", b"\x00", b"\xff", None],
}


@dataclass
class Model:
    """A source table: its rows, and the versions that each key had."""

    schema: TableSchema
    versioned: bool = False
    rows: list[dict[str, Any]] = field(default_factory=list)
    versions: list[tuple[dict[str, Any], int, int | None]] = field(default_factory=list)

    def key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row[k] for k in self.schema.keys)

    def free(self, row: dict[str, Any], but: dict[str, Any] | None = None) -> bool:
        """Whether the source would take the row: no other has its key, unless a part of it is a zero date."""
        if not self.schema.keys or None in self.key(row):
            return True
        return all(self.key(r) != self.key(row) for r in self.rows if r is not but)

    def close_transaction(self, ts_ms: int) -> None:
        if not self.versioned:
            return
        live = {self.key(row): row for row in self.rows}
        kept = []
        for row, since, until in self.versions:
            if until is None and repr(live.get(self.key(row))) != repr(row):
                until = ts_ms
            elif until is None:
                del live[self.key(row)]
            kept.append((row, since, until))
        self.versions = kept + [(dict(row), ts_ms, None) for row in live.values()]

    def content(self) -> Counter[tuple[Any, ...]]:
        return Counter(
            tuple(str(v) if isinstance(v, float) else v for v in (r[c.name] for c in self.schema.columns))
            for r in self.rows
        )


class World:
    """The models and the ledger, told the same."""

    def __init__(self, ledger: Any, seed: int, models: list[Model]) -> None:
        self.ledger, self.random, self.models = ledger, random.Random(seed), models
        self.spans: dict[str, range] = {}  # of each transaction, the positions of its events
        self.first_read: Model | None = None  # the table whose first snapshot is being read

    def row(self, schema: TableSchema) -> dict[str, Any]:
        kinds = {"int": "int", "varchar": "varchar(9)", "double": "double", "date": "date", "varbinary": "varbinary(4)"}
        row = {}
        for c in schema.columns:
            pool = VALUES[kinds[c.kind]]
            row[c.name] = self.random.choice(
                [v for v in pool if v is not None or c.name not in schema.keys or c.kind == "date"]
            )
        return row

    def transaction(self) -> None:
        begin = self.ledger.pos
        with self.ledger.transaction():
            transaction = self.ledger.tx
            for _ in range(self.random.randint(1, 4)):
                self.statement(self.random.choice(self.models))
        self.spans[transaction] = range(begin, self.ledger.pos + 1)
        for model in self.models:
            model.close_transaction(self.ledger.ts_ms)

    def statement(self, model: Model) -> None:
        ledger, schema = self.ledger, model.schema
        what = self.random.choices(["insert", "update", "move", "swap", "delete", "truncate"], [6, 8, 3, 3, 4, 0.2])[0]
        fresh = self.row(schema)
        if what == "truncate" and model.versioned and model is self.first_read:
            return  # what nobody has read yet and no event names is in no history
        if what == "truncate":
            ledger.truncate(schema)
            model.rows.clear()
        elif what == "insert" or not model.rows:
            if model.free(fresh):
                ledger.insert(schema, fresh)
                model.rows.append(fresh)
        elif what == "swap" and schema.keys and len(model.rows) > 1:
            self.swap(model)
        else:
            old = self.random.choice(model.rows)
            if what == "delete":
                ledger.delete(schema, old)
                model.rows = [r for r in model.rows if r is not old]  # not remove(): 0.0 == -0.0
                return
            others = [c.name for c in schema.columns if c.name not in schema.keys] or list(old)
            one = self.random.choice(others)  # one column alone, so that 0.0 becomes -0.0 and nothing else does
            new = fresh if what == "move" else {**old, one: fresh[one]}
            if repr(new) != repr(old) and model.free(new, but=old):
                ledger.update(schema, old, new)
                model.rows[next(i for i, r in enumerate(model.rows) if r is old)] = new

    def swap(self, model: Model) -> None:
        """Two rows exchange their keys within one event, over a third key: a server upholds keys row by row."""
        one, two = self.random.sample(model.rows, 2)
        keys = model.schema.keys
        one_after = {**one, **{k: two[k] for k in keys}}
        two_after = {**two, **{k: one[k] for k in keys}}
        aside = {**one, next(k for k in keys if model.schema.column(k).kind == "int"): 99}
        self.ledger.rows(model.schema, "u", [(one, aside), (two, two_after), (aside, one_after)])
        model.rows = [one_after if r is one else two_after if r is two else r for r in model.rows]

    def snapshot(self, model: Model) -> None:
        """A snapshot while the stream goes on: its rows are read some transactions later, unless they are counted."""
        again = self.ledger.state.tables.get(str(model.schema.name))
        self.ledger.follow(model.schema)
        seen = [dict(r) for r in model.rows]
        if not model.schema.counted:
            self.first_read = model if again is None else None
            for _ in range(self.random.randint(0, 3)):
                self.transaction()
            seen = [dict(r) for r in model.rows]
            self.first_read = None
        self.ledger.snapshot(model.schema, seen)

    def check(self) -> None:
        cut = load_silver(self.ledger.lake).cut
        assert cut is not None
        for model in self.models:
            assert self.ledger.content(model.schema) == model.content(), model.schema.name
            self.ledger.assert_told_truly(model.schema)
            assert load_silver(self.ledger.lake).tables[str(model.schema.name)].cut == cut.at
            if model.versioned:
                self.check_versions(model)

    def check_versions(self, model: Model) -> None:
        names = [c.name for c in model.schema.columns]
        frame = self.ledger.read(model.schema, "__history").select(*names, "__valid_from", "__valid_to", "__is_current")
        found = [tuple(map(repr, r)) for r in frame.collect()]
        wanted = [
            (*(row[n] for n in names), _instant(since), until and _instant(until), until is None)
            for row, since, until in model.versions
        ]
        assert Counter(found) == Counter(tuple(map(repr, w)) for w in wanted)
        self.check_positions(model)

    def check_positions(self, model: Model) -> None:
        """Of one key, positions order versions as times do, and touch where times do; each is in its transaction."""
        versions: dict[tuple[Any, ...], list[Any]] = {}
        for row in self.ledger.read(model.schema, "__history").collect():
            versions.setdefault(model.key(row.asDict()), []).append(row)
            if row["__transaction_id"] is not None:
                pos = int(row["__valid_from_position"].split("-")[2])
                assert pos in self.spans[row["__transaction_id"]]
        for of_key in versions.values():
            of_key.sort(key=lambda r: r["__valid_from_position"])
            assert [r["__is_current"] for r in of_key] == [r["__valid_to_position"] is None for r in of_key]
            for one, two in itertools.pairwise(of_key):
                assert one["__valid_from_position"] < one["__valid_to_position"] <= two["__valid_from_position"]
                assert one["__valid_from"] < one["__valid_to"] <= two["__valid_from"]
                touching = one["__valid_to_position"] == two["__valid_from_position"]
                assert touching == (one["__valid_to"] == two["__valid_from"])


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC).replace(tzinfo=None)


@pytest.mark.parametrize("seed", SEEDS)
def test_silver_equals_a_model_whatever_happens_and_however_it_is_cut_into_runs(ledger, make_schema, monkeypatch, seed):
    shapes = {
        "users": ({"id": "int", "name": "varchar(9)", "score": "double"}, ("id",)),
        "pairs": ({"v": "double", "a": "int", "b": "varchar(9)", "raw": "varbinary(4)"}, ("b", "a")),
        "heap": ({"a": "int", "d": "double"}, ()),
        "dated": ({"day": "date", "n": "int", "v": "varchar(9)"}, ("day", "n")),
        "soft": ({"id": "int", "name": "varchar(9)"}, ("id",)),
        "softheap": ({"a": "int"}, ()),
        "versioned": ({"id": "int", "score": "double", "name": "varchar(9)"}, ("id",)),
    }
    ledger.tables = {
        "shop.soft": TableConfig(deletes="soft"),
        "shop.softheap": TableConfig(deletes="soft"),
        "shop.versioned": TableConfig(history="scd2"),
    }
    models = [Model(make_schema(n, columns, keys), n == "versioned") for n, (columns, keys) in shapes.items()]
    world = World(ledger, seed, [])
    for model in models:
        while len(model.rows) < 3:
            row = world.row(model.schema)
            if model.free(row):
                model.rows.append(row)
        model.close_transaction(ledger.ts_ms)
        world.models.append(model)
        world.snapshot(model)
    ledger.silver()
    world.check()
    for turn in range(3):
        for _ in range(world.random.randint(4, 15)):
            world.transaction()
        if world.random.random() < 0.5:
            world.snapshot(world.random.choice(models))
        with monkeypatch.context() as sized:
            for name, value in SIZES[(seed + turn) % len(SIZES)].items():
                sized.setattr(name, value)
            ledger.silver()
        world.check()
