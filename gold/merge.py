"""Applies reduced changes to an Iceberg table, each batch in one copy-on-write snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from gold.changes import CHANGE, NET, VERSION, value_keys
from gold.columns import Change
from gold.overwrite import FILE, Overwrite
from lakeward.names import spark_identifier

GONE = "__lakeward_gone"
_TIMES = "__lakeward_times"


def lowered(frame: DataFrame) -> DataFrame:
    """The source's columns with names in lower case, as Snowflake wants them; the feed's own columns left out."""
    kept = [c for c in frame.columns if c not in (CHANGE, VERSION, NET)]
    return frame.select(*[F.col(spark_identifier(c)).alias(c.lower()) for c in kept])


def merge_keyed(changes: DataFrame, name: str, keys: Sequence[str], change: Change | None = None) -> None:
    """Make the table `name` say what `changes` (as `changes.last_per_key` gives them) say of each key.

    Where `change` says that its columns become others, `changes` and `keys` have those.
    """
    source = lowered(changes.withColumn(GONE, _gone()))
    overwrite = Overwrite(source.select(*[spark_identifier(key.lower()) for key in keys]), name, change=change)
    found = {row[0]: row[1] for row in overwrite.found().groupBy(FILE).count().collect()}
    overwrite.commit(source.where(~F.col(GONE)).drop(GONE), found)


def merge_counted(changes: DataFrame, name: str, change: Change | None = None) -> None:
    """Add and take away as many equal rows as `changes` (as `changes.net_per_value` gives them) say.

    Of rows that are equal none can be named. So each value that lost some goes as a whole, and what is left of it is
    written again, in the same snapshot; a batch of values that only gained is an append. `change` as in `merge_keyed`.
    """
    net = lowered(changes.withColumn(_TIMES, F.col(NET)))
    lost, gained = net.where(F.col(_TIMES) < 0), net.where(F.col(_TIMES) > 0)
    overwrite = Overwrite(lost.drop(_TIMES), name, value_keys, change)
    held = overwrite.found().groupBy(*overwrite.key, FILE).count().localCheckpoint(eager=True)
    present = held.groupBy(*overwrite.key).agg(F.sum("count").alias("count")).alias("p")
    same = [F.col(f"p.{k}").eqNullSafe(F.col(f"l.{k}")) for k in overwrite.key]
    left = overwrite.keyed(lost).alias("l").join(present, on=same, how="left").select(
        *[F.col(f"l.{spark_identifier(c)}") for c in lost.columns if c != _TIMES],
        (F.coalesce(F.col("p.count"), F.lit(0)) + F.col(f"l.{_TIMES}")).alias(_TIMES),
    )  # fmt: skip
    rows = _repeated(left.unionByName(gained)).localCheckpoint(eager=True)
    found = {row[0]: row[1] for row in held.groupBy(FILE).agg(F.sum("count")).collect()}
    overwrite.commit(rows, found)


def _gone() -> Column:
    return F.col(CHANGE).isin("delete", "update_preimage")


def _repeated(frame: DataFrame) -> DataFrame:
    """Each row as often as its column _TIMES says, without that column; not at all for zero and less."""
    times = F.expr(f"sequence(CAST(1 AS BIGINT), {_TIMES})")
    return frame.where(F.col(_TIMES) > 0).withColumn(_TIMES, F.explode(times)).drop(_TIMES)
