"""The whole pipeline on a schema of the test's own: in this process on the session's Spark, or as the command."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from servers.command import run_lakeward
from servers.running import Database

from bronze.begin import Begin
from lakeward.cli.app import App
from lakeward.cli.proof import prove
from lakeward.cli.stages import bronze_stage, gold_stage, silver_stage
from lakeward.cli.status import document
from lakeward.names import TableName
from lakeward.state import BronzeState, load_bronze
from silver.verify import Proof


@dataclass
class Pipeline:
    """A lake of the tables of `database`, in `folder`."""

    folder: Path
    database: Database
    spark: SparkSession
    password: str = field(repr=False)

    @property
    def app(self) -> App:
        """A fresh App, as each command has one; only Spark is shared."""
        app = App(str(self.folder / "lakeward.toml"))
        app._spark = self.spark
        return app

    def bronze(self, point: str | None = None) -> None:
        """`lakeward bronze`, with `--from` where there is a point."""
        app = self.app
        with app.lake.lock("bronze"):
            bronze_stage(app, begin_at=Begin(point) if point else None)

    def silver(self) -> None:
        silver_stage(self.app)

    def gold(self) -> None:
        gold_stage(self.app)

    def run(self) -> None:
        app = self.app
        bronze_stage(app)
        silver_stage(app)
        gold_stage(app)

    def verify(self) -> Proof:
        return prove(self.app, [])

    def status(self) -> dict[str, Any]:
        return {t["name"].partition(".")[2]: t for t in document(self.app.lake)["tables"]}

    def bronze_state(self) -> BronzeState:
        return load_bronze(self.app.lake)

    def table_name(self, table: str) -> TableName:
        return TableName(self.database.name, table)

    def stages(self) -> tuple[Any, ...]:
        return bronze_stage, silver_stage, gold_stage

    def table(self, layer: str, table: str, suffix: str = "") -> DataFrame:
        location = self.app.lake.table(layer, self.table_name(table), suffix)  # type: ignore[arg-type]
        return self.spark.read.format("delta").load(location)

    def expect(self, table: str, rule: Mapping[str, Any]) -> None:
        """Write a suite of one expectation for `table`."""
        suites = self.folder / "expectations"
        suites.mkdir()
        (suites / f"{self.database.name}.{table}.json").write_text(json.dumps({"expectations": [rule]}))

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Silver's rows, sorted."""
        return sorted(tuple(r) for r in self.table("silver", table).select(*columns).collect())

    def ops(self, table: str) -> str:
        """Bronze's ops, in the order of the events."""
        order = ("source.epoch", "source.file", "source.pos", "source.row")
        return "".join(r["op"] for r in self.table("bronze", table).orderBy(*order).select("op").collect())

    def assert_each_event_once(self) -> None:
        assert self.doubled() == []

    def doubled(self) -> list[str]:
        """Tables with an event twice. A stream's are named by position, a snapshot's rows by generation and row."""

        def is_doubled(name: str) -> bool:
            events = self.spark.read.format("delta").load(self.app.lake.table("bronze", _named(name)))
            return bool(events.groupBy(*place).count().where("count > 1").limit(1).count())

        place = ("source.epoch", "source.file", "source.pos", "source.row", "source.generation")
        names = [str(t["name"]) for t in document(self.app.lake)["tables"]]
        with ThreadPoolExecutor(4) as pool:
            return [name for name, twice in zip(names, pool.map(is_doubled, names), strict=True) if twice]

    def command(
        self, *arguments: str, kill_after_s: float | None = None, limit_s: float = 400, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """`lakeward …` as a process of its own in the lake's folder."""
        done: subprocess.CompletedProcess[str] = run_lakeward(
            self.folder, self.password, *arguments, kill_after_s=kill_after_s, limit_s=limit_s, **environment
        )
        return done

    def write_config(self, source: Mapping[str, Any] | None = None, rest: str = "") -> None:
        values = {
            "url": f"mysql://replicator@127.0.0.1:{self.database.server.port}",
            "password": "env:SOURCE_PASSWORD",
            "include": [f"{self.database.name}.*"],
            **(source or {}),
        }
        lines = "\n".join(f"{key} = {json.dumps(value)}" for key, value in values.items())
        (self.folder / "lakeward.toml").write_text(
            f'[source]\n{lines}\n[lake]\nroot = "lake"\n{rest}', encoding="utf-8"
        )


def _named(name: str) -> TableName:
    return TableName(*name.split(".", 1))


@pytest.fixture(scope="session")
def new_pipeline(spark: SparkSession) -> Callable[..., Pipeline]:
    """`new_pipeline(folder, database, password, include=[…])`: the lake in `folder`, new or as it is there.

    Its stages take the password from SOURCE_PASSWORD."""

    def make(folder: Path, database: Database, password: str, **source: Any) -> Pipeline:
        # Catalogs are a session's own, and the warehouse is this lake's.
        own = spark.newSession()
        own.conf.set("spark.sql.catalog.gold.warehouse", str(folder / "lake" / "gold"))
        made = Pipeline(folder, database, own, password)
        made.write_config(source)
        return made

    return make


@pytest.fixture
def pipeline(
    new_pipeline: Callable[..., Pipeline],
    database: Database,
    replicator_password: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Pipeline:
    monkeypatch.setenv("SOURCE_PASSWORD", replicator_password)
    return new_pipeline(tmp_path, database, replicator_password)
