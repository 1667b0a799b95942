"""`lakeward snowflake sink`: MERGEs what silver changed straight into tables of Snowflake's own.

Promise: after a run each destination equals its silver table at silver's cut, row for row. A table's changes and its
position (`snowflake.lakehouse.positions`) are one transaction, and a run reads the position from Snowflake before it
reads a change: whatever dies when, nothing is lost and nothing is applied twice. Readers see a table's rows before or
after, never between. Columns are another matter, since DDL commits by itself: a new one is NULL until its rows come,
and one whose new type is no wider one of the same kind is NULL until all rows have been loaded again.

A table that Snowflake refuses holds up no other: it is named at the end, with its cause.

What is applied depends on what can be said of the rows. Keyed rows: the last change of each key, by MERGE. Rows that
may be equal and only came: inserts, counted. Else, and wherever the change feed cannot say what changed (first load,
feed vacuumed, table read anew): all rows are replaced, in the same one transaction.
"""

from __future__ import annotations

import logging
import random
import textwrap
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from gold import changes
from gold.columns import describe
from gold.mirror import narrowed
from lakeward import crash
from lakeward.config import Config
from lakeward.delta import snapshot
from lakeward.errors import LakewardError, TerminalError, TransientError, UsageError
from lakeward.lake import Lake
from lakeward.names import snowflake_identifier, spark_identifier
from lakeward.schema import TableSchema
from lakeward.state import SilverTable, load_bronze, load_silver
from snowflake.lakehouse import merge_sql, positions, shape
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
# What Delta's log says of a commit that touched columns alone.
_RENAMING = {"DROP COLUMNS", "RENAME COLUMN", "REPLACE COLUMNS"}
_SHAPING = {"ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "SET TBLPROPERTIES", "UPGRADE PROTOCOL"}
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
    that silver does not hold, ConfigError, TransientError, and, when the others are done, TerminalError with every
    table that was refused."""
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
    refused: dict[str, LakewardError] = {}
    link = Link(config)
    try:
        for name in chosen:
            try:
                count = _sink(link, own, lake, config, bronze.tables[name].schema, silver.tables[name])
            except TerminalError as error:
                if link.refused:  # it would be for all of them
                    raise
                log.warning("%s: %s", name, error.message)
                refused[name] = error
            else:
                done, total = done + (count is not None), total + (count or 0)
    finally:
        link.close()
    if refused:
        causes = "".join(f"\n{textwrap.indent(f'{name}: {error}', '  ')}" for name, error in refused.items())
        raise TerminalError(
            f"{len(refused)} of {len(chosen)} tables were not sunk:{causes}",
            hint="mend what is said of each, and run the same command again; every other table is done",
        )
    return SinkReport(done, total)


class Link:
    """The way to Snowflake: a session that is opened when it is first needed, and anew once it was lost."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.session: Session | None = None
        self.refused = False

    def open(self) -> Session:
        """The session, in Lakeward's own schema. Raises ConfigError, TerminalError and TransientError."""
        if self.session is None:
            try:
                self.session = connect(self._config.snowflake)
                self.session.enter(OWN_SCHEMA)
                positions.ensure(self.session)
            except LakewardError as error:
                self.refused = isinstance(error, TerminalError)
                self.close()
                raise
        return self.session

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
        self.session = None


def _sink(
    link: Link, spark: SparkSession, lake: Lake, config: Config, schema: TableSchema, silver: SilverTable
) -> int | None:
    """Bring one destination to silver's cut, batch by batch: how many rows, None where nothing was to do."""
    work = _work(spark, lake, config, schema, silver)
    count: int | None = None
    failed = 0  # in a row
    while True:
        try:
            session = link.open()
            step = next_step(session, spark, work, config.snowflake.sink_batch_rows)
            some = sink_table(session, spark, lake, config, step)
            count, failed = count if some is None else (count or 0) + some, 0
            if step.silver.version == work.silver.version:
                return count
        except TransientError as error:
            link.close()
            failed += 1
            if failed == ATTEMPTS_MAX:
                error.facts.setdefault("table", str(schema.name))
                raise
            pause = PAUSE_SECONDS * 2 ** (failed - 1) * random.uniform(0.5, 1.5)
            log.warning("%s: %s; again in %.1f s", schema.name, error.message, pause)
            time.sleep(pause)


def next_step(session: Session, spark: SparkSession, work: Work, rows_max: int) -> Work:
    """`work` up to the version of silver at which its next batch ends."""
    before = positions.read(session, (work.target.schema, work.target.table))
    last = work.silver.version
    if before is None or not _of_this(before, work) or last - before.version <= 1:
        return work
    # Older versions lack a column that was added since, and are then applied together with it.
    if [name for name, _ in before.columns] != [name for name, _ in work.target.columns]:
        return work
    versions = feed_of(spark, work.path, (before.version + 1, last))
    if versions is None:
        return work
    stop = steps(changes_per_version(spark, work.path, versions), last, rows_max)[0]
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


def feed_of(spark: SparkSession, path: str, versions: tuple[int, int]) -> tuple[int, int] | None:
    """The versions of silver whose change feed tells all that changed in `versions`; None where no feed does.

    Where a name has gone another column may bear it by now, and the feed has no row for that. A feed is not to be read
    over a column that is widened, so it begins behind the commits that only say what the columns are.
    """
    first, last = versions
    since = snapshot(spark, path).version() - first + 1  # a log is long, and the newest come first
    history = spark.sql(f"DESCRIBE HISTORY delta.{spark_identifier(path)} LIMIT {since:d}")
    done = {int(row["version"]): str(row["operation"]) for row in history.select("version", "operation").collect()}
    if any(done.get(version) in _RENAMING for version in range(first, last + 1)):
        return None
    while first < last and done.get(first) in _SHAPING:
        first += 1
    return first, last


def sink_table(session: Session, spark: SparkSession, lake: Lake, config: Config, work: Work) -> int | None:
    """Bring one destination to its silver table's version: how many rows were staged, None where nothing was to do."""
    target = work.target
    place = (target.schema, target.table)
    before = positions.read(session, place)
    there = shape.columns_there(session, target)
    stands = before is not None and _stands(before, work, there)
    if before is not None and stands and before.version == work.silver.version:
        return None
    batch = _batch(spark, work, before if stands else None)
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


def _of_this(before: SinkPosition, work: Work) -> bool:
    """Whether the destination holds an earlier version, or this one, of this very table."""
    return (
        before.version != positions.NOTHING
        and before.silver_id == work.silver_id
        and before.generation == work.silver.generation
        and before.version <= work.silver.version
    )


def _stands(before: SinkPosition, work: Work, there: dict[str, str]) -> bool:
    """Whether changes since can be applied to the destination, whose columns are `there`."""
    return _of_this(before, work) and shape.follows(work.target.columns, there, dict(before.columns))


def _batch(spark: SparkSession, work: Work, before: SinkPosition | None) -> Batch:
    """What to apply to a destination that stands at `before`; all rows where that is None."""
    if before is not None:
        versions = feed_of(spark, work.path, (before.version + 1, work.silver.version))
        try:
            changed = _changed(spark, work, versions) if versions is not None else None
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


def _shape(session: Session, work: Work, there: dict[str, str], before: SinkPosition | None) -> SinkPosition:
    """Create the destination, or give it silver's columns. The position that it has then.

    A column of another type, and no wider one, is made anew. It is NULL until the replacement that follows, and the
    position says before that there is nothing, so that the replacement does follow whatever dies and whatever type
    comes next. Columns that silver does not know are left alone.
    """
    target = work.target
    place = (target.schema, target.table)
    if before is None:
        if there:
            raise TerminalError(
                f"{target.schema}.{target.table} is there already, and was not made by this sink",
                hint="rename or drop it, or set sink_schema in [snowflake] to a schema of the sink's own",
            )
        # Claimed before it is made: a run that dies in between must know its own table again.
        before = SinkPosition(work.silver_id, work.silver.generation, positions.NOTHING, "", target.columns)
        positions.move(session, place, None, before)
        crash.point("sink.after_claim")
    if not there:
        session.run(f"CREATE SCHEMA IF NOT EXISTS {qualified((target.database, target.schema))}")
        session.run(merge_sql.create(target))
        return before
    needed = shape.changes(target.columns, there, dict(before.columns))
    if needed.retyped and before.version != positions.NOTHING:
        nothing = replace(before, version=positions.NOTHING)
        positions.move(session, place, before, nothing)
        before = nothing
    for column in needed.widened:
        session.run(merge_sql.widen_column(target, column))
    for column in (*needed.emptied, *needed.retyped):
        session.run(merge_sql.drop_column(target, column[0]))
        crash.point("sink.after_drop")
        session.run(merge_sql.add_column(target, column))
    for column in needed.added:
        session.run(merge_sql.add_column(target, column))
    crash.point("sink.after_shape")
    return before
