"""What a run does for Snowflake between its stages, and the commands that do it by themselves."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from servers.landed import schema_of
from servers.published import case
from servers.snowflake_account import Account

from lakeward.cli import serving
from lakeward.cli import snowflake as command
from lakeward.config import parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.state import BronzeState, BronzeTable, save_bronze
from snowflake.lakehouse import landing
from snowflake.lakehouse.landing_files import Group


@pytest.fixture
def done(monkeypatch) -> list[Any]:
    found: list[Any] = []
    monkeypatch.setattr(command, "land_events", lambda app, *, patient=False: found.append(("land", patient)))
    monkeypatch.setattr(command, "sink_tables", lambda app, tables: found.append(("sink", tables)))
    return found


def app_of(doc: dict[str, Any]) -> Any:
    return argparse.Namespace(config=parse(doc))


def test_a_run_lands_and_sinks_only_where_it_is_configured(done):
    serving_nothing = serving.Serving(app_of({}), continuous=False)
    serving_nothing.after_bronze()
    serving_nothing.after_silver(5)
    assert done == []
    doc = {"snowflake": {"sink": "after_silver"}, "landing": {"tables": ["*"]}}
    once = serving.Serving(app_of(doc), continuous=False)
    once.after_bronze()
    once.after_silver(0)  # an earlier run may have died before it sank
    assert done == [("land", False), ("sink", ())]


def test_a_run_that_goes_on_sinks_by_rows_and_by_seconds(done, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("lakeward.cli.serving.time.monotonic", lambda: now[0])
    doc = {"snowflake": {"sink": "after_silver", "sink_batch_rows": 10, "sink_batch_seconds": 30}}
    going_on = serving.Serving(app_of(doc), continuous=True)
    # The first round sinks whatever came: what waited when an earlier run ended is known to Snowflake alone.
    for changes, seconds, sunk in ((0, 1, 1), (4, 1, 1), (5, 1, 1), (1, 1, 2), (0, 100, 2), (1, 1, 2), (0, 31, 3)):
        now[0] += seconds
        going_on.after_silver(changes)
        assert len(done) == sunk


def test_refresh_moves_the_tables_and_makes_nothing_an_administrator_makes(tmp_path, monkeypatch):
    login = {"account": "a", "user": "u", "password": "env:X"}
    lake, config = case(tmp_path, "s3", **login)
    lake.write = lambda document, doc: None
    account = Account()
    monkeypatch.setattr(command, "connect", lambda config, purpose: account)
    monkeypatch.setattr(command, "gate", lambda lake, config, values=False: None)
    app: Any = argparse.Namespace(lake=lake, config=config)
    assert command.apply(app, argparse.Namespace(dry_run=False)) == 0
    del account.objects["ROLE", ("LAKEWARD_READER",)]
    account.objects["ICEBERG TABLE", ("LAKEWARD", "SHOP", "TRIPS")]["metadata"] = "gold/shop/trips/metadata/v2.json"
    account.ran.clear()
    assert command.refresh(app, argparse.Namespace()) == 0
    assert [s.split(" ")[0] for s in account.ran if not s.startswith("GRANT")] == ["ALTER"]
    with pytest.raises(ConfigError, match=r"\[landing\] tables is empty"):
        command.land(app, argparse.Namespace())


def test_what_was_landed_is_counted_also_where_a_table_fails(tmp_path, monkeypatch, capsys):
    tables = {
        name: BronzeTable(schema_of({"id": "int"}, TableName("shop", name)), "streaming", generation=1, rows=2)
        for name in ("bad", "trips", "users")
    }
    lake = Lake(str(tmp_path))
    save_bronze(lake, BronzeState(tables={f"shop.{name}": table for name, table in tables.items()}))

    def groups(spark: Any, lake: Lake, config: Any, known: BronzeTable, *_: Any) -> Any:
        if known.name.table == "bad":
            raise TerminalError("it is of another shape", hint="mend it")
        errors = [{"path": "e", "rows": 1}] if known.name.table == "users" else []
        yield Group(known.name, "0", 0, 1, 9, 9, files=[{"path": "f", "rows": 2}], errors=errors)

    monkeypatch.setattr(landing, "_groups", groups)
    app: Any = argparse.Namespace(lake=lake, config=parse({"landing": {"tables": ["*"]}}), spark=lambda: None)
    with pytest.raises(TerminalError, match=r"shop\.bad: it is of another shape"):
        command.land(app, argparse.Namespace())
    said = capsys.readouterr().out.splitlines()
    assert [line.split() for line in said] == [
        ["landing", "4", "events", "in", "2", "files"],
        ["1", "that", "cannot", "be", "written", "are", "named", "under", "landing-errors"],
    ]
