"""A row filter over the binlog's events: what becomes of an event whose row is outside, enters or leaves.

An insert or delete of a row outside is no event of the lake. An update that moves a row in is an insert (`c`, without
a `before`), one that moves a row out a delete (`d`, without an `after`), so that no image of a row outside is ever
written. The rows that are left keep their numbers and orders; those that are missing show as gaps.

Where an image does not hold the filter's columns, it is not known on which side the row is. Such an event is not
written, and its table has to be read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bronze.binlog.gtid import Flavour
from bronze.binlog.items import RowsEvent
from bronze.conform import Conformed
from bronze.decode.rows import DecodedRows
from bronze.rowfilter import Capture, misfit, spelled
from lakeward.errors import FailClosedError
from lakeward.rowfilter import Filter, columns
from lakeward.schema import Column, TableSchema

Flags = npt.NDArray[np.bool_]


def untold(
    tree: Filter, events: Sequence[RowsEvent], fit: Conformed, rows: DecodedRows, flavour: Flavour
) -> Flags | None:
    """Per row, whether its images lack a column of the filter; None where all are whole, as nearly always."""
    if not any(event.presence for event in events):
        return None
    wanted = {name.lower() for name in columns(tree)}
    places = {i for i, wire in enumerate(fit.wire) if wire.column.name.lower() in wanted}
    lacking = []
    for n, event in enumerate(events):
        presence = event.presence
        if presence is None:
            lacking.append(False)
            continue
        before = set(presence.before)
        # An after image of MySQL lacks what did not change; of MariaDB it may lack what did (`bronze.presence`).
        after = {*presence.after, *(before if flavour == "mysql" else ())} - set(rows.lost.get(n, ()))
        lacking.append((event.op != "c" and not places <= before) or (event.op != "d" and not places <= after))
    return np.repeat(lacking, rows.counts)


def require_told(tree: Filter, event: RowsEvent, fit: Conformed, schema: TableSchema) -> None:
    """Raises FailClosedError for an event of which it cannot be told on which side of the filter its rows are; for
    those before what bronze holds, since no table is read again for them."""
    why = misfit(tree, _columns(tree, fit, schema))
    if why is None and event.presence is None:
        return
    raise FailClosedError(
        f"{schema.name} is filtered (where), and it is not known which of its rows of then are to be left out: "
        + (why or "a session wrote them with another binlog_row_image"),
        hint="begin --from after that",
        at=f"{event.file}:{event.pos}",
    )


def within(
    tree: Filter,
    envelopes: pa.RecordBatch,
    fit: Conformed,
    rows: DecodedRows,
    schema: TableSchema,
    capture: Capture,
    doubtful: Flags | None,
) -> tuple[pa.RecordBatch, str | None]:
    """The events of `envelopes` (of `rows`, decoded by `fit`) that the lake may have; and why its table has to be read
    again, where it is not known of all. `doubtful` is `untold`'s."""
    found = _columns(tree, fit, schema)
    if why := misfit(tree, found):
        return envelopes.slice(0, 0), f"its filter cannot be applied since {why}"
    before, after = (capture.passes(tree, image, found) for image in (rows.before, rows.after))
    keep = before | after
    if doubtful is None and _all_of(before, rows.before) and _all_of(after, rows.after):
        return envelopes, None
    crosses = np.asarray(pc.equal(envelopes["op"], "u")) & (before != after)
    if doubtful is not None:
        # An event that enters has to tell all of its row: silver would look for the rest in a row that it never had.
        partial = np.asarray(envelopes["source"].field("absent").is_valid())
        doubtful = doubtful | (crosses & after & partial)
        keep &= ~doubtful
    enters, leaves = pa.array(crosses & after), pa.array(crosses & before)
    changed = {
        "op": pc.if_else(enters, "c", pc.if_else(leaves, "d", envelopes["op"])),
        "before": _unless(enters, envelopes["before"]),
        "after": _unless(leaves, envelopes["after"]),
        "source": _source(envelopes["source"], enters, leaves),
    }
    arrays = [changed.get(name, envelopes[name]) for name in envelopes.schema.names]
    kept = pa.RecordBatch.from_arrays(arrays, schema=envelopes.schema).filter(pa.array(keep))
    why = "a session with another binlog_row_image changed rows without the columns that filter it"
    return kept, why if doubtful is not None and doubtful.any() else None


def _columns(tree: Filter, fit: Conformed, schema: TableSchema) -> Mapping[str, Column]:
    registered = {c.name.lower(): c for c in schema.columns}
    wanted = {name.lower() for name in columns(tree)}
    wire = {w.column.name.lower(): w.column for w in fit.wire}
    return {name: spelled(wire[name], registered.get(name)) for name in wanted if name in wire}


def _all_of(inside: Flags, images: pa.StructArray) -> bool:
    return bool(inside.sum() == len(images) - images.null_count)


def _unless(gone: pa.Array, image: pa.StructArray) -> pa.StructArray:
    mask = pc.or_(gone, image.is_null())
    return pa.StructArray.from_arrays(image.flatten(), fields=list(image.type), mask=mask)


def _source(source: pa.StructArray, enters: pa.Array, leaves: pa.Array) -> pa.StructArray:
    """What an image that is not there lacks is not said."""
    arrays = []
    for field, array in zip(source.type, source.flatten(), strict=True):
        gone = {"absent": leaves, "before_absent": enters}.get(field.name)
        arrays.append(array if gone is None else pc.if_else(gone, pa.nulls(len(array), array.type), array))
    return pa.StructArray.from_arrays(arrays, fields=list(source.type))
