"""`lakeward snowflake sink`: MERGEs what silver changed straight into tables of Snowflake's own.

Promise: after a run each destination equals its silver table at silver's cut, row for row. A table's changes and its
position (`snowflake.lakehouse.positions`) are one transaction, and a run reads the position from Snowflake before it
reads a change: whatever dies when, nothing is lost and nothing is applied twice. Readers see a table before or after,
never between.

What is applied depends on what can be said of the rows. Keyed rows: the last change of each key, by MERGE. Rows that
may be equal and only came: inserts, counted. Else, and wherever the change feed cannot say what changed (first load,
feed vacuumed, table read anew): all rows are replaced, in the same one transaction.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gold import changes
from gold.mirror import describe, narrowed
from lakeward import crash
from lakeward.config import Config
from lakeward.errors import TerminalError, TransientError, UsageError
from lakeward.lake import Lake
from lakeward.names import snowflake_identifier, spark_identifier
from lakeward.schema import TableSchema
from lakeward.state import SilverTable, load_bronze, load_silver
from snowflake.lakehouse import merge_sql, positions
from snowflake.lakehouse.batches import steps
from snowflake.lakehouse.connection import Session, connect
from snowflake.lakehouse.merge_sql import Target
from snowflake.lakehouse.plan import OWN_SCHEMA
from snowflake.lakehouse.positions import SinkPosition
from snowflake.lakehouse.spelling import refuse_twins, snowflake_type, spell, unquoted
from snowflake.lakehouse.staging import staged, staged_frame
from snowflake.lakehouse.template import qualified

ATTEMPTS_MAX = 4
PAUSE_SECONDS = 1.0  # before the second attempt; it doubles
COPIES_MAX = 1000  # of one row in one run that are inserted one statement each; above that the table is replaced
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SinkReport:
    """tables: destinations that were changed; changes: rows that were staged for them."""

    tables: int
    changes: int


@dataclass(frozen=True)
class Work:
    """One table's way to its destination."""

    schema: TableSchema
    silver: SilverTable
    silver_id: str
    path: str
    columns: list[str]  # of silver, in its order
    target: Target
    cut: str  # epoch:file:pos that this brings the destination to


@dataclass(frozen=True)
class Batch:
    """Rows to apply, and how: `merge`, `append` or `replace`."""

    frame: DataFrame
    how: str
    copies: int = 1


def run(spark: SparkSession, lake: Lake, config: Config, tables: Sequence[str]) -> SinkReport:
    """Bring the destinations of `tables` (all of silver where empty) to silver's cut. Raises UsageError for a table
    that silver does not hold, ConfigError, TerminalError and TransientError."""
    silver, bronze = load_silver(lake), load_bronze(lake)
    unknown = sorted(set(tables) - set(silver.tables))
    if unknown:
        raise UsageError(f"silver has no table {unknown[0]}", hint=f"there are: {', '.join(sorted(silver.tables))}")
    chosen = sorted(tables or silver.tables)
    names = config.snowflake.names
    places = [bronze.tables[name].name for name in silver.tables]
    refuse_twins([(config.snowflake.sink_schema or p.schema, p.table) for p in places], names)
    if not chosen:
        return SinkReport(0, 0)
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    done = total = 0
    session: Session | None = None
    try:
        for name in chosen:
            work = _work(own, lake, config, bronze.tables[name].schema, silver.tables[name])
            count: int | None = None
            failed = 0  # in a row
            while True:
                try:
                    session = session or _open(config)
                    step = next_step(session, own, work, config.snowflake.sink_batch_rows)
                    some = sink_table(session, own, lake, config, step)
                    count, failed = count if some is None else (count or 0) + some, 0
                    if step.silver.version == work.silver.version:
                        break
                except TransientError as error:
                    if session is not None:
                        session.close()
                    session, failed = None, failed + 1
                    if failed == ATTEMPTS_MAX:
                        raise
                    pause = PAUSE_SECONDS * 2 ** (failed - 1) * random.uniform(0.5, 1.5)
                    log.warning("%s: %s; again in %.1f s", name, error.message, pause)
                    time.sleep(pause)
            done, total = done + (count is not None), total + (count or 0)
    finally:
        if session is not None:
            session.close()
    return SinkReport(done, total)


