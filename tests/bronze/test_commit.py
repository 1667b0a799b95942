"""A bronze table is made where its maker was killed, and replaced where a column has another type."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bronze import schema_changes
from bronze.commit import ensure_table, image_fields
from lakeward import delta
from lakeward.names import TableName
from lakeward.schema import Column, TableSchema, column_from_catalog

SCHEMA = TableSchema(TableName("shop", "t"), (Column("id", "int", nullable=False),), ("id",), "primary")


def killed_while_made(folder: Path) -> str:
    """Where Delta had made the log's folder and not yet its first commit."""
    (folder / "_delta_log").mkdir(parents=True)
    return str(folder)


def test_a_table_whose_log_has_no_commit_is_made(spark: Any, tmp_path: Path) -> None:
    location = killed_while_made(tmp_path / "t")
    assert not delta.exists(spark, location)
    assert ensure_table(spark, location, SCHEMA) == "created"
    assert delta.exists(spark, location)
    assert image_fields(spark, location) == {"id": "int"}
    assert ensure_table(spark, location, SCHEMA) == "widened"


def test_a_table_is_replaced_by_one_whose_new_columns_need_more_of_delta(spark: Any, tmp_path: Path) -> None:
    location = str(tmp_path / "t")
    ensure_table(spark, location, SCHEMA)
    kinds = {"id": "varchar(9)", "at": "datetime(6)", "a column": "int"}
    columns = tuple(column_from_catalog(name, kind, nullable=False) for name, kind in kinds.items())
    assert ensure_table(spark, location, replace(SCHEMA, columns=columns)) == "replaced"
    assert image_fields(spark, location) == {"id": "string", "at": "timestamp_ntz", "a column": "int"}


def test_the_table_of_schema_changes_is_made_the_same_way(spark: Any, tmp_path: Path) -> None:
    location = killed_while_made(tmp_path / "schema_changes")
    schema_changes.ensure(spark, location)
    assert delta.version(spark, location) == 0
