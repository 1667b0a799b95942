"""`lakeward snowflake land`: bronze's events as files of newline JSON, for Snowpipe and whoever reads files.

    <root>/<prefix>/TableName=<schema>.<table>/<from>-<to>-<number>.json.gz    events, by position
    <root>/<prefix>-manifest/TableName=…/<from>-<to>.json                      the files of these commits, once complete
    <root>/<prefix>-errors/TableName=…/<from>-<to>-<number>.json.gz            where and why an event cannot be written

Promise: each event of bronze is in exactly one file that a manifest names, and a file never changes. Which commits of
bronze (`from` to `to`) a group holds is written down before its files are; a run that was killed writes that same
group again: the same names, the same bytes. So a pipe that deduplicates by path loads an event once, and a reader who
orders by `position` (text, of one width) has the source's order, whatever order the files came in.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from lakeward import crash, delta
from lakeward.config import Config, Landing
from lakeward.errors import TerminalError
from lakeward.jvm import java_class
from lakeward.lake import Lake
from lakeward.names import TableName, encode_path, sql_literal
from lakeward.state import BronzeTable, load_bronze

DOCUMENT = "landing"
LINE_BYTES_MAX = 16 << 20  # that Snowflake takes as one VARIANT
_POSITION = "format_string('%010d:%012d:%020d:%010d', source.epoch, source.file, source.pos, source.row)"
# Microseconds, which the default pattern cuts off, and NULLs, which it leaves out.
_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}


@dataclass
class LandingReport:
    events: int = 0
    files: int = 0
    held: int = 0  # events that are under the error prefix


@dataclass
class _Group:
    """Commits of one bronze table that are landed together, and the files written so far."""

    table: TableName
    first: int
    last: int
    files: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)

    def name(self, number: int | None = None) -> str:
        return f"{self.first:012d}-{self.last:012d}" + (f"-{number:06d}" if number is not None else "")


def partition(table: TableName) -> str:
    """`TableName=shop.order-20-items`: each part as in the lake's paths, so the dot between them is the only one."""
    return f"TableName={encode_path(table.schema)}.{encode_path(table.table)}"


def run(spark: Callable[[], SparkSession], lake: Lake, config: Config, *, patient: bool = False) -> LandingReport:
    """Land what bronze has and no file yet. With `patient`, tables whose last file is younger than max_file_seconds
    wait. The caller holds the lake's lock. Raises TerminalError when the lake cannot be written."""
    report = LandingReport()
    document = lake.read(DOCUMENT) or {"tables": {}}
    for name, known in sorted(load_bronze(lake).tables.items()):
        if not any(fnmatch.fnmatchcase(name, glob) for glob in config.landing.tables):
            continue
        stands = document["tables"].setdefault(
            name, {"id": None, "version": -1, "intent": None, "landed_ms": 0, "mark": None}
        )
        mark = _mark(known)
        if not known.rows or (stands.get("mark") == mark and stands["intent"] is None):
            continue
        if patient and time.time() * 1000 - stands["landed_ms"] < config.landing.max_file_seconds * 1000:
            continue
        path = lake.table("bronze", known.name)
        snapshot = delta.snapshot(spark(), path)
        version = int(snapshot.version())
        if stands["id"] != (made := str(snapshot.metadata().id())):  # another table under the name: from its beginning
            stands |= {"id": made, "version": -1, "intent": None}
        if stands["intent"] is None and version > stands["version"]:
            stands["intent"] = [stands["version"] + 1, version]
            lake.write(DOCUMENT, document)
        while stands["intent"] is not None:
            group = _Group(known.name, *stands["intent"])
            _land(spark(), lake, config.landing, path, group)
            crash.point("landing.before_state")
            stands |= {"version": group.last, "intent": None, "landed_ms": int(time.time() * 1000)}
            if version > group.last:
                stands["intent"] = [group.last + 1, version]
            lake.write(DOCUMENT, document)
            report.files += len(group.files)
            report.events += sum(f["rows"] for f in group.files)
            report.held += sum(f["rows"] for f in group.errors)
        stands["mark"] = mark
        lake.write(DOCUMENT, document)
    return report


def unread(lake: Lake, config: Config) -> set[str]:
    """The tables that are to be landed and have commits that are not."""
    stands = (lake.read(DOCUMENT) or {"tables": {}})["tables"]
    return {
        name
        for name, known in load_bronze(lake).tables.items()
        if known.rows
        and any(fnmatch.fnmatchcase(name, glob) for glob in config.landing.tables)
        and (name not in stands or stands[name].get("mark") != _mark(known) or stands[name]["intent"] is not None)
    }


def _mark(table: BronzeTable) -> list[int]:
    """Tells without Spark that there is no news."""
    return [table.generation, table.batch, table.rows]


