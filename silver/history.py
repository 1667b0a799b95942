"""SCD type 2: `<table>__history`, one version of a row for each transaction that changed it.

A version is open from its transaction's commit (`__valid_from`) until the next one that changed or deleted the row
(`__valid_to`, exclusive). Several changes of a row in one transaction are one version, its last; a transaction that
leaves a row as it was makes none; a row that is deleted and inserted again has a gap. A snapshot opens versions at the
time it was taken: a row that the stream has changed since then opens with what the first such change found there,
since the snapshot may have read it later. Should the source's clock go back, a version starts no earlier than the one
before it.

Times tell neither which of two transactions of one millisecond came first nor, on servers that log whole seconds, of
one second. So versions bear positions too (`silver.events.position`): a version holds at `p` where
`__valid_from_position` <= p < `__valid_to_position`. It begins at its transaction's first change of the row, or, where
the first snapshot found it, before every event.
"""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver.columns import META, exact, identity, of_image, of_table
from silver.delta import APP_ID, append, done, once
from silver.events import changes, place, position
from silver.plan import TablePlan
from silver.rows import SHORT

SEED = "lakeward-silver-seed"
BEFORE = "lakeward-silver-before"  # a generation: what bronze holds of the one that it ends
HISTORY = "__history"  # suffix of a table of versions
_STATE = ("id", "image", "gone", "ts_ms", "tx_id", "tx_order", "unit", "at", "open", "position")
_NEVER = "CAST(NULL AS TIMESTAMP)"
_ALWAYS = position(place(0, 0, 0, half=0))


def seed(session: SparkSession, location: str, current: DataFrame, schema: TableSchema, *, soft: bool) -> None:
    """Open a version of each row that silver holds, from its last change on: for a table that had no history yet."""
    if done(session, location, SEED) >= 0:
        return
    rows = current.where("NOT __deleted") if soft else current
    columns = [quoted(c.name) for c in schema.columns] + [name for name, _ in META]
    opened = rows.selectExpr(
        *(*columns, "timestamp_millis(__ts_ms) AS __valid_from", f"{_NEVER} AS __valid_to", "true AS __is_current"),
        *(f"{_ALWAYS} AS __valid_from_position", "CAST(NULL AS STRING) AS __valid_to_position"),
    )
    append(opened, location, app=SEED, run=0)


def merge_history(
    session: SparkSession,
    location: str,
    events: DataFrame,
    plan: TablePlan,
    *,
    run: int,
    truncate: bool,
    gone_ms: int = 0,
    app: str = APP_ID,
) -> None:
    """Close and open versions as `events` say, in one commit. `gone_ms` is when rows end that a new generation
    no longer has."""
    states = _states(session, location, events, plan, truncate=truncate, gone_ms=gone_ms)
    _merge_versions(session, location, states, plan.schema, app=app, run=run)


def merge_recomputed(
    session: SparkSession, location: str, rows: DataFrame, schema: TableSchema, *, app: str, run: int
) -> None:
    """Let the open versions follow rows (kinds upsert and delete) that were computed anew. Past versions stay."""
    states = rows.withColumn("id", F.expr(identity(schema, of_image(schema, "image")))).selectExpr(
        *("id", "image", "gone", "ts_ms", "tx_id", "tx_order", "'recomputed' AS unit"),
        f"{place(1, 0, 0, half=0)} AS at",
        "false AS open",
    )
    existing = _open_versions(session, location, schema).join(states.select("id"), "id", "left_semi")
    both = _placed(states).unionByName(existing.select(*_STATE))
    _merge_versions(session, location, both, schema, app=app, run=run)


def _merge_versions(
    session: SparkSession, location: str, states: DataFrame, schema: TableSchema, *, app: str, run: int
) -> None:
    versions = _versions(states, schema)
    opened = {quoted(c.name): f"s.image.c{i}" for i, c in enumerate(schema.columns)}
    opened |= {name: f"s.{short}" for (name, _), short in zip(META, SHORT, strict=True)}
    opened |= {
        "__valid_from": "timestamp_millis(s.from_ms)",
        "__valid_to": "timestamp_millis(s.to_ms)",
        "__is_current": "s.to_ms IS NULL",
        "__valid_from_position": "s.from_position",
        "__valid_to_position": "s.to_position",
    }
    closed = {
        "__valid_to": "timestamp_millis(s.to_ms)",
        "__is_current": "false",
        "__valid_to_position": "s.to_position",
    }
    on = f"t.__is_current AND {identity(schema, of_table(schema, 't'))} = s.id"
    builder = (
        DeltaTable.forPath(session, location)
        .alias("t")
        .merge(versions.alias("s"), on)
        .whenMatchedUpdate(set=closed)  # type: ignore[arg-type]
        .whenNotMatchedInsert("s.id IS NULL", values=opened)  # type: ignore[arg-type]
    )
    with once(session, app, run):
        builder.execute()


def _states(
    session: SparkSession, location: str, events: DataFrame, plan: TablePlan, *, truncate: bool, gone_ms: int
) -> DataFrame:
    """Every state of the rows that `events` touch, with the open version each starts from. Columns as _STATE."""
    schema = plan.schema
    ident = identity(schema, of_image(schema, "image"))
    stream = (
        changes(events.where("source.snapshot = false"), schema, halves=plan.since is None)
        .withColumn("id", F.expr(ident))
        .selectExpr(
            *("id", "image", "op = 'delete' AS gone", "ts_ms", "tx_id", "tx_order"),
            "coalesce(tx_id, to_json(at)) AS unit",
            "at",
            "false AS open",
        )
    )
    states = stream
    existing = _open_versions(session, location, schema)
    if plan.since is None:
        states = stream.unionByName(_first_states(stream, events, plan))
        if not truncate:  # else that ends what is open, and the snapshot may not have read it before
            # Whatever is open ends where the generation begins, unless that has it too (one unit: the last counts).
            ended = existing.selectExpr(
                *("id", "image", "true AS gone", f"{gone_ms}L AS ts_ms", "tx_id", "tx_order"),
                f"'{_unit(plan.generation)}' AS unit",
                f"{_origin(plan, half=-2)} AS at",
                "false AS open",
            )
            states = states.unionByName(ended)
    if truncate:
        states = states.unionByName(_truncated(events, states.select("id").unionAll(existing.select("id"))))
    affected = existing if plan.since is None or truncate else existing.join(states.select("id"), "id", "left_semi")
    return _placed(states).unionByName(affected.select(*_STATE))


