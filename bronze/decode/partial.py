"""Images that lack columns, or hold a change of a JSON value in the value's place, made whole as far as that goes.

A column that an update's after image lacks was not changed, so it is taken from the before image where that has it. A
change of a JSON value is applied to the value in the before image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bronze.binlog.columns import WireColumn
from bronze.binlog.items import Presence
from bronze.decode.json_diff import patched
from bronze.decode.walk import AFTER, BEFORE, Layout, Slots
from lakeward.errors import FailClosedError

_JSON = 245
_UPDATE = 1


def layouts(columns: Sequence[WireColumn], presences: Sequence[Presence | None]) -> list[Layout]:
    """How the walk reads the images of each event."""
    every = tuple(range(len(columns)))
    documents = sum(c.type_code == _JSON for c in columns)
    known: dict[Presence | None, Layout] = {None: Layout(every, every)}
    for presence in presences:
        if presence is not None and presence not in known:
            known[presence] = Layout(presence.before, presence.after, documents if presence.diffs else -1)
    return [known[presence] for presence in presences]


def filled(
    columns: Sequence[WireColumn], slots: Slots, presences: Sequence[Presence | None]
) -> tuple[Slots, dict[int, tuple[int, ...]]]:
    """The slots with after images made whole from before images.

    Also, by event, the columns whose new value is lost: a change is there of a JSON value that is not. Raises
    FailClosedError for a change that cannot be one of the value it is said to be of.
    """
    members: dict[Presence, list[int]] = {}
    for n, presence in enumerate(presences):
        if presence is not None:
            members.setdefault(presence, []).append(n)
    for presence, events in members.items():
        rows = np.flatnonzero(np.isin(slots.event, events) & (slots.op == _UPDATE))
        for c in sorted(set(presence.before) - set(presence.after)):
            for part in (slots.value, slots.length, slots.absent):
                part[AFTER, c, rows] = part[BEFORE, c, rows]
    return _with_documents(columns, slots, presences)


def _with_documents(
    columns: Sequence[WireColumn], slots: Slots, presences: Sequence[Presence | None]
) -> tuple[Slots, dict[int, tuple[int, ...]]]:
    documents = [n for n, c in enumerate(columns) if c.type_code == _JSON]
    marked = np.flatnonzero(slots.partial)
    lost: dict[int, set[int]] = {}
    made: list[bytes] = []
    end = slots.data.size
    for bit, c in enumerate(documents):
        bits = slots.data[slots.partial[marked] + (bit >> 3)] >> (bit & 7) & 1
        for row in marked[(bits == 1) & (slots.absent[AFTER, c, marked] == 0)].tolist():
            presence = presences[int(slots.event[row])]
            assert presence is not None  # only events with one have marks
            if c not in presence.after:
                continue
            if c not in presence.before:
                lost.setdefault(int(slots.event[row]), set()).add(c)
                slots.absent[AFTER, c, row] = 1
                continue
            made.append(_document(columns[c], slots, c, row))
            slots.value[AFTER, c, row], slots.length[AFTER, c, row] = end, len(made[-1])
            end += len(made[-1])
    if made:
        slots = replace(slots, data=np.concatenate([slots.data, np.frombuffer(b"".join(made), np.uint8)]))
    return slots, {event: tuple(sorted(which)) for event, which in lost.items()}


def _document(column: WireColumn, slots: Slots, c: int, row: int) -> bytes:
    def raw(side: int) -> bytes:
        start = int(slots.value[side, c, row])
        return slots.data[start : start + int(slots.length[side, c, row])].tobytes()

    try:
        if slots.absent[BEFORE, c, row]:
            raise ValueError("a change of a JSON value that is NULL")
        return patched(raw(BEFORE), raw(AFTER))
    except ValueError as error:
        raise FailClosedError(
            f"column {column.column.name!r} holds a change that cannot be applied to its value: {error}",
            hint="the event is damaged: `lakeward resnapshot` the table",
            event=int(slots.event[row]),
            column=column.column.name,
        ) from error
