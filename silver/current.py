"""Changes → what has to be written: the source of each table's MERGE, as DataFrames.

A row to write has a `kind`:

    upsert  the row of this key is this now
    delete  the row of this key is gone (`image` is what it was)
    keep    the row of this key stays as it is: its newest event is held back by the gate
    take    every row equal to this one goes      } of rows without a key, which can be equal
    put     one more row like this one            } and are therefore counted

and then `image`, `ts_ms`, `tx_id`, `tx_order`, and `gone`, what `__deleted` becomes.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver.columns import DELETED, META, identity, key_numbers, keyless, of_image, of_table, same
from silver.events import Truncation, after, changes
from silver.plan import TablePlan

ROW = ("kind", "image", "ts_ms", "tx_id", "tx_order", "gone")
_STREAM, _SNAPSHOT = "source.snapshot = false", "source.snapshot = true"


def keyed(
    events: DataFrame,
    plan: TablePlan,
    truncation: Truncation | None,
    *,
    soft: bool,
    only: DataFrame | None = None,
) -> DataFrame:
    """One row a key that `events` touch: its last change. Columns as ROW, kinds upsert and delete.

    `only` is a frame of the key's columns, as the source calls them: other keys are left out.
    """
    schema = plan.schema
    last = latest(_with_key(_only(changes(events.where(_STREAM), schema), schema, only), schema), schema)
    if plan.since is None and (truncation is None or soft):
        # Any event of the stream beats the snapshot's row of its key, and that row is there once: no need to group.
        rows = _with_key(_only(changes(events.where(_SNAPSHOT), schema), schema, only), schema)
        last = rows.join(_keys(last, schema), on=_same_key(schema), how="left_anti").unionByName(last)
    if truncation is not None:
        last = _truncated(last, truncation) if soft else last.where(after(truncation))
    return last.selectExpr("op AS kind", *ROW[1:-1], "op = 'delete' AS gone")


def latest(changed: DataFrame, schema: TableSchema) -> DataFrame:
    """The last change of each key. Columns as `changed`."""
    keys = [F.expr(f"image.c{i}").alias(f"k{i}") for i in key_numbers(schema)]
    whole = ", ".join(changed.columns)
    return changed.groupBy(*keys).agg(F.expr(f"max_by(struct({whole}), at) AS last")).select("last.*")


def kept(events: DataFrame, passed: DataFrame, rows: DataFrame, schema: TableSchema) -> DataFrame:
    """`rows`, and for each key whose every event was held back a row that keeps its last passed state."""
    place = (
        "struct(source.epoch, source.file, source.pos, source.row, source.snapshot, source.generation, source.cascade)"
    )
    passing = passed.select(F.expr(place).alias("place"))
    held = events.withColumn("place", F.expr(place)).join(passing, on="place", how="left_anti").drop("place")
    touched = latest(_with_key(changes(held.where("op <> 't'"), schema), schema), schema)
    untouched = touched.join(_keys(rows, schema), on=_same_key(schema), how="left_anti")
    return rows.unionByName(untouched.selectExpr("'keep' AS kind", *ROW[1:-1], "false AS gone"))


def counted(
    events: DataFrame,
    target: DataFrame | None,
    plan: TablePlan,
    truncation: Truncation | None,
    *,
    soft: bool,
    only: DataFrame | None = None,
) -> DataFrame:
    """The rows without a key that have to go and come, so that each value is there as often as at the source.

    `target` is the silver table before the merge, None for an empty one; `only` as in `keyed`, all columns without a
    key. Columns as ROW, kinds take and put.
    """
    schema, replaces = plan.schema, plan.since is None or truncation is not None
    columns = of_image(schema, "image")
    changed = _only(changes(events, schema, halves=True), schema, only).where(keyless(schema, columns))
    if truncation is not None:
        changed = changed.where(after(truncation))
    net = (
        changed.groupBy(F.expr(identity(schema, columns)).alias("id"))
        .agg(
            F.expr("sum(IF(op = 'upsert', 1, -1)) AS net"),
            F.expr("max_by(struct(image, ts_ms, tx_id, tx_order), at) AS new"),
        )
        .where("net <> 0")
    )
    if target is None:
        have = net.where("false").selectExpr("id", "new.*")
    else:
        have = _only(_present(target, schema, soft=soft), schema, only)
    if not replaces:
        have = have.join(net.where("net < 0").select("id"), on="id", how="left_semi")
    have = have.groupBy("id").agg(
        F.expr("count(1) AS have"),
        F.expr("max_by(struct(image, ts_ms, tx_id, tx_order), struct(ts_ms, tx_order)) AS old"),
    )
    return _difference(net, have, replaces=replaces, soft=soft, truncation=truncation)


def _difference(
    net: DataFrame, have: DataFrame, *, replaces: bool, soft: bool, truncation: Truncation | None
) -> DataFrame:
    # A delete whose insert was held back by the gate finds nothing to delete; hence never below zero.
    want = "greatest(coalesce(net, 0L), 0L)" if replaces else "greatest(coalesce(have, 0L) + net, 0L)"
    gone = "greatest(have - want, 0L)" if soft else "0L"
    ended = "coalesce(new, old)"
    if truncation is not None:
        ended = f"struct(old.image AS image, {', '.join(_ending(truncation))})"
    return (
        net.join(have, on="id", how="full_outer" if replaces else "left_outer")
        .selectExpr("new", "old", "coalesce(have, 0L) AS have", f"{want} AS want")
        .where("want <> have")
        .selectExpr("*", "want < have AS shrinks", "IF(want < have, want, want - have) AS live")
        .selectExpr("*", "IF(shrinks, 1L, 0L) AS taken", f"{gone} AS gone_rows")
        # A row with a count becomes that many rows one by one; no array of images is ever built.
        .selectExpr("*", "explode(sequence(1L, taken + live + gone_rows)) AS n")
        .selectExpr(
            "IF(n <= taken, 'take', 'put') AS kind",
            f"CASE WHEN n > taken + live THEN {ended} WHEN shrinks THEN old ELSE new END AS row",
            "n > taken + live AS gone",
        )
        .selectExpr("kind", "row.image", "row.ts_ms", "row.tx_id", "row.tx_order", "gone")
    )


def _present(target: DataFrame, schema: TableSchema, *, soft: bool) -> DataFrame:
    """Silver's live rows without a key: id, image, ts_ms, tx_id, tx_order."""
    columns = of_table(schema, "t")
    fields = ", ".join(f"'c{i}', {c}" for i, c in enumerate(columns))
    meta = [f"t.{name} AS {short}" for (name, _), short in zip(META, ROW[2:5], strict=True)]
    rows = target.alias("t").where(keyless(schema, columns))
    if soft:
        rows = rows.where(f"NOT t.{DELETED}")
    return rows.selectExpr(f"{identity(schema, columns)} AS id", f"named_struct({fields}) AS image", *meta)