def _land(spark: SparkSession, lake: Lake, config: Landing, path: str, group: _Group) -> None:
    """Write a group's files and then its manifest; again, with the same bytes, where a run died."""
    frame = _added(spark, path, group.first, group.last)
    if frame is not None:
        _write(lake, config, group, _lines(frame, group.table))
    if group.files or group.errors:
        doc = {"table": str(group.table), "from": group.first, "to": group.last}
        doc |= {"files": group.files, "errors": group.errors}
        place = f"{config.prefix}-manifest/{partition(group.table)}/{group.name()}.json"
        crash.point("landing.before_manifest")
        lake.replace(place, json.dumps(doc, indent=1, ensure_ascii=False).encode())


def _added(spark: SparkSession, path: str, first: int, last: int) -> DataFrame | None:
    """The rows that the commits `first` to `last` of a table added: Delta's own reading of just their files.

    A commit that also takes rows away adds none: `lakeward maintain` removes old events, and what is left of their
    files is written anew.
    """
    log = delta.log_of(spark, path)
    none = java_class(spark, "scala.Option").empty()
    found = java_class(spark, "scala.collection.mutable.ArrayBuffer")()
    try:
        commits = log.getChanges(first, none, True)
        while commits.hasNext():
            commit = commits.next()
            if int(commit._1()) > last:
                break
            added, removes = [], False
            actions = commit._2().iterator()
            while actions.hasNext():
                action = actions.next()
                kind = action.getClass().getSimpleName()
                if kind == "AddFile" and action.dataChange():
                    added.append(action)
                removes = removes or (kind == "RemoveFile" and action.dataChange())
            for action in () if removes else added:
                found.append(action)
    except Py4JJavaError as error:
        raise TerminalError(
            f"the commits {first} to {last} of {path} are no longer in its log, and were not landed",
            hint=f"land oftener than the log is kept; to begin anew remove {DOCUMENT}.json and choose another prefix",
        ) from error
    if found.isEmpty():
        return None
    made = log.createDataFrame(delta.snapshot(spark, path), found.toSeq(), False, none)
    return DataFrame(made, spark)


def _lines(frame: DataFrame, table: TableName) -> Iterator[tuple[str, str]]:
    """(position, JSON) of each event, in an order that is the same whenever it is asked for."""
    options = ", ".join(f"{sql_literal(k)}, {sql_literal(v)}" for k, v in _OPTIONS.items())
    event = (
        f"to_json(named_struct('table', {sql_literal(str(table))}, 'position', {_POSITION}, 'op', op, 'ts_ms', ts_ms,"
        f" 'source', source, 'transaction', transaction, 'before', before, 'after', after), map({options}))"
    )
    own = frame.sparkSession.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    frame = DataFrame(frame._jdf, own)
    made = frame.selectExpr(f"{_POSITION} AS position", f"{event} AS event").orderBy("position", "event")
    for row in made.toLocalIterator():
        yield row["position"], row["event"]


def _write(lake: Lake, config: Landing, group: _Group, lines: Iterator[tuple[str, str]]) -> None:
    """Close a file at a number of rows or bytes: bounds that fall alike on every attempt."""
    events, errors = _Part(), _Part()
    for position, event in lines:
        data = event.encode()
        if len(data) > LINE_BYTES_MAX:
            said = {"table": str(group.table), "position": position, "bytes": len(data)}
            said["reason"] = f"larger than the {LINE_BYTES_MAX:,} bytes of a VARIANT"
            errors.add(position, json.dumps(said, ensure_ascii=False).encode())
            continue
        if events.rows and (events.rows >= config.max_file_rows or events.bytes + len(data) > config.max_file_bytes):
            group.files.append(events.close(lake, config.prefix, group, len(group.files)))
            events = _Part()
        events.add(position, data)
    if events.rows:
        group.files.append(events.close(lake, config.prefix, group, len(group.files)))
    if errors.rows:
        group.errors.append(errors.close(lake, f"{config.prefix}-errors", group, 0))


class _Part:
    """A file in the making; held compressed."""

    def __init__(self) -> None:
        self.rows = self.bytes = 0
        self._first = self._last = ""
        self._data = io.BytesIO()
        # No name and no time in it: the same events are the same bytes.
        self._gzip = gzip.GzipFile(filename="", fileobj=self._data, mode="wb", compresslevel=6, mtime=0)

    def add(self, position: str, line: bytes) -> None:
        self._gzip.write(line + b"\n")
        self.rows, self.bytes = self.rows + 1, self.bytes + len(line) + 1
        self._first, self._last = self._first or position, position

    def close(self, lake: Lake, prefix: str, group: _Group, number: int) -> dict[str, Any]:
        """Write it whole; what the manifest says of it."""
        self._gzip.close()
        data = self._data.getvalue()
        place = f"{prefix}/{partition(group.table)}/{group.name(number)}.json.gz"
        lake.replace(place, data)
        crash.point("landing.after_file")
        return {
            "path": place,
            "rows": self.rows,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "first": self._first,
            "last": self._last,
        }
