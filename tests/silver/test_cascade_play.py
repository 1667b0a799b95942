"""What cascades do, played over rows that are written down here; no engine."""

from __future__ import annotations

import pytest

from lakeward.foreign_keys import Action, ForeignKey, followed
from lakeward.names import TableName
from lakeward.position import Position
from lakeward.schema import column_from_catalog
from silver.cascades.collate import fold
from silver.cascades.play import Change, Done, Edge, Emptied, Play, Table, Trigger

BEGIN = Position(1, 1, 0)


def edge(child: str, parent: str, on_delete: Action, on_update: Action = "", column: int = 1, number: int = 0) -> Edge:
    key = ForeignKey("fk", ("p",), TableName("s", parent), ("id",), on_delete, on_update)
    return Edge(number, child, parent, key, (column,), (0,), (None,), BEGIN)


def play(edges: list[Edge], rows: list[Change], events: list[Change | Emptied | Trigger]) -> list[Done]:
    names = {n for e in edges for n in (e.child, e.parent)}
    return Play({n: Table((0, 1), (0,), counted=n.startswith("heap")) for n in names}, edges).run(rows, events)


def row(
    table: str, name: str, refers: str | None, image: int, pos: int = 0, half: int = 1, gone: bool = False
) -> Change:
    return Change(table, (1, 1, pos, 0, 0), half, gone, (name, refers), image)


def trigger(table: str, pos: int, old: tuple[str, str | None], new: tuple[str, str | None] | None = None) -> Trigger:
    return Trigger(table, (1, 1, pos, 0, 0), old, new, pos)


def told(done: list[Done]) -> list[tuple[str, int, object, int]]:
    return [(d.table, d.image, None if d.after is None else dict(d.after), d.origin) for d in done]


def test_a_delete_goes_down_every_level_before_the_next_event() -> None:
    edges = [edge("b", "a", "CASCADE"), edge("c", "b", "CASCADE", number=1), edge("d", "c", "SET NULL", number=2)]
    rows = [row("b", "1", "x", 1), row("c", "7", "1", 2), row("c", "8", "2", 3), row("d", "9", "7", 4)]
    done = play(edges, rows, [trigger("a", 10, ("x", None))])
    assert told(done) == [("b", 1, None, 10), ("c", 2, None, 10), ("d", 4, {1: None}, 10)]
    assert [d.number for d in done] == [1, 2, 3]


def test_a_table_that_refers_to_itself_loses_the_whole_tree() -> None:
    rows = [row("t", "1", None, 1), row("t", "2", "1", 2), row("t", "3", "2", 3), row("t", "4", "4", 4)]
    done = play([edge("t", "t", "CASCADE")], rows, [row("t", "1", None, 9, 10, 0, True), trigger("t", 10, ("1", None))])
    assert told(done) == [("t", 2, None, 10), ("t", 3, None, 10)]


def test_a_row_is_affected_as_it_is_just_before_the_parents_event() -> None:
    events: list[Change | Emptied | Trigger] = [
        row("b", "early", "x", 1, 5),  # inserted before: goes
        row("b", "late", "x", 2, 15),  # after: stays
        row("b", "moved", "x", 3, 6, 0, True),
        row("b", "moved", "y", 4, 6),  # refers to another by then: stays
        row("b", "came", "y", 5, 7, 0, True),
        row("b", "came", "x", 6, 7),  # refers to it by then: goes
        trigger("a", 10, ("x", None)),
    ]
    rows = [row("b", "moved", "x", 7), row("b", "came", "y", 8)]
    assert told(play([edge("b", "a", "CASCADE")], rows, events)) == [("b", 1, None, 10), ("b", 6, None, 10)]


def test_keys_change_again_and_again_and_each_change_starts_from_the_last() -> None:
    events: list[Change | Emptied | Trigger] = [
        trigger("a", 10, ("x", None), ("y", None)),
        trigger("a", 20, ("y", None), ("z", None)),
    ]
    done = play(
        [edge("b", "a", "CASCADE", "CASCADE")], [row("b", "1", "x", 1)], [*events, trigger("a", 30, ("z", None))]
    )
    assert told(done) == [("b", 1, {1: "y"}, 10), ("b", 1, {1: "z"}, 20), ("b", 1, None, 30)]
    assert [dict(d.before) for d in done] == [{}, {1: "y"}, {1: "z"}]


