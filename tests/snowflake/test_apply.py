"""Plan against what is there, and apply, on an account that answers as Snowflake's documentation says it does."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from servers import published
from servers.published import CASES, gold_table, lake_with, republished
from servers.snowflake_account import Account

from gold.state import load_gold, save_gold
from lakeward import cli
from lakeward.cli import snowflake as command
from lakeward.config import Config, parse
from lakeward.errors import ConfigError, TerminalError, TransientError
from lakeward.lake import Lake
from snowflake.lakehouse import apply
from snowflake.lakehouse.plan import build
from snowflake.lakehouse.statements import statements

SECRET = "hunter'2"
LOGIN = {"account": "a", "user": "u", "password": "env:LAKEWARD_TEST_PASSWORD"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name in ("CATALOG_SECRET", "CATALOG_TOKEN", "STORE_ID", "STORE_KEY"):
        monkeypatch.setenv(name, SECRET)


KEYS = {"storage_key_id": "env:STORE_ID", "storage_secret_key": "env:STORE_KEY"}


def case(tmp_path: Path, name: str) -> tuple[Lake, Config]:
    made: tuple[Lake, Config] = published.case(tmp_path, name, **(KEYS if name == "s3compat" else {}))
    return made


def applied(lake, config, account) -> list[str]:
    made = apply.changes(lake, config, account)
    apply.apply(account, config, made, lambda line: None)
    return [f"{change.verb} {change.statement.kind}" for change in made]


def state(account):
    grants = sorted(account.grants, key=lambda g: sorted(map(str, g.values())))
    return {k: {n: v for n, v in p.items() if n != "sql"} for k, p in account.objects.items()}, grants


def found(account: Account) -> None:
    """Snowflake has found all of the catalog's tables."""
    tables = [("shop", "trips"), ("shop", "users"), ("marts", "revenue"), ("lakeward", "freshness")]
    account.discover("LAKEWARD_LINKED", *tables)


@pytest.mark.parametrize("name", CASES)
def test_a_plan_that_was_applied_changes_nothing_whatever_moment_it_was_cut_off_at(tmp_path, name):
    lake, config = case(tmp_path, name)
    apply.runnable(lake, build(lake, config))
    whole = Account()
    verbs = {v.split()[0] for v in applied(lake, config, whole)}
    assert verbs <= {"create", "grant", "refresh", "run"} | ({"wait"} if name == "linked" else set())
    moments = len(whole.ran)
    if name == "linked":  # what names a table that Snowflake has not found yet is made once it has
        found(whole)
        assert {v.split()[0] for v in applied(lake, config, whole)} == {"create", "grant"}
    again = applied(lake, config, whole)
    assert [v for v in again if not v.startswith("refresh")] == []  # tables of a catalog are asked for news each time
    exact = ("s3", "gcs", "azure", "s3compat", "linked", "landing", "landing_gcs", "landing_azure", "landing_s3compat")
    assert (again == []) == (name in exact)
    for moment in range(moments):
        account = Account()
        account.fail_at = moment
        with pytest.raises(TransientError) as cut:
            applied(lake, config, account)
        assert " of " in str(cut.value.facts["statement"])
        applied(lake, config, account)
        if name == "linked":
            found(account)
            applied(lake, config, account)
        assert state(account) == state(whole)


def test_a_table_is_refreshed_to_the_exact_metadata_file_and_freshness_last(tmp_path):
    lake, config = case(tmp_path, "s3")
    account = Account()
    applied(lake, config, account)
    account.ran.clear()
    doc: Any = lake.read("gold")
    for table in doc["tables"].values():
        table["metadata_file"] = table["metadata_file"].replace("v3", "v4")
    doc["tables"]["shop.trips"]["export_location"] = "s3a://bucket/lake/export/shop/trips/cut=1-8-1"
    republished(lake, doc)
    tables, last = ["refresh ICEBERG TABLE"] * 3, "refresh ICEBERG TABLE"
    assert applied(lake, config, account) == [*tables, "replace EXTERNAL TABLE", last]
    assert account.ran[1] == (
        'ALTER ICEBERG TABLE "LAKEWARD"."SHOP"."TRIPS" REFRESH \'gold/shop/trips/metadata/v4.metadata.json\''
    )
    assert '"FRESHNESS"' in account.ran[4]
    assert applied(lake, config, account) == []


