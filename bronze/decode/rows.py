"""Row events of the binlog to Arrow structs: the whole of decoding, without I/O.

One Numba pass finds every value (`walk`), then one vectorised function a column gives it its type (`finish`). Python
code runs per column and batch, never per row, but for the few types that Arrow and NumPy have no words for.

Nothing is guessed: lengths must add up to the event's end exactly, and a value outside its type stops the run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bronze.binlog.columns import WireColumn
from bronze.binlog.items import Presence
from bronze.decode.finish import Finished, Found, cell, finish
from bronze.decode.partial import filled, layouts
from bronze.decode.walk import AFTER, BEFORE, Cut, Images, Slots, walk
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
    partial = any(presences)
    layout = layouts(columns, presences) if partial else None
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
    if partial:
        slots, lost = filled(columns, slots, presences)
    before, after = (_side(columns, slots, side) for side in (BEFORE, AFTER))
    done = [*before[1], *after[1]]
    return DecodedRows(
        before=before[0],
        after=after[0],
        event=slots.event,
        counts=np.bincount(slots.event, minlength=images.ends.size).astype(np.int64),
        zero_dates=sum(f.zero_dates for f in done),
        replaced=sum(f.replaced for f in done),
        lost=lost,
    )


def _side(columns: Sequence[WireColumn], slots: Slots, side: int) -> tuple[pa.StructArray, list[Finished]]:
    """The before or after images, null where an event has none."""
    fields = [pa.field(c.column.name, c.column.arrow) for c in columns]
    missing = slots.op == (0 if side == BEFORE else 2)
    if missing.all():
        return pa.nulls(missing.size, pa.struct(fields)), []
    done = [
        finish(Found(c, slots.data, slots.value[side, n], slots.length[side, n], slots.absent[side, n]))
        for n, c in enumerate(columns)
    ]
    mask = pa.array(missing) if missing.any() else None
    return pa.StructArray.from_arrays([f.array for f in done], fields=fields, mask=mask), done