def next_step(session: Session, spark: SparkSession, work: Work, rows_max: int) -> Work:
    """`work` up to the version of silver at which its next batch ends."""
    before = positions.read(session, (work.target.schema, work.target.table))
    last = work.silver.version
    # Older versions lack a column that was added since, and are then applied together with it.
    if before is None or not _stands(before, work) or before.columns != work.target.columns:
        return work
    if last - before.version <= 1:
        return work
    stop = steps(changes_per_version(spark, work.path, (before.version + 1, last)), last, rows_max)[0]
    # What stands between two cuts bears the earlier one.
    return work if stop == last else replace(work, silver=replace(work.silver, version=stop), cut=before.cut)


def changes_per_version(spark: SparkSession, path: str, versions: tuple[int, int]) -> dict[int, int]:
    """How many rows the change feed has of each version; nothing where the feed is gone."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    try:
        feed = reader.option("startingVersion", versions[0]).option("endingVersion", versions[1]).load(path)
        counted = feed.groupBy(changes.VERSION).count().collect()
    except (PySparkException, Py4JJavaError):
        return {}  # `sink_table` says so and loads all rows again
    return {int(version): int(count) for version, count in counted}


def sink_table(session: Session, spark: SparkSession, lake: Lake, config: Config, work: Work) -> int | None:
    """Bring one destination to its silver table's version: how many rows were staged, None where nothing was to do."""
    target = work.target
    place = (target.schema, target.table)
    before = positions.read(session, place)
    there = _columns_there(session, target)
    if before is not None and there and _stands(before, work) and before.version == work.silver.version:
        return None
    batch = _batch(spark, work, before if there else None)
    after = SinkPosition(work.silver_id, work.silver.generation, work.silver.version, work.cut, target.columns)
    frame = staged_frame(batch.frame, work.columns)
    with staged(session, lake, frame, target, rows_max=config.snowflake.sink_file_rows) as name:
        before = _shape(session, work, there, before)
        crash.point("sink.after_stage")
        count = session.rows(f"SELECT COUNT(*) FROM {snowflake_identifier(name)}")[0][0]
        with session.transaction():
            _apply(session, target, name, batch)
            positions.move(session, place, before, after)
            crash.point("sink.before_commit")
    crash.point("sink.after_commit")
    return int(count)


def _open(config: Config) -> Session:
    session = connect(config.snowflake)
    session.enter(OWN_SCHEMA)
    positions.ensure(session)
    return session


def _work(spark: SparkSession, lake: Lake, config: Config, schema: TableSchema, silver: SilverTable) -> Work:
    path, names = lake.table("silver", schema.name), config.snowflake.names
    found = describe(spark, path)
    frame = spark.read.format("delta").option("versionAsOf", silver.version).load(path)
    there = narrowed(schema, found.columns)
    json_columns = {c.name.lower() for c in there.columns if c.kind == "json"}
    columns = [f.name for f in frame.schema.fields]
    kinds = [
        "VARIANT" if f.name.lower() in json_columns else snowflake_type(f.dataType.simpleString())
        for f in frame.schema.fields
    ]
    spelled = [spell(c, names) for c in columns]
    keys = tuple(columns.index(k) for k in there.keys)
    nullable = frozenset(columns.index(k) for k in there.keys if there.column(k).nullable)
    destination = unquoted(config.snowflake.sink_schema) if config.snowflake.sink_schema else None
    target = Target(
        unquoted(config.snowflake.database),
        destination or spell(schema.name.schema, names),
        spell(schema.name.table, names),
        tuple(zip(spelled, kinds, strict=True)),
        keys,
        nullable,
    )
    return Work(there, silver, found.id, path, columns, target, str(silver.cut))


