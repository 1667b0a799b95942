"""Quarantine: the events that a gate held back, why, and their way out again.

A Delta table a source table, `<root>/quarantine/<schema>/<table>`: the event in bronze's envelope, then

- `failed` ARRAY<STRING>: the names of all the rules it failed,
- `layer` STRING: the layer it was held back from, `run` BIGINT: by which run, `held_at` TIMESTAMP,
- `replayed_at` TIMESTAMP: NULL until it was replayed. Nothing is ever deleted from it.

A run appends at most once (Delta's `txn` action), so a run that is killed and done again doubles nothing.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from typing import Any

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward import state
from lakeward.config import Config
from lakeward.delta import MAPPED, admit, create, exists
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.quality.frame import ENVELOPE, EVENT, envelope_of_row
from lakeward.quality.rules import GateLayer
from lakeward.schema import TableSchema, spark_type

PLACE = ("epoch", "file", "pos", "row", "generation", "cascade")
OWN = ("failed", "layer", "run", "held_at", "replayed_at")


@dataclass(frozen=True)
class Holding:
    """What a gate holds back and has not yet written."""

    frame: DataFrame  # __event STRUCT, __failed ARRAY<STRING>
    schema: TableSchema
    layer: GateLayer
    lake: Lake
    run: int


def hold(holding: Holding) -> None:
    """Append to the table's quarantine, once a run."""
    spark = holding.frame.sparkSession
    at = F.lit(datetime.datetime.now(datetime.UTC))
    own = [
        F.col("__failed").alias("failed"),
        F.lit(holding.layer).alias("layer"),
        F.lit(holding.run).cast("bigint").alias("run"),
        at.cast("timestamp").alias("held_at"),
        F.lit(None).cast("timestamp").alias("replayed_at"),
    ]
    if holding.layer == "silver":
        event = [F.col(EVENT).getField(c).alias(c) for c in ENVELOPE]
    else:
        image = T._parse_datatype_string(spark_type(holding.schema.image()))
        assert isinstance(image, T.StructType)
        event = envelope_of_row(F.col(EVENT), holding.schema, image)
    rows = holding.frame.select(*event, *own)
    path = holding.lake.table("quarantine", holding.schema.name)
    _create(spark, path, rows.schema)
    admit(spark, path, ((f.name, f.dataType.simpleString()) for f in rows.schema.fields))
    options = {"txnAppId": f"lakeward-quarantine-{holding.layer}", "txnVersion": str(holding.run)}
    try:
        rows.write.format("delta").mode("append").option("mergeSchema", "true").options(**options).save(path)
    except AnalysisException as error:
        if error.getCondition() not in ("DELTA_FAILED_TO_MERGE_FIELDS", "DELTA_MERGE_INCOMPATIBLE_DATATYPE"):
            raise
        # A column took another type, so the table was snapshotted anew: what is held from before is
        # superseded, and stays readable in the Delta table's older versions.
        (rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").options(**options).save(path))


def _create(spark: SparkSession, path: str, schema: T.StructType) -> None:
    if exists(spark, path):
        return
    nullable = T.StructType([T.StructField(f.name, f.dataType, nullable=True) for f in schema.fields])
    # Column mapping, since a source column's name may hold characters that Parquet refuses.
    create(spark, path, nullable, MAPPED)


def read(spark: SparkSession, lake: Lake, name: TableName) -> DataFrame | None:
    path = lake.table("quarantine", name)
    return spark.read.format("delta").load(path) if exists(spark, path) else None


def pending(spark: SparkSession, lake: Lake, name: TableName) -> DataFrame | None:
    """The events held back before silver and not replayed, with all columns of quarantine; None without any
    table."""
    held = read(spark, lake, name)
    return None if held is None else held.where(F.col("replayed_at").isNull() & (F.col("layer") == "silver"))


def held_positions(spark: SparkSession, lake: Lake, name: TableName) -> DataFrame | None:
    """[epoch, file, pos, row, generation, cascade] of the events that silver must not use; None where the table has
    none."""
    held = pending(spark, lake, name)
    return None if held is None else held.select(*[F.col(f"source.{c}").alias(c) for c in PLACE]).distinct()


def mark_replayed(
    spark: SparkSession, lake: Lake, name: TableName, positions: DataFrame, at: datetime.datetime
) -> None:
    """Set `replayed_at` of the pending events at `positions` [epoch, file, pos, row, generation, cascade]."""
    target = DeltaTable.forPath(spark, lake.table("quarantine", name)).alias("held")
    same = " AND ".join(f"held.source.{c} <=> released.{c}" for c in PLACE)
    (
        target.merge(
            positions.distinct().alias("released"),
            f"{same} AND held.layer = 'silver' AND held.replayed_at IS NULL",
        )
        .whenMatchedUpdate(set={"replayed_at": F.lit(at).cast("timestamp")})
        .execute()
    )


def quarantine_list(spark: SparkSession, lake: Lake, config: Config) -> list[dict[str, Any]]:
    """What is held now, a document a table and layer: table, layer, rows, by_rule, oldest, example.

    `example` is the key of one held row, without masked and excluded columns.
    """
    found = []
    for name, table in sorted(state.load_bronze(lake).tables.items()):
        held = read(spark, lake, table.name)
        if held is None:
            continue
        settings = config.table(table.name)
        secret = {*settings.mask, *settings.exclude_columns}
        here = held.where(F.col("replayed_at").isNull())
        row = F.coalesce(F.col("after"), F.col("before"))
        shown = [k for k in table.schema.keys if k not in secret]
        key = F.struct(*[row.getField(k).cast("string").alias(k) for k in shown]) if shown else F.lit(None)
        rules = here.select("layer", F.explode("failed").alias("rule")).groupBy("layer", "rule").count().collect()
        totals = here.groupBy("layer").agg(
            F.count(F.lit(1)).alias("n"),
            F.min("held_at").alias("oldest"),
            F.first(F.to_json(key) if shown else key).alias("one"),
        )
        for line in totals.collect():
            by_rule = {r["rule"]: r["count"] for r in rules if r["layer"] == line["layer"]}
            example = json.loads(line["one"]) if line["one"] else None
            entry = {"table": name, "layer": line["layer"], "rows": line["n"], "by_rule": by_rule}
            found.append({**entry, "oldest": line["oldest"].isoformat(), "example": example})
    return found