def test_what_gold_no_longer_publishes_is_dropped_and_what_others_made_stays(tmp_path):
    lake, config = case(tmp_path, "s3")
    account = Account()
    applied(lake, config, account)
    theirs = ("ICEBERG TABLE", ("LAKEWARD", "SHOP", "THEIRS"))
    account.objects[theirs] = {
        "name": "THEIRS",
        "database_name": "LAKEWARD",
        "schema_name": "SHOP",
        "catalog_name": "X",
    }
    account.grants.append({"privilege": "INSERT", "granted_on": "TABLE", "name": "LAKEWARD.SHOP.TRIPS"})
    account.grants.append({"privilege": "USAGE", "granted_on": "DATABASE", "name": "ELSEWHERE"})
    doc: Any = lake.read("gold")
    del doc["tables"]["shop.users"]
    republished(lake, doc)
    assert applied(lake, config, account) == ["drop EXTERNAL TABLE", "drop ICEBERG TABLE", "revoke TABLE"]
    assert theirs in account.objects
    assert ("ICEBERG TABLE", ("LAKEWARD", "SHOP", "USERS")) not in account.objects
    assert [g["name"] for g in account.grants if g["privilege"] == "INSERT"] == []
    assert applied(lake, config, account) == []


def test_nothing_is_dropped_from_a_database_that_snowflake_fills_by_the_catalog(tmp_path):
    lake, config = case(tmp_path, "linked")
    account = Account()
    applied(lake, config, account)
    found(account)
    account.discover("LAKEWARD_LINKED", ("shop", "gone"))
    applied(lake, config, account)
    assert applied(lake, config, account) == []


def test_what_somebody_changed_is_put_right(tmp_path):
    lake, config = case(tmp_path, "s3")
    account = Account()
    applied(lake, config, account)
    account.objects["EXTERNAL VOLUME", ("LAKEWARD_VOLUME",)]["allow_writes"] = "true"
    account.objects["ICEBERG TABLE", ("LAKEWARD", "SHOP", "TRIPS")]["catalog_name"] = "OTHER"
    account.objects["VIEW", ("LAKEWARD", "LAKEWARD", "FRESHNESS_NOW")]["text"] = "CREATE VIEW x AS SELECT 1"
    made = applied(lake, config, account)
    assert made == [
        *("alter EXTERNAL VOLUME", "drop ICEBERG TABLE", "create ICEBERG TABLE", "replace VIEW"),
        *("grant ICEBERG TABLE", "grant VIEW"),
    ]
    assert applied(lake, config, account) == []
    account.settings["EXTERNAL VOLUME", ("LAKEWARD_VOLUME",)]["STORAGE_BASE_URL"] = "s3://another/lake/"
    with pytest.raises(TerminalError, match="lies at s3://another/lake/"):
        apply.changes(lake, config, account)


@pytest.mark.parametrize("name", ["rest", "rest_vended", "s3compat"])
def test_a_secret_is_in_the_statement_that_runs_and_in_nothing_that_is_shown(tmp_path, name, caplog):
    lake, config = case(tmp_path, name)
    account = Account()
    said: list[str] = []
    with caplog.at_level(logging.INFO):
        made = apply.changes(lake, config, account)
        apply.apply(account, config, made, said.append)
    assert "'hunter''2'" in "".join(account.ran)
    shown = "".join(said) + caplog.text + build(lake, config).text + "".join(map(str, made))
    assert "hunter" not in shown
    assert "SECRET OF [snowflake]" in shown
    assert len([r for r in caplog.records if " of " in r.message]) == len(made)


