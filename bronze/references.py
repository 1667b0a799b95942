"""What bronze remembers of foreign keys, for silver to carry out the cascades that the binlog does not have.

They are read from the catalog in each run. One that came or went did so at the last statement of the stream that
changed its table, or, where a run that died had read that statement, at this run's end: between the two `verify` finds
what its cascades did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lakeward.foreign_keys import ForeignKey, followed
from lakeward.position import Position
from lakeward.state import BronzeState, BronzeTable


def known(table: BronzeTable) -> list[ForeignKey] | None:
    """The table's foreign keys with those that are gone; None where they have not been read yet."""
    return None if table.foreign_keys is None else [ForeignKey.from_json(doc) for doc in table.foreign_keys]


def register(
    state: BronzeState, found: Mapping[str, Sequence[ForeignKey]], changed: Mapping[str, Position] | None
) -> None:
    """Take up what the catalog has. `changed`: where the stream last saw a statement change a table; None before it has
    been read, and then only tables that nobody has looked at yet are taken up."""
    for name, table in state.tables.items():
        if table.status == "stopped" or (changed is None and table.foreign_keys is not None):
            continue
        at = (changed or {}).get(name) or (state.checkpoint.at if state.checkpoint else Position(0, 0, 0))
        table.foreign_keys = [key.to_json() for key in followed(known(table), found.get(name, []), at)]


def read_children_again(state: BronzeState) -> None:
    """Where a parent is read again, its events up to the new snapshot are not in bronze, and so not what they did to
    its children: these are read again too, and theirs."""
    waiting = [n for n, t in state.tables.items() if t.status == "waiting for snapshot" and t.generation]
    while waiting:
        parent = waiting.pop()
        for name, table in state.tables.items():
            parents = {str(key.parent) for key in known(table) or () if key.until is None}
            if table.status == "streaming" and parent in parents:
                table.status = "waiting for snapshot"
                table.reason = f"{parent} is read again, whose foreign keys change it unlogged"
                waiting.append(name)
