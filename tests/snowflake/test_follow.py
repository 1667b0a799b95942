"""After gold: Snowflake is moved to what was published, once, and never to what breaks a rule."""

from __future__ import annotations

import json
from typing import Any

import pytest
from servers.published import CASES, CUT, lake_with
from servers.snowflake_account import Account

from gold.state import GoldState, load_gold, save_gold
from lakeward.config import parse
from lakeward.errors import GateStoppedError, TransientError
from lakeward.position import Checkpoint, Position
from snowflake.lakehouse import follow
from snowflake.lakehouse.conformance import run


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


def test_snowflake_is_not_moved_to_what_breaks_a_rule_and_not_by_itself_unless_configured(published, monkeypatch):
    def stopped(lake: Any, config: Any) -> None:
        raise GateStoppedError("rule")

    nobody = lambda: pytest.fail("nobody asked for Snowflake")  # noqa: E731
    assert follow.follow_gold(published, parse({}), nobody) == 0
    monkeypatch.setattr(run, "gate", stopped)
    assert follow.follow_gold(published, parse({}), nobody) == 0  # it has passed
    published.write("snowflake", {})
    with pytest.raises(GateStoppedError):
        follow.follow_gold(published, parse({"snowflake": {"refresh": "after_gold"}}), nobody)
    save_gold(published, GoldState(cut=CUT))
    assert follow.follow_gold(published, parse({}), nobody) == 0