def _only(rows: DataFrame, schema: TableSchema, only: DataFrame | None) -> DataFrame:
    """The rows of some keys. `rows` has an `image`; a key is compared by its exact columns, NULL with NULL."""
    if only is None:
        return rows
    numbers = key_numbers(schema) or range(len(schema.columns))
    named = [F.col(quoted(schema.columns[i].name)).alias(f"only{i}") for i in numbers]
    on = [F.expr(same(schema.columns[i], f"image.c{i}", f"only{i}")) for i in numbers]
    return rows.join(only.select(*named), on=on, how="left_semi")


def _with_key(changed: DataFrame, schema: TableSchema) -> DataFrame:
    if not schema.counted:
        return changed
    return changed.where(f"NOT {keyless(schema, of_image(schema, 'image'))}")


def _keys(rows: DataFrame, schema: TableSchema) -> DataFrame:
    return rows.select(*(F.expr(f"image.c{i}").alias(f"k{i}") for i in key_numbers(schema)))


def _same_key(schema: TableSchema) -> list[Column]:
    return [F.expr(f"image.c{i} <=> k{i}") for i in key_numbers(schema)]


def _truncated(last: DataFrame, truncation: Truncation) -> DataFrame:
    """What a TRUNCATE leaves where deletes are soft: each row that was alive is deleted by it."""
    ended = f"NOT {after(truncation)} AND op = 'upsert'"
    replaced = dict(zip(ROW[2:5], _ending(truncation), strict=True))
    return last.selectExpr(
        f"IF({ended}, 'delete', op) AS op",
        "image",
        *(f"IF({ended}, {value.rpartition(' AS ')[0]}, {name}) AS {name}" for name, value in replaced.items()),
    )


def _ending(truncation: Truncation) -> list[str]:
    tx_id = "CAST(NULL AS STRING)" if truncation.tx_id is None else f"'{_escaped(truncation.tx_id)}'"
    order = "NULL" if truncation.tx_order is None else str(truncation.tx_order)
    return [f"{truncation.ts_ms}L AS ts_ms", f"{tx_id} AS tx_id", f"CAST({order} AS BIGINT) AS tx_order"]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
