"""A bronze ledger without a source: tests say what happened, it writes the envelopes and state that bronze would."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bronze.envelope import envelope_ddl
from lakeward.config import Config, LakeConfig, TableConfig
from lakeward.delta import version
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import Column, TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, load_silver, save_bronze
from silver import run as silver_run

Row = dict[str, Any]
KINDS: dict[str, list[Any]] = {
    "bigint unsigned": [Decimal(2**64 - 1), Decimal(0)],
    "decimal(38,10)": [Decimal("-9999999999999999999999999999.9999999999"), None],
    "double": [-0.0, 5e-324],
    "float": [16777216.0, None],
    "date": [date(1, 1, 1), date(9999, 12, 31)],
    "datetime(6)": [datetime.fromisoformat(at) for at in ("0001-01-01T00:00:00.000001", "9999-12-31T23:59:59.999999")],
    "timestamp(6)": [datetime.fromisoformat(at) for at in ("1970-01-01T00:00:01", "2038-01-19T03:14:07.999999")],
    "varchar(9)": ["a \x00 é\U0001f600", ""],
    "varbinary(9)": [b"\x00\xff", b""],
    "json": ['{"a": 1.0}', None],
    "bit(64)": [Decimal(2**64 - 1), None],
    "point": [(4326, b"\x01\x02"), None],
    "vector(3)": [[1.5, -0.0, 3.0], None],
    "tinyint(1)": [1, None],
}
META = ("__ts_ms", "__transaction_id", "__transaction_order")


@dataclass
class Passing:
    """A gate that lets everything pass."""

    passed: DataFrame
    held: int = 0

    def hold(self) -> None:
        pass


def column(name: str, kind: str, nullable: bool = True) -> Column:
    return column_from_catalog(name, kind, nullable=nullable)


def table_schema(name: str, columns: dict[str, str], keys: tuple[str, ...]) -> TableSchema:
    made = tuple(column(n, kind, n not in keys) for n, kind in columns.items())
    return TableSchema(TableName("shop", name), made, keys, "primary" if keys else "row")


@dataclass
class Ledger:
    spark: SparkSession
    lake: Lake
    state: BronzeState = field(default_factory=BronzeState)
    tables: dict[str, TableConfig] = field(default_factory=dict)
    pos: int = 100
    ts_ms: int = 1_000_000
    pending: dict[str, list[Row]] = field(default_factory=dict)
    tx: str | None = None
    taken_ms: dict[str, int] = field(default_factory=dict)  # when each table's snapshot began

    @property
    def config(self) -> Config:
        return Config(lake=LakeConfig(root=self.lake.root), tables=self.tables, folder=Path(self.lake.root))

    def follow(self, schema: TableSchema, rows: list[Row] | None = None) -> TableSchema:
        """Snapshot a table, or snapshot it anew: `rows` is what it holds at this position."""
        name = str(schema.name)
        old = self.state.tables.get(name)
        table = BronzeTable(schema, status="streaming", generation=old.generation + 1 if old else 1)
        self._step()
        table.start = table.high = Position(1, 1, self.pos)
        table.batch = old.batch if old else 0
        self.state.tables[name] = table
        self.taken_ms[name] = self.ts_ms
        self.pending.setdefault(name, [])
        self.snapshot(schema, rows or [])
        return schema

    def snapshot(self, schema: TableSchema, rows: list[Row]) -> None:
        """Rows that the running snapshot read, now or later; they bear the position and time of its beginning."""
        name = str(schema.name)
        start = self.state.tables[name].start
        assert start is not None
        for number, row in enumerate(rows):
            self._put(schema, "r", None, row, snapshot=(start, self.taken_ms[name]), row=number)

    def alter(self, schema: TableSchema) -> TableSchema:
        """A plain ADD COLUMN: the same generation goes on with more columns."""
        self.flush()
        self.state.tables[str(schema.name)].schema = schema
        return schema

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._step()
        self.ts_ms += 1000
        self.tx = f"tx-{self.pos}"
        yield
        self.tx = None

    def insert(self, schema: TableSchema, row: Row) -> None:
        self._event(schema, "c", None, row)

    def update(self, schema: TableSchema, before: Row, after: Row) -> None:
        self._event(schema, "u", before, after)

    def delete(self, schema: TableSchema, row: Row) -> None:
        self._event(schema, "d", row, None)

    def minimal(self, schema: TableSchema, before: Row, after: Row | None) -> None:
        """An update or a delete as a session writes it with binlog_row_image MINIMAL."""
        key = {k: before[k] for k in schema.keys}
        told = None if after is None else key | {n: v for n, v in after.items() if v != before[n]}
        self._event(schema, "d" if after is None else "u", key, told)
        event = self.pending[str(schema.name)][-1]
        event["source"]["before_absent"] = [c.name for c in schema.columns if c.name not in key]
        if told is not None:
            event["source"]["absent"] = [c.name for c in schema.columns if c.name not in told] or None
        self.state.tables[str(schema.name)].partial = self.state.batch + 1

    def truncate(self, schema: TableSchema) -> None:
        self._event(schema, "t", None, None)
        self.state.tables[str(schema.name)].truncated = self.state.batch + 1

    def rows(self, schema: TableSchema, op: str, images: list[tuple[Row | None, Row | None]]) -> None:
        """One row event that holds several rows."""
        with contextlib.nullcontext() if self.tx else self.transaction():
            self._step()
            for number, (before, after) in enumerate(images):
                self._put(schema, op, before, after, row=number)

    def flush(self) -> None:
        """One bronze batch of all that is pending, and the checkpoint behind it."""
        self.state.batch += 1
        for name, rows in self.pending.items():
            table = self.state.tables[name]
            frame = self.spark.createDataFrame(rows, envelope_ddl(table.schema)).coalesce(1)
            path = self.lake.table("bronze", table.name)
            frame.write.format("delta").mode("append").option("mergeSchema", "true").save(path)
            table.batch, table.rows = self.state.batch, table.rows + len(rows)
        self.pending.clear()
        self._step()
        self.state.checkpoint = Checkpoint(Position(1, 1, self.pos), "", self.ts_ms)
        save_bronze(self.lake, self.state)

    def silver(self, **options: Any) -> silver_run.SilverReport:
        self.flush()
        return self.rerun(**options)

    def rerun(self, gate: Callable[..., Any] | None = None) -> silver_run.SilverReport:
        """Silver on what bronze holds, without a new batch."""
        passing = gate or (lambda frame, plan, run: Passing(frame))
        return silver_run.run(self.spark, self.lake, self.config, gate=passing)

    def location(self, schema: TableSchema, suffix: str = "") -> str:
        return self.lake.table("silver", schema.name, suffix)

    def read(self, schema: TableSchema, suffix: str = "") -> DataFrame:
        return self.spark.read.format("delta").load(self.location(schema, suffix))

    def content(self, schema: TableSchema) -> Counter[tuple[Any, ...]]:
        """The source's columns of each live row, counted."""
        frame = self.read(schema)
        if "__deleted" in frame.columns:
            frame = frame.where("NOT __deleted")
        return Counter(tuple(_plain(v) for v in r) for r in frame.select(*_quoted(schema)).collect())

    def version(self, schema: TableSchema, suffix: str = "") -> int:
        return version(self.spark, self.location(schema, suffix))

    def changes(self, schema: TableSchema, since: int = 0) -> list[tuple[str, tuple[Any, ...]]]:
        """The change feed as (change type, source columns), from version `since` on."""
        feed = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", since)
            .load(self.location(schema))
        )
        rows = feed.orderBy("_commit_version").select("_change_type", *_quoted(schema)).collect()
        return [(r[0], tuple(_plain(v) for v in r[1:])) for r in rows]

    def assert_told_truly(self, schema: TableSchema) -> None:
        """The change feed, replayed from nothing, gives the table; the state's row count and version are its own."""
        replayed: Counter[tuple[Any, ...]] = Counter()
        for change, row in self.changes(schema):
            replayed[row] += 1 if change in ("insert", "update_postimage") else -1
        told, stored = self.read(schema), self.content(schema)
        if "__deleted" in told.columns:
            everything = told.select(*_quoted(schema)).collect()
            assert {row: n for row, n in replayed.items() if n} == Counter(tuple(map(_plain, r)) for r in everything)
        else:
            assert {row: n for row, n in replayed.items() if n} == stored
        state = load_silver(self.lake).tables[str(schema.name)]
        assert state.rows == sum(stored.values())
        assert state.version == self.version(schema)

    def _event(self, schema: TableSchema, op: str, before: Row | None, after: Row | None) -> None:
        with contextlib.nullcontext() if self.tx else self.transaction():
            self._step()
            self._put(schema, op, before, after)

    def _step(self) -> None:
        self.pos += 10

    def _put(
        self,
        schema: TableSchema,
        op: str,
        before: Row | None,
        after: Row | None,
        snapshot: tuple[Position, int] | None = None,
        row: int = 0,
    ) -> None:
        table = self.state.tables[str(schema.name)]
        pos, ts_ms = (snapshot[0].pos, snapshot[1]) if snapshot else (self.pos, self.ts_ms)
        source = {"server": "s", "epoch": 1, "file": 1, "pos": pos, "row": row, "gtid": None}
        source |= {"snapshot": bool(snapshot), "generation": table.generation if snapshot else 0}
        transaction = {"id": None if snapshot else self.tx, "total_order": row, "data_collection_order": row}
        event = {"op": op, "before": before, "after": after, "ts_ms": ts_ms}
        event |= {"source": source, "transaction": transaction}
        self.pending.setdefault(str(schema.name), []).append(event)


def _quoted(schema: TableSchema) -> list[str]:
    return ["`" + c.name.replace("`", "``") + "`" for c in schema.columns]


def _plain(value: Any) -> Any:
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, float):
        return str(value)  # 0.0 and -0.0 are two values
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


@pytest.fixture
def ledger(spark: SparkSession, tmp_path: Path) -> Ledger:
    return Ledger(spark, Lake(str(tmp_path / "lake")))


@pytest.fixture(scope="session")
def make_schema() -> Callable[..., TableSchema]:
    return table_schema


@pytest.fixture
def kinds() -> dict[str, list[Any]]:
    """Two values of each kind of column."""
    return dict(KINDS)
