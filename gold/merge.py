"""Applies reduced changes to an Iceberg table, each batch in one copy-on-write snapshot."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gold.changes import CHANGE, NET, VERSION, value_keys
from gold.overwrite import overwrite
from lakeward.names import spark_identifier

GONE = "__lakeward_gone"
_KEY = "__lakeward_key"


def lowered(frame: DataFrame) -> DataFrame:
    """The source's columns with names in lower case, as Snowflake wants them; the feed's own columns left out."""
    kept = [c for c in frame.columns if c not in (CHANGE, VERSION, NET)]
    return frame.select(*[F.col(spark_identifier(c)).alias(c.lower()) for c in kept])


def merge_keyed(changes: DataFrame, name: str, keys: Sequence[str]) -> None:
    """Make the table `name` say what `changes` (as `changes.last_per_key` gives them) say of each key."""
    source = lowered(changes.withColumn(GONE, _gone()))
    named = [spark_identifier(key.lower()) for key in keys]
    overwrite(source.select(*named), source.where(~F.col(GONE)).drop(GONE), name)


def merge_counted(changes: DataFrame, name: str) -> None:
    """Add and take away as many equal rows as `changes` (as `changes.net_per_value` gives them) say.

    SQL cannot delete one of two equal rows. So each value that lost some is deleted as a whole, and what is left of
    it is inserted again, in the same snapshot; values that only gained are inserted, and a batch of those alone is
    an append.
    """
    lost = changes.where(F.col(NET) < 0)
    gained = changes.where(F.col(NET) > 0)
    inserts = _repeated(lowered(gained.withColumn(GONE, F.col(NET))), GONE)
    if lost.isEmpty():
        inserts.writeTo(name).append()
        return
    leaving = _with_keys(lowered(lost.withColumn(GONE, F.col(NET))))
    keys = [c for c in leaving.columns if c.startswith(_KEY)]
    present = _with_keys(lost.sparkSession.table(name)).groupBy(*keys).count().alias("p")
    same = [F.col(f"p.{k}").eqNullSafe(F.col(f"l.{k}")) for k in keys]
    left = leaving.alias("l").join(present, on=same, how="left").select(
        *[F.col(f"l.{spark_identifier(c)}") for c in leaving.columns if c != GONE],
        (F.coalesce(F.col("p.count"), F.lit(0)) + F.col(f"l.{GONE}")).alias(GONE),
    )  # fmt: skip
    # Held before the MERGE begins, since it is computed from the very table that the MERGE changes.
    left = left.localCheckpoint(eager=True)
    columns = inserts.columns
    source = (
        left.drop(GONE).withColumn(GONE, F.lit(True))
        .unionByName(_with_keys(_repeated(left.drop(*keys), GONE)).withColumn(GONE, F.lit(False)))
        .unionByName(_with_keys(inserts).withColumn(GONE, F.lit(False)))
    )  # fmt: skip
    target = lost.sparkSession.table(name)
    floating = dict(zip(keys, _texts(target, columns), strict=True))
    on = " AND ".join(f"{expression} <=> s.{key}" for key, expression in floating.items())
    quoted = [spark_identifier(c) for c in columns]
    with _view(source) as view:
        lost.sparkSession.sql(
            f"MERGE INTO {name} t USING {view} s ON s.{GONE} AND {on}"
            f" WHEN MATCHED THEN DELETE"
            f" WHEN NOT MATCHED AND NOT s.{GONE} THEN INSERT ({', '.join(quoted)})"
            f" VALUES ({', '.join(f's.{c}' for c in quoted)})"
        )


def _gone() -> Column:
    return F.col(CHANGE).isin("delete", "update_preimage")


def _repeated(frame: DataFrame, count: str) -> DataFrame:
    """Each row as often as its column `count` says, without that column; not at all for zero and less."""
    times = F.expr(f"sequence(CAST(1 AS BIGINT), {count})")
    return frame.where(F.col(count) > 0).withColumn(count, F.explode(times)).drop(count)


def _with_keys(frame: DataFrame) -> DataFrame:
    """`frame` with one more column a value column, by which equal rows are found."""
    columns = [c for c in frame.columns if c != GONE]
    return frame.select("*", *[k.alias(f"{_KEY}{i}") for i, k in enumerate(value_keys(frame, columns))])


def _texts(target: DataFrame, columns: Sequence[str]) -> list[str]:
    """`value_keys` of the MERGE's target, as SQL."""
    kinds = dict(target.dtypes)
    inexact = ("float", "double", "array")
    quoted = {c: f"t.{spark_identifier(c)}" for c in columns}
    return [f"CAST({quoted[c]} AS STRING)" if kinds[c].startswith(inexact) else quoted[c] for c in columns]


@contextmanager
def _view(frame: DataFrame) -> Iterator[str]:
    name = f"lakeward_{uuid.uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        frame.sparkSession.catalog.dropTempView(name)
