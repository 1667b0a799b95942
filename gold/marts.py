"""Marts: SQL files over the source's own table names, published as Iceberg tables `gold.marts.<name>`.

A model is one SELECT with a header:

    -- name: trips_by_region_and_day
    -- description: what the table says, in a sentence
    -- materialized: table               (or incremental, by its keys: see gold/incremental.py)
    -- keys: region_id, day              (the columns that name a row; checked before anything is published)
    -- expect: trips >= finished         (not false of any row, or the mart is not published; any number)
    -- optional: yes                     (skipped with its reason where the inputs are of another shape)

It names tables as the source does (`shop.trips`) and other marts as `marts.<name>`; `shop.trips__history` is that
table's versions, and `shop.outbox__<type>` the events of one type of an outbox. Only those names are replaced, in
place: the rest of the SQL reaches Spark as it was written. What they name is read at the run's cut. A mart gets
one new snapshot when one of its inputs or its SQL has changed; a mart whose inputs are not all in this
lake is skipped.
"""

from __future__ import annotations

import graphlib
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import sqlglot
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlglot import exp
from sqlglot.errors import SqlglotError

from gold import iceberg, narrowing
from gold.answers import unanswered
from gold.changes import CHANGE
from gold.iceberg import Standing
from gold.incremental import Basis, rows_of, touched_keys
from gold.merge import merge_keyed
from lakeward.config import Config
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake, disk_full
from lakeward.names import TableName, spark_identifier
from lakeward.position import Checkpoint
from lakeward.state import BronzeState, SilverState

SCHEMA = "marts"
SHIPPED = Path(__file__).resolve().parent / "models"
_HEADER = re.compile(r"--\s*(name|description|materialized|keys|optional|expect|changed)\s*:\s*(.*?)\s*$")
Materialized = Literal["table", "incremental"]


@dataclass(frozen=True)
class Input:
    """What a name in a model stands for: a table that gold has published, or a Delta table of silver's."""

    version: int  # the snapshot of the one, the version of the other
    cut: Checkpoint  # that it equals the source at
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
            own = silver.tables[str(of)].cut
            cut = silver.cut if silver.cut is not None and silver.cut.at == own else Checkpoint(own)
            place = lake.table("silver", of, suffix)
            found[TableName(of.schema, of.table + suffix)] = Input(version, cut, location=place)
    return found


class SkippedError(Exception):
    """An optional mart that this lake's tables do not fit."""


@dataclass(frozen=True)
class Reference:
    """A table that a model names: the span of its name in the SQL, both ends included."""

    table: TableName
    start: int
    end: int
    aliased: bool


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
    materialized: Materialized = "table"
    changed: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)  # incremental: keys of a changed row
    expectations: tuple[str, ...] = ()
    whole: str | None = None  # incremental: why it is computed as a whole all the same

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
    lines = [(m[1], m[2]) for line in sql.splitlines() if (m := _HEADER.match(line.strip()))]
    header = dict(lines)
    name = header.get("name", file.stem)
    if not re.fullmatch(r"[a-z_][a-z0-9_]*", name):
        raise ConfigError(
            f"{file}: a mart's name is made of a-z, 0-9 and _, and {name!r} is not", hint="mend `-- name:`"
        )
    try:
        trees = [t for t in sqlglot.parse(sql, read="spark") if t is not None]
    except SqlglotError as error:
        raise ConfigError(f"{file} is not SQL that can be read: {str(error).splitlines()[0]}") from error
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise ConfigError(f"{file} has to hold one SELECT and nothing else")
    keys = tuple(k.strip() for k in header.get("keys", "").split(",") if k.strip())
    references = _references(trees[0])
    changed: dict[TableName, tuple[str, ...]] = {}
    for table, expressions in (_changed(text, keys, references, file) for kind, text in lines if kind == "changed"):
        if table in changed:
            raise ConfigError(
                f"{file}: {table} has two lines `-- changed:`, and a row belongs to one key of an incremental mart",
                hint="take one of them out; where a row counts under several keys, write -- materialized: table",
            )
        changed[table] = expressions
    model = Model(
        name=name,
        description=header.get("description", ""),
        keys=keys,
        optional=header.get("optional", "no").lower() in ("yes", "true"),
        sql=sql.rstrip().rstrip(";"),
        references=references,
        file=file,
        materialized=_materialized(header, file),
        changed=changed,
        expectations=tuple(text for kind, text in lines if kind == "expect"),
    )
    if model.materialized == "incremental" and not (model.keys and model.changed):
        raise ConfigError(
            f"{file}: an incremental mart needs keys, and which of them a changed row touches",
            hint="write -- keys: … and -- changed: <schema>.<table>: <an expression for each key>",
        )
    if model.materialized == "incremental":
        named = {r.start: r.table for r in references}
        return replace(model, whole=narrowing.check(trees[0], named, model.changed, keys, file))
    return model


def _materialized(header: Mapping[str, str], file: Path) -> Materialized:
    said = header.get("materialized", "table")
    if said == "table":
        return "table"
    if said == "incremental":
        return "incremental"
    raise ConfigError(f"{file}: materialized is {said!r}", hint="write -- materialized: table, or incremental")


