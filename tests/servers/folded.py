"""What bronze's events come to: the tables they leave behind, by the rules of `silver/events.py` in a few lines.

Rows are tuples of `golden.loader.shown`, in the order of the columns' names, and counted: two rows that look the same
here could not be told apart by any reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from golden.loader import shown

from lakeward.position import Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeTable

Event = Mapping[str, Any]
Row = tuple[str, ...]


def folded(events: Sequence[Event], table: BronzeTable, end: Position) -> Counter[Row]:
    """The rows of `table` at `end`, from its events in the order of `Sparkless.events`.

    Those of its last snapshot count, and those of the stream from that snapshot's place on.
    """
    assert table.start is not None
    rows = _Rows(table.schema)
    for event in (_renamed(e, table.renamed) for e in events):
        source = event["source"]
        if source["snapshot"]:
            counts = source["generation"] == table.generation
        else:
            counts = table.start <= Position(source["epoch"], source["file"], source["pos"]) < end
        if counts:
            rows.take(event)
    return rows.content()


def _renamed(event: Event, renamed: Sequence[Sequence[str]]) -> Event:
    """The event under the names that its table's columns have now, as bronze's own table shows it."""
    for old, new in renamed:
        images = {i: {new if n == old else n: v for n, v in event[i].items()} for i in ("before", "after") if event[i]}
        absent = {k: [new if n == old else n for n in event["source"][k] or []] for k in ("absent", "before_absent")}
        event = {**event, **images, "source": {**event["source"], **absent}}
    return event


def row_of(schema: TableSchema, values: Mapping[str, Any]) -> Row:
    """A row as it is compared. A column that was added since it was written is NULL."""
    return tuple(shown(values.get(name)) for name in names_of(schema))


def names_of(schema: TableSchema) -> list[str]:
    """What the values of a row belong to."""
    return sorted(c.name for c in schema.columns)


class _Rows:
    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.keyed: dict[Row, dict[str, Any]] = {}
        self.counted: Counter[Row] = Counter()
        self.lacking: dict[Row, tuple[Event, list[str]]] = {}  # rows of which no event told these columns

    def take(self, event: Event) -> None:
        if event["op"] == "t":
            self.keyed.clear()
            self.counted.clear()
            self.lacking.clear()
            return
        absent = event["source"]["absent"] or []
        known = self._remove(event["before"]) if event["before"] else None
        if event["after"] is None:
            return
        after = dict(event["after"])
        assert all(after[name] is None for name in absent), f"a column that is absent has a value: {event}"
        key = self._key(after)
        if key is None:
            assert not absent, f"a row without a key lacks columns: {event}"
            self.counted[row_of(self.schema, after)] += 1
            return
        self.lacking.pop(key, None)
        if absent and (known is None or self._key(known) != key):  # silver fills in what the row of this key was
            self.lacking[key] = (event, absent)
        self.keyed[key] = {**after, **{name: (known or {}).get(name) for name in absent}}

    def content(self) -> Counter[Row]:
        assert not self.lacking, f"{self.schema.name}: no event tells what these rows were: {self.lacking}"
        negative = {row: n for row, n in self.counted.items() if n < 0}
        assert not negative, f"{self.schema.name}: more of these rows went than came: {negative}"
        return +self.counted + Counter(row_of(self.schema, row) for row in self.keyed.values())

    def _remove(self, before: Mapping[str, Any]) -> dict[str, Any] | None:
        key = self._key(before)
        if key is None:
            self.counted[row_of(self.schema, before)] -= 1
            return None
        self.lacking.pop(key, None)
        return self.keyed.pop(key, None)

    def _key(self, row: Mapping[str, Any]) -> Row | None:
        """None for a row that nothing names: its table has no key, or the key holds a zero date."""
        values = [row[name] for name in self.schema.keys]
        return None if not values or None in values else tuple(map(shown, values))


def assert_each_once_and_in_order(tables: Iterable[Sequence[Event]]) -> None:
    """No place is in bronze twice, and each transaction's rows are numbered from 1 on, over all tables and in each."""
    places: Counter[tuple[Any, ...]] = Counter()
    orders: dict[str, list[tuple[int, tuple[Any, ...]]]] = {}
    for number, events in enumerate(tables):
        numbers: dict[str, list[int]] = {}
        for event in events:
            source, transaction = event["source"], event["transaction"]
            place = tuple(source[k] for k in ("epoch", "file", "pos", "row"))
            if source["snapshot"]:
                places[("snapshot", number, source["generation"], source["row"])] += 1
                continue
            places[place] += 1
            orders.setdefault(transaction["id"], []).append((transaction["total_order"], place))
            numbers.setdefault(transaction["id"], []).append(transaction["data_collection_order"])
        for name, found in numbers.items():
            assert found == list(range(1, len(found) + 1)), f"rows of transaction {name} in a table: {found}"
    twice = [place for place, n in places.items() if n > 1]
    assert not twice, f"in bronze twice: {twice}"
    for name, both in orders.items():
        both.sort()
        assert [n for n, _ in both] == list(range(1, len(both) + 1)), f"rows of transaction {name}: {both}"
        assert [place for _, place in both] == sorted(p for _, p in both), f"transaction {name} is out of order: {both}"
