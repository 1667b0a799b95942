"""What a table's rows to write are, however they are written.

The frames come from `silver.current`: `kind`, `image` (STRUCT<c0, c1, …>), `ts_ms`, `tx_id`, `tx_order`, `gone`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver.columns import DELETED, META

SHORT = ("ts_ms", "tx_id", "tx_order")


@dataclass(frozen=True)
class Written:
    """Rows a merge inserted, updated and deleted, and how many the table has since, where that is known."""

    inserted: int
    updated: int
    deleted: int
    rows: int | None = None  # those marked as deleted left out


@dataclass(frozen=True)
class Ending:
    """What deletes rows that no row names: SQL literals of their __ts_ms, __transaction_id, __transaction_order."""

    ts_ms: str
    tx_id: str
    tx_order: str


def as_table(rows: DataFrame, schema: TableSchema, *, soft: bool) -> DataFrame:
    """Rows of kind upsert and put, as the current-state table's columns: for a first load and an overwrite."""
    columns = [f"image.c{i} AS {quoted(c.name)}" for i, c in enumerate(schema.columns)]
    meta = [f"{short} AS {name}" for (name, _), short in zip(META, SHORT, strict=True)]
    if soft:
        return rows.where("kind IN ('upsert', 'put', 'delete')").selectExpr(*columns, *meta, f"gone AS {DELETED}")
    return rows.where("kind IN ('upsert', 'put')").selectExpr(*columns, *meta)
