"""Masked, excluded and filtered-out values are in no file of any layer, nor in what the commands say."""

from __future__ import annotations

import json
from typing import Any

import pytest
from servers.clear_text import found_in

from lakeward.cli.snowflake import land_events

MASKED, EXCLUDED, OUTSIDE = "zq-masked-7731", "zq-excluded-8842", "zq-outside-9953"
SECRETS = (MASKED, EXCLUDED, OUTSIDE, "424242424")
KNOWN, HELD = "zq-inside-1064", "zq-held-1175"  # not secret: they show that the search finds what is there
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
    (pipeline.folder / "expectations").mkdir()
    (pipeline.folder / "expectations" / f"{table}.json").write_text(json.dumps({"expectations": [RULE]}))
    db.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, region VARCHAR(9), email VARCHAR(60), pin INT, pw VARCHAR(60),"
        " v VARCHAR(60))"
    )
    rows = [
        (1, "EU", MASKED, 424242424, EXCLUDED, KNOWN),
        (2, "US", MASKED, 424242424, EXCLUDED, OUTSIDE),
        (3, "EU", None, None, None, KNOWN),
        (4, "EU", MASKED, 424242424, EXCLUDED, HELD),
    ]
    db.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s, %s)", rows)
    pipeline.run()
    for statement in (
        f"UPDATE people SET email = '{MASKED} more', pw = '{EXCLUDED} more' WHERE id = 1",
        f"UPDATE people SET region = 'US', v = '{OUTSIDE}' WHERE id = 3",
        f"INSERT INTO people VALUES (5, 'EU', '{MASKED}', 424242424, '{EXCLUDED}', '{HELD}')",
        f"INSERT INTO people VALUES (6, 'EU', '{MASKED}', 424242424, '{EXCLUDED}', '{KNOWN}')",
        f"ALTER TABLE people ALTER pw SET DEFAULT '{EXCLUDED}', ALTER email SET DEFAULT '{MASKED}'",
    ):
        db.execute(statement)
    pipeline.run()
    land_events(pipeline.app, patient=False)
    proof = pipeline.verify()
    assert proof.equal
    said = capfd.readouterr()
    assert not [s for s in SECRETS if s in said.out + said.err + repr(proof)]

    found = pipeline.rows("people", "id", "email", "pin")
    assert [r[0] for r in found] == [1, 6]
    assert found[0][1] != found[1][1]
    assert {len(r[1]) for r in found} == {len(r[2]) for r in found} == {64}
    assert found_in(pipeline.folder, SECRETS) == {}
    where = {f.split("/")[1] for f in found_in(pipeline.folder, [KNOWN])}
    assert {"bronze", "silver", "gold", "export", "landing"} <= where, "the search finds what is there"
    assert [f for f in found_in(pipeline.folder, [HELD]) if f.startswith("lake/quarantine/")]
