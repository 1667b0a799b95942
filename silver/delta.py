"""Silver's Delta tables: how they are made, widened and written to exactly once.

Every write bears the run's number as Delta's transaction identifier (PROTOCOL.md, 'Transaction Identifiers'), so one
that was durable before a crash is not made again after it. For MERGE, Delta takes the identifier from the session's
configuration; tables are therefore merged each in a session of its own thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakeward.delta import (
    MAPPED,
    admit,
    awkward,
    create,
    drop_columns,
    exists,
    mapped,
    rename_column,
    snapshot,
    struct,
    widen_column,
)
from lakeward.errors import TerminalError
from lakeward.lake import disk_full
from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver.columns import DELETED, META, VERSION

APP_ID = "lakeward-silver"
SHAPE = "lakeward-silver-shape"
Fields = Sequence[tuple[str, str]]  # (name, Spark type as DDL), in the table's order
_PROPERTIES = {"delta.enableDeletionVectors": "true"}
_FOLLOWED = {"delta.enableChangeDataFeed": "true"}
_COPIED = (  # what a new session has to have in common with the one a run was given
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.databricks.delta.snapshotPartitions",
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.datetimeRebaseModeInWrite",
    "spark.sql.parquet.int96RebaseModeInRead",
    "spark.sql.parquet.int96RebaseModeInWrite",
    "spark.sql.parquet.outputTimestampType",
    "spark.sql.datetime.java8API.enabled",
)


def current_fields(schema: TableSchema, *, soft: bool) -> Fields:
    """The columns of a current-state table."""
    own = (*META, (DELETED, "BOOLEAN")) if soft else META
    return [*((c.name, c.spark) for c in schema.columns), *own]


def history_fields(schema: TableSchema) -> Fields:
    """The columns of a history table."""
    return [*((c.name, c.spark) for c in schema.columns), *META, *VERSION]


def sibling(spark: SparkSession) -> SparkSession:
    """A session that shares everything with `spark` but its configuration, which starts as a copy."""
    session = spark.newSession()
    for name in _COPIED:
        if (value := spark.conf.get(name, None)) is not None:
            session.conf.set(name, value)
    return session


@contextmanager
def once(session: SparkSession, app: str, run: int) -> Iterator[None]:
    """Writes of `session` in this block happen once for (table, app, run)."""
    session.conf.set("spark.databricks.delta.write.txnAppId", app)
    session.conf.set("spark.databricks.delta.write.txnVersion", str(run))
    try:
        yield
    finally:
        session.conf.unset("spark.databricks.delta.write.txnAppId")
        session.conf.unset("spark.databricks.delta.write.txnVersion")


@contextmanager
def sparing(session: SparkSession, *, local_source: bool, rewrite: bool) -> Iterator[None]:
    """A MERGE of `session` in this block does not copy a source that is local, and with `rewrite` writes the files it
    touches anew instead of giving them deletion vectors."""
    wanted = {}
    if local_source:
        wanted["spark.databricks.delta.merge.materializeSource"] = "none"
    if rewrite:
        wanted["spark.databricks.delta.merge.deletionVectors.persistent"] = "false"
    for name, value in wanted.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in wanted:
            session.conf.unset(name)


def done(spark: SparkSession, location: str, app: str) -> int:
    """The last run whose write to the table is durable; -1 where there was none."""
    now = snapshot(spark, location)
    known = now.checksumOpt()
    if known.isDefined() and known.get().setTransactions().isDefined():  # else Delta computes them from its log
        each = known.get().setTransactions().get()
        return next((int(t.version()) for t in map(each.apply, range(each.size())) if t.appId() == app), -1)
    found = now.transactions().get(app)
    return int(found.get()) if found.isDefined() else -1


def ensure(
    spark: SparkSession, location: str, fields: Fields, *, followed: bool = True, kept_but: Sequence[str] | None = None
) -> bool:
    """Create the table, or add the columns it lacks. False where that does not give it `fields`: another order, another
    type, a column that is no longer wanted. Then the caller has to write it anew. With `kept_but`, columns that are no
    longer wanted may stay, but for those it names.

    `followed` turns the change feed on."""
    if not exists(spark, location):
        create(spark, location, _struct(fields), _properties(fields) | (_FOLLOWED if followed else {}))
        return True
    wanted = [(f.name, f.dataType.simpleString()) for f in _struct(fields)]
    present = actual_fields(spark, location)
    if kept_but is not None:
        names = {name.lower() for name, _ in wanted} | {name.lower() for name in kept_but}
        present = [f for f in present if f[0].lower() in names]
    if wanted == present:
        return True
    missing = [f for f in wanted if f not in present]
    if [f for f in wanted if f in present] != present or _twins(missing, present):
        return False
    _add(spark, location, fields, {name for name, _ in missing})
    return True


def follow(
    spark: SparkSession, location: str, fields: Fields, renamed: Sequence[tuple[str, str]], *, keep: bool
) -> None:
    """Bring the table from an earlier shape of its source to `fields`, whatever their order, without touching a file.

    Columns that the source has no more are dropped, or stay as they are where they are to be kept. What was done
    already is not done again. Raises TerminalError where the table's columns cannot become these.
    """
    if not exists(spark, location):
        ensure(spark, location, fields)
        return
    _rename(spark, location, renamed)
    wanted = {f.name.lower(): (f.name, f.dataType.simpleString()) for f in _struct(fields)}
    kinds = {name.lower(): kind for name, kind in fields}
    present = actual_fields(spark, location)
    for name, kind in present:
        if name.lower() in wanted and wanted[name.lower()][1] != kind:
            _widen(spark, location, name, kinds[name.lower()])
    gone = [name for name, _ in present if name.lower() not in wanted]
    if gone and not keep:
        drop_columns(spark, location, gone)
    there = {name.lower() for name, _ in present}
    if missing := {name for name, _ in wanted.values() if name.lower() not in there}:
        _add(spark, location, fields, missing)


def _widen(spark: SparkSession, location: str, name: str, kind: str) -> None:
    try:
        widen_column(spark, location, (name,), kind)
    except AnalysisException as error:
        raise TerminalError(
            f"the column {name!r} of {location} cannot become {kind} without being read anew",
            hint="lakeward resnapshot the table",
        ) from error


def _rename(spark: SparkSession, location: str, renamed: Sequence[tuple[str, str]]) -> None:
    names = {name.lower() for name, _ in actual_fields(spark, location)} if renamed else set()
    for old, new in renamed:
        if old.lower() in names and new.lower() not in names:
            rename_column(spark, location, (old,), new)
            names = names - {old.lower()} | {new.lower()}


def ensure_history(
    spark: SparkSession,
    location: str,
    schema: TableSchema,
    *,
    generation: int,
    renamed: Sequence[tuple[str, str]] | None = None,
) -> None:
    """As `ensure`, for a history: a column that the source has dropped stays. One that has another type now is
    cast, and its old values are kept aside as `<column>__until_<generation>` where a cast would alter one. `renamed` is
    given where the table was not read anew: then columns are renamed and widened where they stand.

    It has no change feed: it is one itself, and Delta could not write it for every column name (`silver.rewrite`)."""
    wanted = history_fields(schema)
    if not exists(spark, location):
        ensure(spark, location, wanted, followed=False)
        return
    if renamed is not None:
        follow(spark, location, wanted, renamed, keep=True)
        return
    new = [(f.name, f.dataType.simpleString()) for f in _struct(wanted)]
    present = actual_fields(spark, location)
    missing = [f for f in new if f not in present]
    if not missing:
        return
    if not _twins(missing, present):
        _add(spark, location, wanted, {name for name, _ in missing})
        return
    frame = spark.read.format("delta").load(location)
    kinds = {name.lower(): kind for name, kind in wanted}
    old_names = {name.lower(): name for name, _ in present}
    columns = []
    for name, kind in wanted:
        old = old_names.get(name.lower())
        columns.append(f"{f'try_cast({quoted(old)} AS {kind})' if old else f'CAST(NULL AS {kind})'} AS {quoted(name)}")
    for name, kind in present:
        if name.lower() not in kinds:
            columns.append(quoted(name))
        elif (name, kind) not in new and _lossy(frame, name, kinds[name.lower()], kind):
            columns.append(f"{quoted(name)} AS {quoted(f'{name}__until_{generation}')}")
    overwrite(frame.selectExpr(*columns), location, app=SHAPE, run=generation)


def _lossy(frame: DataFrame, name: str, new: str, old: str) -> bool:
    there_and_back = f"try_cast(try_cast({quoted(name)} AS {new}) AS {old})"
    return bool(frame.where(f"NOT ({there_and_back} <=> {quoted(name)})").limit(1).count())


def actual_fields(spark: SparkSession, location: str) -> list[tuple[str, str]]:
    """The table's columns, (name, simple type)."""
    schema = spark.read.format("delta").load(location).schema
    return [(f.name, f.dataType.simpleString()) for f in schema]


