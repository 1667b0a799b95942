"""`lakeward snowflake land`: bronze's events as files of newline JSON, for Snowpipe and whoever reads files.

    <root>/<prefix>/TableName=<schema>.<table>/<id>-<from>-<to>-<number>.json.gz    events, by position
    <root>/<prefix>-manifest/TableName=…/<id>-<from>-<to>.json                      their files, once they are complete
    <root>/<prefix>-errors/TableName=…/<id>-<from>-<to>-<number>.json.gz            where and why one cannot be written

Promise: each event of bronze is in exactly one file that a manifest names, and a file never changes. Which commits of
bronze (`from` to `to`) a group holds and where its files end is written down before they are; a run that was killed
writes that same group again: the same names, the same bytes, whatever came of the table or the settings meanwhile. So
a pipe that deduplicates by path loads an event once, and a reader who orders by `position` (text, of one width) has
the source's order, whatever order the files came in. `id` are digits of the bronze table's own, so that a table or a
lake that is made anew in the same place has other names.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import os
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lakeward import crash, delta
from lakeward.config import Config, Landing
from lakeward.errors import LakewardError, TerminalError
from lakeward.lake import Lake, disk_full
from lakeward.state import BronzeState, BronzeTable, load_bronze
from snowflake.lakehouse.landing_files import Group, lines, write
from snowflake.lakehouse.landing_log import goes_on, parts

DOCUMENT = "landing"
_TAG_DIGITS = 8
# id: the Delta table's, as of `version`, the last commit that is landed; tag: in the names of its files.
_NONE = {"id": None, "tag": "", "version": -1, "intent": None, "landed_ms": 0, "mark": None}


@dataclass
class LandingReport:
    events: int = 0
    files: int = 0
    held: int = 0  # events that are under the error prefix


def run(
    spark: Callable[[], SparkSession],
    lake: Lake,
    config: Config,
    *,
    patient: bool = False,
    report: LandingReport | None = None,
) -> LandingReport:
    """Land what bronze has and no file yet. With `patient`, tables whose last file is younger than max_file_seconds
    wait. The caller holds the lake's lock. A table that cannot be landed stops no other; then raises TerminalError
    that names each of them, and why: a caller's own `report` says what was landed all the same."""
    report, failed = report or LandingReport(), dict[str, Exception]()
    document = lake.read(DOCUMENT) or {"tables": {}}
    bronze = load_bronze(lake)
    for name, known in _chosen(bronze, config):
        stands = document["tables"].setdefault(name, dict(_NONE))
        if _landed(known, stands) or _reread(bronze, known):
            continue
        if patient and time.time() * 1000 - stands["landed_ms"] < config.landing.max_file_seconds * 1000:
            continue
        try:
            for group in _groups(spark(), lake, config.landing, known, stands, lambda: lake.write(DOCUMENT, document)):
                report.files += len(group.files)
                report.events += sum(f["rows"] for f in group.files)
                report.held += sum(f["rows"] for f in group.errors)
            stands["mark"] = _mark(known)
            lake.write(DOCUMENT, document)
        except Exception as error:  # noqa: BLE001 - it is raised once the other tables are landed
            failed[name] = error
    if failed:
        raise _summary(failed) from next(iter(failed.values()))
    return report


def unread(lake: Lake, config: Config) -> set[str]:
    """The tables that are to be landed and have commits that are not."""
    stands = (lake.read(DOCUMENT) or {"tables": {}})["tables"]
    return {n for n, known in _chosen(load_bronze(lake), config) if not _landed(known, stands.get(n, _NONE))}


def _chosen(bronze: BronzeState, config: Config) -> list[tuple[str, BronzeTable]]:
    """The tables that are to be landed and have, or had, events."""
    globs = config.landing.tables
    held = ((n, t) for n, t in sorted(bronze.tables.items()) if t.rows or t.generation > 1)
    return [(n, t) for n, t in held if any(fnmatch.fnmatchcase(n, glob) for glob in globs)]


