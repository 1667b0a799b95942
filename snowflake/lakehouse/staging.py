"""Silver's changes as Parquet files, on their way into a temporary table of Snowflake's.

Spark's executors write them into the lake, in files of a bounded number of rows; the driver carries them, one at a
time, to the session's own stage. So no memory grows with a table, and a cluster's executors need no way to Snowflake.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.fs as pafs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from gold.changes import CHANGE, NET
from lakeward import crash
from lakeward.lake import STATE_FOLDER, Lake
from lakeward.names import snowflake_identifier, spark_identifier, sql_literal
from snowflake.lakehouse import merge_sql
from snowflake.lakehouse.connection import Session
from snowflake.lakehouse.merge_sql import ACTION, COPIES, IS_UPDATE, Target

STAGE = "SINK_FILES"
CHUNK_BYTES = 4 << 20


def staged_frame(frame: DataFrame, columns: list[str]) -> DataFrame:
    """`frame` (as `gold.changes` makes it, or whole rows) as a staged table has it: c0, c1 …, and what to do."""
    kinds = {f.name: f.dataType for f in frame.schema.fields}
    places = [_staged(spark_identifier(c), kinds[c]) + f" AS c{i}" for i, c in enumerate(columns)]
    gone = F.col(CHANGE).isin("delete", "update_preimage") if CHANGE in kinds else F.lit(False)
    return frame.select(
        *[F.expr(place) for place in places],
        F.when(gone, "DELETE").otherwise("INSERT").alias(ACTION),
        (F.col(CHANGE) == "update_postimage" if CHANGE in kinds else F.lit(False)).alias(IS_UPDATE),
        (F.col(NET) if NET in kinds else F.lit(1)).cast("bigint").alias(COPIES),
    )


def _staged(column: str, kind: T.DataType) -> str:
    if isinstance(kind, T.TimestampType):
        return f"unix_micros({column})"
    if isinstance(kind, T.TimestampNTZType):
        return f"unix_micros(CAST({column} AS TIMESTAMP))"  # the session's time zone is UTC
    if isinstance(kind, T.StructType) and "wkb" in kind.fieldNames():
        return f"IF({column} IS NULL, NULL, to_json(named_struct('srid', {column}.srid, 'wkb', hex({column}.wkb))))"
    if isinstance(kind, T.ArrayType) and isinstance(kind.elementType, T.FloatType):
        return f"to_json(CAST({column} AS ARRAY<DOUBLE>))"  # every digit of what is stored
    if isinstance(kind, (T.StructType, T.ArrayType, T.MapType)):
        return f"to_json({column})"
    return column


@contextmanager
def staged(session: Session, lake: Lake, frame: DataFrame, target: Target, *, rows_max: int) -> Iterator[str]:
    """The name of a temporary table that holds `frame` (of `staged_frame`); it is gone afterwards."""
    folder = lake.path(STATE_FOLDER, "sink")
    fs, root = lake.filesystem()
    name = "SINK_CHANGES"
    frame.write.mode("overwrite").option("maxRecordsPerFile", rows_max).option("compression", "snappy").parquet(folder)
    try:
        session.run(f"DROP TABLE IF EXISTS {snowflake_identifier(name)}")
        session.run(merge_sql.create_staged(target, name))
        session.run(f"CREATE OR REPLACE TEMPORARY STAGE {snowflake_identifier(STAGE)}")
        if _upload(session, fs, f"{root}/{STATE_FOLDER}/sink"):
            crash.point("sink.after_put")
            session.run(merge_sql.copy(target, name, STAGE, "batch"))
        yield name
    finally:
        fs.delete_dir(f"{root}/{STATE_FOLDER}/sink")
    session.run(f"DROP TABLE IF EXISTS {snowflake_identifier(name)}")


def _upload(session: Session, fs: pafs.FileSystem, folder: str) -> int:
    """PUT every Parquet file of `folder` that holds rows; how many they were."""
    uploaded = 0
    with tempfile.TemporaryDirectory(prefix="lakeward-sink-") as here:
        for found in fs.get_file_info(pafs.FileSelector(folder)):
            if not found.base_name.endswith(".parquet"):
                continue
            uploaded += 1
            local = Path(here) / f"part-{uploaded:06d}.parquet"
            with fs.open_input_stream(found.path) as source, local.open("wb") as copy:
                while chunk := source.read(CHUNK_BYTES):
                    copy.write(chunk)
            stage = f"@{snowflake_identifier(STAGE)}/batch/"
            session.run(f"PUT {sql_literal(f'file://{local}')} {stage} AUTO_COMPRESS = FALSE OVERWRITE = TRUE")
            local.unlink()
    return uploaded
