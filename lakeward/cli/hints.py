"""What an analyst would run next: three queries over the tables that gold has just published."""

from __future__ import annotations

from gold.published import published
from lakeward.cli.app import App
from lakeward.names import sql_literal


def next_queries(app: App) -> None:
    """Print three queries that work as they stand, in DuckDB or any Parquet reader on this lake."""
    tables = published(app.lake)
    mirrors = [t for t in tables if t.kind == "mirror" and t.export_location]
    if not mirrors:
        return
    largest = max(mirrors, key=lambda t: t.rows)
    fresh = next((t for t in tables if t.kind == "freshness"), None)
    mart = next((t for t in tables if t.kind == "mart"), None)
    print("\nread it with any Iceberg or Parquet reader, for instance in a Spark session of `lakeward.spark`:")
    if fresh:
        print(f"  SELECT table_name, rows, cut, published_at FROM {fresh.identifier} ORDER BY table_name")
    if mart:
        print(f"  SELECT * FROM {mart.identifier} LIMIT 10")
    files = sql_literal(f"{largest.export_location}/**/*.parquet")
    print(f"or, without Spark, in DuckDB:\n  SELECT count(*) FROM {files}")
