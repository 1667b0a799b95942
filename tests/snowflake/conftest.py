"""A real connector against fakesnow's server, and a lake whose silver the test writes."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fakesnow
import fakesnow.info_schema
import pytest
import snowflake.connector
from pyspark.sql import SparkSession

from lakeward.config import Config, parse
from lakeward.lake import Lake
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver
from snowflake.lakehouse import sink

OWN = {"__ts_ms": "BIGINT", "__transaction_id": "STRING", "__transaction_order": "BIGINT"}


@pytest.fixture(scope="session")
def fake_snowflake() -> Iterator[dict[str, Any]]:
    """Connection settings of the server. The connector is as it is installed."""
    # The server plays MERGE by a temporary table of its own and notes that table's comment in another database of
    # DuckDB's, which no transaction may write besides the first: so MERGE would fail in every transaction.
    noted = fakesnow.info_schema.insert_table_comment_sql

    def note(catalog: str, schema: str, table: str, comment: str) -> str:
        return "SELECT 1" if table.lower() == "merge_candidates" else noted(catalog, schema, table, comment)

    patch = pytest.MonkeyPatch()
    patch.setattr(fakesnow.info_schema, "insert_table_comment_sql", note)
    logging.getLogger("fakesnow.server").setLevel(logging.ERROR)
    with fakesnow.server() as settings:
        yield settings
    patch.undo()


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

    def sink(self, *tables: str) -> sink.SinkReport:
        self.cut()
        return self.sink_again(*tables)

    def sink_again(self, *tables: str) -> sink.SinkReport:
        return sink.run(self.spark, self.lake, self.config, list(tables))

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """What Snowflake answers, through a connection of the test's own."""
        with snowflake.connector.connect(**self.settings, database=self.config.snowflake.database) as connection:
            return [tuple(row) for row in connection.cursor().execute(statement).fetchall()]


@pytest.fixture
def silver_lake(spark: SparkSession, tmp_path: Path, fake_snowflake: dict[str, Any], fresh: str) -> SilverLake:
    settings = {k: fake_snowflake[k] for k in ("account", "user", "host", "port", "protocol")}
    (tmp_path / "password").write_text("snow")
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
    """`killed_at("sink.after_stage")`: the sink dies there, once."""

    class Killed(BaseException):
        pass

    def arm(moment: str) -> None:
        def point(name: str) -> None:
            if name == moment:
                monkeypatch.setattr("lakeward.crash.point", lambda name: None)
                raise Killed(name)

        monkeypatch.setattr("lakeward.crash.point", point)

    return arm
