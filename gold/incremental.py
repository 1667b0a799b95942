"""Brings a mart up to date by its keys: only those rows are computed that the inputs' changes touch.

A model says so in its header, and says how a changed row of an input names the mart's rows that it is counted in:

    -- materialized: incremental
    -- keys: region_id, day
    -- changed: shop.trips: region_id, CAST(requested_at AS DATE)

The expressions stand over one row of that table, in the order of the keys. The changed rows, as they were and as they
are, come from Iceberg's own changelog between the snapshot that the mart was computed from and the present one. The
query is then run over those rows of the table alone that belong to a touched key, and one MERGE puts the result in the
place of the mart's rows with those keys. Where another input has changed, or the changelog cannot say what did, the
mart is computed as a whole. `gold.narrowing` sees to it that the two say the same.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from gold import iceberg
from gold.changes import CHANGE
from lakeward.names import TableName, spark_identifier, sql_literal

if TYPE_CHECKING:
    from gold.marts import Model

_KEY = "__lakeward_k"
_WHOLE = {"tinyint", "smallint", "int", "bigint", "decimal"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Basis:
    """What a mart was computed from: the snapshot of each input then and now."""

    before: Mapping[str, int]
    now: Mapping[str, int]

    @property
    def changed(self) -> set[str]:
        return {name for name, snapshot in self.now.items() if self.before.get(name) != snapshot}


def touched_keys(session: SparkSession, model: Model, basis: Basis) -> DataFrame | None:
    """The keys whose rows may be others now, in columns `__lakeward_k0` …; None where only a whole computation will do.

    Of a key that consists of the mart's key columns all rows are among them, those that are gone, too.
    """
    if model.materialized != "incremental" or not basis.changed or set(basis.now) != set(basis.before):
        return None
    if not basis.changed <= {str(t) for t in model.changed}:
        return None
    if model.whole is not None:
        log.warning("%s: computed as a whole, since %s", model.file, model.whole)
        return None
    try:
        tables = [t for t in sorted(model.changed) if str(t) in basis.changed]
        if altered := [str(t) for t in tables if _altered(session, t, basis)]:
            log.info("%s: computed as a whole, since %s has other columns now", model.file, ", ".join(altered))
            return None
        frames = [_touched(session, model, t, basis) for t in tables]
        return reduce(DataFrame.unionByName, frames).distinct().localCheckpoint(eager=True)
    except (PySparkException, Py4JJavaError) as error:
        # An expired or a foreign snapshot, or other columns: what changed cannot be said.
        log.warning("%s: computed as a whole, since its inputs' changes cannot be read: %s", model.file, _first(error))
        return None


def _altered(session: SparkSession, table: TableName, basis: Basis) -> bool:
    """Whether the table's columns are others than they were: that alters rows which no changelog tells."""
    found = iceberg.load(session, iceberg.identifier(session, table.schema, table.table))
    snapshots = [found.snapshot(side[str(table)]) for side in (basis.before, basis.now)]
    return None not in snapshots and len({snapshot.schemaId() for snapshot in snapshots}) > 1


def _touched(session: SparkSession, model: Model, table: TableName, basis: Basis) -> DataFrame:
    view = f"lakeward_{uuid.uuid4().hex}"
    name = iceberg.identifier(session, table.schema, table.table)
    session.sql(
        f"CALL {iceberg.CATALOG}.system.create_changelog_view(table => {sql_literal(name)}, "
        f"changelog_view => {sql_literal(view)}, options => map("
        f"'start-snapshot-id', '{basis.before[str(table)]}', 'end-snapshot-id', '{basis.now[str(table)]}'))"
    )
    named = [f"{expression} AS {_KEY}{i}" for i, expression in enumerate(model.changed[table])]
    try:
        return session.table(view).selectExpr(*named).distinct().localCheckpoint(eager=True)
    finally:
        session.catalog.dropTempView(view)


def _first(error: PySparkException | Py4JJavaError) -> str:
    """The error's first line; the JVM's own where Py4J's says only that there was one."""
    said = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
    return said.strip().partition("\n")[0]


def _exact(kinds: set[str]) -> bool:
    """Whether values of these types that are equal are one key: '01' = 1 is true, and they are two."""
    return len(kinds) == 1 or {kind.partition("(")[0] for kind in kinds} <= _WHOLE


def rows_of(
    session: SparkSession, model: Model, identifiers: Mapping[TableName, str], keys: DataFrame
) -> DataFrame | None:
    """What the query says of the `keys`: the mart's columns, and CHANGE, 'delete' for a key that it says nothing of.

    As `gold.merge.merge_keyed` takes it. None where the query makes other keys of the rows than the header says, or
    keys of other types.
    """
    views: list[str] = []
    kinds: list[dict[str, str]] = [dict(keys.dtypes)]

    def view(frame: DataFrame) -> str:
        views.append(f"lakeward_{uuid.uuid4().hex}")
        frame.createOrReplaceTempView(views[-1])
        return views[-1]

    touched = view(keys)
    narrowed = {}
    for table, expressions in model.changed.items():
        source = session.table(identifiers[table])
        named = [f"{expression} AS {_KEY}{i}" for i, expression in enumerate(expressions)]
        with_keys = source.selectExpr("*", *named)
        kinds.append(dict(with_keys.dtypes))
        every = view(with_keys)
        same = " AND ".join(f"s.{_KEY}{i} <=> k.{_KEY}{i}" for i in range(len(expressions)))
        columns = ", ".join(f"s.{spark_identifier(c)}" for c in source.columns)
        narrowed[table] = view(session.sql(f"SELECT {columns} FROM {every} s LEFT SEMI JOIN {touched} k ON {same}"))
    try:
        computed = session.sql(model.rendered({**identifiers, **narrowed}))
        computed = computed.select(*[F.col(spark_identifier(c)).alias(c.lower()) for c in computed.columns])
        made = dict(computed.dtypes)
        for i, key in enumerate(model.keys):
            found = {made.get(key.lower(), ""), *(kind[f"{_KEY}{i}"] for kind in kinds)}
            if not _exact(found):
                log.warning(
                    "%s: computed as a whole, since %s is of types %s", model.file, key, ", ".join(sorted(found))
                )
                return None
        names = [spark_identifier(k.lower()) for k in model.keys]
        matching = reduce(lambda a, b: a & b, (F.col(f"{_KEY}{i}").eqNullSafe(F.col(n)) for i, n in enumerate(names)))
        if not computed.join(keys, on=matching, how="left_anti").isEmpty():
            log.warning("%s: its query does not make the keys that `-- changed:` says of a row", model.file)
            return None
        held = computed.withColumn("__lakeward_here", F.lit(True))
        joined = keys.join(held, on=matching, how="left")
        key_columns = {k.lower(): f"{_KEY}{i}" for i, k in enumerate(model.keys)}
        chosen = [
            F.col(key_columns[c]).cast(made[c]).alias(c) if c in key_columns else F.col(spark_identifier(c))
            for c in computed.columns
        ]
        kind = F.when(F.col("__lakeward_here"), "update_postimage").otherwise("delete").alias(CHANGE)
        return joined.select(*chosen, kind).localCheckpoint(eager=True)
    finally:
        for name in views:
            session.catalog.dropTempView(name)
