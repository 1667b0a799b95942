"""A bronze table that a test writes, and what was landed of it."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bronze.commit import ensure_table
from lakeward.config import Config, parse
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, save_bronze
from snowflake.lakehouse import landing

NAME = TableName("shop", "order items")


def schema_of(columns: Mapping[str, str], name: TableName = NAME) -> TableSchema:
    made = tuple(column_from_catalog(c, kind, nullable=c != "id") for c, kind in columns.items())
    return TableSchema(name, made, ("id",), "primary")


class Bronze:
    """A bronze table that a test writes, an event or more a commit."""

    def __init__(self, spark: Any, root: Path, columns: Mapping[str, str], **section: Any) -> None:
        self.spark, self.root, self.lake = spark, root, Lake(str(root))
        self.config: Config = parse({"landing": {"tables": ["shop.*"], **section}})
        self.schema = schema_of(columns)
        self.path = self.lake.table("bronze", NAME)
        self.table = BronzeTable(self.schema, "streaming", generation=1)
        self.others: dict[str, BronzeTable] = {}
        self.shape(columns)

    def shape(self, columns: Mapping[str, str]) -> str:
        """Make the Delta table, or give it these columns as a snapshot would; what was done."""
        self.schema = self.table.schema = schema_of(columns)
        return ensure_table(self.spark, self.path, self.schema)

    def append(self, *events: tuple[int, str, str, str]) -> None:
        """Events as (position, op, before, after); out of order, as tasks write them."""
        selects = [
            f"SELECT '{op}', {before}, {after}, {pos * 1000}L, named_struct('server', 's', 'epoch', 1, 'file', 7L,"
            f" 'pos', {pos}L, 'row', 0L, 'gtid', NULL, 'snapshot', {op == 'r'}, 'generation', 0,"
            " 'absent', NULL, 'before_absent', NULL, 'unchecked', NULL, 'cascade', NULL),"
            f" named_struct('id', 't{pos}', 'total_order', 1L, 'data_collection_order', 1L)"
            for pos, op, before, after in reversed(events)
        ]
        self.spark.sql(f"INSERT INTO delta.`{self.path}` {' UNION ALL '.join(selects)}")
        self.table.rows += len(events)
        self.save()

    def save(self) -> None:
        save_bronze(self.lake, BronzeState(tables={str(NAME): self.table, **self.others}))

    def land(self, **options: Any) -> landing.LandingReport:
        return landing.run(lambda: self.spark, self.lake, self.config, **options)

    def files(self, suffix: str = "") -> dict[str, bytes]:
        folder = self.root / f"landing{suffix}" / "TableName=shop.order-20-items"
        return {p.name: p.read_bytes() for p in sorted(folder.glob("*"))}

    def manifested(self) -> list[dict[str, Any]]:
        """The events of every file that a manifest names, in the order of their positions."""
        found: list[dict[str, Any]] = []
        for manifest in self.files("-manifest").values():
            for file in json.loads(manifest)["files"]:
                lines = gzip.decompress((self.root / file["path"]).read_bytes()).splitlines()
                assert len(lines) == file["rows"]
                events = [json.loads(line) for line in lines]
                assert (file["first"], file["last"]) == (events[0]["position"], events[-1]["position"])
                assert file["sha256"] == hashlib.sha256((self.root / file["path"]).read_bytes()).hexdigest()
                found += events
        return sorted(found, key=lambda e: str(e["position"]))

    def landed(self) -> list[tuple[int, Any]]:
        """(position, after) of each event."""
        return [(int(e["position"].split(":")[2]), e["after"]) for e in self.manifested()]
