"""Gold after a few changes in a large table, beside a full rewrite of it, and how both grow with the table.

    python -m bench.gold --rows 1000000 --changes 10000

For each size a silver table is made in a folder of its own and published: by `--rebuild`, which writes the whole table,
and then `changes` at a time by the change feed. They are updates of the table's last rows (one in five of them), or
scattered over all of it: gold is copy-on-write, so each data file that has some is written anew. With `--keyless` the
source's table has no key, and rows are found by all their values. Both include gates and freshness, not exports.
Printed: seconds of wall clock, each the best of `--rounds`, and their ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import gold.run
from bench.machine import shape
from lakeward import delta
from lakeward.config import Config, parse
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.spark import session
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver

NAME = TableName("shop", "trips")
COLUMNS = {
    "id": "bigint",
    "driver_id": "int",
    "status": "varchar(20)",
    "fare": "decimal(10,2)",
    "distance_km": "double",
    "requested_at": "datetime(6)",
    "started_at": "timestamp(3)",
    "rider": "varchar(64)",
    "seats": "smallint",
    "details": "json",
}
ROWS = """
    id, CAST(id % 5000 AS INT) AS driver_id,
    element_at(array('new', 'riding', 'done'), CAST(id % 3 AS INT) + 1) AS status,
    CAST(id % 10000 / 100 AS DECIMAL(10,2)) AS fare, id * 7919 % 30000 / 1000D AS distance_km,
    CAST(TIMESTAMP_NTZ'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS TIMESTAMP_NTZ) AS requested_at,
    timestamp_millis(1767225600000 + id * 1000) AS started_at, concat('rider ', id % 100000) AS rider,
    CAST(id % 6 AS INT) AS seats, concat('{"n": ', id, ', "note": "', sha2(CAST(id AS STRING), 256), '"}') AS details,
    1L AS __ts_ms, 't' AS __transaction_id, 0L AS __transaction_order
"""


class Bench:
    """A lake in `folder` with one silver table of `rows` rows, published."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, keys: tuple[str, ...] = ("id",)) -> None:
        self.spark, self.rows, self.pos = spark, rows, 0
        self.config: Config = parse(
            {"lake": {"root": "lake"}, "gold": {"models": "models", "export": []}}, folder=folder
        )
        (folder / "models").mkdir()
        self.lake = Lake(self.config.root)
        made = tuple(column_from_catalog(c, kind, nullable=c != "id") for c, kind in COLUMNS.items())
        self.schema = TableSchema(NAME, made, keys, "primary" if keys else "row")
        self.location = self.lake.table("silver", NAME)
        self._fill()
        self.publish(())

    def _fill(self) -> None:
        self.spark.sql(
            f"CREATE TABLE delta.`{self.location}` USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', "
            f"'delta.enableDeletionVectors' = 'true') AS SELECT {ROWS} FROM range({self.rows})"
        )

    def change(self, count: int, seed: int, recent: int) -> None:
        """Update `count` of the table's `recent` last rows."""
        step = max(1, recent // count)
        self.spark.sql(
            f"UPDATE delta.`{self.location}` SET fare = fare + 1, status = 'changed {seed}' "
            f"WHERE id >= {self.rows - recent} AND id % {step} = {seed % step}"
        )

    def publish(self, rebuild: tuple[str, ...]) -> float:
        """Publish silver as it stands; the seconds it took."""
        self.pos += 1
        cut = Checkpoint(Position(1, 1, self.pos), "", 1_700_000_000_000)
        version = delta.version(self.spark, self.location)
        bronze = BronzeTable(self.schema, status="streaming", generation=1)
        save_bronze(self.lake, BronzeState(tables={str(NAME): bronze}))
        table = SilverTable(cut.at, 1, 1, self.rows, version, list(self.schema.keys))
        save_silver(self.lake, SilverState(run=self.pos, cut=cut, tables={str(NAME): table}))
        began = time.monotonic()
        report = gold.run.run(self.spark, self.lake, self.config, rebuild)
        took = time.monotonic() - began
        expected = "rebuilt" if rebuild else "created" if self.pos == 1 else "merged"
        assert report.tables == {str(NAME): expected}, report
        return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000], help="sizes of the table")
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--keyless", action="store_true", help="let the table have no key")
    options = parser.parse_args()
    print(shape())
    print("| rows | changes | among the last | by the change feed, s | full rewrite, s | ratio |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="lakeward-bench-") as base:
        spark = session(str(Path(base) / "none"), app="bench")
        for rows in options.rows:
            folder = Path(base) / str(rows)
            folder.mkdir()
            bench = Bench(spark, folder, rows, () if options.keyless else ("id",))
            rebuilt = [bench.publish((str(NAME),)) for _ in range(options.rounds)]
            for recent in (min(rows, 5 * options.changes), rows):
                merged = []
                for n in range(options.rounds):
                    bench.change(options.changes, n, recent)
                    merged.append(bench.publish(()))
                fast, slow = min(merged), min(rebuilt)
                cells = (f"{rows:,}", f"{options.changes:,}", f"{recent:,}", f"{fast:.1f}", f"{slow:.1f}")
                print(f"| {' | '.join(cells)} | {slow / fast:.1f} |", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