def overwrite(frame: DataFrame, location: str, *, app: str, run: int) -> None:
    """Replace rows and columns in one commit, so that a reader sees the old table or the new one.

    Where the table has a change feed and column mapping, columns that go are gone a commit earlier: Delta refuses
    both at once (DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION).
    """
    spark = frame.sparkSession
    admit(spark, location, ((f.name, f.dataType.simpleString()) for f in frame.schema.fields))
    if _feeds_by_names(spark, location):
        kinds = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
        gone = [name for name, kind in actual_fields(spark, location) if kinds.get(name) != kind]
        if gone:
            drop_columns(spark, location, gone)
    (
        frame.write.format("delta")
        .mode("overwrite")
        .option("overwriteSchema", "true")
        .option("txnAppId", app)
        .option("txnVersion", run)
        .save(location)
    )


def _feeds_by_names(spark: SparkSession, location: str) -> bool:
    metadata = snapshot(spark, location).metadata()
    return mapped(metadata) and any(metadata.configuration().contains(name) for name in _FOLLOWED)


def append(frame: DataFrame, location: str, *, app: str, run: int) -> None:
    """Add rows, once for (app, run)."""
    frame.write.format("delta").mode("append").option("txnAppId", app).option("txnVersion", run).save(location)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Translates an engine's failure to an error that names the table."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        if disk_full(error):
            raise TerminalError(
                f"the lake's disk is full: {where} was not written",
                hint="free some space and run the same command again; nothing half written counts",
            ) from error
        raise


def _properties(fields: Fields) -> dict[str, str]:
    return _PROPERTIES | (MAPPED if awkward(name for name, _ in fields) else {})


def _struct(fields: Fields) -> StructType:
    return struct(", ".join(f"{quoted(name)} {kind}" for name, kind in fields))


def _twins(missing: Fields, present: Fields) -> bool:
    """Whether a missing column is there under another case or type."""
    return bool({name.lower() for name, _ in missing} & {name.lower() for name, _ in present})


def _add(spark: SparkSession, location: str, fields: Fields, missing: set[str]) -> None:
    admit(spark, location, (field for field in fields if field[0] in missing))
    places = []
    for i, (name, kind) in enumerate(fields):
        if name in missing:
            place = f"AFTER {quoted(fields[i - 1][0])}" if i else "FIRST"
            places.append(f"{quoted(name)} {kind} {place}")
    spark.sql(f"ALTER TABLE delta.{quoted(location)} ADD COLUMNS ({', '.join(places)})")
