"""Parquet files of a mirror, for readers that know no table format (Snowflake's external tables among them).

Promise: the folder that `current.json` names holds exactly the rows of one snapshot and never changes. Each export
goes to a folder of its own; then `<root>/export/<schema>/<table>/current.json` is replaced, whole, to name it. The
folder before it is kept, for readers that are still in it; older ones are removed. An external table has a fixed
LOCATION, so its definition names the current folder and is replaced together with it (`lakeward snowflake plan`).

    <root>/export/shop/trips/current.json           {"folder": "cut=1-7-4711", "snapshot": …, "rows": …, …}
    <root>/export/shop/trips/cut=1-7-4711/part-….parquet
"""

from __future__ import annotations

import json
import math
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import SparkSession

from gold.iceberg import Standing
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint

FILE_BYTES = 256 << 20
POINTER = "current.json"


def export(session: SparkSession, lake: Lake, table: TableName, name: str, stands: Standing, cut: Checkpoint) -> str:
    """Write the snapshot `stands` of the Iceberg table `name` and point to it. Returns the new folder's location."""
    base = f"export/{table.folder}"
    before = current(lake, table)
    folder = _folder(cut, before)
    frame = session.table(name)  # by its current schema; a snapshot may be older than a column that was added
    files = max(1, math.ceil(stands.bytes / FILE_BYTES))
    (
        frame.coalesce(files)
        .write.mode("overwrite")  # what a killed run left there is of no pointer
        .option("compression", "zstd")
        .option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
        .parquet(lake.path(base, folder))
    )
    previous = before["folder"] if before else None
    doc = {
        "folder": folder,
        "snapshot": stands.snapshot,
        "cut": cut.to_json(),
        "rows": stands.rows,
        "columns": [list(c) for c in stands.columns],
        "previous": previous,
    }
    lake.replace(f"{base}/{POINTER}", json.dumps(doc, indent=1, ensure_ascii=False).encode())
    _remove_old(lake, base, {folder, previous})
    return lake.path(base, folder)


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
    taken = {before["folder"], before["previous"]} if before else set()
    names = (name if n == 1 else f"{name}-{n}" for n in range(1, len(taken) + 2))
    return next(n for n in names if n not in taken)


def _remove_old(lake: Lake, base: str, kept: set[str | None]) -> None:
    fs, root = lake.filesystem()
    for found in fs.get_file_info(pafs.FileSelector(f"{root}/{base}")):
        if found.type == pafs.FileType.Directory and found.base_name not in kept:
            fs.delete_dir(found.path)
