"""gold.lakeward.freshness: how fresh each published table is, as a table that analysts can join.

It is written last in a run and in one snapshot, so it never claims what is not there. `cut` is the source's position
that the table equals; it moves on for a table whose rows did not change.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql import SparkSession

from gold import iceberg
from gold.iceberg import Standing
from gold.state import GoldTable
from lakeward.position import Checkpoint

SCHEMA, TABLE = "lakeward", "freshness"
_INSTANT = pa.timestamp("us", "UTC")
ARROW = pa.schema(
    [
        ("table_schema", pa.string()),
        ("table_name", pa.string()),
        ("kind", pa.string()),  # mirror or mart
        ("cut", pa.string()),  # epoch:file:pos
        ("epoch", pa.int64()),
        ("file", pa.int64()),
        ("pos", pa.int64()),
        ("source_commit_ms", pa.int64()),  # of the last transaction before the cut; NULL where none was seen
        ("source_commit_at", _INSTANT),
        ("published_at", _INSTANT),  # when its snapshot was committed
        ("rows", pa.int64()),
        ("metadata_file", pa.string()),
    ]
)


def write(session: SparkSession, tables: Iterable[GoldTable], cut: Checkpoint, run: int) -> Standing:
    """Replace the freshness table's rows by one for each mirror and mart of `tables`."""
    rows = [_row(t) for t in sorted(tables, key=lambda t: (t.schema, t.table)) if t.kind != "freshness"]
    frame = session.createDataFrame(pa.Table.from_pylist(rows, schema=ARROW))
    name = iceberg.identifier(session, SCHEMA, TABLE)
    with iceberg.summary(session, {"run": str(run), "cut": str(cut.at)}):
        iceberg.overwrite(frame, name)
    stands = iceberg.standing(session, name)
    assert stands is not None, f"{name} was committed and is not there"
    return stands


def _row(table: GoldTable) -> dict[str, object]:
    at = table.cut.at
    return {
        "table_schema": table.schema,
        "table_name": table.table,
        "kind": table.kind,
        "cut": str(at),
        "epoch": at.epoch,
        "file": at.file,
        "pos": at.pos,
        "source_commit_ms": table.cut.ts_ms or None,
        "source_commit_at": _instant(table.cut.ts_ms) if table.cut.ts_ms else None,
        "published_at": _instant(table.published_ms),
        "rows": table.rows,
        "metadata_file": table.metadata_file,
    }


def _instant(ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
