"""Gold's Iceberg tables: what stands published, and the commits that change it.

Promise: each change is one snapshot, and its summary says what it holds: the cut, the silver version, the run. So
the table itself tells a run that follows a killed one what is published, whatever gold.json says. Readers see the old
snapshot or the new one; a rebuild replaces the table in one commit too, and columns that stay keep their field ids.
Columns are altered in the commit of a snapshot and never by themselves, so a snapshot's columns are the table's.

Iceberg takes summary properties for a MERGE from the Spark session's settings alone, so each thread that commits has
a session of its own (`catalog_session`), bound to the lake's own catalog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gold.answers import answering
from lakeward import catalog, crash
from lakeward.config import Gold
from lakeward.errors import TerminalError
from lakeward.jvm import java_class
from lakeward.lake import Lake
from lakeward.names import decode_path, encode_lower, encode_path, spark_identifier

CATALOG = catalog.NAME
PREFIX = "lakeward."
_SUMMARY = f"spark.sql.iceberg.snapshot-property.{PREFIX}"
FILE_BYTES = 32 << 20  # a change of one row writes so much anew; Snowflake's own tables have 16 to 128 MB
PROPERTIES = {
    "format-version": "2",  # Snowflake: never upgraded in place
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.merge.mode": "copy-on-write",
    "write.format.default": "parquet",
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(FILE_BYTES),
    # A reader may hold any metadata file that was ever named to it.
    "write.metadata.delete-after-commit.enabled": "false",
}


@dataclass(frozen=True)
class Standing:
    """A table's current snapshot."""

    snapshot: int
    metadata_file: str
    committed_ms: int
    rows: int
    bytes: int
    columns: tuple[tuple[str, str], ...]  # (name, Spark SQL type), in order
    # The summary's properties under PREFIX; empty when another program wrote last, or has altered the columns since.
    lakeward: Mapping[str, str]


def identifier(session: SparkSession, schema: str, table: str) -> str:
    """`shop`, `order items` → gold.`shop`.`order-20-items`: the parts of the path, quoted for Spark SQL.

    In a catalog that folds case, capitals are encoded too. `session` is one of `catalog_session`'s.
    """
    encode = encode_lower if session.conf.get(catalog.LOWER, None) else encode_path
    return f"{CATALOG}.{spark_identifier(encode(schema))}.{spark_identifier(encode(table))}"


def location(lake: Lake, schema: str, table: str) -> str:
    """The folder of the table that `identifier` names."""
    return lake.path(CATALOG, encode_path(schema), encode_path(table))


def catalog_session(spark: SparkSession, lake: Lake, gold: Gold) -> SparkSession:
    """A session of one thread's own, with `spark`'s settings and this lake's catalog, which caches nothing.

    With a cached catalog, one session would go on reading the snapshot from before another's commit. Raises
    ConfigError as `catalog.settings` does.
    """
    own = spark.newSession()
    known = own.conf.getAll
    for key, value in spark.conf.getAll.items():
        if known.get(key) != value and spark.conf.isModifiable(key):
            own.conf.set(key, value)
    for key, value in catalog.settings(gold, lake.root).items():
        own.conf.set(key, value)
    return own


def standing(session: SparkSession, name: str) -> Standing | None:
    """What the table `name` (an identifier) holds now, or None where there is no such table."""
    table = load(session, name)
    if table is None:
        return None
    current = table.currentSnapshot()
    if current is None:  # created by hand and never written
        return None
    summary = dict(current.summary())
    author = current
    # A compaction changes no row. Lakeward's own says what it holds; behind another's stands the snapshot that does.
    while author is not None and author.operation() == "replace" and not _said(author):
        author = table.snapshot(author.parentId()) if author.parentId() is not None else None
    return Standing(
        snapshot=current.snapshotId(),
        metadata_file=table.operations().current().metadataFileLocation(),
        committed_ms=current.timestampMillis(),
        rows=int(summary["total-records"]),
        bytes=int(summary["total-files-size"]),
        columns=columns_of(session.table(name)),
        lakeward=_said(author) if author is not None and _of_schema(author, table) else {},
    )


def _of_schema(snapshot: Any, table: Any) -> bool:
    """Whether the table's columns are those of the snapshot: Lakeward alters them in the commit of a snapshot alone."""
    return snapshot.schemaId() in (None, table.schema().schemaId())


def _said(snapshot: Any) -> dict[str, str]:
    return {k.removeprefix(PREFIX): v for k, v in dict(snapshot.summary()).items() if k.startswith(PREFIX)}


def load(session: SparkSession, name: str) -> Any:
    """Iceberg's own Table object (of the JVM), or None. Its metadata is read from the lake, not from a cache.

    Raises TerminalError when the catalog cannot be reached, or refuses.
    """
    with _opened(session, name) as (there, table):
        return there.loadTable(table) if there.tableExists(table) else None


def exists(session: SparkSession, name: str) -> bool:
    """Whether the catalog knows the table, without reading its metadata where the catalog can say so.

    Raises as `load` does.
    """
    with _opened(session, name) as (there, table):
        return bool(there.tableExists(table))


