"""What a bronze table's Delta log says to the landing: the events that commits added, in their shape of that time."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from lakeward import delta
from lakeward.errors import TerminalError
from lakeward.jvm import java_class

ANEW = "to begin anew remove _lakeward/landing.json and choose another prefix"


def goes_on(spark: SparkSession, path: str, now: Any, made: str, version: int) -> bool:
    """Whether the log at `path`, of which `now` is Delta's view, had the table `made` (its Delta id) at `version`.

    A table that another took the place of, by `delta.replace`, has another id from there on; its log goes on, and its
    commits have to be landed once all the same. False where a new table was made in an empty folder. Raises
    TerminalError where that cannot be told, or where the log has fewer commits than were landed.
    """
    if str(now.metadata().id()) == made:
        if int(now.version()) < version:
            raise TerminalError(
                f"{path} ends at commit {now.version()}, and its commits up to {version} were landed before",
                hint=f"put the lake back whole, with _lakeward; {ANEW}",
            )
        return True
    return int(now.version()) >= version and str(_at(spark, path, version, now).metadata().id()) == made


def parts(spark: SparkSession, path: str, first: int, last: int) -> list[DataFrame]:
    """The rows that the commits `first` to `last` of a table added: Delta's own reading of just their files.

    A frame for each stretch of commits with one schema, which is the table's at that time and not today's: files of a
    table that was replaced since cannot be read by another, and one that was begun before a column came would have
    other bytes after it. A commit that also takes rows away adds none: `lakeward maintain` removes old events, and
    what is left of their files is written anew.
    """
    log, none = delta.log_of(spark, path), java_class(spark, "scala.Option").empty()
    found: list[tuple[int, Any]] = []  # the last commit of a stretch, what it added
    seen = first - 1
    try:
        commits = log.getChanges(first, none, True)
        while seen < last and commits.hasNext():
            commit = commits.next()
            seen = int(commit._1())
            altered, added = _added(commit._2().iterator())
            if altered or not found:
                found.append((seen, java_class(spark, "scala.collection.mutable.ArrayBuffer")()))
            found[-1] = (seen, found[-1][1])
            for action in added:
                found[-1][1].append(action)
    except Py4JJavaError as error:
        raise _gone(path, first, last) from error
    if seen != last:
        raise _gone(path, first, last)
    now = delta.snapshot(spark, path)
    made = [
        log.createDataFrame(_at(spark, path, end, now), actions.toSeq(), False, none)
        for end, actions in found
        if not actions.isEmpty()
    ]
    return [DataFrame(frame, spark) for frame in made]


def _added(actions: Any) -> tuple[bool, list[Any]]:
    """Whether a commit says what the table is, its schema and properties, and the files of new rows."""
    added, altered, removes = [], False, False
    while actions.hasNext():
        action = actions.next()
        kind = action.getClass().getSimpleName()
        if kind == "AddFile" and action.dataChange():
            added.append(action)
        removes = removes or (kind == "RemoveFile" and action.dataChange())
        altered = altered or kind == "Metadata"
    return altered, [] if removes else added


def _at(spark: SparkSession, path: str, version: int, now: Any) -> Any:
    """Delta's view of the table as of a commit; `now` is the newest."""
    if int(now.version()) == version:
        return now
    none = java_class(spark, "scala.Option").empty()
    try:
        return delta.log_of(spark, path).getSnapshotAt(version, none, none, False)
    except Py4JJavaError as error:
        raise _gone(path, version, version) from error


def _gone(path: str, first: int, last: int) -> TerminalError:
    return TerminalError(
        f"what the commits {first} to {last} of {path} were is no longer in its log, and not landed",
        hint=f"land oftener than the log is kept; {ANEW}",
    )
