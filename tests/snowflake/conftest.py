"""A real connector against fakesnow's server, and a lake whose silver the test writes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import snowflake.connector
from pyspark.sql import SparkSession

from lakeward.config import Config, Snowflake, parse
from lakeward.delta import drop_columns, widen_column
from lakeward.lake import Lake
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver
from snowflake.lakehouse.connection import Session, connect
from snowflake.lakehouse.sink import SinkReport, run

OWN = {"__ts_ms": "BIGINT", "__transaction_id": "STRING", "__transaction_order": "BIGINT"}


@pytest.fixture(scope="session")
def fake_snowflake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Connection settings of the server. The connector is as it is installed."""
    log = tmp_path_factory.mktemp("fakesnow") / "log"
    with (
        log.open("wb") as stream,
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fake_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
        ) as server,
    ):
        assert server.stdout is not None
        assert server.stdin is not None
        port = server.stdout.readline().strip()
        assert port, log.read_text()
        address = {"host": "127.0.0.1", "port": int(port), "protocol": "http"}
        yield {"account": "fakesnow", "user": "fake", "password": "snow", **address}
        server.stdin.close()


@dataclass
class SilverLake:
    """Silver tables, the destinations that a sink makes of them, and a look at both."""

    spark: SparkSession
    lake: Lake
    config: Config
    settings: dict[str, Any]
    bronze: BronzeState = field(default_factory=BronzeState)
    silver: SilverState = field(default_factory=SilverState)
    pos: int = 100

    def create(self, name: str, columns: dict[str, str], keys: Sequence[str], schema: str = "shop") -> str:
        """A silver table of these MySQL columns; its name in Spark SQL."""
        made = tuple(column_from_catalog(c, kind, nullable=c not in keys) for c, kind in columns.items())
        table = TableSchema(TableName(schema, name), made, tuple(keys), "primary" if keys else "row")
        self.bronze.tables[str(table.name)] = BronzeTable(table, status="streaming", generation=1)
        ddl = {**{c.name: c.spark for c in made}, **OWN}
        listed = ", ".join(f"{spark_identifier(c)} {kind}" for c, kind in ddl.items())
        where = f"delta.`{self.lake.table('silver', table.name)}`"
        mapping = "" if all(c.isidentifier() for c in ddl) else ", 'delta.columnMapping.mode' = 'name'"
        self.spark.sql(
            f"CREATE TABLE {where} ({listed}) USING delta TBLPROPERTIES "
            f"('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'{mapping})"
        )
        self.silver.tables[str(table.name)] = SilverTable(Position(1, 1, 0), 1, 1, 0, 0, list(keys))
        return where

    def add_column(self, where: str, name: str, column: str, kind: str) -> None:
        table = self.bronze.tables[name]
        added = column_from_catalog(column, kind, nullable=True)
        table.schema = dataclasses.replace(table.schema, columns=(*table.schema.columns, added))
        self.spark.sql(f"ALTER TABLE {where} ADD COLUMN {spark_identifier(column)} {added.spark}")

    def drop_column(self, where: str, name: str, column: str) -> None:
        table = self.bronze.tables[name]
        left = tuple(c for c in table.schema.columns if c.name != column)
        table.schema = dataclasses.replace(table.schema, columns=left)
        drop_columns(self.spark, self.lake.table("silver", table.schema.name), [column])

    def retype_column(self, where: str, name: str, column: str, kind: str) -> None:
        """As silver does for a type that is wider: no row changes."""
        table = self.bronze.tables[name]
        made = column_from_catalog(column, kind, nullable=True)
        columns = tuple(made if c.name == column else c for c in table.schema.columns)
        table.schema = dataclasses.replace(table.schema, columns=columns)
        widen_column(self.spark, self.lake.table("silver", table.schema.name), (column,), made.spark)

    def cut(self) -> None:
        """Silver's run ends."""
        self.pos += 100
        self.silver.cut = Checkpoint(Position(1, 7, self.pos), "", 1_700_000_000_000)
        for name, table in self.silver.tables.items():
            path = self.lake.table("silver", self.bronze.tables[name].schema.name)
            history = self.spark.sql(f"DESCRIBE HISTORY delta.`{path}` LIMIT 1").collect()
            table.cut, table.version = self.silver.cut.at, int(history[0]["version"])
        save_bronze(self.lake, self.bronze)
        save_silver(self.lake, self.silver)

    def sink(self, *tables: str) -> SinkReport:
        self.cut()
        return self.sink_again(*tables)

    def sink_again(self, *tables: str) -> SinkReport:
        return run(self.spark, self.lake, self.config, list(tables))

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """What Snowflake answers, through a connection of the test's own."""
        place = {"database": self.config.snowflake.database}
        with snowflake.connector.connect(**self.settings, **place) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return [tuple(row) for row in cursor.fetchall()]


@pytest.fixture
def silver_lake(
    spark: SparkSession,
    tmp_path: Path,
    fake_snowflake: dict[str, Any],
    fresh: str,
    monkeypatch: pytest.MonkeyPatch,
) -> SilverLake:
    settings = {k: fake_snowflake[k] for k in ("account", "user", "host", "port", "protocol")}
    (tmp_path / "password").write_text("snow")
    monkeypatch.setattr("snowflake.lakehouse.connection.NETWORK_SECONDS_MAX", 15)
    monkeypatch.setattr("snowflake.lakehouse.sink.PAUSE_SECONDS", 0.01)
    config = parse(
        {"snowflake": {**settings, "password": "file:password", "database": fresh}, "lake": {"root": "lake"}},
        folder=tmp_path,
    )
    return SilverLake(spark, Lake(config.root), config, fake_snowflake)


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> str:
    """A database of this test's own: the server keeps one instance."""
    return f"DB{abs(hash(request.node.nodeid)) % 10**9}"


@pytest.fixture
def killed_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """`killed_at("sink.after_stage")`: the sink dies there, once. Its session ends, and it sends nothing more, above
    all no ROLLBACK."""
    opened: list[Session] = []

    def seen(config: Snowflake) -> Session:
        opened.append(connect(config))
        return opened[-1]

    monkeypatch.setattr("snowflake.lakehouse.sink.connect", seen)

    class Killed(BaseException):
        pass

    def arm(moment: str) -> None:
        def point(name: str) -> None:
            if name == moment:
                monkeypatch.setattr("lakeward.crash.point", lambda name: None)
                for session in opened:
                    session.close()
                raise Killed(name)

        monkeypatch.setattr("lakeward.crash.point", point)

    return arm
