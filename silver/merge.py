"""Writes one table's rows into its current-state Delta table, so that the change feed says what changed and no more.

A row that is already as it should be is not written: an update needs a source column that differs. A delete is a
delete. Where a generation or a TRUNCATE replaces the content, what is not named by a row goes in the same commit.
"""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from lakeward.delta import snapshot
from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver.columns import DELETED, META, identity, key_numbers, keyless, of_table, same
from silver.delta import APP_ID, once, sparing
from silver.local import local
from silver.prune import touched
from silver.rewrite import needed, rewrite
from silver.rows import SHORT, Ending, Written

# Up to here a file is sooner written anew than given a deletion vector, which takes eight Spark jobs.
REWRITTEN_BYTES_MAX = 4 << 20


def merge(
    session: SparkSession,
    location: str,
    rows: DataFrame,
    schema: TableSchema,
    *,
    run: int,
    soft: bool,
    ending: Ending | None,
    app: str = APP_ID,
    few: bool = False,
    dense: bool = False,
) -> Written:
    """MERGE `rows` (see `silver.current`) into the table, once for (`app`, `run`). With `ending`, rows with a key that
    no row names are deleted. `few`, without an `ending`: the driver can hold `rows`, so they are computed once.
    `dense`: they change so much of the table that its files are sooner written anew than given deletion vectors, for
    which the table is joined with them once more."""
    if needed(schema):
        return rewrite(session, location, rows, schema, run=run, soft=soft, ending=ending, app=app)
    target = DeltaTable.forPath(session, location).alias("t")
    source, on = _source(rows, schema), [_on(schema)]
    size = snapshot(session, location).sizeInBytes()
    if few:
        held = source.toArrow()
        source = local(session, held, source.schema)
        on += touched(schema, held, size) if size > REWRITTEN_BYTES_MAX else []
    builder = target.merge(source.alias("s"), " AND ".join(on))
    columns = {quoted(c.name): f"s.c{i}" for i, c in enumerate(schema.columns)}
    values = {**columns, **{name: f"s.{short}" for (name, _), short in zip(META, SHORT, strict=True)}}
    targets = of_table(schema, "t")
    differs = f"NOT ({' AND '.join(same(c, targets[i], f's.c{i}') for i, c in enumerate(schema.columns))})"
    if soft:
        values[DELETED] = "s.gone"
        builder = (
            builder.whenMatchedDelete(f"s.kind = 'take' AND NOT t.{DELETED}")
            .whenMatchedUpdate(
                f"s.kind IN ('upsert', 'delete') AND (t.{DELETED} <> s.gone OR {differs})",
                set=values,  # type: ignore[arg-type]
            )
            .whenNotMatchedInsert("s.kind IN ('upsert', 'delete', 'put')", values=values)  # type: ignore[arg-type]
        )
    else:
        builder = (
            builder.whenMatchedDelete("s.kind IN ('delete', 'take')")
            .whenMatchedUpdate(f"s.kind = 'upsert' AND {differs}", set=values)  # type: ignore[arg-type]
            .whenNotMatchedInsert("s.kind IN ('upsert', 'put')", values=values)  # type: ignore[arg-type]
        )
    if ending is not None and schema.keys:
        has_key = f"NOT {keyless(schema, targets)}"
        if soft:
            gone = {DELETED: "true", **dict(zip((n for n, _ in META), vars(ending).values(), strict=True))}
            builder = builder.whenNotMatchedBySourceUpdate(f"{has_key} AND NOT t.{DELETED}", set=gone)
        else:
            builder = builder.whenNotMatchedBySourceDelete(has_key)
    rewritten = dense or size <= REWRITTEN_BYTES_MAX
    with once(session, app, run), sparing(session, local_source=few, rewrite=rewritten):
        result = builder.execute()
    row = result.first() if result is not None else None
    if row is None:
        return Written(0, 0, 0)
    return Written(row["num_inserted_rows"], row["num_updated_rows"], row["num_deleted_rows"])


def _source(rows: DataFrame, schema: TableSchema) -> DataFrame:
    frame = rows.selectExpr("kind", "image.*", *SHORT, "gone")
    if not schema.counted:
        return frame
    columns = [f"c{i}" for i in range(len(schema.columns))]
    return frame.selectExpr("*", f"IF(kind = 'put', NULL, {identity(schema, columns)}) AS id")


def _on(schema: TableSchema) -> str:
    targets = of_table(schema, "t")
    if schema.counted:
        return f"{identity(schema, targets)} = s.id"
    return " AND ".join(
        f"{targets[i]} {'<=>' if schema.columns[i].nullable else '='} s.c{i}" for i in key_numbers(schema)
    )
