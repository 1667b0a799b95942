"""Marts: SQL files over the source's own table names, published as Iceberg tables `gold.marts.<name>`.

A model is one SELECT with a header:

    -- name: trips_by_region_and_day
    -- description: what the table says, in a sentence
    -- materialized: table
    -- keys: region_id, day              (the columns that name a row; checked before anything is published)
    -- optional: yes                     (skipped with its reason where the inputs are of another shape)

It names tables as the source does (`shop.trips`) and other marts as `marts.<name>`; `shop.trips__history` is that
table's versions, and `shop.outbox__<type>` the events of one type of an outbox. Only those names are replaced, in
place: the rest of the SQL reaches Spark as it was written. What they name is read at the run's cut. A mart is computed
anew, in one replacing snapshot, when one of its inputs or its SQL has changed; a mart whose inputs are not all in this
lake is skipped.
"""

from __future__ import annotations

import graphlib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sqlglot
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import exp
from sqlglot.errors import SqlglotError

from gold import iceberg
from gold.iceberg import Standing
from lakeward.config import Config
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint
from lakeward.state import BronzeState, SilverState

SCHEMA = "marts"
SHIPPED = Path(__file__).resolve().parent / "models"
_HEADER = re.compile(r"--\s*(name|description|materialized|keys|optional)\s*:\s*(.*?)\s*$")


@dataclass(frozen=True)
class Input:
    """What a name in a model stands for: a table that gold has published, or a Delta table of silver's."""

    version: int  # the snapshot of the one, the version of the other
    identifier: str = ""
    location: str = ""

    def relation(self, session: SparkSession) -> str:
        """How a query of `session` names it."""
        if self.identifier:
            return self.identifier
        frame = session.read.format("delta").option("versionAsOf", self.version).load(self.location)
        view = "lakeward_" + hashlib.sha256(self.location.encode()).hexdigest()[:16]
        frame.createOrReplaceTempView(view)
        return view


def of_silver(lake: Lake, bronze: BronzeState, silver: SilverState) -> dict[TableName, Input]:
    """The histories and the outbox's events that stand beside silver's tables, by the names that models give them."""
    found = {}
    for of in (t.name for n, t in bronze.tables.items() if n in silver.tables):
        for suffix, version in silver.tables[str(of)].beside.items():
            found[TableName(of.schema, of.table + suffix)] = Input(version, location=lake.table("silver", of, suffix))
    return found


class SkippedError(Exception):
    """An optional mart that this lake's tables do not fit."""


@dataclass(frozen=True)
class Reference:
    """A table that a model names: the span of its name in the SQL, both ends included."""

    table: TableName
    start: int
    end: int


@dataclass(frozen=True)
class Model:
    """A mart as its file says it."""

    name: str
    description: str
    keys: tuple[str, ...]
    optional: bool
    sql: str
    references: tuple[Reference, ...]
    file: Path

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def inputs(self) -> tuple[TableName, ...]:
        return tuple(sorted({r.table for r in self.references}))

    def rendered(self, relations: Mapping[TableName, str]) -> str:
        """The SQL with each table's name replaced."""
        sql = self.sql
        for reference in sorted(self.references, key=lambda r: r.start, reverse=True):
            sql = sql[: reference.start] + relations[reference.table] + sql[reference.end + 1 :]
        return sql


def models_folder(config: Config) -> Path:
    """[gold] models, else gold/models beside the configuration file, else the folder that Lakeward ships."""
    if config.gold.models is not None:
        folder = config.path(config.gold.models)
        if not folder.is_dir():
            raise ConfigError(
                f"[gold] models names {folder}, which is no folder", hint="create it, or mend the setting"
            )
        return folder
    beside = config.path("gold/models")
    return beside if beside.is_dir() else SHIPPED


