"""How Snowflake finds gold's tables: the values of part 20, 30 and 31 for each `[snowflake] catalog`.

Vended credentials are the catalog's own, so the tables name no external volume; the volume is then made only where
silver is shown as Delta, which has no catalog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gold.published import PublishedTable
from lakeward.config import Config, Snowflake
from lakeward.errors import ConfigError
from snowflake.lakehouse.spelling import plain, unquoted
from snowflake.lakehouse.storage import Storage

DELTA_SUFFIX = "_DELTA"
SHARED = ("rest", "glue")  # of [gold]; Glue can also be asked as a REST catalog, and a REST catalog may be Glue's


def catalog_values(whole: Config, storage: Storage, tables: Sequence[PublishedTable], *, delta: bool) -> dict[str, Any]:
    """What the templates ask about the catalog. A setting that is missing becomes a placeholder of `storage`.

    Raises ConfigError for vended credentials without a REST catalog, and for a catalog that gold is not in.
    """
    config, own = whole.snowflake, whole.gold.catalog
    if config.catalog != "object_store" and own not in SHARED:
        raise ConfigError(
            f'[snowflake] catalog = "{config.catalog}" with [gold] catalog = "{own}", which Snowflake cannot ask',
            hint='publish gold in a catalog of both, [gold] catalog = "rest" or "glue", or have Snowflake read the '
            'metadata files: [snowflake] catalog = "object_store"',
        )
    kind, name = config.catalog, plain(config.catalog_integration, "catalog_integration")
    rest = kind in ("rest", "linked")
    if config.rest_vended_credentials and not rest:
        raise ConfigError(
            f'[snowflake] rest_vended_credentials with catalog = "{kind}"',
            hint='a REST catalog hands credentials out: catalog = "rest" or "linked"',
        )
    vended = config.rest_vended_credentials
    namespaces = sorted({t.catalog_name[0] for t in tables})
    linked_database = unquoted(config.linked_database)
    values: dict[str, Any] = {
        "catalog_integration": name,
        "delta_integration": f"{name}{DELTA_SUFFIX}",
        "object_store": kind == "object_store",
        "glue": kind == "glue",
        "rest": rest,
        "linked": kind == "linked",
        "in_order": kind != "linked",  # Lakeward refreshes the tables, freshness last
        "by_path": kind == "object_store",
        "by_name": kind in ("rest", "glue"),
        "vended": vended,
        "not_vended": not vended,
        "volume": not vended or delta,
        "volume_tables": not vended,
        "namespaces": namespaces,
        "linked_database": linked_database,
        "linked_schemas": [{"schema": (linked_database, n)} for n in namespaces],
        "aws_region": config.aws_region,
    }
    if kind == "glue":
        values |= _role(config, storage)
        values["aws_catalog_id"] = storage.setting(config.aws_catalog_id, "aws_catalog_id", "123456789012")
    if rest:
        values |= _rest(config, storage)
    return values


def _rest(config: Snowflake, storage: Storage) -> dict[str, Any]:
    values: dict[str, Any] = {
        "rest_uri": storage.setting(config.rest_uri, "rest_uri", "https://YOUR-CATALOG.example"),
        "rest_catalog_name": config.rest_catalog_name,
        "rest_glue": config.rest_uri is not None and "//glue." in config.rest_uri,
        config.rest_auth: True,
    }
    if config.rest_auth == "sigv4":
        return values | _role(config, storage)
    secret = "rest_bearer_token" if config.rest_auth == "bearer" else "rest_oauth_client_secret"
    if getattr(config, secret) is None:
        storage.missing.append(f"[snowflake] {secret} is not set")
    if config.rest_auth == "oauth":
        values |= {
            "rest_oauth_token_uri": config.rest_oauth_token_uri,
            "rest_oauth_client_id": storage.setting(
                config.rest_oauth_client_id, "rest_oauth_client_id", "YOUR-CLIENT-ID"
            ),
            "rest_oauth_scopes": config.rest_oauth_scopes,
        }
    return {**values, secret: secret}


def _role(config: Snowflake, storage: Storage) -> dict[str, Any]:
    example = "arn:aws:iam::123456789012:role/YOUR-CATALOG-ROLE"
    return {"aws_catalog_role_arn": storage.setting(config.aws_catalog_role_arn, "aws_catalog_role_arn", example)}
