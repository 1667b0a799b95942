"""A silver table's columns beside those of its mirror: which is which, and the ALTER that lets the mirror follow.

A column of silver is known by what Delta calls it in its data files (PROTOCOL.md, 'Column Mapping'), which a rename
leaves as it is, and which is another where a name goes and comes again. So a renamed column keeps its Iceberg field id
and its rows, and one that only bears an old name gets an id of its own and no row of the other's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakeward.delta import snapshot, snapshot_at
from lakeward.jvm import java_class
from lakeward.names import spark_identifier

Columns = tuple[tuple[str, str], ...]  # (name, Spark SQL type)
_PHYSICAL = "delta.columnMapping.physicalName"
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Field:
    """A column of silver."""

    name: str
    kind: str  # Spark SQL type
    held: str  # what it is called in the data files

    @property
    def mark(self) -> str:
        """What says in few characters which column it is."""
        return hashlib.sha256(self.held.encode()).hexdigest()[:8]


@dataclass(frozen=True)
class Silver:
    """A silver Delta table as its log describes it."""

    id: str
    fields: tuple[Field, ...]

    @property
    def columns(self) -> Columns:
        """With names in lower case, as gold has them."""
        return tuple((f.name.lower(), f.kind) for f in self.fields)

    @property
    def marks(self) -> dict[str, str]:
        """The marks of the columns whose data lie under another name: one that was renamed, or went and came again."""
        return {f.name.lower(): f.mark for f in self.fields if f.held != f.name}


@dataclass(frozen=True)
class Followed:
    """A column as a mirror shall have it."""

    name: str
    kind: str
    before: str | None = None  # what the mirror calls it; None: it has no such column


@dataclass(frozen=True)
class Change:
    """What has to become of a mirror's columns. False where they may stay as they are."""

    before: Columns = ()
    after: tuple[Followed, ...] = ()
    refused: tuple[str, ...] = ()  # columns of `before` that no ALTER of Iceberg's makes those of silver

    def __bool__(self) -> bool:
        return tuple((c.before, c.name, c.kind) for c in self.after) != tuple((n, n, k) for n, k in self.before)

    @property
    def names(self) -> dict[str, str]:
        """The columns that stay: what they are called now, by what they were."""
        return {c.before: c.name for c in self.after if c.before is not None}

    @property
    def former(self) -> dict[str, str]:
        """The same by what they are called now."""
        return {new: old for old, new in self.names.items()}

    def rows(self, frame: DataFrame, *also: str) -> DataFrame:
        """The rows of a mirror as they are after the change: NULL in a new column. `also` are further columns."""
        kinds = dict(self.before)
        return frame.select(*[_carried(c, kinds) for c in self.after], *[F.col(spark_identifier(c)) for c in also])


def _carried(column: Followed, kinds: Mapping[str, str]) -> Column:
    if column.before is None:
        return F.lit(None).cast(column.kind).alias(column.name)
    found = F.col(spark_identifier(column.before))
    return (found if kinds[column.before] == column.kind else found.cast(column.kind)).alias(column.name)


def describe(session: SparkSession, path: str, version: int | None = None) -> Silver:
    """The Delta table's id and columns at `version`, else as it is now.

    From its log alone: DESCRIBE DETAIL would cost a quarter of a second.
    """
    found = snapshot(session, path)
    if version is not None and int(found.version()) != version:  # a run of silver that was killed is ahead of its cut
        found = snapshot_at(session, path, version)
    metadata = found.metadata()
    schema = T.StructType.fromJson(json.loads(metadata.schemaString()))
    fields = (Field(f.name, f.dataType.simpleString(), (f.metadata or {}).get(_PHYSICAL, f.name)) for f in schema)
    return Silver(metadata.id(), tuple(fields))


def compared(columns: Columns, marks: Mapping[str, str] | None, silver: Silver) -> Change:
    """What makes the `columns` of a mirror those of `silver`.

    `marks` are those of silver when the mirror was last written. None where that is not known: then a column is the
    one of its name if none of silver's was ever renamed or dropped, and else refused.
    """
    before: dict[str, str] = {}
    refused = []
    own = {f.name.lower() for f in silver.fields if f.held == f.name}
    for name, kind in columns:
        same = [f for f in silver.fields if _same(f, name, marks)]
        if marks is None and not (same and same[0].kind == kind):
            refused.append(name)
        elif len(same) > 1 or any(f.name in before for f in same):
            refused.append(name)  # two marks are equal by chance
        elif not same and marks and name in marks and name in own:
            refused.append(name)  # column mapping was taken from the table, and its files were written anew
        elif same and not _widens(kind, same[0].kind):
            refused.append(name)
        elif same:
            before[same[0].name] = name
    after = (Followed(f.name.lower(), f.kind, before.get(f.name)) for f in silver.fields)
    return Change(columns, tuple(after), tuple(refused))


def _same(field: Field, name: str, marks: Mapping[str, str] | None) -> bool:
    if marks is None:
        return field.held == field.name and field.name.lower() == name
    return field.mark == marks[name] if name in marks else field.held.lower() == name


def _widens(old: str, new: str) -> bool:
    """Whether a column of the type `old` may become one of `new` with each value as it is (Iceberg's promotions)."""
    if old == new or (old, new) in (("int", "bigint"), ("float", "double")):
        return True
    was, now = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    return was is not None and now is not None and was[2] == now[2] and int(was[1]) <= int(now[1])


def alter(session: SparkSession, transaction: Any, change: Change) -> None:
    """Let an Iceberg transaction (of the JVM) alter its table's columns. The ids of those that stay do not change.

    In two steps, since Iceberg adds no column under a name that is only then given up.
    """
    kinds = dict(change.before)
    types = _types(session, change)
    update = transaction.updateSchema()
    for name in kinds.keys() - change.names.keys():
        update.deleteColumn(name)
    for column, kind in zip(change.after, types, strict=True):
        if column.before is None:
            continue
        if column.kind != kinds[column.before]:
            update.updateColumn(column.before, kind)
        if column.name != column.before:
            update.renameColumn(column.before, column.name)
    update.commit()
    update = transaction.updateSchema()
    order = [change.names[name] for name, _ in change.before if name in change.names]
    for column, kind in zip(change.after, types, strict=True):
        if column.before is None:
            update.addColumn(None, column.name, kind, None)
            order.append(column.name)
    for place, column in enumerate(change.after):
        if order[place] != column.name:
            order.remove(column.name)
            order.insert(place, column.name)
            if place:
                update.moveAfter(column.name, change.after[place - 1].name)
            else:
                update.moveFirst(column.name)
    update.commit()


def _types(session: SparkSession, change: Change) -> list[Any]:
    """Iceberg's types (of the JVM) of the columns after it."""
    ddl = ", ".join(f"c{i} {column.kind}" for i, column in enumerate(change.after))
    struct = java_class(session, "org.apache.spark.sql.types.StructType").fromDDL(ddl)
    schema = java_class(session, "org.apache.iceberg.spark.SparkSchemaUtil").convert(struct)
    return [schema.findType(f"c{i}") for i in range(len(change.after))]
