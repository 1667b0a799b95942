"""Silver without a source: tests change Delta tables by SQL, and write the state documents of bronze and silver."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import Row, SparkSession
from servers.readers import DUCKDB, READERS

import gold.run
from gold import iceberg
from gold.published import PublishedTable, published
from gold.run import GoldReport
from lakeward.config import Config, parse
from lakeward.lake import Lake
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver

OWN = {"__ts_ms": "BIGINT", "__transaction_id": "STRING", "__transaction_order": "BIGINT"}
ROWS = """
# As texts by DuckDB itself: its TIMESTAMPTZ needs another package to become Python's.
rows = duckdb.sql(f"SELECT COLUMNS(*)::VARCHAR FROM ({sys.argv[1]})").fetchall()
print(json.dumps([[str(v) for v in row] for row in rows]))
"""


def schema_of(name: TableName, columns: dict[str, str], keys: Sequence[str]) -> TableSchema:
    """A source table of MySQL types."""
    made = tuple(column_from_catalog(c, kind, nullable=c not in keys) for c, kind in columns.items())
    return TableSchema(name, made, tuple(keys), "primary" if keys else "row")


@dataclass
class Shop:
    """A lake whose silver the test writes."""

    spark: SparkSession
    lake: Lake
    config: Config
    bronze: BronzeState = field(default_factory=BronzeState)
    silver: SilverState = field(default_factory=SilverState)
    pos: int = 100

    def create(self, table: str, columns: dict[str, str], keys: Sequence[str], schema: str = "shop") -> str:
        """A silver table of these MySQL columns; returns its name in SQL."""
        name = TableName(schema, table)
        made = schema_of(name, columns, keys)
        self.bronze.tables[str(name)] = BronzeTable(made, status="streaming", generation=1)
        ddl = {**{c.name: c.spark for c in made.columns}, **OWN}
        listed = ", ".join(f"{spark_identifier(c)} {kind}" for c, kind in ddl.items())
        plain = all(c.isidentifier() for c in ddl)
        mapping = "" if plain else ", 'delta.columnMapping.mode' = 'name'"
        self.spark.sql(
            f"CREATE TABLE {self.sql_name(name)} ({listed}) USING delta TBLPROPERTIES "
            f"('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'{mapping})"
        )
        self.silver.tables[str(name)] = SilverTable(Position(1, 1, 0), 1, 1, 0, 0, list(keys))
        return self.sql_name(name)

    def sql_name(self, name: TableName) -> str:
        return f"delta.`{self.lake.table('silver', name)}`"

    def version(self, name: TableName) -> int:
        return int(self.spark.sql(f"DESCRIBE HISTORY {self.sql_name(name)} LIMIT 1").collect()[0]["version"])

    def cut(self) -> Checkpoint:
        """Silver's run ends: what stands in Delta is the state at a new cut."""
        self.pos += 100
        self.silver.cut = Checkpoint(Position(1, 7, self.pos), "", 1_700_000_000_000 + self.pos)
        self.silver.run += 1
        for name, table in self.silver.tables.items():
            table.cut = self.silver.cut.at
            table.version = self.version(self.bronze.tables[name].name)
        self.save()
        return self.silver.cut

    def save(self) -> None:
        save_bronze(self.lake, self.bronze)
        save_silver(self.lake, self.silver)

    def publish(self) -> GoldReport:
        """Silver's run ends, and gold's follows."""
        self.cut()
        return self.gold()

    def gold(self, rebuild: Sequence[str] = ()) -> GoldReport:
        return gold.run.run(self.spark, self.lake, self.config, rebuild)

    def published(self, table: str) -> PublishedTable:
        return next(t for t in published(self.lake) if f"{t.schema}.{t.table}" == table)

    def session(self) -> SparkSession:
        return iceberg.catalog_session(self.spark, self.lake, self.config.gold)

    def rows_of_gold(self, table: str) -> list[Row]:
        return self.session().table(self.published(table).identifier).collect()

    def snapshots(self, table: str) -> list[Row]:
        return (
            self.session()
            .sql(f"SELECT * FROM {self.published(table).identifier}.snapshots ORDER BY committed_at")
            .collect()
        )

    def assert_mirrored(self, *tables: str) -> None:
        """Gold's rows are silver's rows, read by Spark and by PyIceberg; no delete file is in the metadata."""
        for table in tables or tuple(self.silver.tables):
            path = self.sql_name(self.bronze.tables[table].name)
            version = self.silver.tables[table].version
            silver = self.spark.sql(f"SELECT * FROM {path} VERSION AS OF {version}").collect()
            held = Counter(repr(tuple(r)) for r in silver)
            assert held == Counter(repr(tuple(r)) for r in self.rows_of_gold(table)), table
            entry = self.published(table)
            read = StaticTable.from_metadata(entry.metadata_file)
            assert read.scan().to_arrow().num_rows == len(silver) == entry.rows
            now = read.current_snapshot()
            assert now is not None
            assert now.summary is not None
            assert now.summary["total-delete-files"] == "0"
            if silver:  # PyIceberg cannot inspect a snapshot that has no file
                assert read.inspect.delete_files().num_rows == 0
            assert read.metadata.format_version == 2
            assert entry.cut == self.silver.cut


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    """An empty lake without marts."""
    (tmp_path / "models").mkdir()
    config = parse({"lake": {"root": "lake"}, "gold": {"models": "models"}}, folder=tmp_path)
    return Shop(spark, Lake(config.root), config)


@pytest.fixture(scope="session")
def duckdb() -> Callable[[str], list[list[str]]]:
    """`duckdb(sql)`: the rows as texts, from the DuckDB of .venv-readers with its Iceberg extension."""
    assert READERS.exists(), "make readers"

    def query(sql: str) -> list[list[str]]:
        done = subprocess.run(
            [str(READERS), "-c", DUCKDB + ROWS, sql], capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        rows: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
        return rows

    return query
