"""The direct sink beside what people write by hand: `python -m bench.sink [--rows 1000000]`.

Changes to a silver table, half of them updates, are brought into a table of fakesnow's server (DuckDB plays Snowflake)
through the real connector, three ways: Lakeward's sink (Parquet, PUT, COPY, one MERGE), a statement a row with bound
values, and MERGEs whose values are put together as text. The last two are measured on a sample and scaled to all rows,
which flatters neither: their time grows with rows, and a real warehouse is farther away than this one. The figures say
what the client costs, not what a warehouse does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.machine import shape

SERVER = Path(__file__).resolve().parents[1] / "tests" / "snowflake" / "fake_server.py"
TEXT_BATCH = 500  # rows of a MERGE that is put together as text
_PASSWORD = "LAKEWARD_BENCH_PASSWORD"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="bench.sink", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="changes (1,000,000)")
    parser.add_argument("--sample", type=int, default=1_000, help="changes the two others are measured on (1,000)")
    options = parser.parse_args(arguments)
    os.environ[_PASSWORD] = "snow"
    print(f"{shape()}; {options.rows:,} changes, half of them updates")
    with _server() as port, tempfile.TemporaryDirectory(prefix="lakeward-bench-") as folder:
        seconds = _sink(folder, port, options.rows)
        print(f"sink                      {options.rows / seconds:>10,.0f} changes/s  {seconds:>9.1f} s")
        for name, way in (("a statement a row, bound", _by_row), ("MERGE of text", _by_text)):
            other = _timed(port, way, options.sample) * options.rows / options.sample
            print(
                f"{name:<25} {options.rows / other:>10,.0f} changes/s  {other:>9.1f} s from {options.sample:,} rows;"
                f" {other / seconds:.1f} times the sink's"
            )


@contextmanager
def _server() -> Iterator[int]:
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.stdin.close()


def _config(port: int, root: str) -> Any:
    from lakeward.config import parse

    place = {"host": "127.0.0.1", "port": port, "protocol": "http"}
    login = {"account": "fakesnow", "user": "fake", "database": "BENCH", "password": f"env:{_PASSWORD}"}
    return parse({"snowflake": {**place, **login}, "lake": {"root": root}})


def _sink(folder: str, port: int, rows: int) -> float:
    """Load half the rows, then time all changes: each of them updated, and as many inserted."""
    from lakeward.lake import Lake
    from lakeward.names import TableName
    from lakeward.position import Checkpoint, Position
    from lakeward.schema import TableSchema, column_from_catalog
    from lakeward.spark import session
    from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver
    from snowflake.lakehouse.sink import run

    lake = Lake(folder)
    spark = session(folder, app="bench")
    name = TableName("shop", "t")
    kinds = {"id": "bigint", "name": "varchar(40)", "amount": "decimal(12,2)", "at": "datetime(6)"}
    columns = tuple(column_from_catalog(c, k, nullable=c != "id") for c, k in kinds.items())
    where = f"delta.`{lake.table('silver', name)}`"
    row = "id, concat('name ', id, {0}), CAST(id % 1000 AS DECIMAL(12,2)), TIMESTAMP_NTZ'2026-01-01', 1L, 't', 1L"
    own = "__ts_ms BIGINT, __transaction_id STRING, __transaction_order BIGINT"
    ddl = ", ".join(f"{c.name} {c.spark}" for c in columns)
    spark.sql(f"CREATE TABLE {where} ({ddl}, {own}) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql(f"INSERT INTO {where} SELECT {row.format(0)} FROM range({rows // 2})")
    config = _config(port, folder)
    schema = TableSchema(name, columns, ("id",), "primary")
    save_bronze(lake, BronzeState(tables={str(name): BronzeTable(schema, "streaming", generation=1)}))

    def sink(version: int) -> float:
        at = Position(1, 1, 100 + version)
        save_silver(
            lake, SilverState(cut=Checkpoint(at), tables={str(name): SilverTable(at, 1, 1, 0, version, ["id"])})
        )
        began = time.perf_counter()
        run(spark, lake, config, [])
        return time.perf_counter() - began

    sink(1)
    spark.sql(f"UPDATE {where} SET name = concat(name, '!') WHERE id < {rows // 2}")
    spark.sql(f"INSERT INTO {where} SELECT {row.format(2)} FROM range({rows}, {rows + rows // 2})")
    seconds = sink(3)
    spark.stop()
    return seconds


def _timed(port: int, way: Callable[[Any, list[tuple[Any, ...]]], None], rows: int) -> float:
    from snowflake.lakehouse.connection import connect

    values = [(i, f"name {i}", i % 1000, "2026-01-01 00:00:00") for i in range(rows)]
    session = connect(_config(port, "").snowflake)
    session.enter("BY_HAND")
    session.run("CREATE OR REPLACE TABLE T (ID NUMBER(19,0), NAME VARCHAR, AMOUNT NUMBER(12,2), MADE TIMESTAMP_NTZ)")
    session.run(f"INSERT INTO T {_rows(values[: rows // 2])}")
    began = time.perf_counter()
    way(session, values)
    seconds = time.perf_counter() - began
    session.close()
    return seconds


_MERGE = (
    "MERGE INTO T USING ({0}) AS s ON T.ID = s.ID WHEN MATCHED THEN UPDATE SET NAME = s.NAME, AMOUNT = s.AMOUNT,"
    " MADE = s.MADE WHEN NOT MATCHED THEN INSERT (ID, NAME, AMOUNT, MADE) VALUES (s.ID, s.NAME, s.AMOUNT, s.MADE)"
)


def _by_row(session: Any, values: list[tuple[Any, ...]]) -> None:
    one = "SELECT %s AS ID, %s AS NAME, %s AS AMOUNT, %s::TIMESTAMP_NTZ AS MADE"
    for value in values:
        session.run(_MERGE.format(one), value)


def _by_text(session: Any, values: list[tuple[Any, ...]]) -> None:
    for start in range(0, len(values), TEXT_BATCH):
        session.run(_MERGE.format(_rows(values[start : start + TEXT_BATCH])))


def _rows(values: list[tuple[Any, ...]]) -> str:
    """As people write it: the peer, not an example."""
    return " UNION ALL ".join(
        f"SELECT {i} AS ID, '{name}' AS NAME, {amount} AS AMOUNT, '{at}'::TIMESTAMP_NTZ AS MADE"
        for i, name, amount, at in values
    )


if __name__ == "__main__":
    main()