def test_a_command_logs_each_statement_to_stderr_and_what_others_warn_of(tmp_path, monkeypatch, capsys):
    lake, config = case(tmp_path, "s3compat")
    account: Any = Account()

    def refresh(app: Any, options: Any) -> int:
        made = apply.changes(lake, config, account)
        apply.apply(account, config, made, lambda line: None)  # as gold does after a run
        for name in ("snowflake.connector", "gold.run", "py4j"):
            logging.getLogger(name).info("of no concern")
        return 0

    monkeypatch.setattr(cli, "_command", lambda name: refresh)
    assert (cli.main(["status"]), cli.main(["status"])) == (0, 0)
    said = capsys.readouterr()
    assert len(re.findall(r"^\d+ of \d+: ", said.err, re.MULTILINE)) == len(account.ran) + said.err.count(": DESC ")
    assert '1 of 31: CREATE DATABASE IF NOT EXISTS "LAKEWARD"' in said.err
    assert "SECRET OF [snowflake] storage_secret_key" in said.err
    assert not re.search("hunter|of no concern", said.err + said.out)
    assert said.out == ""


def test_the_account_is_told_whom_to_trust(tmp_path):
    lake, config = case(tmp_path, "glue")
    said: list[str] = []
    account = Account()
    apply.apply(account, config, apply.changes(lake, config, account), said.append)
    assert "STORAGE_AWS_IAM_USER_ARN = arn:aws:iam::9:user/x" in "".join(said)
    assert "GLUE_AWS_IAM_USER_ARN = arn:aws:iam::9:user/x" in "".join(said)
    assert "STORAGE_AWS_IAM_USER_ARN = arn:aws:iam::9:user/files" in "".join(said)
    lake, config = case(tmp_path / "sigv4", "linked")
    apply.apply(account := Account(), config, apply.changes(lake, config, account), said.append)
    assert "API_AWS_IAM_USER_ARN = arn:aws:iam::9:user/x" in "".join(said)


def test_a_dry_run_writes_what_a_dba_can_run_and_runs_nothing(tmp_path, capsys, monkeypatch):
    lake, config = case(tmp_path, "s3")
    file = tmp_path / "out.sql"
    app: Any = argparse.Namespace(lake=lake, config=config)
    options = argparse.Namespace(dry_run=True, output=str(file), full=False)
    assert command.apply(app, options) == 0
    assert file.read_text() == build(lake, config).text
    account = Account()
    monkeypatch.setattr(command, "connect", lambda config, purpose: account)
    app.config = parse({"snowflake": {**CASES["s3"][1], **LOGIN}})
    applied(lake, app.config, account)
    account.objects.pop(("VIEW", ("LAKEWARD", "LAKEWARD", "FRESHNESS_NOW")))
    account.ran.clear()
    assert command.apply(app, options) == 0
    assert command.plan(app, options) == 0
    assert account.ran == []
    made = file.read_text()
    assert [s.kind for s in statements(made)] == ["VIEW", "VIEW"]
    assert '--   create VIEW "LAKEWARD"."LAKEWARD"."FRESHNESS_NOW"' in made
    assert made in capsys.readouterr().out


def test_what_cannot_be_applied_is_refused_with_what_to_set(tmp_path):
    local = lake_with(tmp_path)
    with pytest.raises(ConfigError, match="object stores only"):
        apply.runnable(local, build(local, Config()))
    lake, _ = case(tmp_path, "s3")
    with pytest.raises(ConfigError, match="storage_aws_role_arn is not set"):
        apply.runnable(lake, build(lake, Config()))
    app: Any = argparse.Namespace(lake=lake, config=parse({"snowflake": CASES["s3"][1]}))
    with pytest.raises(ConfigError, match="no login"):
        command.apply(app, argparse.Namespace(dry_run=False))
    with pytest.raises(ConfigError, match="hands credentials out"):
        build(lake, parse({"snowflake": {"rest_vended_credentials": True}}))
    for catalog in ("rest", "glue", "linked"):
        with pytest.raises(ConfigError, match=f'"{catalog}" with .gold. catalog = "jdbc", which Snowflake cannot ask'):
            build(lake, parse({"snowflake": {"catalog": catalog}, "gold": {"catalog": "jdbc"}}))