def test_a_row_whose_key_is_the_reference_gets_another_name() -> None:
    edges = [edge("b", "a", "CASCADE", "CASCADE", column=0), edge("c", "b", "CASCADE", "SET NULL", number=1)]
    done = play(edges, [row("b", "x", None, 1), row("c", "1", "x", 2)], [trigger("a", 10, ("x", None), ("y", None))])
    assert told(done) == [("b", 1, {0: "y"}, 10), ("c", 2, {1: None}, 10)]


def test_a_row_of_two_parents_keeps_what_the_first_did_to_it() -> None:
    edges = [edge("b", "a", "SET NULL"), edge("b", "z", "CASCADE", "CASCADE", column=2, number=1)]
    tables = {n: Table((0, 1, 2), (0,), counted=False) for n in ("a", "b", "z")}
    rows = [Change("b", (1, 1, 0, 0, 0), 1, False, ("1", "x", "p"), 1)]
    done = Play(tables, edges).run(rows, [trigger("a", 10, ("x", None)), trigger("z", 20, ("p", None), ("q", None))])
    assert told(done) == [("b", 1, {1: None}, 10), ("b", 1, {1: None, 2: "q"}, 20)]


def test_equal_rows_are_affected_one_by_one() -> None:
    rows = [row("heap", "1", "x", 1), row("heap", "1", "x", 2), row("heap", "1", "x", 3)]
    events: list[Change | Emptied | Trigger] = [row("heap", "1", "x", 4, 5, 0, True), trigger("a", 10, ("x", None))]
    assert len(play([edge("heap", "a", "CASCADE")], rows, events)) == 2


def test_nothing_happens_without_a_rule_before_the_key_was_there_or_after_a_truncate() -> None:
    rows = [row("b", "1", "x", 1), row("b", "2", None, 2)]
    gone = trigger("a", 10, ("x", None))
    assert play([edge("b", "a", "", "CASCADE")], rows, [gone]) == []
    assert play([edge("b", "a", "CASCADE")], rows, [Emptied("b", (1, 1, 5, 0, 0)), gone]) == []
    assert play([edge("b", "a", "CASCADE", "SET NULL")], rows, [trigger("a", 10, ("x", "1"), ("x", "2"))]) == []
    itself: list[Change | Emptied | Trigger] = [row("t", "4", "4", 3, 10, 0, True), trigger("t", 10, ("4", "4"))]
    assert play([edge("t", "t", "CASCADE")], [row("t", "4", "4", 1)], itself) == []  # it went by its own event
    plain = edge("b", "a", "CASCADE")
    (late,) = followed([], [plain.key], Position(1, 1, 11))
    (dropped,) = followed([plain.key], [], Position(1, 1, 9))
    for key in (late, dropped):
        assert ForeignKey.from_json(key.to_json()) == key
        changed = Edge(0, "b", "a", key, (1,), (0,), (None,), BEGIN)
        assert play([changed], rows, [gone]) == []
    assert followed(None, [plain.key], BEGIN) == followed([plain.key], [plain.key], BEGIN) == [plain.key]


@pytest.mark.parametrize(
    ("collation", "one", "other", "equal"),
    [
        ("utf8mb4_0900_ai_ci", "Élan", "elan", True),
        ("utf8mb4_0900_ai_ci", "a", "a ", False),
        ("utf8mb4_0900_as_ci", "É", "é", True),
        ("utf8mb4_0900_as_ci", "É", "e", False),
        ("utf8mb4_0900_as_cs", "a", "A", False),
        ("utf8mb4_general_ci", "Ärger  ", "arger", True),
        ("utf8mb4_uca1400_ai_ci", "é ", "E", True),
        ("utf8mb4_uca1400_nopad_ai_ci", "a ", "a", False),
        ("latin1_swedish_ci", "Å", "a", False),
        ("latin1_swedish_ci", "É", "e", True),
        ("utf8mb4_swedish_ci", "Ö", "o", False),
        ("utf8mb4_bin", "a ", "a", True),
        ("utf8mb4_bin", "a", "A", False),
    ],
)
def test_strings_are_equal_as_their_collation_says(collation: str, one: str, other: str, equal: bool) -> None:
    folded = fold(column_from_catalog("c", "varchar(20)", nullable=True, charset="utf8mb4", collation=collation))
    assert ((folded(one) == folded(other)) if folded else one == other) == equal
