"""Parquet files of a mirror, for readers that know no table format (Snowflake's external tables among them).

Promise: the folder that `current.json` names holds exactly the rows of one snapshot and never changes. Each export
goes to a folder of its own; then `<root>/export/<schema>/<table>/current.json` is replaced, whole, to name it. The
folder before it is kept, and each that was replaced within `[gold] export_keep_minutes`, for readers that are still in
them; older ones are removed. An external table has a fixed LOCATION, so its definition names the current folder and is
replaced together with it (`lakeward snowflake plan`).

With `[tables."…"] export_by` the files of each value lie in a folder `by_<column>=<value>`, so that readers who know
Hive's layout open those they need. The column stays in the files too: a reader of files alone lacks nothing. (Where
the table has a column `by_<column>` of its own, the folder is `by_<column>_2`.) A column that the source drops later,
or gives a type that no folder can be named by, ends its folders with a warning and not the export.

    <root>/export/shop/trips/current.json           {"folder": "cut=1-7-4711", "snapshot": …, "rows": …, …}
    <root>/export/shop/trips/cut=1-7-4711/part-….parquet
"""

from __future__ import annotations

import itertools
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gold.iceberg import Standing
from lakeward.errors import ConfigError
from lakeward.lake import Lake
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint

FILE_BYTES = 256 << 20
POINTER = "current.json"
_FOLDER_KINDS = frozenset({"boolean", "int", "bigint", "date", "string"})
log = logging.getLogger(__name__)


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
    ConfigError as `check` does.
    """
    base = f"export/{table.folder}"
    frame = session.table(name)  # by its current schema; a snapshot may be older than a column that was added
    before = current(lake, table)
    ended = _ended(dict(frame.dtypes), table, by, before)
    for reason in ended.values():
        log.warning("%s; its export has no such folders any more: take it out of there", reason)
    columns = _folders(frame, [c for c in by if c.lower() not in ended])
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
        "ended": list(ended),
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


def check(lake: Lake, table: TableName, columns: Mapping[str, str], by: Sequence[str]) -> None:
    """Raises ConfigError where `by` names a column that the table never had, or whose values make no folders. `columns`
    says their types."""
    if by:
        _ended(columns, table, by, current(lake, table))


def _ended(
    kinds: Mapping[str, str], table: TableName, by: Sequence[str], before: Mapping[str, Any] | None
) -> dict[str, str]:
    """The columns of `by` that made folders once and cannot any more, with the reason. Raises as `check`.

    What an earlier export had was meant: then it is the source that has changed, and the mirrors are not to wait for
    somebody who mends a setting.
    """
    once = {name for name, kind in before["columns"] if kind in _FOLDER_KINDS} if before else set()
    once |= set(before.get("ended", ())) if before else set()
    ended = {}
    for column in by:
        kind = kinds.get(column.lower())
        if kind in _FOLDER_KINDS:
            continue
        said = f'[tables."{table}"] export_by names {column!r}, '
        said += "which the table lacks" if kind is None else f"a {kind}: a folder a value of it"
        if column.lower() not in once:
            raise ConfigError(
                said,
                hint=f"its columns are {', '.join(kinds)}"
                if kind is None
                else f"folders are made by columns of type {', '.join(sorted(_FOLDER_KINDS))}",
            )
        ended[column.lower()] = said
    return ended


def _folders(frame: DataFrame, by: Sequence[str]) -> dict[str, str]:
    """The columns that make folders, `by_<column>` → the column. No name is that of a column of the table."""
    found: dict[str, str] = {}
    for column in dict.fromkeys(c.lower() for c in by):
        names = (f"by_{column}" if n == 1 else f"by_{column}_{n}" for n in itertools.count(1))
        found[next(n for n in names if n not in frame.columns and n not in found)] = column
    return found


def _spread(frame: DataFrame, stands: Standing, columns: Mapping[str, str]) -> DataFrame:
    """`frame` in as many tasks as there are to be files."""
    if columns:
        frame = frame.withColumns({folder: F.col(spark_identifier(c)) for folder, c in columns.items()})
        return frame.repartition(*[F.col(spark_identifier(folder)) for folder in columns])
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
