"""What row images do not say: the columns to name in an event's `absent` and `before_absent`, and tables to read again.

A session may write with another `binlog_row_image` than the server's. A column that an after image lacks, and the
before image too, is NULL in the envelope and named in `source.absent`; silver keeps what it has there. That is exact
for an update of MySQL, whose after image has every column that it set. It is not where the value is in no event:

- an insert lacks the columns that took their default;
- MariaDB logs a REPLACE as an update whose after image lacks the columns that went back to their default, and leaves
  virtual columns out of after images though they changed, with FULL_NODUP too (both seen on 11.4); so there a column
  that is not in the after image may have changed or not, also where the before image has it;
- a change of a JSON value tells nothing without the value;
- a before image without the key does not say which row it was;
- an update that moves a row to another key leaves its other values under the old one.

Such a table is read again in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bronze.binlog.gtid import Flavour
from bronze.binlog.items import RowsEvent
from bronze.conform import Conformed
from bronze.decode.rows import DecodedRows
from lakeward.schema import TableSchema

Names = tuple[str, ...]


class Unknown(NamedTuple):
    """Per event the columns not known in `after` and in `before`; and why the table must be read again, if it must."""

    absent: Sequence[Names]
    before_absent: Sequence[Names]
    why: str | None = None


def unknown(
    events: Sequence[RowsEvent],
    fit: Conformed,
    rows: DecodedRows,
    schema: TableSchema,
    flavour: Flavour,
) -> Unknown | None:
    """What `events`, decoded by `fit`, do not tell; None where they are whole, as nearly always.

    `rows` are their images; its `lost` names columns that a change is known of and not the value.
    """
    if not any(event.presence for event in events):
        return None
    absent: list[Names] = []
    before_absent: list[Names] = []
    why = None
    for n, event in enumerate(events):
        after, before = _missing(event, fit, rows.lost.get(n, ()))
        absent.append(after)
        before_absent.append(before)
        if why is None and (reason := _reason(event, fit, after, before, n in rows.lost, schema, flavour)):
            why = f"{reason} at {event.file}:{event.pos}"
    if why is None and _moved(events, absent, fit, rows, schema):
        why = "a session with another binlog_row_image moved a row to another key without all its columns"
    return Unknown(absent, before_absent, why)


def _moved(
    events: Sequence[RowsEvent], absent: Sequence[Names], fit: Conformed, rows: DecodedRows, schema: TableSchema
) -> bool:
    """Whether an update that lacks columns changed the key: then the row's other values stand under its old key."""
    partial = np.repeat([e.op == "u" and bool(a) for e, a in zip(events, absent, strict=True)], rows.counts)
    chosen = np.flatnonzero(partial)
    before, after = (fit.image(image).take(chosen) for image in (rows.before, rows.after))
    names = [f.name for f in after.type]
    keys = [names.index(k) for k in schema.keys if k in names]
    return any(before.field(i).to_pylist() != after.field(i).to_pylist() for i in keys)


def _missing(event: RowsEvent, fit: Conformed, lost: tuple[int, ...]) -> tuple[Names, Names]:
    """The columns missing in `after` and in `before`, of those that land, under their registered names."""
    presence = event.presence
    if presence is None:
        return (), ()
    known = {*presence.before, *presence.after} - set(lost)
    after = () if event.op == "d" else tuple(fit.wire[i].column.name for i in fit.kept if i not in known)
    if event.op == "c":
        return after, ()
    there = set(presence.before)
    return after, tuple(fit.wire[i].column.name for i in fit.kept if i not in there)


def _reason(
    event: RowsEvent,
    fit: Conformed,
    absent: Names,
    before_absent: Names,
    lost: bool,
    schema: TableSchema,
    flavour: Flavour,
) -> str | None:
    if event.presence is None:
        return None
    names = ", ".join(absent or before_absent)
    if absent and event.op == "c":
        return f"a session with another binlog_row_image inserted rows without {names}"
    if lost:
        return f"a session with another binlog_row_image logged a change of a JSON value without the value ({names})"
    if flavour == "mariadb" and event.op == "u" and not set(fit.kept) <= set(event.presence.after):
        return "a session with another binlog_row_image changed rows without all their columns"
    if before_absent and (not schema.keys or set(schema.keys) & set(before_absent)):
        return f"a session with another binlog_row_image changed rows without {names}, so it is not known which"
    return None