def _placed(states: DataFrame) -> DataFrame:
    # What the first snapshot found was there before it, and other tables' events before it mean that.
    placed = f"IF(unit = '{_unit(1)}', {_ALWAYS}, {position('at')})"
    return states.withColumn("position", F.expr(placed)).select(*_STATE)


def _open_versions(session: SparkSession, location: str, schema: TableSchema) -> DataFrame:
    columns = of_table(schema, "t")
    fields = ", ".join(f"'c{i}', {c}" for i, c in enumerate(columns))
    meta = [f"t.{name} AS {short}" for (name, _), short in zip(META[1:], SHORT[1:], strict=True)]
    return (
        session.read.format("delta")
        .load(location)
        .alias("t")
        .where("t.__is_current")
        .selectExpr(
            f"{identity(schema, columns)} AS id",
            f"named_struct({fields}) AS image",
            "false AS gone",
            "unix_millis(t.__valid_from) AS ts_ms",
            *meta,
            "CAST(NULL AS STRING) AS unit",
            f"{place(-1, 0, 0, half=0)} AS at",
            "true AS open",
            "t.__valid_from_position AS position",
        )
    )


def _first_states(stream: DataFrame, events: DataFrame, plan: TablePlan) -> DataFrame:
    """What stood in the table at the snapshot's position."""
    schema = plan.schema
    rows = changes(events.where("source.snapshot = true"), schema).withColumn(
        "id", F.expr(identity(schema, of_image(schema, "image")))
    )
    taken = rows.agg(F.min("ts_ms").alias("taken_ms"))
    touched = stream.groupBy("id").agg(F.expr("min_by(struct(image, gone, ts_ms), at) AS first"))
    place = [f"'{_unit(plan.generation)}' AS unit", f"{_origin(plan, half=-1)} AS at", "false AS open"]
    none = ["CAST(NULL AS STRING) AS tx_id", "CAST(NULL AS BIGINT) AS tx_order"]
    found = (
        touched.where("first.gone")  # it begins with a delete, or an update's first half: the row was there
        .crossJoin(F.broadcast(taken))
        .selectExpr(
            "id", "first.image AS image", "false AS gone", "least(first.ts_ms, taken_ms) AS ts_ms", *none, *place
        )
    )
    untouched = rows.join(touched, on="id", how="left_anti").selectExpr(
        "id", "image", "false AS gone", "ts_ms", "tx_id", "tx_order", *place
    )
    return untouched.unionByName(found)


def _truncated(events: DataFrame, ids: DataFrame) -> DataFrame:
    """Each TRUNCATE deletes every row; those that were not there are sorted out with the other changes of nothing."""
    ends = events.where("op = 't'").selectExpr(
        "ts_ms",
        "transaction.id AS tx_id",
        "transaction.total_order AS tx_order",
        "struct(source.epoch AS epoch, source.file AS file, source.pos AS pos, true AS stream,"
        " source.row AS row, 0L AS cascade, 0 AS half) AS at",
    )
    return (
        ids.distinct()
        .crossJoin(F.broadcast(ends))
        .selectExpr(
            *("id", "NULL AS image", "true AS gone", "ts_ms", "tx_id", "tx_order"),
            "coalesce(tx_id, to_json(at)) AS unit",
            "at",
            "false AS open",
        )
    )


def _versions(states: DataFrame, schema: TableSchema) -> DataFrame:
    """The source of the MERGE: open versions to close (`id` set) and versions to insert (`id` NULL)."""
    order = Window.partitionBy("id").orderBy("at")
    fields = ", ".join(exact(c, f"image.c{i}") for i, c in enumerate(schema.columns))
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        states.withColumn("last_unit", F.lag("unit").over(order))
        .withColumn("next_unit", F.lead("unit").over(order))
        .withColumn("began", F.expr("IF(open OR NOT (last_unit <=> unit), position, NULL)"))
        .withColumn("began", F.last("began", ignorenulls=True).over(so_far))
        .where("next_unit IS NULL OR NOT (next_unit <=> unit)")
        .withColumn("value", F.expr(f"IF(gone, NULL, struct({fields}))"))
        .withColumn("before", F.lag("value").over(order))
        .where("open OR NOT (value <=> before)")
        .withColumn("from_ms", F.max("ts_ms").over(so_far))
        .withColumn("to_ms", F.lead("from_ms").over(order))
        .withColumn("from_position", F.max("began").over(so_far))
        .withColumn("to_position", F.lead("from_position").over(order))
        .where("(open AND to_ms IS NOT NULL) OR (NOT open AND NOT gone)")
        .selectExpr("IF(open, id, NULL) AS id", "image", *SHORT, "from_ms", "to_ms", "from_position", "to_position")
    )


def _unit(generation: int) -> str:
    return f"generation {generation}"


def _origin(plan: TablePlan, *, half: int) -> str:
    return place(plan.start.epoch, plan.start.file, plan.start.pos, half=half)
