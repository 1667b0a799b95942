"""The settings of volumes, integrations and linked databases: what Snowflake has, against what the plan says.

What ALTER can set is set. What it cannot is refused by name, for dropping a volume or an integration takes every table
that stands on it along. What DESC does not name is not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from lakeward.errors import TerminalError
from lakeward.names import sql_literal
from snowflake.lakehouse.inventory import Inventory
from snowflake.lakehouse.statements import Statement, settings_of
from snowflake.lakehouse.template import literals, qualified, secret

Alteration = tuple[str, str]  # the statement, and why
_AWS = ("STORAGE_PROVIDER", "STORAGE_AWS_ROLE_ARN", "STORAGE_AWS_EXTERNAL_ID", "AZURE_TENANT_ID")
_COMPARED = {
    "EXTERNAL VOLUME": (*_AWS, "STORAGE_BASE_URL", "STORAGE_ENDPOINT"),
    "CATALOG INTEGRATION": (
        *("CATALOG_SOURCE", "TABLE_FORMAT", "CATALOG_URI", "CATALOG_NAME", "CATALOG_API_TYPE"),
        *("ACCESS_DELEGATION_MODE", "TYPE", "OAUTH_TOKEN_URI", "OAUTH_CLIENT_ID"),
        *("SIGV4_IAM_ROLE", "SIGV4_SIGNING_REGION", "GLUE_AWS_ROLE_ARN", "GLUE_CATALOG_ID", "GLUE_REGION"),
    ),
    "STORAGE INTEGRATION": (*_AWS, "STORAGE_ALLOWED_LOCATIONS"),
}
_ALWAYS = "CATALOG_SOURCE"  # every DESC CATALOG INTEGRATION has it: one without is another kind of integration
_NAMED_BY = {
    "EXTERNAL VOLUME": "external_volume",
    "CATALOG INTEGRATION": "catalog_integration",
    "STORAGE INTEGRATION": "storage_integration",
}


def altered(wanted: Statement, there: Inventory, rotated: Collection[str]) -> list[Alteration]:
    """What brings the object that is there to what `wanted` would make. `rotated`: the secrets that are new.

    Raises TerminalError for a setting that Snowflake cannot change, and names it.
    """
    made: list[Alteration] = []
    if wanted.kind in _COMPARED:
        made += _compared(wanted, there)
    if wanted.kind == "EXTERNAL VOLUME":
        made += _read_only(wanted, there)
    if wanted.name in there.linked and wanted.kind == "DATABASE":
        made += _linked(wanted, there.linked[wanted.name])
    new = [name for name in rotated if secret(name) in wanted.text]
    return [*made, (_SECRETS[wanted.kind](wanted), "a new secret")] if new else made


def _compared(wanted: Statement, there: Inventory) -> list[Alteration]:
    asked, now = settings_of(wanted), there.settings.get((wanted.kind, wanted.name), {})
    other: dict[str, tuple[tuple[str, ...], str]] = {}
    for name in _COMPARED[wanted.kind]:
        if name in asked and not _same(name, asked[name], now.get(name)):
            other[name] = asked[name], now.get(name) or "unknown"
    if not other:
        return []
    if wanted.kind == "STORAGE INTEGRATION" and "STORAGE_PROVIDER" not in other:
        return [(_storage(wanted, name, value), f"another {name}") for name, (value, _) in other.items()]
    if set(other) == {"STORAGE_BASE_URL"}:
        (url,), found = other["STORAGE_BASE_URL"]
        what = f"the external volume {wanted.name[0]} lies at {found}, and this lake at {url}"
    else:
        what = f"the {wanted.kind.lower()} {wanted.name[0]} has other settings than [snowflake] says: " + "; ".join(
            f"{name} is {found}, not {', '.join(value)}" if "EXTERNAL_ID" not in name else f"{name} is another"
            for name, (value, found) in other.items()
        )
    raise TerminalError(
        what,
        hint=f"Snowflake cannot change that: set {_NAMED_BY[wanted.kind]} in [snowflake] to another name, and apply "
        "makes it and moves the tables there; or drop it, and the tables on it, in Snowflake first",
    )


def _same(name: str, asked: tuple[str, ...], now: str | None) -> bool:
    if not now or set(now) == {"*"}:  # not said, or not shown
        return name != _ALWAYS
    if name == "STORAGE_ALLOWED_LOCATIONS":
        return {place.rstrip("/") for place in asked} == {place.strip().rstrip("/") for place in now.split(",")}
    return asked[0].rstrip("/").casefold() == now.rstrip("/").casefold()


def _storage(wanted: Statement, name: str, value: tuple[str, ...]) -> str:
    of = qualified(wanted.name)
    if name == "STORAGE_ALLOWED_LOCATIONS":
        return f"ALTER STORAGE INTEGRATION {of} SET STORAGE_ALLOWED_LOCATIONS = {literals(value)}"
    if name == "AZURE_TENANT_ID":
        return f"ALTER STORAGE INTEGRATION {of} SET AZURE_TENANT_ID = {sql_literal(value[0])}"
    return f"ALTER STORAGE INTEGRATION {of} SET STORAGE_AWS_ROLE_ARN = {sql_literal(value[0])}"


def _read_only(wanted: Statement, there: Inventory) -> list[Alteration]:
    if str(there.objects[wanted.kind, wanted.name].get("allow_writes", "")).lower() == "false":
        return []
    return [(f"ALTER EXTERNAL VOLUME {qualified(wanted.name)} SET ALLOW_WRITES = FALSE", "it lets Snowflake write")]


def _linked(wanted: Statement, now: Mapping[str, Any]) -> list[Alteration]:
    """A linked database: read only, and with every namespace that gold has published."""
    asked, of = settings_of(wanted), qualified(wanted.name)
    for name, key in (("CATALOG", "catalog_integration"), ("CATALOG_CASE_SENSITIVITY", "catalog_case_sensitivity")):
        found = now.get(key)
        if found and str(found).strip('"') != asked[name][0]:
            raise TerminalError(
                f"the linked database {wanted.name[0]} has {name} = {found}, and the plan {asked[name][0]}",
                hint="set linked_database in [snowflake] to another name, or drop it: nothing is stored there",
            )
    made: list[Alteration] = []
    if str(now.get("allowed_write_operations", "")).upper() != "NONE":
        text = f"ALTER DATABASE {of} UPDATE LINKED_CATALOG SET ALLOWED_WRITE_OPERATIONS = NONE"
        made.append((text, "a DROP TABLE there would delete the lake's data"))
    allowed = now.get("allowed_namespaces")
    if isinstance(allowed, str):
        allowed = [name.strip(" '\"[]") for name in allowed.split(",")]
    new = [name for name in asked["ALLOWED_NAMESPACES"] if allowed and name not in allowed]  # none named: all are
    if new:
        text = f"ALTER DATABASE {of} UPDATE LINKED_CATALOG ADD {literals(new)} TO ALLOWED_NAMESPACES"
        made.append((text, "a new namespace"))
    return made


def _catalog_secret(wanted: Statement) -> str:
    of = qualified(wanted.name)
    if secret("rest_bearer_token") in wanted.text:
        return (
            f"ALTER CATALOG INTEGRATION {of} SET REST_AUTHENTICATION = (BEARER_TOKEN = {secret('rest_bearer_token')})"
        )
    place = secret("rest_oauth_client_secret")
    return f"ALTER CATALOG INTEGRATION {of} SET REST_AUTHENTICATION = (OAUTH_CLIENT_SECRET = {place})"


def _volume_keys(wanted: Statement) -> str:
    key, value = secret("storage_key_id"), secret("storage_secret_key")
    credentials = f"CREDENTIALS = (AWS_KEY_ID = {key} AWS_SECRET_KEY = {value})"
    return f"ALTER EXTERNAL VOLUME {qualified(wanted.name)} UPDATE STORAGE_LOCATION = 'lakeward' {credentials}"


def _stage_keys(wanted: Statement) -> str:
    key, value = secret("storage_key_id"), secret("storage_secret_key")
    return f"ALTER STAGE {qualified(wanted.name)} SET CREDENTIALS = (AWS_KEY_ID = {key} AWS_SECRET_KEY = {value})"


_SECRETS: Mapping[str, Callable[[Statement], str]] = {
    "CATALOG INTEGRATION": _catalog_secret,
    "EXTERNAL VOLUME": _volume_keys,
    "STAGE": _stage_keys,
}
