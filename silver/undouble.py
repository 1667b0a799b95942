"""Takes away rows that stand in a table more than once though they have a key.

No run of Lakeward leaves such rows; a hand or a fault of the storage may. A MERGE cannot mend them: it updates every
row that a key finds. So all rows of such a key go, in a commit of its own before the MERGE that brings the one back.
Both are of one silver run, which is finished if it is killed between them.
"""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward.schema import TableSchema
from silver import delta
from silver.columns import image, key_numbers, keyless, of_table, same
from silver.rewrite import needed

APP_ID = "lakeward-silver-undouble"


def undouble(session: SparkSession, location: str, events: DataFrame | None, schema: TableSchema, *, run: int) -> None:
    """Delete every row of `location` whose key stands there twice: of the keys that a repair named in `events`, of all
    keys where that is None. Once for `run`."""
    if not schema.keys or delta.done(session, location, APP_ID) >= run:
        return
    columns = of_table(schema, "t")
    keys = [F.expr(columns[i]).alias(f"k{i}") for i in key_numbers(schema)]
    table = session.read.format("delta").load(location)
    rows = table.alias("t").where(f"NOT {keyless(schema, columns)}").select(*keys)
    if events is not None:
        named = events.where("op IN ('r', 'd') AND transaction.id LIKE 'repair:%'")
        image_of = f"IF(op = 'd', {image(schema, 'before')}, {image(schema, 'after')})"
        touched = named.selectExpr(f"{image_of} AS image").select(
            *(F.expr(f"image.c{i}").alias(f"n{i}") for i in key_numbers(schema))
        )
        on = [F.expr(same(schema.columns[i], f"k{i}", f"n{i}")) for i in key_numbers(schema)]
        rows = rows.join(F.broadcast(touched.distinct()), on, "left_semi")
    doubled = rows.groupBy(*rows.columns).count().where("count > 1").drop("count").localCheckpoint()
    if doubled.isEmpty():
        return
    one = " AND ".join(same(schema.columns[i], columns[i], f"s.k{i}") for i in key_numbers(schema))
    if needed(schema):
        kept = table.alias("t").join(doubled.alias("s"), F.expr(one), "left_anti")
        delta.overwrite(kept, location, app=APP_ID, run=run)
        return
    with delta.once(session, APP_ID, run):
        DeltaTable.forPath(session, location).alias("t").merge(doubled.alias("s"), one).whenMatchedDelete().execute()