def _mark(table: BronzeTable) -> list[int]:
    """Tells without Spark that there is no news."""
    return [table.generation, table.batch, table.rows]


def _landed(table: BronzeTable, stands: dict[str, Any]) -> bool:
    return stands["mark"] == _mark(table) and stands["intent"] is None


def _reread(bronze: BronzeState, table: BronzeTable) -> bool:
    """Whether a table is being read again: until that is whole, its new events would end rows whose own are to come."""
    if table.generation <= 1 or table.status == "streaming":
        return False
    whole = table.high is not None and bronze.checkpoint is not None and table.high <= bronze.checkpoint.at
    return not (table.status == "stopped" and whole)


def _groups(
    spark: SparkSession,
    lake: Lake,
    config: Landing,
    known: BronzeTable,
    stands: dict[str, Any],
    save: Callable[[], None],
) -> Iterator[Group]:
    """Land a table's commits up to its newest, first those that a killed run had begun; each group once it is done."""
    path = lake.table("bronze", known.name)
    now = delta.snapshot(spark, path)
    version, made = int(now.version()), str(now.metadata().id())
    if version < 0:
        raise TerminalError(f"bronze has no table at {path}", hint="put the lake back whole, with _lakeward")
    begun = stands["intent"] or {"to": stands["version"], "id": stands["id"]}
    if stands["id"] is None or not goes_on(spark, path, now, begun["id"], begun["to"]):
        stands |= {**_NONE, "id": made, "tag": made.replace("-", "")[:_TAG_DIGITS]}
    while stands["intent"] is not None or version > stands["version"]:
        if stands["intent"] is None:
            bounds = {"rows": config.max_file_rows, "bytes": config.max_file_bytes}
            stands["intent"] = {"from": stands["version"] + 1, "to": version, "id": made, **bounds}
            save()
        intent = stands["intent"]
        group = Group(
            known.name, stands["tag"], intent["from"], intent["to"], rows_max=intent["rows"], bytes_max=intent["bytes"]
        )
        _land(spark, lake, config.prefix, path, group)
        crash.point("landing.before_state")
        stands |= {"version": group.last, "id": intent["id"], "intent": None, "landed_ms": int(time.time() * 1000)}
        save()
        yield group


def _land(spark: SparkSession, lake: Lake, prefix: str, path: str, group: Group) -> None:
    """Write a group's files and then its manifest; again, with the same bytes, where a run died."""
    frames = parts(spark, path, group.first, group.last)
    write(lake, prefix, group, itertools.chain.from_iterable(lines(frame, group.table) for frame in frames))
    if group.files or group.errors:
        doc = {"table": str(group.table), "id": group.tag, "from": group.first, "to": group.last}
        doc |= {"files": group.files, "errors": group.errors}
        crash.point("landing.before_manifest")
        place = f"{group.place(f'{prefix}-manifest')}.json"
        lake.replace(place, json.dumps(doc, indent=1, ensure_ascii=False).encode())


def _summary(failed: dict[str, Exception]) -> TerminalError:
    """One error of several; of those that were not foreseen the kind and the first line."""
    said, hints = [], []
    for name, cause in failed.items():
        error = disk_full(cause) or cause
        if isinstance(error, LakewardError):
            said.append(f"{name}: {error.message}")
            hints.append(error.hint or "")
            continue
        if os.environ.get("LAKEWARD_DEBUG"):
            traceback.print_exception(error)
        # Of an error of the JVM's, str() says first which call it was.
        text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
        said.append(f"{name}: {type(error).__name__}: {(text.strip().splitlines() or [''])[0]}")
        hints.append("run again with LAKEWARD_DEBUG=1 and report what it prints")
    hint = "; ".join(dict.fromkeys(h for h in hints if h)) or None
    return TerminalError("\n  ".join(["the landing goes on without these tables:", *said]), hint=hint)
