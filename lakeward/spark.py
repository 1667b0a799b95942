"""The Spark session that every stage works in, from one laptop to a cluster.

Promise: a session that starts without the network (its jars are resolved beforehand, as files), runs Python
with the interpreter that runs Lakeward, says nothing on the terminal but errors, and alters no value: UTC, no
calendar rebase, timestamps in microseconds.

On one machine the jars are on the class path, where nothing copies them and the JVM can share their parsed
classes (measured: see docs/operations.md); a cluster gets them as `spark.jars`, since its executors have no
such files.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from lakeward import catalog, machine, storage
from lakeward.artifacts import cache_dir, resolve
from lakeward.class_archive import archive_path, make_archive
from lakeward.java import java_home, wrapper_home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lakeward.config import Config

SPARK_JARS = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0",
    "io.delta:delta-kernel-unitycatalog:4.4.0",
    "io.unitycatalog:unitycatalog-client:0.6.0",
    "io.unitycatalog:unitycatalog-hadoop:0.6.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
"""What Spark lacks for Delta and Iceberg. Their other dependencies are Spark's own, in versions it must not
mix.
"""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)
INTERPRETED_ROWS_MAX = 50_000
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}
_EXTENDED = {
    "spark.sql.extensions": ",".join(EXTENSIONS),
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
ARROW_ROWS_MAX = 65_536
ARROW_BYTES_MAX = 32 * 1024 * 1024


def session(
    lake_root: str,
    *,
    app: str,
    master: str | None = None,
    extra: Mapping[str, str] | None = None,
    artifacts: Mapping[str, Sequence[str]] | None = None,
    of_gold: Mapping[str, str] | None = None,
) -> SparkSession:
    """The process's Spark session, started if there is none.

    `lake_root` is a folder or an object store's URL; the Iceberg catalog `gold` has its warehouse below it.
    `master` is Spark's master URL, else LAKEWARD_SPARK_MASTER, else `local[*]`. `extra` overrides any setting by its
    name, but for the driver's Java options, to which it adds; `artifacts` are Maven coordinates of more jars, by a
    name for their folder. `of_gold` are the settings of another catalog `gold`. They may hold secrets, so they are
    made in the session once it is there: the others stand on the JVM's command line, which every user of the machine
    can read. LAKEWARD_DRIVER_MEMORY (default: `_heap`) is the driver's heap. A session that is there already, such as
    a notebook service's, keeps its static settings.

    Raises as `java_home` and `artifacts.resolve` do, before anything is started.
    """
    chosen = master or os.environ.get("LAKEWARD_SPARK_MASTER") or f"local[{machine.cores()}]"
    one_machine = chosen.startswith("local")
    files = jars()
    for name, coordinates in (artifacts or {}).items():
        files += resolve(coordinates, name=name, transitive=False) if coordinates else []
    kernels = str(_kernel_cache())
    _prepare_environment(kernels)
    settings = {
        **_EXTENDED,
        **(_folder_of_gold(lake_root) if of_gold is None else {}),
        **_faithful(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **_sized(chosen),
        "spark.executorEnv.NUMBA_CACHE_DIR": kernels,
        **_jars(files, one_machine=one_machine),
        **(extra or {}),
    }
    settings[JAVA_OPTIONS] = " ".join([*_java_options(files), (extra or {}).get(JAVA_OPTIONS, "")]).strip()
    builder = SparkSession.builder.master(chosen).appName(app)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for key, value in (of_gold or {}).items():
        spark.conf.set(key, value)
    return spark


def session_for(config: Config, *, app: str, master: str | None = None) -> SparkSession:
    """`session` for this configuration: its lake's file system and gold's catalog."""
    of_gold = catalog.settings(config.gold, config.root)  # raises before anything is started
    of_lake = storage.artifacts(config.root)
    of_catalog = [a for a in catalog.artifacts(config.gold) if a not in of_lake]  # once on the class path
    needed = {"s3a": of_lake, "catalog": of_catalog}
    store = storage.settings(config.root, config.lake)
    return session(config.root, app=app, master=master, extra=store, artifacts=needed, of_gold=of_gold)


def evaluate_for(spark: SparkSession, rows: int) -> SparkSession:
    """Let the new session `spark` evaluate what `rows` rows are worth, and return it.

    Spark compiles each query to Java, which takes longer than a small batch does by itself: up to
    INTERPRETED_ROWS_MAX rows, expressions are interpreted. Measured over six tables of 1,000 rows with ten
    changes each: the JVM of a first silver run takes 0.57 of the processor time. Nor is such a batch split: one
    partition needs no shuffle, and without adaptive execution a query is one job instead of one a stage.
    """
    if rows <= INTERPRETED_ROWS_MAX:
        for name, value in _SMALL.items():
            spark.conf.set(name, value)
    return spark


def jars() -> list[Path]:
    """Local files of SPARK_JARS; fetched at the first call."""
    return resolve(SPARK_JARS, name="spark", transitive=False)


def _folder_of_gold(lake_root: str) -> dict[str, str]:
    return {
        "spark.sql.catalog.gold": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.gold.type": "hadoop",
        "spark.sql.catalog.gold.warehouse": f"{_absolute(lake_root)}/gold",
    }


def _absolute(lake_root: str) -> str:
    """Spark resolves a relative folder at another time and place than Python does, so it gets none."""
    return lake_root.rstrip("/") if "://" in lake_root else str(Path(lake_root).absolute())


def _faithful() -> dict[str, str]:
    return {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Delta's change feed takes each row through Java's types, whose old ones have no 1582-10-05 to 1582-10-14.
        "spark.sql.datetime.java8API.enabled": "true",
        # Delta refuses versions that are older than a table keeps removed files, though they be all there: maintenance
        # removes none that a later stage has yet to read, and a stage may stand still for longer.
        "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    }


def _java_options(files: Sequence[Path]) -> list[str]:
    options = []
    # Not there when the project is imported from a zip: then the cluster has its own.
    log4j = Path(__file__).with_name("log4j2.properties")
    if log4j.is_file():
        options.append(f"-Dlog4j2.configurationFile={log4j.as_uri()}")
    # On few cores the default collector's concurrent marking takes from the work what it saves in pauses.
    options += ["-XX:+UseParallelGC", "-XX:MetaspaceSize=384m"]
    archive = archive_path(cache_dir(), java_home(), files)
    if archive.is_file():
        options += [f'"-XX:SharedArchiveFile={archive}"', "-Xlog:disable"]
    return options


def _sized(master: str) -> dict[str, str]:
    # The defaults, 200 shuffle and 50 snapshot partitions, cost a small MERGE ten times its work.
    partitions = str(max(2, cores)) if (cores := _cores_of(master)) else None
    return {
        "spark.driver.memory": os.environ.get("LAKEWARD_DRIVER_MEMORY") or _heap(),
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(ARROW_ROWS_MAX),
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES_MAX),
        "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
        "spark.python.worker.reuse": "true",
        # Else PySpark asks the JVM four things for each column expression, to name its line where one fails: a
        # quarter of a small table's silver stage.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        **(
            {
                "spark.sql.shuffle.partitions": partitions,
                "spark.databricks.delta.snapshotPartitions": partitions,
                # By default a file of less than 4 MiB a core is read by one of them, however many events it holds.
                "spark.sql.files.openCostInBytes": "1MB",
                "spark.sql.files.minPartitionNum": str(2 * int(partitions)),
            }
            if partitions
            else {}
        ),
    }


def _jars(files: Sequence[Path], *, one_machine: bool) -> dict[str, str]:
    if not one_machine:
        return {"spark.jars": ",".join(str(file) for file in files)}
    class_path = os.pathsep.join(str(file) for file in files)
    return {
        "spark.driver.extraClassPath": class_path,
        "spark.executor.extraClassPath": class_path,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": _python_path(),
    }


def _prepare_environment(kernels: str) -> None:
    """What Spark reads from the environment of the process that starts it, and not from its settings."""
    os.environ["JAVA_HOME"] = str(wrapper_home(java_home(), cache_dir()))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = _python_path()
    os.environ.setdefault("NUMBA_CACHE_DIR", kernels)
    # The launcher, a JVM of its own that only assembles a command line, gains nothing from optimising itself.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")


def _kernel_cache() -> Path:
    """Where compiled kernels are kept, a folder for each version of the sources: Numba itself looks at the file that a
    kernel is in, and not at those whose functions it has compiled into it."""
    sources = hashlib.sha256()
    for file in sorted((Path(__file__).resolve().parent.parent / "bronze").rglob("*.py")):
        sources.update(file.read_bytes())
    return cache_dir() / "numba" / sources.hexdigest()[:12]


def _python_path() -> str:
    """PYTHONPATH by which a worker process imports this project as this process does."""
    project = str(Path(__file__).resolve().parent.parent)
    inherited = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != project]
    return os.pathsep.join([project, *inherited])


def _heap() -> str:
    """A sixth of the memory here, 2 to 4 GiB. With 2, a large merge spends a tenth of its time collecting garbage."""
    return f"{min(4096, max(2048, machine.memory() // 6 >> 20))}m"


def _cores_of(master: str) -> int | None:
    """Cores of a master on this machine; None for a cluster, which is sized by those who run it."""
    if match := re.fullmatch(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*\]", master):
        return int(match.group(1)) * int(match.group(2))
    if match := re.fullmatch(r"local(?:\[\s*([\d*]+).*\])?", master):
        asked = match.group(1) or "1"
        return machine.cores() if asked == "*" else int(asked)
    return None


def main() -> None:
    """Find Java, fetch the jars and archive their classes, so that set-up and not the first job waits for it.

    With `--object-stores` also the jars that a lake on s3a:// and a catalog in SQLite need.
    """
    files = jars()
    if "--object-stores" in sys.argv[1:]:
        resolve(storage.artifacts("s3a://lake"), name="s3a", transitive=False)
        resolve([catalog.SQLITE], name="catalog", transitive=False)
    archive = archive_path(cache_dir(), java_home(), files)
    if not archive.is_file():
        print(
            "lakeward: archiving Spark's classes, for a faster start (once, about half a minute)",
            file=sys.stderr,
        )
    archived = make_archive(
        archive,
        java_home(),
        lambda lake_root, options: session(
            lake_root, app="lakeward-setup", master="local[2]", extra={JAVA_OPTIONS: options}
        ),
    )
    print(f"lakeward: ready with {java_home()}, {len(files)} jars, class archive {'yes' if archived else 'no'}")


if __name__ == "__main__":
    main()
