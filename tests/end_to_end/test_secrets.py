"""Masked, excluded and filtered-out values are in no file of any layer, nor in what the commands say."""

from __future__ import annotations

from typing import Any

import pytest
from servers.clear_text import EXCLUDED, KNOWN, MASKED, OUTSIDE, PIN, SECRETS, found_in

from lakeward.cli.snowflake import land_events

HELD = "zq-held-1175"  # what a gate holds back; no secret
RULE = {
    "type": "expect_column_values_to_not_be_in_set",
    "kwargs": {"column": "v", "value_set": [HELD]},
    "meta": {"severity": "quarantine", "threshold": 1},
}


def test_no_file_of_any_layer_holds_a_masked_an_excluded_or_a_filtered_out_value(
    pipeline: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LAKEWARD_MASK_KEY", "a key")
    db = pipeline.database
    table = f"{db.name}.people"
    pipeline.write_config(
        rest=f'[tables."{table}"]\nmask = {{ email = "sha256", pin = "sha256" }}\nexclude_columns = ["pw"]\n'
        f"where = \"region = 'EU'\"\nhistory = \"scd2\"\n[landing]\ntables = ['{table}']\n"
    )
    pipeline.expect("people", RULE)
    db.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, region VARCHAR(9), email VARCHAR(60), pin INT, pw VARCHAR(60),"
        " v VARCHAR(60))"
    )
    rows = [
        (1, "EU", MASKED, PIN, EXCLUDED, KNOWN),
        (2, "US", MASKED, PIN, EXCLUDED, OUTSIDE),
        (3, "EU", None, None, None, KNOWN),
        (4, "EU", MASKED, PIN, EXCLUDED, HELD),
        (7, "EU", MASKED, PIN, EXCLUDED, KNOWN),
        (8, "EU", None, None, None, KNOWN),
    ]
    db.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s, %s)", rows)
    pipeline.run()
    for statement in (
        f"UPDATE people SET email = '{MASKED} more', pw = '{EXCLUDED} more' WHERE id = 1",
        f"UPDATE people SET region = 'US', v = '{OUTSIDE}' WHERE id = 3",
        f"INSERT INTO people VALUES (5, 'EU', '{MASKED}', {PIN}, '{EXCLUDED}', '{HELD}')",
        f"INSERT INTO people VALUES (6, 'EU', '{MASKED}', {PIN}, '{EXCLUDED}', '{KNOWN}')",
        f"INSERT INTO people VALUES (9, 'EU', NULL, NULL, NULL, '{KNOWN}')",
        f"ALTER TABLE people ALTER pw SET DEFAULT '{EXCLUDED}', ALTER email SET DEFAULT '{MASKED}'",
    ):
        db.execute(statement)
    pipeline.run()
    land_events(pipeline.app, patient=False)
    proof = pipeline.verify()
    assert proof.equal
    said = capfd.readouterr()
    assert not [s for s in SECRETS if s in said.out + said.err + repr(proof)]

    found = {i: (email, pin) for i, email, pin in pipeline.rows("people", "id", "email", "pin")}
    assert sorted(found) == [1, 6, 7, 8, 9]
    assert found[6] == found[7], "equal values have equal masks, by the stream and by the snapshot"
    assert found[1][0] != found[6][0]
    assert found[1][1] == found[6][1]
    assert found[8] == found[9] == (None, None)
    assert {len(mask) for i in (1, 6) for mask in found[i]} == {64}
    assert found_in(pipeline.folder, SECRETS) == {}
    where = {f.split("/")[1] for f in found_in(pipeline.folder, [KNOWN])}
    assert {"bronze", "silver", "gold", "export", "landing"} <= where, "the search finds what is there"
    assert [f for f in found_in(pipeline.folder, [HELD]) if f.startswith("lake/quarantine/")]
