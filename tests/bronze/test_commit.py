"""A bronze table whose maker was killed is made by the next run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bronze import schema_changes
from bronze.commit import ensure_table, image_fields
from lakeward import delta
from lakeward.names import TableName
from lakeward.schema import Column, TableSchema

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


def test_the_table_of_schema_changes_is_made_the_same_way(spark: Any, tmp_path: Path) -> None:
    location = killed_while_made(tmp_path / "schema_changes")
    schema_changes.ensure(spark, location)
    assert delta.version(spark, location) == 0
