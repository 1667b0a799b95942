"""What gold has published, for those who serve it: `published(lake)`.

Read from gold.json alone, without Spark, and only of what is durable: a table is named here after its Iceberg
snapshot was committed. A `metadata_file` stays readable until snapshots are expired.
"""

from __future__ import annotations

from dataclasses import dataclass

from gold.state import Kind, load_gold
from lakeward.lake import Lake
from lakeward.position import Checkpoint


@dataclass(frozen=True)
class PublishedTable:
    """An Iceberg table of gold as of its last publication."""

    schema: str  # the source's own name; "marts" of a mart, "lakeward" of the freshness table
    table: str
    kind: Kind  # "mirror", "mart" or "freshness"
    identifier: str  # gold.`shop`.`trips`, quoted for Spark SQL
    location: str  # <root>/gold/<schema>/<table>: absolute path or URI
    metadata_file: str  # <location>/metadata/v<n>.metadata.json: absolute path or URI
    export_location: str | None  # <root>/export/<schema>/<table>/cut=…: the folder of current Parquet files
    columns: tuple[tuple[str, str], ...]  # (name, Spark SQL type such as "bigint" or "array<float>"), in order
    rows: int
    cut: Checkpoint  # the table equals the source at this position
    published_ms: int  # when its snapshot was committed, milliseconds since 1970 UTC

    @property
    def catalog_name(self) -> tuple[str, str]:
        """(namespace, table) as the Iceberg catalog has them."""
        _, namespace, table = self.identifier.replace("`", "").split(".")  # no part holds a dot or a quote
        return namespace, table


def published(lake: Lake) -> list[PublishedTable]:
    """Every table that gold has published, by schema and name; empty before the first run of gold."""
    return sorted(
        (
            PublishedTable(
                schema=t.schema,
                table=t.table,
                kind=t.kind,
                identifier=t.identifier,
                location=t.location,
                metadata_file=t.metadata_file,
                export_location=t.export_location,
                columns=tuple((name, kind) for name, kind in t.columns),
                rows=t.rows,
                cut=t.cut,
                published_ms=t.published_ms,
            )
            for t in load_gold(lake).tables.values()
        ),
        key=lambda t: (t.schema, t.table),
    )
