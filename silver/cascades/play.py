"""Plays a batch's events over the rows that foreign keys may reach, and tells what they did: pure, in memory.

As InnoDB does: row by row, at once, and on to the children's children before the next row. A row is affected as it is
just before the parent's event, be that by its own events or by an earlier cascade. Values are text, None for NULL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakeward.foreign_keys import ForeignKey
from lakeward.position import Position
from silver.cascades.collate import Fold

Value = str | None
Values = tuple[Value, ...]
Place = tuple[int, int, int, int, int]  # epoch, file, pos, row, cascade
Overlay = Mapping[int, Value]  # by a column's number: what it is now, instead of what the image says


@dataclass(frozen=True)
class Edge:
    """A foreign key of `child`, with its columns as numbers among those that are kept of either table."""

    number: int
    child: str
    parent: str
    key: ForeignKey
    columns: tuple[int, ...]
    referenced: tuple[int, ...]
    folds: tuple[Fold | None, ...]
    since: Position  # what the parent did before is in the child's rows already

    def folded(self, values: Values, places: tuple[int, ...]) -> tuple[str, ...] | None:
        """The key that `values` have at `places`; None where a part of it is NULL, which refers to nothing."""
        found = []
        for place, fold in zip(places, self.folds, strict=True):
            value = values[place]
            if value is None:
                return None
            found.append(fold(value) if fold else value)
        return tuple(found)


@dataclass(frozen=True)
class Table:
    """What is kept of a table: numbers of its columns, and where among them its rows' names stand."""

    kept: tuple[int, ...]
    name: tuple[int, ...]  # places in `kept`
    counted: bool  # rows can be equal

    def named(self, values: Values) -> Values:
        """What names the row with these values."""
        return tuple(values[i] for i in self.name)


@dataclass(frozen=True, slots=True)
class Change:
    """An event of a row: gone, or there with these values. `image` numbers the row's image."""

    table: str
    place: Place
    half: int
    gone: bool
    values: Values
    image: int


@dataclass(frozen=True, slots=True)
class Emptied:
    """A TRUNCATE."""

    table: str
    place: Place


@dataclass(frozen=True, slots=True)
class Trigger:
    """A parent's row that went (`new` is None) or changed. `origin` numbers the event."""

    table: str
    place: Place
    old: Values
    new: Values | None
    origin: int


@dataclass(frozen=True, slots=True)
class Done:
    """What a cascade did to one row: its image with `before` laid over it became that with `after`, or went (None)."""

    table: str
    image: int
    before: Overlay
    after: Overlay | None
    origin: int
    number: int  # in their order


@dataclass(slots=True)
class _Row:
    values: Values
    image: int
    overlay: Overlay
    count: int = 1


@dataclass
class Play:
    """`fired` holds each edge's keys that something was looked for by: rows that bear them have to be known."""

    tables: Mapping[str, Table]
    edges: Sequence[Edge]
    done: list[Done] = field(default_factory=list)
    fired: dict[int, set[tuple[str, ...]]] = field(default_factory=lambda: defaultdict(set))

    def __post_init__(self) -> None:
        self._rows: dict[str, dict[Values, _Row]] = {name: {} for name in self.tables}
        self._by_key: dict[int, dict[tuple[str, ...], dict[Values, None]]] = {e.number: {} for e in self.edges}
        self._of_child: dict[str, list[Edge]] = defaultdict(list)
        self._of_parent: dict[str, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            self._of_child[edge.child].append(edge)
            self._of_parent[edge.parent].append(edge)

    def run(self, rows: Iterable[Change], events: Iterable[Change | Emptied | Trigger]) -> list[Done]:
        """`rows` are there to begin with. What the cascades of `events` did, in order."""
        for row in rows:
            self._put(row.table, row.values, row.image, {})
        for event in sorted(events, key=_order):
            if isinstance(event, Trigger):
                self._fire(event.table, event.old, event.new, event)
            elif isinstance(event, Emptied):
                for values in [r.values for r in self._rows[event.table].values() for _ in range(r.count)]:
                    self._take(event.table, values)
            elif event.gone:
                self._take(event.table, event.values)
            else:
                self._put(event.table, event.values, event.image, {})
        return self.done

    def _put(self, table: str, values: Values, image: int, overlay: Overlay) -> None:
        name, rows = self.tables[table].named(values), self._rows[table]
        known = rows.get(name)
        if known is not None and self.tables[table].counted:
            known.count += 1
            return
        if known is not None:
            self._take(table, known.values)
        rows[name] = _Row(values, image, overlay)
        for edge in self._of_child[table]:
            if (key := edge.folded(values, edge.columns)) is not None:
                self._by_key[edge.number].setdefault(key, {})[name] = None

    def _take(self, table: str, values: Values) -> None:
        name = self.tables[table].named(values)
        row = self._rows[table].get(name)
        if row is None:  # a delete of a row that was not looked up, or whose insert was before all this
            return
        row.count -= 1
        if row.count:
            return
        del self._rows[table][name]
        for edge in self._of_child[table]:
            if (key := edge.folded(row.values, edge.columns)) is not None:
                del self._by_key[edge.number][key][name]

    def _fire(self, table: str, old: Values, new: Values | None, cause: Trigger) -> None:
        at = Position(*cause.place[:3])
        for edge in self._of_parent[table]:
            if new is not None and all(old[i] == new[i] for i in edge.referenced):
                continue
            action = edge.key.on_delete if new is None else edge.key.on_update
            if not action or at < edge.since or not edge.key.holds(at):
                continue
            key = edge.folded(old, edge.referenced)
            if key is None:
                continue
            self.fired[edge.number].add(key)
            for name in list(self._by_key[edge.number].get(key, ())):
                row = self._rows[edge.child].get(name)
                if row is not None and edge.folded(row.values, edge.columns) == key:  # no other path was faster
                    self._affect(edge, row, None if action == "CASCADE" and new is None else action, old, new, cause)

    def _affect(
        self, edge: Edge, row: _Row, action: str | None, old: Values, new: Values | None, cause: Trigger
    ) -> None:
        """`action` None deletes the row."""
        kept = self.tables[edge.child].kept
        values, changed = list(row.values), dict[int, Value]()
        for mine, theirs in zip(edge.columns, edge.referenced, strict=True):
            if action == "SET NULL":
                changed[mine] = None
            elif new is not None and old[theirs] != new[theirs]:
                changed[mine] = new[theirs]
        for mine, value in changed.items():
            values[mine] = value
        before, after = row.values, None if action is None else tuple(values)
        if before == after:
            return
        overlay = {**row.overlay, **{kept[i]: v for i, v in changed.items()}}
        copies = row.count
        for _ in range(copies):
            self._take(edge.child, before)
        for _ in range(copies):
            told = None if after is None else overlay
            self.done.append(Done(edge.child, row.image, row.overlay, told, cause.origin, len(self.done) + 1))
            if after is not None:
                self._put(edge.child, after, row.image, overlay)
        self._fire(edge.child, before, after, cause)


def _order(event: Change | Emptied | Trigger) -> tuple[Place, int]:
    return event.place, 2 if isinstance(event, Trigger) else event.half if isinstance(event, Change) else 0
