"""A MERGE written out, for the tables whose change feed Delta's MERGE cannot write.

Delta 4.4 plans a MERGE with change feed under column names in which it does not double a backtick, and fails
(``packedCdc.`a`b` ``: INVALID_ATTRIBUTE_NAME_SYNTAX). Such a table is read, joined with its rows and overwritten in one
commit: the same content, with a change feed that deletes and inserts more rows than changed but adds up to the same.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver import delta
from silver.columns import DELETED, META, identity, key_numbers, keyless, of_table, same
from silver.rows import SHORT, Ending, Written


def needed(schema: TableSchema) -> bool:
    """Whether a column's name holds a backtick."""
    return any("`" in c.name for c in schema.columns)


def rewrite(
    session: SparkSession,
    location: str,
    rows: DataFrame,
    schema: TableSchema,
    *,
    run: int,
    soft: bool,
    ending: Ending | None,
    app: str,
) -> Written:
    """What `silver.merge.merge` does, as an overwrite."""
    fields = ", ".join(f"'c{i}', t.c{i}" for i in range(len(schema.columns)))
    ended = f"named_struct({fields}, {_ended(ending)}, 'gone', true)"
    present = _present(session, location, schema, soft=soft)
    chosen = decided(present, rows, schema, soft=soft, how="full_outer", ends=ending is not None).withColumn(
        "row", F.expr(f"CASE action WHEN 'insert' THEN s WHEN 'update' THEN s WHEN 'end' THEN {ended} ELSE t END")
    )
    counts = {r[0]: r[1] for r in chosen.groupBy("action").count().collect()}
    columns = [f"row.c{i} AS {quoted(c.name)}" for i, c in enumerate(schema.columns)]
    columns += [f"row.{short} AS {name}" for (name, _), short in zip(META, SHORT, strict=True)]
    columns += [f"row.gone AS {DELETED}"] if soft else []
    final = chosen.where("action NOT IN ('delete', 'none')").selectExpr(*columns)
    delta.overwrite(final, location, app=app, run=run)
    return Written(counts.get("insert", 0), counts.get("update", 0) + counts.get("end", 0), counts.get("delete", 0))


def decided(present: DataFrame, rows: DataFrame, schema: TableSchema, *, soft: bool, how: str, ends: bool) -> DataFrame:
    """What becomes of each row of a table, and of each row to write: t and s, STRUCT<c0, …, ts_ms, tx_id, tx_order,
    gone, …>, joined as `how` says, and `action` (see `_action`). `present` has the columns of t."""
    names = [f"c{i}" for i in range(len(schema.columns))]
    differs = " OR ".join(f"NOT ({same(c, f't.c{i}', f's.c{i}')})" for i, c in enumerate(schema.columns))
    old = present.selectExpr(f"{_id(schema, names)} AS id", "struct(*) AS t", f"{keyless(schema, names)} AS keyless")
    fields = ", ".join((*names, *SHORT, "gone"))
    new = rows.selectExpr("kind", "image.*", *SHORT, "gone").selectExpr(
        f"IF(kind = 'put', NULL, {_id(schema, names)}) AS id", "kind", f"struct({fields}) AS s"
    )
    return old.join(new, on="id", how=how).withColumn("action", F.expr(_action(differs, soft=soft, ends=ends)))


def _present(session: SparkSession, location: str, schema: TableSchema, *, soft: bool) -> DataFrame:
    columns = [f"{column} AS c{i}" for i, column in enumerate(of_table(schema, "t"))]
    meta = [f"t.{name} AS {short}" for (name, _), short in zip(META, SHORT, strict=True)]
    frame = session.read.format("delta").load(location).alias("t")
    return frame.selectExpr(*columns, *meta, f"{f't.{DELETED}' if soft else 'false'} AS gone")


def _id(schema: TableSchema, columns: list[str]) -> str:
    """What names a row, and is equal as MERGE's condition has it: 0.0 and -0.0 are one key."""
    if schema.counted:
        return identity(schema, columns)
    return f"struct({', '.join(columns[i] for i in key_numbers(schema))})"


def _action(differs: str, *, soft: bool, ends: bool) -> str:
    """insert, update, delete, end, keep (the row that is there) or none, as the clauses of the MERGE say."""
    unnamed = "'keep'"
    if ends:
        unnamed = "IF(keyless OR t.gone, 'keep', 'end')" if soft else "IF(keyless, 'keep', 'delete')"
    missing = "kind IN ('upsert', 'put')" + (" OR kind = 'delete'" if soft else "")
    update = f"IF(t.gone <> s.gone OR {differs}, 'update', 'keep')"
    deleted = update if soft else "'delete'"
    return (
        f"CASE WHEN kind IS NULL THEN {unnamed} WHEN t IS NULL THEN IF({missing}, 'insert', 'none') "
        "WHEN kind = 'take' THEN IF(t.gone, 'keep', 'delete') "
        f"WHEN kind = 'delete' THEN {deleted} "
        f"WHEN kind = 'upsert' THEN {update} ELSE 'keep' END"
    )


def _ended(ending: Ending | None) -> str:
    if ending is None:
        return ", ".join(f"'{short}', t.{short}" for short in SHORT)
    ts_ms, tx_id, tx_order = vars(ending).values()
    return f"'ts_ms', {ts_ms}, 'tx_id', CAST({tx_id} AS STRING), 'tx_order', CAST({tx_order} AS BIGINT)"
