"""What was made once and is set otherwise now: integrations, volumes, linked databases, secrets and grants."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from servers import published
from servers.published import republished
from servers.snowflake_account import Account

from lakeward.config import Config, parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake
from snowflake.lakehouse import apply, follow, plan, rotation
from snowflake.lakehouse.inventory import described

TABLES = [("shop", "trips"), ("shop", "users"), ("marts", "revenue"), ("lakeward", "freshness")]
VOLUME, CATALOG = ("EXTERNAL VOLUME", ("LAKEWARD_VOLUME",)), ("CATALOG INTEGRATION", ("LAKEWARD_CATALOG",))
STORAGE = ("STORAGE INTEGRATION", ("LAKEWARD_STORAGE",))
KEYS = {"storage_key_id": "env:STORE_ID", "storage_secret_key": "env:STORE_KEY"}


@pytest.fixture(autouse=True)
def secrets(monkeypatch):
    for name in ("CATALOG_SECRET", "CATALOG_TOKEN", "STORE_ID", "STORE_KEY"):
        monkeypatch.setenv(name, "hunter2")


def case(tmp_path: Path, name: str, **more: Any) -> tuple[Lake, Config]:
    made: tuple[Lake, Config] = published.case(tmp_path, name, **(KEYS if name == "s3compat" else {}), **more)
    return made


def applied(lake: Lake, config: Config, account: Account) -> list[str]:
    """What `apply` runs."""
    session: Any = account
    before = len(account.ran)
    apply.apply(session, config, apply.changes(lake, config, session), lambda line: None)
    ran: list[str] = account.ran[before:]
    return ran


def documents(lake: Lake) -> dict[str, Any]:
    """What is written to the lake from now on, which reads it back."""
    docs: dict[str, Any] = {}
    read = lake.read
    for name, now in (("read", lambda document: docs.get(document) or read(document)), ("write", docs.__setitem__)):
        setattr(lake, name, now)
    return docs


@pytest.fixture
def linked(tmp_path) -> tuple[Lake, Config, Account]:
    lake, config = case(tmp_path, "linked")
    account = Account()
    applied(lake, config, account)
    account.discover("LAKEWARD_LINKED", *TABLES)
    applied(lake, config, account)
    assert applied(lake, config, account) == []
    return lake, config, account


def test_a_new_namespace_is_added_to_a_linked_database_and_what_is_not_found_yet_stops_nothing(linked):
    lake, config, account = linked
    doc: Any = lake.read("gold")
    made = {**doc["tables"]["shop.trips"], "schema": "new", "identifier": "gold.`new`.`trips`"}
    doc["tables"]["new.trips"] = made
    republished(lake, doc)
    ran = applied(lake, config, account)
    assert "ALTER DATABASE \"LAKEWARD_LINKED\" UPDATE LINKED_CATALOG ADD ('new') TO ALLOWED_NAMESPACES" in ran
    assert [r for r in ran if r.startswith("GRANT")] == [
        'GRANT USAGE ON SCHEMA "LAKEWARD"."NEW__EXPORT" TO ROLE "LAKEWARD_READER"',
        'GRANT SELECT ON EXTERNAL TABLE "LAKEWARD"."NEW__EXPORT"."TRIPS" TO ROLE "LAKEWARD_READER"',
    ]
    waiting = [str(c) for c in apply.changes(lake, config, account)]
    assert [w.split(" (")[0] for w in waiting] == [
        'wait USAGE ON SCHEMA "LAKEWARD_LINKED"."new"',
        'wait SELECT ON ICEBERG TABLE "LAKEWARD_LINKED"."new"."trips"',
    ]
    account.discover("LAKEWARD_LINKED", ("new", "trips"))
    assert [r.split(" TO ")[0] for r in applied(lake, config, account)] == [
        'GRANT USAGE ON SCHEMA "LAKEWARD_LINKED"."new"',
        'GRANT SELECT ON ICEBERG TABLE "LAKEWARD_LINKED"."new"."trips"',
    ]
    assert applied(lake, config, account) == []


def test_what_waits_is_tried_again_by_the_next_run(tmp_path):
    lake, config = case(tmp_path, "linked")
    docs = documents(lake)
    account = Account()
    follow.move(account, lake, config, lambda line: None, tables_only=False)
    assert "shown" in docs["snowflake"]
    assert not docs["snowflake"]["shown"]
    account.discover("LAKEWARD_LINKED", *TABLES)
    follow.move(account, lake, config, lambda line: None, tables_only=True)
    assert set(docs["snowflake"]["shown"]) == {f"{s}.{t}" for s, t in TABLES}


def test_a_linked_database_that_lets_a_drop_delete_the_lakes_data_is_shut(linked):
    lake, config, account = linked
    account.linked[("LAKEWARD_LINKED",)]["allowed_write_operations"] = "ALL"
    shut = 'ALTER DATABASE "LAKEWARD_LINKED" UPDATE LINKED_CATALOG SET ALLOWED_WRITE_OPERATIONS = NONE'
    assert applied(lake, config, account) == [shut]
    account.linked[("LAKEWARD_LINKED",)]["allowed_namespaces"] = None  # all of them
    assert applied(lake, config, account) == []
    account.linked[("LAKEWARD_LINKED",)]["catalog_integration"] = "ANOTHER"
    with pytest.raises(TerminalError, match="LAKEWARD_LINKED has CATALOG = ANOTHER"):
        apply.changes(lake, config, account)


WAYS = ("s3", "rest", "rest_vended", "glue", "linked")


@pytest.mark.parametrize(("old", "new"), [*itertools.permutations(WAYS, 2)])
def test_another_way_to_find_the_tables_is_refused_until_it_has_an_integration_of_its_own(tmp_path, old, new):
    account = Account()
    lake, config = case(tmp_path / "old", old)
    applied(lake, config, account)
    lake, config = case(tmp_path / "new", new)
    with pytest.raises(TerminalError, match=r"LAKEWARD_CATALOG has other settings .* is ") as refused:
        apply.changes(lake, config, account)
    assert "set catalog_integration in [snowflake] to another name" in str(refused.value)
    lake, config = case(tmp_path / "named", new, catalog_integration="ANOTHER")
    applied(lake, config, account)
    if new == "linked":
        account.discover("LAKEWARD_LINKED", *TABLES)
        applied(lake, config, account)
        return
    assert {p["catalog_name"] for (k, _), p in account.objects.items() if k == "ICEBERG TABLE"} == {"ANOTHER"}
    assert [r for r in applied(lake, config, account) if "REFRESH" not in r] == []


@pytest.mark.parametrize(
    ("way", "key", "setting"),
    [
        ("s3", VOLUME, "STORAGE_AWS_ROLE_ARN"),
        ("s3", VOLUME, "STORAGE_AWS_EXTERNAL_ID"),
        ("azure", VOLUME, "AZURE_TENANT_ID"),
        ("s3compat", VOLUME, "STORAGE_ENDPOINT"),
        ("rest", CATALOG, "CATALOG_URI"),
        ("rest", CATALOG, "OAUTH_CLIENT_ID"),
        ("glue", CATALOG, "GLUE_AWS_ROLE_ARN"),
        ("linked", CATALOG, "SIGV4_IAM_ROLE"),
        ("gcs", STORAGE, "STORAGE_PROVIDER"),
    ],
)
def test_a_setting_that_snowflake_cannot_change_is_refused_by_name(tmp_path, way, key, setting):
    lake, config = case(tmp_path, way)
    account = Account()
    applied(lake, config, account)
    account.settings[key][setting] = "other"
    with pytest.raises(TerminalError, match=rf"{key[1][0]} has other settings .*{setting} is (other, not|another)"):
        apply.changes(lake, config, account)


def test_a_storage_integration_is_given_what_changed(tmp_path):
    account = Account()
    applied(*case(tmp_path / "a", "s3"), account)
    landing = case(tmp_path / "b", "landing", storage_aws_external_id="e")
    altered = [r for r in applied(*landing, account) if r.startswith("ALTER STORAGE")]
    places = "('s3://bucket/lake/export/', 's3://bucket/lake/landing/')"
    assert altered == [f'ALTER STORAGE INTEGRATION "LAKEWARD_STORAGE" SET STORAGE_ALLOWED_LOCATIONS = {places}']
    account.settings[STORAGE]["STORAGE_AWS_ROLE_ARN"] = "arn:aws:iam::2:role/old"
    role = "ALTER STORAGE INTEGRATION \"LAKEWARD_STORAGE\" SET STORAGE_AWS_ROLE_ARN = 'arn:aws:iam::1:role/r'"
    assert applied(*landing, account) == [role]
    assert applied(*landing, account) == []


@pytest.mark.parametrize(
    ("way", "variable", "altered"),
    [
        ("rest", "CATALOG_SECRET", ["CATALOG INTEGRATION"]),
        ("rest_vended", "CATALOG_TOKEN", ["CATALOG INTEGRATION"]),
        ("s3compat", "STORE_KEY", ["EXTERNAL VOLUME", "STAGE"]),
    ],
)
def test_a_new_secret_is_given_to_snowflake_once_and_stands_nowhere(tmp_path, monkeypatch, way, variable, altered):
    lake, config = case(tmp_path, way)
    account, docs = Account(), documents(lake)

    def moved() -> list[str]:
        before = len(account.ran)
        follow.move(account, lake, config, lambda line: None, tables_only=False)
        return [r for r in account.ran[before:] if r.startswith("ALTER") and "REFRESH" not in r]

    assert moved() == []
    assert moved() == []
    monkeypatch.setenv(variable, "swordfish'9")
    follow.move(account, lake, config, lambda line: None, tables_only=True)  # a refresh is not an administrator's
    assert [(k, n) for k, n in account.secrets] == []
    ran = moved()
    assert [r.split(' "')[0] for r in ran] == [f"ALTER {kind}" for kind in altered]
    assert all("'swordfish''9'" in r for r in ran)
    assert moved() == []
    assert "swordfish" not in json.dumps(docs) + str(apply.changes(lake, config, account, rotated=rotation.SECRETS))


def test_only_privileges_within_the_database_are_revoked_and_ownership_never(tmp_path):
    lake, config = case(tmp_path, "s3")
    account = Account()
    applied(lake, config, account)
    others = [
        *(("USAGE", "WAREHOUSE", "LAKEWARD"), ("USAGE", "ROLE", "LAKEWARD"), ("OWNERSHIP", "DATABASE", "LAKEWARD")),
        *(("OWNERSHIP", "TABLE", "LAKEWARD.SHOP.TRIPS"), ("USAGE", "DATABASE_ROLE", "LAKEWARD.R")),
    ]
    for privilege, kind, name in [
        *others,
        ("MODIFY", "DATABASE", "LAKEWARD"),
        ("INSERT", "TABLE", "LAKEWARD.SHOP.TRIPS"),
    ]:
        account.grants.append({"privilege": privilege, "granted_on": kind, "name": name})
    assert [r.split(" FROM ")[0] for r in applied(lake, config, account)] == [
        'REVOKE INSERT ON TABLE "LAKEWARD"."SHOP"."TRIPS"',
        'REVOKE MODIFY ON DATABASE "LAKEWARD"',
    ]


def test_what_is_no_longer_asked_for_is_dropped(tmp_path):
    whole: Mapping[str, Any] = {"snowflake": {**published.CASES["landing"][1], "delta": ["shop.*"]}}
    settings = {k: v for k, v in whole["snowflake"].items() if k != "landing"}
    lake, _ = case(tmp_path, "landing")
    account = Account()
    applied(lake, parse({"snowflake": settings, "landing": {"tables": ["shop.*"]}}), account)
    mine = ("DYNAMIC TABLE", ("LAKEWARD", "SHOP__LANDED", "MINE"))
    account.objects[mine] = {
        "name": "MINE",
        "database_name": "LAKEWARD",
        "schema_name": "SHOP__LANDED",
        "text": 'AS SELECT * FROM "LAKEWARD"."SHOP__LANDED"."TRIPS__HISTORY" WHERE "__IS_CURRENT"',
    }
    ran = applied(lake, parse({"snowflake": {**settings, "delta": []}}), account)
    assert {r for r in ran if r.startswith("DROP")} == {
        'DROP ICEBERG TABLE IF EXISTS "LAKEWARD"."SHOP__SILVER"."TRIPS"',
        'DROP ICEBERG TABLE IF EXISTS "LAKEWARD"."SHOP__SILVER"."ORDER ITEMS"',
        *(f'DROP DYNAMIC TABLE IF EXISTS "LAKEWARD"."SHOP__LANDED"."{t}"' for t in ("TRIPS", "TRIPS__HISTORY")),
        *(
            f'DROP DYNAMIC TABLE IF EXISTS "LAKEWARD"."SHOP__LANDED"."{t}"'
            for t in ("ORDER ITEMS", "ORDER ITEMS__HISTORY")
        ),
        'DROP PIPE IF EXISTS "LAKEWARD"."LAKEWARD"."LANDING_PIPE"',
        'DROP STAGE IF EXISTS "LAKEWARD"."LAKEWARD"."LANDING"',
    }
    assert mine in account.objects
    assert ("TABLE", ("LAKEWARD", "LAKEWARD", "LANDING_RAW")) in account.objects  # it holds events
    assert applied(lake, parse({"snowflake": settings | {"delta": []}}), account) == []


def test_an_external_table_on_a_stage_of_its_own_goes_with_its_stage(tmp_path):
    lake, config = case(tmp_path, "s3")
    doc: Any = lake.read("gold")
    folder = "s3a://bucket/lake/export/shop/-8ba2--5355-/cut=1-7-4711"
    doc["tables"]["shop.订单"] = {**doc["tables"]["shop.users"], "table": "订单", "export_location": folder}
    republished(lake, doc)
    account = Account()
    applied(lake, config, account)
    assert account.objects["STAGE", ("LAKEWARD", "SHOP__EXPORT", "订单")]["url"].endswith("/export/shop/-8ba2--5355-/")
    theirs = ("STAGE", ("LAKEWARD", "SHOP__EXPORT", "THEIRS"))
    place = {"database_name": "LAKEWARD", "schema_name": "SHOP__EXPORT", "name": "THEIRS"}
    account.objects[theirs] = {**place, "url": "s3://bucket/another/"}
    assert applied(lake, config, account) == []
    doc["tables"]["shop.订单"]["export_location"] = f"{folder}-2"
    assert [r.split(" (")[0] for r in applied(lake, config, account)] == [
        'CREATE OR REPLACE EXTERNAL TABLE "LAKEWARD"."SHOP__EXPORT"."订单"'
    ]
    del doc["tables"]["shop.订单"]
    assert [r.split(' "')[0] for r in applied(lake, config, account)] == [
        *("DROP EXTERNAL TABLE IF EXISTS", "DROP ICEBERG TABLE IF EXISTS", "DROP STAGE IF EXISTS")
    ]


@pytest.mark.parametrize("table", ["freshness", "Freshness_now", "landing_raw"])
def test_a_source_table_that_would_bear_a_name_of_lakewards_own_is_refused(tmp_path, table):
    lake, config = case(tmp_path, "s3")
    doc: Any = lake.read("gold")
    doc["tables"][f"LakeWard.{table}"] = {**doc["tables"]["shop.users"], "schema": "LakeWard", "table": table}
    republished(lake, doc)
    with pytest.raises(ConfigError, match=rf"LakeWard\.{table} would bear the name of a table of Lakeward's own"):
        plan.render(lake, config)
    plan.render(lake, parse({"snowflake": {**published.CASES["s3"][1], "names": "source"}}))


@pytest.mark.parametrize(
    "value", ['{"CATALOG_URI": "https://x/y", "CATALOG_NAME": "c"}', "{CATALOG_URI=https://x/y, CATALOG_NAME=c}"]
)
def test_what_is_set_within_a_property_is_read_however_it_is_written(value):
    found = described([{"property": "rest_config", "property_value": value}])
    assert (found["CATALOG_URI"], found["CATALOG_NAME"]) == ("https://x/y", "c")
