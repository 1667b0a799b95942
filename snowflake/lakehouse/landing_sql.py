"""The values of part 45: the stage, pipe, raw table and Dynamic Tables over the landed files."""

from __future__ import annotations

import fnmatch
from typing import Any

from lakeward.config import Config
from lakeward.lake import Lake
from lakeward.schema import GEOMETRY_ARROW, Column, TableSchema
from lakeward.state import load_bronze
from snowflake.lakehouse.spelling import snowflake_type, spell, unquoted
from snowflake.lakehouse.storage import Storage

LANDED_SCHEMA = "{}__LANDED"  # of a source schema's Dynamic Tables
HISTORY = "{}__HISTORY"


def landed(lake: Lake, config: Config) -> list[TableSchema]:
    """The tables that are landed and have a key, which a state of their rows needs."""
    globs = config.landing.tables
    if not globs:
        return []
    tables = sorted(load_bronze(lake).tables.items())
    return [t.schema for n, t in tables if t.schema.keys and any(fnmatch.fnmatchcase(n, g) for g in globs)]


def landing_values(lake: Lake, config: Config, storage: Storage) -> dict[str, Any]:
    """What the template asks; nothing where no table is landed. A missing warehouse becomes a placeholder."""
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
        "landed_tables": [_table(schema, config, own[0]) for schema in landed(lake, config)],
    }


def _table(schema: TableSchema, config: Config, database: str) -> dict[str, Any]:
    names = config.snowflake.names
    place = spell(LANDED_SCHEMA.format(schema.name.schema), names)
    columns = [(spell(c.name, names), _type(c), c.name) for c in schema.columns]
    return {
        "table": (database, place, spell(schema.name.table, names)),
        "history": (database, place, spell(HISTORY.format(schema.name.table), names)),
        "source_table": str(schema.name),
        "landed_columns": columns,
        "landed_keys": list(schema.keys),
    }


def _type(column: Column) -> str:
    structured = column.kind == "json" or column.arrow == GEOMETRY_ARROW
    return "VARIANT" if structured and not column.masked else snowflake_type(column.spark.lower())
