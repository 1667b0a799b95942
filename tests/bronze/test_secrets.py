"""Masked, excluded and filtered-out values are in no file that bronze writes, however they reach it.

What comes after bronze has nothing but bronze to read.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers.clear_text import EXCLUDED, KNOWN, MASKED, OUTSIDE, PIN, SECRETS, found_in
from servers.killed import killed_at
from servers.running import Database
from servers.sparkless import Sparkless

from lakeward.errors import FailClosedError


def test_no_file_of_bronze_holds_a_masked_an_excluded_or_a_filtered_out_value(
    database: Database,
    tmp_path: Path,
    replicator_url: str,
    replicator_password: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("LAKEWARD_MASK_KEY", "a key")
    name, root = f"{database.name}.people", tmp_path / "lake"
    lake = Sparkless(tmp_path, replicator_password, [name])
    lake.tables[name] = {
        "mask": {"email": "sha256", "pin": "sha256"},
        "exclude_columns": ["pw"],
        "where": f"region = 'EU' AND NOT pw = '{OUTSIDE}' AND NOT email LIKE '{MASKED} not%'",
    }
    database.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, region VARCHAR(20), email VARCHAR(60), pin INT, pw VARCHAR(60), "
        "v VARCHAR(60), day DATE)"
    )
    rows = [
        (1, "eu", MASKED, PIN, EXCLUDED, KNOWN),
        (2, "US", MASKED, PIN, EXCLUDED, OUTSIDE),
        (3, "EU", MASKED, PIN, OUTSIDE, OUTSIDE),
        (4, "Eu", f"{MASKED} not here", PIN, EXCLUDED, OUTSIDE),
        (5, "eU", MASKED, None, EXCLUDED, KNOWN),
    ]
    database.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s, %s, NULL)", rows)
    lake.run(replicator_url)
    for statement in (
        f"UPDATE people SET email = '{MASKED} more', pw = '{EXCLUDED} more' WHERE id < 3",
        f"UPDATE people SET region = 'US', v = '{OUTSIDE}' WHERE id = 5",
        f"INSERT INTO people VALUES (6, NULL, '{MASKED}', {PIN}, '{EXCLUDED}', '{OUTSIDE}', NULL)",
        f"ALTER TABLE people ALTER pw SET DEFAULT '{EXCLUDED}', ALTER email SET DEFAULT '{MASKED}' /* {OUTSIDE} */",
        f"ALTER TABLE people ALTER v SET DEFAULT '{OUTSIDE}', COMMENT '{MASKED}'",
    ):
        database.execute(statement)
    with killed_at("bronze.after_intent"):
        lake.run(replicator_url)
    assert lake.state.intent is not None
    assert lake.state.intent["changes"], "no statement is in the intent"
    assert found_in(root, SECRETS) == {}
    lake.run(replicator_url)
    # A run that fails on a row says nothing of its values.
    database.execute("SET SESSION sql_mode = ''")
    database.execute(f"INSERT INTO people VALUES (7, 'EU', '{MASKED}', {PIN}, '{EXCLUDED}', 'v', '0000-00-00')")
    lake.source["zero_dates"] = "fail"
    with pytest.raises(FailClosedError) as refused:
        lake.run(replicator_url)
    said = capfd.readouterr()
    assert not [s for s in SECRETS if s in said.out + said.err + str(refused.value) + repr(refused.value)]
    assert found_in(root, SECRETS) == {}
    assert [f for f in found_in(root, [KNOWN]) if f.endswith(".parquet")], "the search finds nothing"
    stream = [e for e in lake.events(name) if not e["source"]["snapshot"]]
    assert [(e["op"], (e["after"] or e["before"])["id"]) for e in stream] == [("u", 1), ("d", 5)]
    emails = {e["after"]["email"] for e in lake.events(name) if e["after"]}
    assert {len(email) for email in emails} == {64}
    assert len(emails) == 2, "equal values have equal masks, others do not"


def test_the_search_finds_what_is_packed(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"x": [{"y": MASKED}] * 100}), folder / "p.parquet", compression="zstd")
    (folder / "hex.json").write_text(f'{{"x": "{MASKED.encode().hex().upper()}"}}')
    assert found_in(tmp_path, SECRETS) == {"a/b/p.parquet": {MASKED}, "a/b/hex.json": {MASKED}}