def _changed(
    text: str, keys: Sequence[str], references: Sequence[Reference], file: Path
) -> tuple[TableName, tuple[str, ...]]:
    """`shop.trips: region_id, CAST(requested_at AS DATE)` → the table, and an expression for each key."""
    said, _, listed = text.partition(":")
    table = TableName(*said.strip().split(".", 1)) if "." in said else None
    try:
        found = sqlglot.parse_one(f"SELECT {listed}", read="spark").expressions
    except SqlglotError as error:
        raise ConfigError(f"{file}: `changed: {text}` cannot be read", hint="name a table and expressions") from error
    if table not in {r.table for r in references} or table is None:
        raise ConfigError(f"{file}: `changed: {text}` names no table of the query", hint="mend it")
    if len(found) != len(keys):
        raise ConfigError(
            f"{file}: `changed: {text}` has {len(found)} expressions for {len(keys)} keys", hint="mend it"
        )
    if any(r.table == table and not r.aliased for r in references):
        raise ConfigError(f"{file}: {table} has to have an alias in an incremental mart", hint=f"write {table} AS t")
    return table, tuple(e.sql(dialect="spark") for e in found)


def _references(tree: exp.Query) -> tuple[Reference, ...]:
    found = []
    for table in tree.find_all(exp.Table):
        parts = [p for p in table.parts if isinstance(p, exp.Identifier)]
        named_catalog = len(parts) == 3 and parts[0].name.lower() == iceberg.CATALOG
        names = parts[1:] if named_catalog else parts
        if len(names) == 2:  # a single name is a common table expression
            name = TableName(names[0].name, names[1].name)
            found.append(Reference(name, int(parts[0].meta["start"]), int(parts[-1].meta["end"]), bool(table.alias)))
    return tuple(found)


def materialize(
    session: SparkSession,
    model: Model,
    inputs: Mapping[TableName, Input],
    cut: Checkpoint,
    run: int,
    basis: Basis | None = None,
) -> tuple[Standing, bool]:
    """Compute a mart and commit the result in one snapshot. Says what stands then, and whether it was merged by keys.

    `basis` says what the mart that stands was computed from by this very SQL; None where it has to be computed as a
    whole. Raises SkippedError for an optional model that the tables do not fit, and TerminalError for any other that
    fails, whose keys are not unique or whose expectations do not hold; the table stays as it was then.
    """
    try:
        return _materialize(session, model, inputs, cut, run, basis)
    except (PySparkException, Py4JJavaError) as error:  # a value that cannot be cast, a column of no type, …
        known = disk_full(error) or unanswered(error, session.conf.getAll)
        raise known or _failure(model, error) from error


def _failure(model: Model, error: Exception) -> TerminalError:
    lines = [line for line in str(error).splitlines() if not line.startswith("An error occurred while calling")]
    said = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).removeprefix(": ") if lines else type(error).__name__
    return TerminalError(f"the mart {model.name} fails: {said}", hint=f"mend {model.file}", mart=model.name)


def _materialize(
    session: SparkSession,
    model: Model,
    inputs: Mapping[TableName, Input],
    cut: Checkpoint,
    run: int,
    basis: Basis | None,
) -> tuple[Standing, bool]:
    name = iceberg.identifier(session, SCHEMA, model.name)
    keys = touched_keys(session, model, basis) if basis is not None else None
    try:
        relations = {t: inputs[t].relation(session) for t in model.inputs}
        frame = rows_of(session, model, relations, keys) if keys is not None else None
        if frame is not None and iceberg.columns_of(frame.drop(CHANGE)) != iceberg.columns_of(session.table(name)):
            frame = None  # an input has other columns, and so has the mart
        merged = frame is not None
        if frame is None:
            frame = session.sql(model.rendered(relations))
            frame = frame.select(*[F.col(spark_identifier(c)).alias(c.lower()) for c in frame.columns])
    except AnalysisException as error:
        if model.optional:
            raise SkippedError(str(error).splitlines()[0]) from error
        raise
    if model.keys or model.expectations:
        frame = frame.localCheckpoint(eager=True)
        _check_keys(frame, model)
        _check_expectations(frame, model)
    with iceberg.summary(session, {"run": str(run), "cut": str(cut.at), "model": model.digest}):
        if merged:
            merge_keyed(frame, name, model.keys)
        else:
            iceberg.replace(frame, name)
    stands = iceberg.standing(session, name)
    assert stands is not None, f"{name} was committed and is not there"
    return stands, merged


def _check_expectations(frame: DataFrame, model: Model) -> None:
    if CHANGE in frame.columns:
        frame = frame.where(F.col(CHANGE) != "delete")
    for expectation in model.expectations:
        try:
            broken = frame.where(F.expr(f"NOT ({expectation})")).limit(1).count()
        except (AnalysisException, ParseException) as error:
            said = str(error).splitlines()[0]
            raise TerminalError(
                f"`expect: {expectation}` cannot be judged: {said}", hint=f"mend {model.file}"
            ) from error
        if broken:
            raise TerminalError(
                f"the mart {model.name} has rows that break `expect: {expectation}`",
                hint=f"mend the query, or the expectation in {model.file}; the table stays as it was",
            )


def _check_keys(frame: DataFrame, model: Model) -> None:
    missing = [k for k in model.keys if k.lower() not in frame.columns]
    if missing:
        raise TerminalError(f"the mart {model.name} has no column {missing[0]!r}, its key", hint=f"mend {model.file}")
    if not model.keys:
        return
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
