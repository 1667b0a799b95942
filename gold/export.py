"""Parquet files of a mirror, for readers that know no table format (Snowflake's external tables among them).

Promise: the folder that `current.json` names holds exactly the rows of one snapshot and never changes. Each export
goes to a folder of its own; then `<root>/export/<schema>/<table>/current.json` is replaced, whole, to name it. The
folder before it is kept, and each that was replaced within `[gold] export_keep_minutes`, for readers that are still in
them; older ones are removed. An external table has a fixed LOCATION, so its definition names the current folder and is
replaced together with it (`lakeward snowflake plan`).

With `[tables."…"] export_by` the files of each value lie in a folder `by_<column>=<value>`, so that readers who know
Hive's layout open those they need. The column stays in the files too: a reader of files alone lacks nothing.

    <root>/export/shop/trips/current.json           {"folder": "cut=1-7-4711", "snapshot": …, "rows": …, …}
    <root>/export/shop/trips/cut=1-7-4711/part-….parquet
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gold.iceberg import Standing
from lakeward.errors import ConfigError
from lakeward.lake import Lake
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint

FILE_BYTES = 256 << 20
POINTER = "current.json"
_FOLDER_KINDS = frozenset({"boolean", "int", "bigint", "date", "string"})


def export(
    session: SparkSession,
    lake: Lake,
    table: TableName,
    name: str,
    stands: Standing,
    cut: Checkpoint,
    *,
    keep_minutes: int,
    by: Sequence[str] = (),
) -> str:
    """Write the snapshot `stands` of the Iceberg table `name` and point to it. Returns the new folder's location.

    Folders that were replaced more than `keep_minutes` ago are removed, but never the last one before this. Raises
    ConfigError for a column of `by` that the table lacks, or whose values make no folders.
    """
    base = f"export/{table.folder}"
    frame = session.table(name)  # by its current schema; a snapshot may be older than a column that was added
    columns = _folders(frame, table, by)
    before = current(lake, table)
    folder = _folder(cut, before)
    writer = (
        _spread(frame, stands, columns)
        .write.mode("overwrite")  # what a killed run left there is of no pointer
        .option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    )
    if columns:
        writer = writer.partitionBy(*columns).option("maxRecordsPerFile", _rows_of_file(stands))
    writer.parquet(lake.path(base, folder))
    now = int(time.time() * 1000)
    earlier = _still_read(before, now, keep_minutes)
    doc = {
        "folder": folder,
        "snapshot": stands.snapshot,
        "cut": cut.to_json(),
        "rows": stands.rows,
        "columns": [list(c) for c in stands.columns],
        "by": list(columns),
        "earlier": earlier,
    }
    lake.replace(f"{base}/{POINTER}", json.dumps(doc, indent=1, ensure_ascii=False).encode())
    _remove_old(lake, base, {folder, *(e["folder"] for e in earlier)})
    return lake.path(base, folder)


def files_of(size: int) -> int:
    """Into how many files `size` bytes go, so that each has FILE_BYTES to twice that, or one file has all."""
    return max(1, size // FILE_BYTES)


def _rows_of_file(stands: Standing) -> int:
    """Rows that make about one and a half times FILE_BYTES."""
    return max(1, stands.rows * FILE_BYTES * 3 // (2 * max(1, stands.bytes)))


def _folders(frame: DataFrame, table: TableName, by: Sequence[str]) -> dict[str, Column]:
    """The columns that make folders, `by_<column>` → its value."""
    kinds = dict(frame.dtypes)
    for column in by:
        if column.lower() not in kinds:
            raise ConfigError(
                f'[tables."{table}"] export_by names {column!r}, which the table lacks',
                hint=f"its columns are {', '.join(kinds)}",
            )
        if kinds[column.lower()] not in _FOLDER_KINDS:
            raise ConfigError(
                f'[tables."{table}"] export_by names {column!r}, a {kinds[column.lower()]}: a folder a value of it',
                hint=f"folders are made by columns of type {', '.join(sorted(_FOLDER_KINDS))}",
            )
    return {f"by_{c.lower()}": F.col(spark_identifier(c.lower())) for c in by}


def _spread(frame: DataFrame, stands: Standing, columns: Mapping[str, Column]) -> DataFrame:
    """`frame` in as many tasks as there are to be files."""
    if columns:
        return frame.withColumns(dict(columns)).repartition(*columns)
    files = files_of(stands.bytes)
    return frame.coalesce(1) if files == 1 else frame.repartition(files)  # even shares, where there are several


def current(lake: Lake, table: TableName) -> dict[str, Any] | None:
    """The table's `current.json`, or None before its first export."""
    fs, root = lake.filesystem()
    path = f"{root}/export/{table.folder}/{POINTER}"
    if fs.get_file_info(path).type == pafs.FileType.NotFound:
        return None
    with fs.open_input_stream(path) as stream:
        doc: dict[str, Any] = json.loads(stream.read())
    return doc


def _folder(cut: Checkpoint, before: dict[str, Any] | None) -> str:
    """`cut=<epoch>-<file>-<pos>`; with a number behind where a folder that may be read has that name."""
    name = f"cut={cut.at.epoch}-{cut.at.file}-{cut.at.pos}"
    taken = {before["folder"], *(e["folder"] for e in before.get("earlier", ()))} if before else set()
    names = (name if n == 1 else f"{name}-{n}" for n in range(1, len(taken) + 2))
    return next(n for n in names if n not in taken)


def _still_read(before: dict[str, Any] | None, now: int, keep_minutes: int) -> list[dict[str, Any]]:
    """The folders that an external table may still name: the last one, and those replaced within `keep_minutes`."""
    if before is None:
        return []
    kept = [e for e in before.get("earlier", ()) if e["replaced_ms"] > now - keep_minutes * 60_000]
    return [*kept, {"folder": before["folder"], "replaced_ms": now}]


def _remove_old(lake: Lake, base: str, kept: set[str | None]) -> None:
    fs, root = lake.filesystem()
    for found in fs.get_file_info(pafs.FileSelector(f"{root}/{base}")):
        if found.type == pafs.FileType.Directory and found.base_name not in kept:
            fs.delete_dir(found.path)
