"""The values of part 45: the stage, pipe, raw table and Dynamic Tables over the landed files."""

from __future__ import annotations

import fnmatch
from typing import Any

from lakeward.config import Config
from lakeward.lake import Lake
from lakeward.schema import GEOMETRY_ARROW, Column
from lakeward.state import BronzeTable, load_bronze
from snowflake.lakehouse.spelling import plain, snowflake_type, spell, unquoted
from snowflake.lakehouse.storage import Storage

LANDED_SCHEMA = "{}__LANDED"  # of a source schema's Dynamic Tables
HISTORY = "{}__HISTORY"
INTEGRATION = "LAKEWARD_LANDING"  # of notifications, where it is made here


def landed(lake: Lake, config: Config) -> list[BronzeTable]:
    """The tables that are landed and have a key, which a state of their rows needs."""
    globs = config.landing.tables
    if not globs:
        return []
    tables = sorted(load_bronze(lake).tables.items())
    return [t for n, t in tables if t.schema.keys and any(fnmatch.fnmatchcase(n, g) for g in globs)]


def landing_values(lake: Lake, config: Config, storage: Storage) -> dict[str, Any]:
    """What the template asks; nothing where no table is landed. A missing warehouse becomes a placeholder, and so does
    what Azure and GCS need to tell the pipe of new files."""
    if not config.landing.tables:
        return {"landing": False, "landed_tables": []}
    own = (unquoted(config.snowflake.database), "LAKEWARD")
    if config.snowflake.warehouse is None:
        storage.setting(None, "warehouse", "YOUR_WAREHOUSE")
    return {
        "landing": True,
        "landing_url": f"{storage.base_url}{config.landing.prefix}/",
        "landing_url_s3compat": f"{storage.base_url}{config.landing.prefix}/",
        "landing_stage": (*own, "LANDING"),
        "landing_place": ((*own, "LANDING"), ""),
        "landing_pipe": (*own, "LANDING_PIPE"),
        "landing_raw": (*own, "LANDING_RAW"),
        "landing_warehouse": unquoted(config.snowflake.warehouse or "YOUR_WAREHOUSE"),
        "landed_tables": [_table(table, config, own[0]) for table in landed(lake, config)],
        **_notification(config, storage),
    }


def _notification(config: Config, storage: Storage) -> dict[str, Any]:
    """The integration through which the store tells the pipe of new files; S3 needs none, and other stores have none.

    It is made where its queue is known, and else must be there under the name that the settings give."""
    of = config.snowflake
    if storage.provider not in ("GCS", "AZURE"):
        return {"landing_integration": None, "landing_subscription": None, "landing_queue": None}
    setting, queue, example = {
        "GCS": ("gcp_pubsub_subscription", of.gcp_pubsub_subscription, "projects/YOUR-PROJECT/subscriptions/YOUR-ONE"),
        "AZURE": (
            *("azure_storage_queue", of.azure_storage_queue),
            "https://YOUR-ACCOUNT.queue.core.windows.net/YOUR-QUEUE",
        ),
    }[storage.provider]
    if queue is None and of.notification_integration is None:
        queue = storage.setting(None, f"{setting} (or notification_integration, one that is there)", example)
    return {
        "landing_integration": plain(of.notification_integration or INTEGRATION, "notification_integration"),
        "landing_subscription": queue if storage.provider == "GCS" else None,
        "landing_queue": queue if storage.provider == "AZURE" else None,
    }


def _table(table: BronzeTable, config: Config, database: str) -> dict[str, Any]:
    names, schema = config.snowflake.names, table.schema
    place = spell(LANDED_SCHEMA.format(schema.name.schema), names)
    columns = [(spell(c.name, names), _type(c), _fields(c.name, table)) for c in schema.columns]
    keys = [(_type(schema.column(k)), _fields(k, table)) for k in schema.keys]
    return {
        "table": (database, place, spell(schema.name.table, names)),
        "history": (database, place, spell(HISTORY.format(schema.name.table), names)),
        "source_table": str(schema.name),
        "landed_columns": columns,
        "landed_keys": keys,
        "landed_sent": (columns, keys),
        "landed_empty": _empty(table),
    }


def _empty(table: BronzeTable) -> list[dict[str, Any]]:
    """The table's generation where it began without a row, so that no event tells of it."""
    if table.start is None or table.snapshot_rows or not table.generation or table.status != "streaming":
        return []
    epoch, file, pos, _ = table.start
    return [{"generation": table.generation, "origin": f"{epoch:06d}-{file:010d}-{pos:014d}"}]


def _fields(name: str, table: BronzeTable) -> tuple[str, ...]:
    """What a column is called in the files, its present name first: a file stays as it was when a column is renamed."""
    found = [name]
    for old, new in reversed(table.renamed):
        if new == found[-1]:
            found.append(old)
    return tuple(found)


def _type(column: Column) -> str:
    if column.masked:
        return snowflake_type(column.spark.lower())
    if column.arrow == GEOMETRY_ARROW:
        return "GEOMETRY"
    return "JSON" if column.kind == "json" else snowflake_type(column.spark.lower())