def test_no_name_misleads_the_reader_of_a_plan(tmp_path):
    nasty = ['a"b', "a'b", "x;y", "--", "a`b", "a.b", "select", "naïve ☃", "back\\slash"]
    lake = Lake(str(tmp_path))
    state = load_gold(lake)
    state.tables = {n: gold_table("s3a://bucket/lake", "shop", n, export=False) for n in nasty}
    save_gold(lake, state)
    read = Lake("s3a://bucket/lake")
    read.read = lake.read  # type: ignore[method-assign]
    config = parse({"snowflake": {**CASES["s3"][1], "names": "source"}})
    found = statements(build(read, config).text)
    assert {s.name for s in found if s.kind == "ICEBERG TABLE"} == {("LAKEWARD", "shop", n) for n in nasty}
    account = Account()
    applied(read, config, account)
    assert applied(read, config, account) == []


def test_the_landings_tables_follow_the_columns_and_keep_the_lag_that_somebody_gave_them(tmp_path):
    lake, config = case(tmp_path, "landing")
    account = Account()
    applied(lake, config, account)
    for (kind, _), shown in account.objects.items():
        if kind == "DYNAMIC TABLE":
            shown["text"] = "-- by hand\n" + shown["text"].replace("60 seconds", "1 hour").replace("\n", "\r\n") + ";"
    assert applied(lake, config, account) == []
    account.ran.clear()
    bronze: Any = lake.read("bronze")
    columns = bronze["tables"]["shop.trips"]["schema"]["columns"]
    columns.append({"name": "fare", "kind": "decimal", "precision": 10, "scale": 2})
    before = lake.read

    def read(document: str) -> dict[str, Any] | None:
        return copy.deepcopy(bronze) if document == "bronze" else before(document)

    lake.read = read  # type: ignore[method-assign]
    assert applied(lake, config, account) == ["replace DYNAMIC TABLE"] * 2
    assert "TRIPS__HISTORY" in account.ran[0]
    assert all('"FARE"' in statement for statement in account.ran)
    assert applied(lake, config, account) == []


def test_a_pipe_that_names_no_files_is_replaced_once_and_nothing_it_was_to_load_is_left_out(tmp_path):
    lake, config = case(tmp_path, "landing")
    account = Account()
    applied(lake, config, account)
    pipe = account.objects["PIPE", ("LAKEWARD", "LAKEWARD", "LANDING_PIPE")]
    pipe["definition"] = 'COPY INTO "LAKEWARD"."LAKEWARD"."LANDING_RAW" FROM @x FILE_FORMAT = (TYPE = JSON)'
    account.ran.clear()
    assert applied(lake, config, account) == ["alter TABLE", "alter TABLE", "replace PIPE", "run PIPE"]
    raw, name = '"LAKEWARD"."LAKEWARD"."LANDING_RAW"', '"LAKEWARD"."LAKEWARD"."LANDING_PIPE"'
    assert account.ran[0] == f"ALTER TABLE {raw} ADD COLUMN IF NOT EXISTS FILE_NAME VARCHAR"
    assert account.ran[2].startswith(f"CREATE OR REPLACE PIPE {name}\n  AUTO_INGEST = TRUE")
    assert account.ran[3] == f"ALTER PIPE {name} REFRESH"
    assert applied(lake, config, account) == []


@pytest.mark.parametrize(
    ("name", "setting"), [("landing_gcs", "gcp_pubsub_subscription"), ("landing_azure", "azure_storage_queue")]
)
def test_a_pipe_that_nobody_would_tell_of_new_files_is_refused(tmp_path, name, setting):
    nothing: dict[str, Any] = {setting: None, "notification_integration": None}
    lake, config = case(tmp_path, name)
    config = dataclasses.replace(config, snowflake=dataclasses.replace(config.snowflake, **nothing))
    made = build(lake, config)
    assert f"PLACEHOLDER: [snowflake] {setting}" in made.text
    with pytest.raises(ConfigError, match=setting):
        apply.runnable(lake, made)
    theirs = dataclasses.replace(config.snowflake, notification_integration="theirs")
    made = build(lake, dataclasses.replace(config, snowflake=theirs))
    assert made.missing == []
    assert "INTEGRATION = 'THEIRS'" in made.text
    assert "CREATE NOTIFICATION" not in made.text