def _stands(before: SinkPosition, work: Work) -> bool:
    """Whether the destination is of this very table, so that changes since can be applied to it."""
    known = dict(work.target.columns)
    return (
        before.version != positions.NOTHING
        and before.silver_id == work.silver_id
        and before.generation == work.silver.generation
        and before.version <= work.silver.version
        and all(known.get(name) == kind for name, kind in before.columns)
    )


def _batch(spark: SparkSession, work: Work, before: SinkPosition | None) -> Batch:
    if before is not None and _stands(before, work):
        versions = (before.version + 1, work.silver.version)
        try:
            changed = _changed(spark, work, versions)
        except changes.FeedGoneError:
            log.warning("%s: silver's change feed is gone; all rows are loaded again", work.schema.name)
        else:
            if changed is not None:
                return changed
    return Batch(changes.state_at(spark, work.path, work.silver.version), "replace")


def _changed(spark: SparkSession, work: Work, versions: tuple[int, int]) -> Batch | None:
    """What changed in these versions, or None where only a replacement says it."""
    schema = work.schema
    if not schema.counted:
        return Batch(changes.last_per_key(spark, work.path, versions, schema.keys), "merge")
    net = changes.net_per_value(spark, work.path, versions)
    if schema.keys:
        without = [F.col(spark_identifier(k)).isNull() for k in schema.keys]
        if net.where(_any(without)).isEmpty():  # a row with its whole key is there once
            return Batch(changes.last_per_key(spark, work.path, versions, schema.keys), "merge")
    bounds = net.agg(F.min(changes.NET), F.max(changes.NET)).first()
    assert bounds is not None, "an aggregate has a row"
    least, most = bounds
    if least is None or (least > 0 and most <= COPIES_MAX):
        return Batch(net, "append", most or 0)
    return None


def _any(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return found


def _apply(session: Session, target: Target, name: str, batch: Batch) -> None:
    if batch.how == "merge":
        session.run(merge_sql.merge(target, name))
        return
    if batch.how == "replace":
        session.run(f"DELETE FROM {target.name}")
    for copy_number in range(1, batch.copies + 1):
        session.run(merge_sql.append(target, name, copy_number))


def _columns_there(session: Session, target: Target) -> set[str]:
    """The destination's columns; none where there is no such table."""
    found = session.rows(
        f"SELECT COLUMN_NAME FROM {qualified((target.database,))}.INFORMATION_SCHEMA.COLUMNS"
        " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
        (target.schema, target.table),
    )
    return {row[0] for row in found}


def _shape(session: Session, work: Work, there: set[str], before: SinkPosition | None) -> SinkPosition:
    """Create the destination, or give it the columns that it lacks. The position that it has then.

    A column whose type has changed is made anew, and is NULL until the replacement that follows; columns that silver
    does not know are left alone.
    """
    target = work.target
    if before is None:
        if there:
            raise TerminalError(
                f"{target.schema}.{target.table} is there already, and was not made by this sink",
                hint="rename or drop it, or set sink_schema in [snowflake] to a schema of the sink's own",
            )
        # Claimed before it is made: a run that dies in between must know its own table again.
        before = SinkPosition(work.silver_id, work.silver.generation, positions.NOTHING, "", target.columns)
        positions.move(session, (target.schema, target.table), None, before)
    if not there:
        session.run(f"CREATE SCHEMA IF NOT EXISTS {qualified((target.database, target.schema))}")
        session.run(merge_sql.create(target))
        return before
    held = dict(before.columns)
    for name, kind in target.columns:
        if name in there and held.get(name, kind) != kind:
            session.run(merge_sql.drop_column(target, name))
            session.run(merge_sql.add_column(target, (name, kind)))
        elif name not in there:
            session.run(merge_sql.add_column(target, (name, kind)))
    return before
