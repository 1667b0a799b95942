"""Row events of the binlog to Arrow structs: the whole of decoding, without I/O.

One Numba pass finds every value and gives the usual types theirs (`fused`); a function a column does the rest
(`finish`). Images that lack columns, or in which anything is unusual, are walked first (`walk`) and finished column by
column. Python code runs per column and batch, never per row, but for the few types that Arrow and NumPy have no words
for.

Nothing is guessed: lengths must add up to the event's end exactly, and a value outside its type stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bronze.binlog.columns import WireColumn
from bronze.binlog.items import Presence
from bronze.decode.finish import Finished, Found, cell, finish
from bronze.decode.fused import fuse
from bronze.decode.partial import filled, layouts
from bronze.decode.walk import AFTER, BEFORE, Cut, Images, walk
from lakeward.errors import FailClosedError


@dataclass(frozen=True)
class DecodedRows:
    """The rows of a run of events, in order."""

    before: pa.StructArray  # null where the event's op is c
    after: pa.StructArray  # null where it is d
    event: npt.NDArray[np.int32]  # per row: its event's index
    counts: npt.NDArray[np.int64]  # per event: its rows
    zero_dates: int  # values that became NULL for want of a real date
    replaced: int  # text values with bytes that could not be read, see `bronze.decode.charsets`
    lost: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by event: columns whose new value it does not tell


def decode_rows(
    columns: Sequence[WireColumn], events: Sequence[tuple[str, Any]] | Images, presences: Sequence[Presence | None] = ()
) -> DecodedRows:
    """Decode `events`: Images, or pairs of op ("c", "u" or "d") and the bytes from the first row image on.

    Every column is present in every image, unless `presences` (one per event) says otherwise: what an after image lacks
    is then taken from the before image, and is NULL where that lacks it too. Update events alternate before and
    after. The structs have one field a column, `column.name: column.arrow`, in the order of `columns`.

    Raises FailClosedError with facts `event` (index) and `column` where lengths do not add up or a value does not
    fit its type. Source: MySQL, `libs/mysql/binlog/event/rows_event.h`, class Rows_event.
    """
    images = events if isinstance(events, Images) else Images.of(events)
    fused = None if any(presences) else fuse(columns, images)
    if fused is not None:
        return _rows(columns, images, fused.op, fused.event, fused.finished, {})
    layout = layouts(columns, presences) if any(presences) else None
    slots = walk([cell(c) for c in columns], images, layout)
    if isinstance(slots, Cut):
        name = columns[slots.column].column.name if slots.column < len(columns) else "(the bitmap of NULLs)"
        raise FailClosedError(
            f"a row event ends within {name!r}, or its lengths do not add up",
            hint="the event is damaged, or its table map is not the one it was written with",
            event=slots.event,
            column=name,
        )
    lost: dict[int, tuple[int, ...]] = {}
    if layout:
        slots, lost = filled(columns, slots, presences)
    found = slots

    def finished(side: int, n: int) -> Finished:
        parts = (part[side, n] for part in (found.value, found.length, found.absent))
        return finish(Found(columns[n], found.data, *parts))

    return _rows(columns, images, slots.op, slots.event, finished, lost)


def _rows(
    columns: Sequence[WireColumn],
    images: Images,
    op: npt.NDArray[np.uint8],
    event: npt.NDArray[np.int32],
    finished: Callable[[int, int], Finished],
    lost: dict[int, tuple[int, ...]],
) -> DecodedRows:
    """`finished` gives the values of a side's column."""
    before, after = (_side(columns, op, side, finished) for side in (BEFORE, AFTER))
    done = [*before[1], *after[1]]
    return DecodedRows(
        before=before[0],
        after=after[0],
        event=event,
        counts=np.bincount(event, minlength=images.ends.size).astype(np.int64),
        zero_dates=sum(f.zero_dates for f in done),
        replaced=sum(f.replaced for f in done),
        lost=lost,
    )


def _side(
    columns: Sequence[WireColumn], op: npt.NDArray[np.uint8], side: int, finished: Callable[[int, int], Finished]
) -> tuple[pa.StructArray, list[Finished]]:
    """The before or after images, null where an event has none."""
    fields = [pa.field(c.column.name, c.column.arrow) for c in columns]
    missing = op == (0 if side == BEFORE else 2)
    if missing.all():
        return pa.nulls(missing.size, pa.struct(fields)), []
    done = [finished(side, n) for n in range(len(columns))]
    mask = pa.array(missing) if missing.any() else None
    return pa.StructArray.from_arrays([f.array for f in done], fields=fields, mask=mask), done
