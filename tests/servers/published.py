"""Lakes that have published something, as their documents say it: without a table's files, and without Spark."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from gold.state import GoldState, GoldTable, save_gold
from lakeward.config import Config, parse
from lakeward.lake import Lake
from lakeward.names import TableName, encode_path
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver

CUT = Checkpoint(Position(1, 7, 4711), "", 1_700_000_000_000)


def gold_table(root, schema, table, kind="mirror", columns=(), export=True):
    folder = f"{schema}/{table}"
    return GoldTable(
        schema=schema,
        table=table,
        kind=kind,
        identifier=f"gold.`{encode_path(schema)}`.`{encode_path(table)}`",
        location=f"{root}/gold/{folder}",
        metadata_file=f"{root}/gold/{folder}/metadata/v3.metadata.json",
        snapshot=1,
        columns=[list(c) for c in columns],
        rows=3,
        cut=CUT,
        published_ms=1_700_000_001_000,
        export_location=f"{root}/export/{folder}/cut=1-7-4711" if export else None,
    )


def lake_with(tmp_path, root=None):
    """A lake that has published two mirrors, a mart and its freshness, as if it were at `root`."""
    at = root or str(tmp_path)
    every = [("id", "int"), ("fare", "decimal(10,2)"), ("at", "timestamp_ntz"), ("ts", "timestamp"), ("j", "string")]
    every += [("raw", "binary"), ("place", "struct<srid:int,wkb:binary>"), ("v", "array<float>"), ("x", "double")]
    tables = [
        gold_table(at, "shop", "trips", columns=every),
        gold_table(at, "shop", "users", columns=[("id", "bigint"), ("on", "boolean"), ("day", "date")]),
        gold_table(at, "marts", "revenue", "mart", export=False),
        gold_table(at, "lakeward", "freshness", "freshness", export=False),
    ]
    lake = Lake(str(tmp_path))
    save_gold(lake, GoldState(tables={f"{t.schema}.{t.table}": t for t in tables}))
    names = [TableName("shop", "trips"), TableName("shop", "order items")]
    schemas = [TableSchema(n, (column_from_catalog("id", "int", nullable=False),), ("id",), "primary") for n in names]
    save_bronze(lake, BronzeState(tables={str(s.name): BronzeTable(s, "streaming", generation=1) for s in schemas}))
    save_silver(lake, SilverState(cut=CUT, tables={str(n): SilverTable(CUT.at, 1, 1, 3, 1, ["id"]) for n in names}))
    if root is not None:
        written = lake
        lake = Lake(root)
        lake.read = written.read  # type: ignore[method-assign]
    return lake


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "s3": ("s3a://bucket/lake", {"storage_aws_role_arn": "arn:aws:iam::1:role/r", "storage_aws_external_id": "e"}),
    "gcs": ("gs://bucket/lake", {"warehouse": "analysts"}),
    "azure": ("abfss://box@acc.dfs.core.windows.net/lake", {"azure_tenant_id": "t"}),
    "s3compat": ("s3a://bucket/lake", {"storage_provider": "S3COMPAT", "storage_endpoint": "s3.example.com"}),
    "rest": (
        "s3a://bucket/lake",
        {
            "catalog": "rest",
            "rest_uri": "https://catalog.example/api",
            "rest_catalog_name": "lake",
            "rest_oauth_client_id": "lakeward",
            "rest_oauth_client_secret": "env:CATALOG_SECRET",
            "storage_aws_role_arn": "arn:aws:iam::1:role/r",
        },
    ),
    "rest_vended": (
        "s3a://bucket/lake",
        {
            "catalog": "rest",
            "rest_uri": "https://catalog.example/api",
            "rest_vended_credentials": True,
            "rest_auth": "bearer",
            "rest_bearer_token": "env:CATALOG_TOKEN",
            "storage_aws_role_arn": "arn:aws:iam::1:role/r",
        },
    ),
    "glue": (
        "s3a://bucket/lake",
        {
            "catalog": "glue",
            "aws_catalog_role_arn": "arn:aws:iam::1:role/glue",
            "aws_catalog_id": "1",
            "aws_region": "eu-west-1",
            "storage_aws_role_arn": "arn:aws:iam::1:role/r",
        },
    ),
    "linked": (
        "s3a://bucket/lake",
        {
            "catalog": "linked",
            "rest_uri": "https://glue.eu-west-1.amazonaws.com/iceberg",
            "rest_auth": "sigv4",
            "rest_catalog_name": "1",
            "aws_catalog_role_arn": "arn:aws:iam::1:role/glue",
            "aws_region": "eu-west-1",
            "storage_aws_role_arn": "arn:aws:iam::1:role/r",
        },
    ),
    "landing": (
        "s3a://bucket/lake",
        {"storage_aws_role_arn": "arn:aws:iam::1:role/r", "warehouse": "loading", "landing": {"tables": ["shop.*"]}},
    ),
    "landing_gcs": (
        "gs://bucket/lake",
        {
            "warehouse": "loading",
            "gcp_pubsub_subscription": "projects/p/subscriptions/landing",
            "landing": {"tables": ["shop.trips"]},
        },
    ),
    "landing_azure": (
        "abfss://box@acc.dfs.core.windows.net/lake",
        {
            "azure_tenant_id": "t",
            "warehouse": "loading",
            "azure_storage_queue": "https://acc.queue.core.windows.net/landing",
            "notification_integration": "FILES",
            "landing": {"tables": ["shop.trips"]},
        },
    ),
    "landing_s3compat": (
        "s3a://bucket/lake",
        {
            "storage_provider": "S3COMPAT",
            "storage_endpoint": "s3.example.com",
            "storage_key_id": "env:STORE_ID",
            "storage_secret_key": "env:STORE_KEY",
            "warehouse": "loading",
            "landing": {"tables": ["shop.trips"]},
        },
    ),
    "delta": ("gs://bucket/lake", {"delta": ["shop.*"]}),
}
PROVIDERS = ("s3", "gcs", "azure", "s3compat")


def case(tmp_path: Path, name: str, **more: Any) -> tuple[Lake, Config]:
    """The lake and the configuration of one of CASES; `more` for [snowflake]."""
    root, doc = CASES[name]
    sections = {"snowflake": {k: v for k, v in doc.items() if k != "landing"} | more}
    gold = {"catalog": {"rest": "rest", "linked": "rest", "glue": "glue"}.get(doc.get("catalog", ""), "hadoop")}
    return lake_with(tmp_path, root), parse({**sections, "gold": gold, "landing": doc.get("landing", {})})


def republished(lake: Lake, doc: dict[str, Any]) -> None:
    """`lake` says from now on that gold has published `doc`."""

    def read(document: str) -> dict[str, Any] | None:
        return copy.deepcopy(doc) if document == "gold" else None

    lake.read = read  # type: ignore[method-assign]