def load_models(folder: Path) -> list[Model]:
    """The models of `folder`, each after those it reads. Raises ConfigError for one that cannot be meant."""
    models = [parse_model(file.read_text(encoding="utf-8"), file) for file in sorted(folder.glob("*.sql"))]
    by_name: dict[str, Model] = {}
    for model in models:
        if (twin := by_name.setdefault(model.name, model)) is not model:
            raise ConfigError(
                f"two marts bear the name {model.name!r}: {twin.file} and {model.file}", hint="rename one"
            )
    reads = {m.name: {t.table for t in m.inputs if t.schema == SCHEMA and t.table in by_name} for m in models}
    try:
        return [by_name[name] for name in graphlib.TopologicalSorter(reads).static_order()]
    except graphlib.CycleError as error:
        raise ConfigError(f"marts read each other in a circle: {' → '.join(error.args[1])}") from error


def parse_model(sql: str, file: Path) -> Model:
    """A model from its text. Raises ConfigError."""
    header = {m[1]: m[2] for line in sql.splitlines() if (m := _HEADER.match(line.strip()))}
    name = header.get("name", file.stem)
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        raise ConfigError(
            f"{file}: a mart's name is made of a-z, 0-9 and _, and {name!r} is not", hint="mend `-- name:`"
        )
    if header.get("materialized", "table") != "table":
        raise ConfigError(f"{file}: materialized is {header['materialized']!r}", hint="write -- materialized: table")
    try:
        trees = [t for t in sqlglot.parse(sql, read="spark") if t is not None]
    except SqlglotError as error:
        raise ConfigError(f"{file} is not SQL that can be read: {str(error).splitlines()[0]}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise ConfigError(f"{file} has to hold one SELECT and nothing else")
    keys = tuple(k.strip() for k in header.get("keys", "").split(",") if k.strip())
    optional = header.get("optional", "no").lower() in ("yes", "true")
    description = header.get("description", "")
    return Model(name, description, keys, optional, sql.rstrip().rstrip(";"), _references(trees[0]), file)


def _references(tree: exp.Query) -> tuple[Reference, ...]:
    found = []
    for table in tree.find_all(exp.Table):
        parts = [p for p in table.parts if isinstance(p, exp.Identifier)]
        named_catalog = len(parts) == 3 and parts[0].name.lower() == iceberg.CATALOG
        names = parts[1:] if named_catalog else parts
        if len(names) == 2:  # a single name is a common table expression
            name = TableName(names[0].name, names[1].name)
            found.append(Reference(name, int(parts[0].meta["start"]), int(parts[-1].meta["end"])))
    return tuple(found)


def materialize(
    session: SparkSession, model: Model, inputs: Mapping[TableName, Input], cut: Checkpoint, run: int
) -> Standing:
    """Compute a mart and replace its table by the result in one snapshot.

    Raises SkippedError for an optional model that the tables do not fit, and TerminalError for any other that
    fails or whose keys are not unique.
    """
    try:
        frame = session.sql(model.rendered({t: inputs[t].relation(session) for t in model.inputs}))
    except AnalysisException as error:
        said = str(error).splitlines()[0]
        if model.optional:
            raise SkippedError(said) from error
        raise TerminalError(
            f"the mart {model.name} fails: {said}", hint=f"mend {model.file}", mart=model.name
        ) from error
    frame = frame.select(*[F.col(spark_identifier(c)).alias(c.lower()) for c in frame.columns])
    if model.keys:
        frame = frame.localCheckpoint(eager=True)
        _check_keys(frame, model)
    name = iceberg.identifier(SCHEMA, model.name)
    with iceberg.summary(session, {"run": str(run), "cut": str(cut.at), "model": model.digest}):
        iceberg.replace(frame, name)
    stands = iceberg.standing(session, name)
    assert stands is not None, f"{name} was committed and is not there"
    return stands


def _check_keys(frame: DataFrame, model: Model) -> None:
    missing = [k for k in model.keys if k.lower() not in frame.columns]
    if missing:
        raise TerminalError(f"the mart {model.name} has no column {missing[0]!r}, its key", hint=f"mend {model.file}")
    keys = [F.col(spark_identifier(k.lower())) for k in model.keys]
    twice = frame.groupBy(*keys).count().where("count > 1").drop("count").first()
    if twice is not None:
        raise TerminalError(
            f"the mart {model.name} has several rows of one key",
            hint=f"mend the query or `-- keys:` in {model.file}; the table stays as it was",
            key=twice.asDict(),
        )


def location(lake: Lake, model: Model) -> str:
    return iceberg.location(lake, SCHEMA, model.name)
