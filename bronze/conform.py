"""Fits a table map of the binlog to the table as it is registered: what each wire column becomes, if it can.

The table map is what decodes; the registered schema (taken when the table's snapshot began) only adds what a table
map cannot say: MariaDB's UUID and INET types look like BINARY there, TINYINT(1) like TINYINT. Where the two are of
different kinds, the table has been altered in a way that only a new snapshot can follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from bronze.binlog.columns import WireColumn
from bronze.binlog.tablemap import TableMap
from lakeward.errors import FailClosedError
from lakeward.names import TableName
from lakeward.schema import Column, TableSchema

_ONLY_REGISTERED = {"uuid": 16, "inet4": 4, "inet6": 16}


@dataclass(frozen=True)
class Conformed:
    """`wire` decodes whole images; `kept` are the positions in it of the columns that land. `added` are columns that
    the registered schema does not have yet; `mismatch` names a column that cannot take its registered type."""

    wire: tuple[WireColumn, ...]
    kept: tuple[int, ...]
    added: tuple[Column, ...]
    mismatch: str | None = None

    def image(self, rows: pa.StructArray) -> pa.StructArray:
        """Decoded images without excluded columns, under the registered names."""
        fields = [pa.field(self.wire[i].column.name, rows.type[i].type) for i in self.kept]
        mask = rows.is_null() if rows.null_count else None
        return pa.StructArray.from_arrays([rows.field(i) for i in self.kept], fields=fields, mask=mask)


def conform(table_map: TableMap, schema: TableSchema, excluded: Sequence[str] = ()) -> Conformed:
    """How events under `table_map` land in the table registered as `schema`."""
    registered = {c.name.lower(): c for c in schema.columns}
    left_out = {name.lower() for name in excluded}
    wire: list[WireColumn] = []
    kept: list[int] = []
    added: list[Column] = []
    mismatch = None
    for i, column in enumerate(table_map.columns):
        name = column.column.name.lower()
        known = registered.get(name)
        if name in left_out:
            wire.append(column)
            continue
        kept.append(i)
        if known is None:
            added.append(column.column)
            wire.append(column)
            continue
        target = _target(column.column, known)
        if target is None:
            mismatch = mismatch or column.column.name
            target = column.column
        wire.append(replace(column, column=target))
    return Conformed(tuple(wire), tuple(kept), tuple(added), mismatch)


def require_shape(fit: Conformed, name: TableName, at: str) -> None:
    """Raises FailClosedError for events of before what bronze holds, at `at`, that do not have its columns."""
    if fit.mismatch is None and not fit.added:
        return
    column = fit.mismatch or fit.added[0].name
    raise FailClosedError(
        f"{name} had another shape then: its column {column} is not what bronze has",
        hint="begin --from after the table was altered",
        table=name,
        at=at,
    )


def _target(seen: Column, known: Column) -> Column | None:
    if known.masked:
        return replace(seen, name=known.name)
    if known.kind in _ONLY_REGISTERED and seen.kind in ("binary", "char", "varbinary", "varchar"):
        return replace(seen, name=known.name, kind=known.kind)
    if known.boolean and seen.kind == "tinyint":
        return replace(seen, name=known.name, boolean=True)
    if seen.arrow != known.arrow:
        return None
    return replace(seen, name=known.name)
