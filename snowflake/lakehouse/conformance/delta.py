"""Silver tables that are shown as Delta: `check_delta` reads the log as Snowflake will."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakeward.lake import Lake
from lakeward.names import TableName
from snowflake.lakehouse.conformance.rules import Finding

READER_MAX = 3
COMMITS_MAX = 1000
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint.*\.parquet")
_UNREAD = {"columnMapping", "rowTracking"}


def check_delta(lake: Lake, table: TableName, live: set[str] | None = None) -> Iterator[Finding]:
    """The protocol and the settings that stand, and how far the log is past its last checkpoint.

    The table's data files are put into `live`, as paths of the lake's file system.
    """
    fs, base = lake.filesystem()
    name = f"silver {table}"
    folder = f"{base}/silver/{table.folder}/_delta_log"
    there = [f for f in fs.get_file_info(pafs.FileSelector(folder, allow_not_found=True)) if f.is_file]
    commits = {int(m[1]): f.path for f in there if (m := _COMMIT.fullmatch(f.base_name))}
    checkpoints: dict[int, list[str]] = {}
    for file in there:
        if match := _CHECKPOINT.fullmatch(file.base_name):
            checkpoints.setdefault(int(match[1]), []).append(file.path)
    if not commits:
        yield Finding("paths", name, "it has no log")
        return
    last = max(checkpoints, default=-1)
    past = sorted(v for v in commits if v > last)
    if len(past) > COMMITS_MAX:
        yield Finding("delta-log", name, f"{len(past):,} commits past its checkpoint")
    files: set[str] = set()
    stands = _stands(fs, checkpoints.get(last, []), [commits[v] for v in past], files)
    if live is not None:
        live |= {f"{base}/silver/{table.folder}/{unquote(file)}" for file in files}
    yield from _protocol(name, stands)


def _stands(
    fs: pafs.FileSystem, checkpoint: list[str], commits: list[str], files: set[str]
) -> dict[str, dict[str, Any]]:
    """The protocol and the metaData that are in force; the files that are live, into `files`."""
    found: dict[str, dict[str, Any]] = {}
    for path in checkpoint:
        there = pq.read_schema(path, filesystem=fs).names
        columns = [c for c in ("protocol", "metaData") if c in there] + (["add.path"] if "add" in there else [])
        for row in pq.read_table(path, columns=columns, filesystem=fs).to_pylist():
            added = row.pop("path", None)  # a field that is read alone stands under its own name
            files |= {added} if added else set()
            found |= {k: v for k, v in row.items() if v is not None}
    for path in commits:
        with fs.open_input_stream(path) as stream:
            actions = [json.loads(line) for line in stream.read().splitlines()]
        for action in actions:
            found |= {k: action[k] for k in ("protocol", "metaData") if k in action}
        # A file that gets another deletion vector is in one commit twice, in any order, and stays.
        files -= {action["remove"]["path"] for action in actions if "remove" in action}
        files |= {action["add"]["path"] for action in actions if "add" in action}
    return found


def _protocol(name: str, stands: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    protocol, metadata = stands.get("protocol", {}), stands.get("metaData", {})
    reader = int(protocol.get("minReaderVersion") or 1)
    if reader > READER_MAX:
        yield Finding("delta-protocol", name, f"reader version {reader}")
    settings = dict(metadata.get("configuration") or {})
    if settings.get("delta.columnMapping.mode", "none") != "none":
        yield Finding("delta-protocol", name, "its columns are mapped")
    features = {*(protocol.get("readerFeatures") or ()), *(protocol.get("writerFeatures") or ())}
    if settings.get("delta.enableRowTracking") == "true":
        yield Finding("delta-protocol", name, f"it tracks rows ({', '.join(sorted(features & _UNREAD))})")