@contextlib.contextmanager
def _opened(session: SparkSession, name: str) -> Iterator[tuple[Any, Any]]:
    """Iceberg's own catalog, and what it calls the table `name`."""
    sessions = getattr(java_class(session, "org.apache.spark.sql.classic.SparkSession$"), "MODULE$")
    before = sessions.getActiveSession()
    # Spark looks a catalog up in the settings of the session that is active in this thread.
    sessions.setActiveSession(session._jsparkSession)
    try:
        with answering(session):
            there = session._jsparkSession.sessionState().catalogManager().catalog(CATALOG).icebergCatalog()
            encoded = name.replace("`", "").removeprefix(f"{CATALOG}.")  # neither part holds a dot or a quote
            yield there, java_class(session, "org.apache.iceberg.catalog.TableIdentifier").parse(encoded)
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


def compact(session: SparkSession, name: str, files_min: int) -> bool:
    """Put small files of the table together where `files_min` of a partition are; whether there was anything to do.

    The new snapshot says what the one before said: that one will be expired before it.
    """
    stands, table = standing(session, name), load(session, name)
    assert stands is not None
    options = {
        "min-input-files": str(files_min),
        "target-file-size-bytes": str(FILE_BYTES),
        # What `gold.overwrite` leaves is neither small nor large.
        "min-file-size-bytes": str(FILE_BYTES // 2),
        "max-file-size-bytes": str(3 * FILE_BYTES),
    }
    rewrite = actions(session).rewriteDataFiles(table).options(options)
    for key, value in stands.lakeward.items():
        rewrite = rewrite.snapshotProperty(PREFIX + key, value)
    rewrite.execute()
    table.refresh()
    return bool(table.currentSnapshot().snapshotId() != stands.snapshot)


def actions(session: SparkSession) -> Any:
    """Iceberg's maintenance on Spark (a JVM object), for tables from `load`."""
    return java_class(session, "org.apache.iceberg.spark.actions.SparkActions").get(session._jsparkSession)


def columns_of(frame: DataFrame) -> tuple[tuple[str, str], ...]:
    return tuple((f.name, f.dataType.simpleString()) for f in frame.schema.fields)


@contextlib.contextmanager
def summary(session: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Within it, each snapshot that `session` commits carries these properties under PREFIX."""
    for key, value in properties.items():
        session.conf.set(_SUMMARY + key, value)
    try:
        yield
    finally:
        for key in properties:
            session.conf.unset(_SUMMARY + key)


def commit_files(
    session: SparkSession, table: Any, gone: Iterable[Any], new: Iterable[Any], transaction: Any = None
) -> None:
    """Take data files out of `table` (from `load`) and add others, in one snapshot with `summary`'s properties.

    `transaction` is one of the table's that has changed its columns; it is committed together with the files. Raises
    TerminalError when another program has committed since the table was loaded.
    """
    says = java_class(session, "org.apache.iceberg.expressions.Expressions")
    commit = (transaction or table).newOverwrite().conflictDetectionFilter(says.alwaysTrue())
    if (current := table.currentSnapshot()) is not None:
        commit.validateFromSnapshot(current.snapshotId())
    commit.validateNoConflictingData().validateNoConflictingDeletes()
    for file in gone:
        commit.deleteFile(file)
    for file in new:
        commit.addFile(file)
    for key, value in session.conf.getAll.items():
        if key.startswith(_SUMMARY):
            commit.set(PREFIX + key.removeprefix(_SUMMARY), value)
    try:
        commit.commit()
        if transaction is not None:
            crash.point("gold.before_altered")
            transaction.commitTransaction()
    except Py4JJavaError as error:
        if not any(fault in str(error) for fault in ("ValidationException", "CommitFailedException")):
            raise
        raise TerminalError(
            f"another program has changed {table.name()} while gold was merging into it",
            hint="let nothing else write there; run `lakeward gold` again, which makes the table anew from silver",
        ) from error


def replace(frame: DataFrame, name: str) -> None:
    """Create the table, or replace its rows and columns in one snapshot. Every column is optional."""
    writer = frame.writeTo(name).using("iceberg")
    for key, value in {**PROPERTIES, **_place(frame.sparkSession, name)}.items():
        writer = writer.tableProperty(key, value)
    writer.createOrReplace()


def _place(session: SparkSession, name: str) -> dict[str, str]:
    """The location to ask for; made sure of its namespace. A catalog that is a folder has both by itself."""
    folder = session.conf.get(catalog.LOCATION, None)
    if folder is None:
        return {}
    _, namespace, table = name.split(".")
    session.sql(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.{namespace}")
    names = (encode_path(decode_path(part.strip("`"))) for part in (namespace, table))  # whatever the catalog folds
    return {"location": "/".join((folder, *names))}


def overwrite(frame: DataFrame, name: str) -> None:
    """Replace the rows of a table whose columns stay as they are, in one snapshot; create it where it is missing."""
    if standing(frame.sparkSession, name) is None:
        replace(frame, name)
    else:
        frame.writeTo(name).overwrite(F.lit(True))
