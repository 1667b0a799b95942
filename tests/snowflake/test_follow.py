"""After gold: Snowflake is moved to what was published, once, and never to what breaks a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
import snowflake.connector
from servers.published import CASES, CUT, case, lake_with
from servers.snowflake_account import Account

from gold.state import GoldState, load_gold, save_gold
from lakeward.config import parse
from lakeward.errors import GateStoppedError, TransientError
from lakeward.position import Checkpoint, Position
from snowflake.lakehouse import follow
from snowflake.lakehouse.conformance import run
from snowflake.lakehouse.conformance.rules import Finding
from snowflake.lakehouse.plan import build
from snowflake.lakehouse.statements import statements


@pytest.fixture
def published(tmp_path, monkeypatch) -> Any:
    """A lake in a folder that is said to be in a bucket; its documents can be written."""
    local = lake_with(tmp_path)
    doc = json.loads(json.dumps(local.read("gold")).replace(str(tmp_path), "s3a://bucket/lake"))
    local.write("gold", doc)
    remote = lake_with(tmp_path / "other", "s3a://bucket/lake")
    for name in ("read", "write", "replace"):
        setattr(remote, name, getattr(local, name))
    monkeypatch.setattr(run, "gate", lambda lake, config: None)
    return remote


def session(account: Account) -> Any:
    return lambda: account


def test_each_publication_is_followed_once_and_a_refresh_that_failed_is_tried_again(tmp_path, published):
    config = parse({"snowflake": {**CASES["s3"][1], "refresh": "after_gold"}})
    account = Account()
    applied = parse({"snowflake": CASES["s3"][1]})
    follow.move(account, published, applied, lambda line: None, tables_only=False)
    assert follow.follow_gold(published, config, session(account)) == 0
    state = load_gold(published)
    for table in state.tables.values():
        table.metadata_file = table.metadata_file.replace("v3", "v4")
        table.cut = Checkpoint(Position(1, 8, 4), "", 0)
    save_gold(published, state)
    account.ran.clear()
    account.fail_at = 2
    with pytest.raises(TransientError):
        follow.follow_gold(published, config, session(account))
    lines = (tmp_path / "export" / "lakeward" / "published.json").read_text().splitlines()
    assert [json.loads(line)["cut"] for line in lines] == ["1:8:4"] * 3
    assert json.loads(lines[1])["metadata_file"] == state.tables["shop.trips"].metadata_file
    assert follow.follow_gold(published, config, session(account)) == 2
    assert all("v4.metadata.json" in statement for statement in account.ran)
    assert ["FRESHNESS" in statement for statement in account.ran] == [False, False, False, True]
    assert follow.follow_gold(published, config, lambda: pytest.fail("nothing is new")) == 0
    for table in state.tables.values():
        table.cut = Checkpoint(Position(1, 9, 4), "", 0)
    save_gold(published, state)
    assert follow.follow_gold(published, config, session(account)) == 0  # a cut alone is nothing to Snowflake
    lines = (tmp_path / "export" / "lakeward" / "published.json").read_text().splitlines()
    assert [json.loads(line)["cut"] for line in lines] == ["1:9:4"] * 3


def test_snowflake_is_not_moved_to_what_breaks_a_rule_and_not_by_itself_unless_configured(
    tmp_path, published, monkeypatch, caplog
):
    def stopped(lake: Any, config: Any) -> None:
        raise GateStoppedError("rule")

    nobody = lambda: pytest.fail("nobody asked for Snowflake")  # noqa: E731
    found = run.Report(findings=[Finding("names", "shop.t", "column 'current_date'")])
    monkeypatch.setattr(run, "check", lambda lake, config, *, values, sql: found)
    assert follow.follow_gold(published, parse({}), nobody) == 0
    assert "current_date" in caplog.text
    monkeypatch.setattr(run, "gate", stopped)
    assert follow.follow_gold(published, parse({}), nobody) == 0  # it has passed
    said = tmp_path / "export" / "lakeward" / "published.json"
    published.write("snowflake", {})
    said.unlink()
    for _ in range(2):  # and not by the next run either
        with pytest.raises(GateStoppedError):
            follow.follow_gold(published, parse({"snowflake": {"refresh": "after_gold"}}), nobody)
    assert said.exists()  # so a reader of Snowflake sees that it is behind
    save_gold(published, GoldState(cut=CUT))
    assert follow.follow_gold(published, parse({}), nobody) == 0


def test_the_freshness_view_says_what_is_behind_gold_and_what_snowflake_lacks(tmp_path, fake_snowflake, fresh):
    lake, config = case(tmp_path, "s3", database=fresh)
    view = next(s for s in statements(build(lake, config).text) if s.action == "replace" and s.kind == "VIEW")
    text = view.text.partition("\nAS\n")[2]
    # The server knows no staged files and no interval functions on LTZ: gold's lines are a table's here.
    staged = text[text.index('FROM @"') : text.index("\n)\nSELECT")]
    text = text.replace(staged, "FROM GOLD").replace("$1:", "V:")
    shown = [("shop", "same", "1:1:4", "a"), ("shop", "older", "1:1:4", "a"), ("shop", "rewritten", "1:1:4", "a")]
    gold = [("shop", "same", "1:1:4", "a"), ("shop", "older", "1:2:4", "b"), ("shop", "rewritten", "1:1:4", "c")]
    gold.append(("shop", "new", "1:2:4", "d"))
    columns = (
        '"S" VARCHAR, "T" VARCHAR, "K" VARCHAR, "CUT" VARCHAR, "E" INT, "F" INT, "P" INT, "MS" INT, "AT" TIMESTAMP_NTZ,'
    )
    columns += ' "PUB" TIMESTAMP_NTZ, "N" INT, "M" VARCHAR'
    with snowflake.connector.connect(**fake_snowflake, database=fresh) as connection:
        cursor = connection.cursor()
        cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{fresh}"."LAKEWARD"')
        cursor.execute(f'USE SCHEMA "{fresh}"."LAKEWARD"')
        cursor.execute(f'CREATE TABLE "FRESHNESS" ({columns})')
        cursor.execute("CREATE TABLE GOLD (V VARIANT)")
        for schema, table, cut, file in shown:
            row = "%s, %s, 'mirror', %s, 1, 1, 4, 0, '2026-01-01'::TIMESTAMP_NTZ, '2026-01-01'::TIMESTAMP_NTZ, 3, %s"
            cursor.execute(f'INSERT INTO "FRESHNESS" SELECT {row}', (schema, table, cut, file))
        for schema, table, cut, file in gold:
            line = {"table_schema": schema, "table_name": table, "kind": "mirror", "cut": cut, "published_ms": 1}
            cursor.execute("INSERT INTO GOLD SELECT PARSE_JSON(%s)", (json.dumps({**line, "metadata_file": file}),))
        cursor.execute(text)
        behind = {row[1]: row[-1] for row in cursor.fetchall()}
    assert behind == {"same": False, "older": True, "rewritten": True, "new": True}
