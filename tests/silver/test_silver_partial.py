"""Events that lack columns end in the same silver, history and change feed as the whole events do."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from lakeward.config import TableConfig
from lakeward.errors import TerminalError

COLUMNS = {"id": "int", "a": "varchar(20)", "b": "varchar(20)", "c": "bigint"}


def _changed(rng: random.Random, row: dict[str, Any], step: int) -> dict[str, Any]:
    names = rng.sample(["a", "b", "c"], rng.randint(1, 3))
    values = {"a": f"a{step}", "b": rng.choice([None, f"b{step}"]), "c": rng.choice([None, step])}
    return row | {n: values[n] for n in names}


def test_partial_images_give_what_whole_ones_give(ledger: Any, make_schema: Any) -> None:
    rng = random.Random(7)
    whole, partial = (make_schema(name, COLUMNS, ("id",)) for name in ("whole", "partial"))
    rows = {i: {"id": i, "a": f"a-{i}", "b": None, "c": i} for i in range(6)}
    for schema in (whole, partial):
        ledger.tables[str(schema.name)] = TableConfig(history="scd2")
        ledger.follow(schema, list(rows.values()))
    for step in range(60):
        if step in (15, 30, 45):
            ledger.silver()
        one = rng.choice(list(rows))
        minimal = rng.random() < 0.7
        action = rng.random()
        after: dict[str, Any] | None = None
        with ledger.transaction():
            if action < 0.15:
                one = 100 + step
                after = {"id": one, "a": "new", "b": "new", "c": None}
                ledger.insert(whole, after)
                ledger.insert(partial, after)
            elif action < 0.25 and len(rows) > 2:
                ledger.delete(whole, rows[one])
                (ledger.minimal(partial, rows[one], None) if minimal else ledger.delete(partial, rows[one]))
            else:
                after = _changed(rng, rows[one], step)
                ledger.update(whole, rows[one], after)
                (ledger.minimal if minimal else ledger.update)(partial, rows[one], after)
        rows.pop(one, None)
        if after is not None:
            rows[one] = after
    ledger.silver()
    assert set(ledger.content(partial)) == {tuple(r.values()) for r in rows.values()} == set(ledger.content(whole))
    own = ("__valid_from_position", "__valid_to_position")  # the two tables' events stand at places of their own
    histories = [sorted(map(str, ledger.read(s, "__history").drop(*own).collect())) for s in (whole, partial)]
    assert len(histories[0]) > 20
    assert histories[0] == histories[1]
    ledger.assert_told_truly(partial)


def test_a_row_whose_values_are_nowhere_stops_the_table(ledger: Any, make_schema: Any) -> None:
    schema = ledger.follow(make_schema("people", COLUMNS, ("id",)), [])
    ledger.silver()
    row = {"id": 1, "a": "x", "b": None, "c": None}
    ledger.minimal(schema, row, row | {"a": "y"})
    with pytest.raises(TerminalError, match="2 row images lack columns"):
        ledger.silver()


def test_a_row_that_goes_in_the_same_batch_needs_no_values(ledger: Any, make_schema: Any) -> None:
    schema = ledger.follow(make_schema("people", COLUMNS, ("id",)), [])
    row = {"id": 1, "a": "x", "b": None, "c": None}  # changed and deleted before the snapshot came to it
    ledger.minimal(schema, row, row | {"a": "y"})
    ledger.minimal(schema, row | {"a": "y"}, None)
    ledger.silver()
    assert not ledger.content(schema)


def test_values_are_filled_in_under_their_own_names_in_a_reordered_table(ledger: Any, make_schema: Any) -> None:
    row = {"id": 1, "a": "of a", "b": "of b", "c": 1}
    schema = ledger.follow(make_schema("moved", COLUMNS, ("id",)), [row])
    ledger.silver()
    first, a, b, last = schema.columns
    moved = ledger.alter(replace(schema, columns=(first, b, a, last)))  # ALTER TABLE … MODIFY b … AFTER id
    ledger.minimal(moved, row, row | {"c": 2})
    ledger.silver()
    assert set(ledger.content(schema)) == {(1, "of a", "of b", 2)}
