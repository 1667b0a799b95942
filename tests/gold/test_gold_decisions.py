"""What gold decides before it reads a row: how far a mirror has come, a run's number, which export may go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gold import export
from gold.columns import Change, Field, Followed, Silver
from gold.iceberg import Standing
from gold.mirror import Decision, Wanted, decide
from gold.run import _number, _stands
from gold.state import GoldState, GoldTable
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog

CUT = Checkpoint(Position(1, 7, 100), "", 5)
COLUMNS = (("id", "int"), ("n", "int"))
SCHEMA = TableSchema(
    TableName("shop", "trips"),
    tuple(column_from_catalog(c, "int", nullable=c != "id") for c, _ in COLUMNS),
    ("id",),
    "primary",
)
WANTED = Wanted(SCHEMA, CUT, 8, 1)
ID, N = (Field(name, kind, name) for name, kind in COLUMNS)
SILVER = Silver("an-id", (ID, N))
SAID = {"silver-version": "5", "silver-id": "an-id", "generation": "1", "keys": '["id"]', "physical": "{}"}


def standing(**said: str | None) -> Standing:
    """The mirror as of silver's version 5, whose snapshot says `said` besides."""
    summary = {k: v for k, v in {**SAID, **{k.replace("_", "-"): v for k, v in said.items()}}.items() if v is not None}
    made: Any = {"snapshot": 11, "metadata_file": "m", "columns": COLUMNS, "rows": 3, "committed_ms": 1, "bytes": 9}
    return Standing(**made, lakeward=summary)


def known(**more: Any) -> GoldTable:
    """What gold.json says of it: it has seen version 7, and no row had changed since 5."""
    made: Any = {"identifier": "i", "location": "l", "metadata_file": "m", "columns": [], "rows": 3, "published_ms": 1}
    place: Any = {"schema": "shop", "table": "trips", "kind": "mirror", "snapshot": 11, "cut": CUT}
    return replace(GoldTable(**made, **place, silver_version=7, silver_id="an-id", generation=1), **more)


def merged(*columns: tuple[str, str, str | None]) -> Decision:
    return Decision("merged", since=7, change=Change(COLUMNS, tuple(Followed(*c) for c in columns)))


@pytest.mark.parametrize(
    ("wanted", "silver", "said", "of_state", "expected"),
    [
        ({}, {}, {}, {}, Decision("merged", since=7)),
        ({}, {}, {}, None, Decision("merged", since=5)),
        ({}, {}, {}, {"snapshot": 10}, Decision("merged", since=5)),  # gold.json is of another snapshot
        ({}, {}, {}, {"silver_id": "older"}, Decision("merged", since=5)),
        ({}, {}, {}, {"silver_version": 3}, Decision("merged", since=5)),  # a run died before it wrote gold.json
        ({"version": 7}, {}, {}, {}, Decision("unchanged", since=7)),
        ({"version": 6}, {}, {}, {}, "went back from version 7 to 6"),
        ({"version": 4}, {}, {}, None, "went back from version 5 to 4"),
        ({"generation": 2}, {}, {}, {}, "read anew"),
        ({"schema": replace(SCHEMA, keys=("id", "n"))}, {}, {}, {}, "its keys are now id, n"),
        ({"schema": replace(SCHEMA, keys=())}, {}, {}, {}, "its keys are now the whole row"),
        ({}, {"id": "another"}, {}, {}, "created anew"),
        ({}, {"fields": (replace(ID, kind="string"), N)}, {}, {}, "as Iceberg cannot follow: id"),
        ({}, {"fields": (ID, replace(N, held="col-1"))}, {"physical": None}, {}, "as Iceberg cannot follow: n"),
        ({"version": 7}, {"fields": (ID,)}, {}, {}, "not those of silver's version"),
        ({}, {"fields": (replace(ID, name="no", held="id"), N)}, {}, {}, "its keys are now id"),
        ({}, {"fields": (replace(ID, kind="bigint"), N)}, {}, {}, merged(("id", "bigint", "id"), ("n", "int", "n"))),
        ({}, {"fields": (ID,)}, {}, {}, merged(("id", "int", "id"))),
        # Another column, of the name that one had
        ({}, {"fields": (ID, replace(N, held="col-1"))}, {}, {}, merged(("id", "int", "id"), ("n", "int", None))),
        ({}, {"fields": (ID, Field("m", "int", "n"))}, {}, {}, merged(("id", "int", "id"), ("m", "int", "n"))),
        ({}, {}, {"silver_version": None}, {}, "another program"),
        ({}, {}, {"silver_id": None}, {}, "another program"),
        (
            *({}, {"fields": (Field("x", "int", "x"), ID, N)}, {}, {}),
            merged(("x", "int", None), ("id", "int", "id"), ("n", "int", "n")),
        ),
    ],
)
def test_a_mirror_is_merged_into_only_where_the_feed_says_all_that_changed(wanted, silver, said, of_state, expected):
    table = None if of_state is None else known(**of_state)
    found = decide(replace(WANTED, **wanted), replace(SILVER, **silver), standing(**said), table)
    if isinstance(expected, str):
        assert found.action == "rebuilt"
        assert expected in found.reason
    else:
        # A change that alters no column is none.
        assert (found.action, found.since) == (expected.action, expected.since)
        assert (found.change.after if found.change else ()) == expected.change.after


def test_a_mirror_stands_where_silvers_version_and_generation_are_its_own():
    assert _stands(known(), replace(WANTED, version=7))
    assert not _stands(None, WANTED)
    assert not _stands(known(), WANTED)
    assert not _stands(known(), replace(WANTED, version=7, generation=2))  # versions begin anew with the table
    assert not _stands(known(kind="mart"), replace(WANTED, version=7))


def test_a_killed_run_keeps_its_number_unless_silver_has_moved_since():
    """By its number a run knows the rows that it has withheld already: they are neither doubled nor taken for held."""
    state = GoldState(run=4)
    assert _number(state, {"shop.trips": WANTED}) == 5
    state.intent = {"run": 5, "cut": CUT.to_json(), "tables": {"shop.trips": 8}}
    assert _number(state, {"shop.trips": WANTED}) == 5
    assert _number(state, {"shop.trips": replace(WANTED, version=9)}) == 6
    assert _number(state, {}) == 6


def test_an_export_is_kept_for_its_minutes_and_no_new_one_takes_its_folder():
    minute = 60_000
    before = {"folder": "cut=1-7-100-2", "earlier": [{"folder": f, "replaced_ms": ms} for f, ms in
              (("old", 0), ("young", 31 * minute), ("cut=1-7-100", 59 * minute))]}  # fmt: skip
    kept = export._still_read(before, 90 * minute, 60)
    assert [(e["folder"], e["replaced_ms"]) for e in kept] == [
        *(("young", 31 * minute), ("cut=1-7-100", 59 * minute), ("cut=1-7-100-2", 90 * minute)),
    ]
    assert [e["folder"] for e in export._still_read(before, 9000 * minute, 60)] == ["cut=1-7-100-2"]
    assert export._still_read(None, 0, 60) == []
    assert export._folder(CUT, None) == "cut=1-7-100"
    assert export._folder(CUT, {"folder": "cut=1-6-9"}) == "cut=1-7-100"
    assert export._folder(CUT, before) == "cut=1-7-100-3"
