"""What an analyst would run next: three queries over the tables that gold has just published."""

from __future__ import annotations

import sys

from gold.published import published
from lakeward.cli.app import App
from lakeward.names import sql_literal


def next_queries(app: App) -> None:
    """Print three queries that work on this lake as they stand, and what runs them; nothing before gold has a table.

    The second is over a mart where there is one with rows. The third is DuckDB's where a mirror has its Parquet files
    on this machine, and else Spark's, which knows the way to the lake's store and to its catalog.
    """
    tables = [t for t in published(app.lake) if t.kind != "freshness"]
    if not tables:
        return
    shown = max(tables, key=lambda t: (t.rows > 0, t.kind == "mart", t.rows))
    largest = max(tables, key=lambda t: (t.kind == "mirror", t.rows))
    exported = [t for t in tables if t.export_location and "://" not in t.export_location]
    queries = [
        "SELECT table_name, rows, cut, published_at FROM gold.lakeward.freshness ORDER BY table_name",
        f"SELECT * FROM {shown.identifier} LIMIT 10",
    ]
    if not exported:
        queries.append(f"SELECT count(*) FROM {largest.identifier}")
    print(f"\nthree queries to run next. With Spark, in {sys.executable}:")
    print("  from lakeward.config import load; from lakeward.spark import session_for")
    print(f"  spark = session_for(load({app.config_file!r}), app='queries')")
    for query in queries:
        print(f"  spark.sql({query!r}).show()")
    if exported:
        files = sql_literal(f"{max(exported, key=lambda t: t.rows).export_location}/**/*.parquet")
        print(f"without Spark, in DuckDB:\n  SELECT count(*) FROM {files}")
