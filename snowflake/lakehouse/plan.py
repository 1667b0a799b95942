"""The SQL that exposes this lake in Snowflake: `render(lake, config)`.

Pure: it reads gold's record of what is published and the configuration, reaches no network and changes nothing. The
statements are those of snowflake/sql/, in the order of their numbers, filled in by `snowflake.lakehouse.template`. All
of them can be run again; after a run of gold the part 31 (and 41, where external tables are used) brings Snowflake up
to date.
"""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from gold.published import PublishedTable, published
from lakeward.config import Config, Snowflake
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.state import load_bronze, load_silver
from snowflake.lakehouse.catalogs import catalog_values
from snowflake.lakehouse.landing_sql import HISTORY, LANDED_SCHEMA, landed, landing_values
from snowflake.lakehouse.spelling import plain, refuse_twins, snowflake_type, spell, unquoted
from snowflake.lakehouse.storage import Storage, relative, storage_of
from snowflake.lakehouse.template import Values, bare_path, comment, fill

EXPORT_FOLDER = "export"
EXPORT_SCHEMA = "{}__EXPORT"  # of a source schema's external tables
DELTA_SCHEMA = "{}__SILVER"  # of its silver tables as Delta
PUBLISHED_FILE = "lakeward/published.json"  # in the stage on the exports
OWN_SCHEMA = "LAKEWARD"  # the stage, the file format, freshness, and the sink's positions

FRESHNESS, FRESHNESS_VIEW = "FRESHNESS", "FRESHNESS_NOW"
OWN_TABLES = (FRESHNESS, FRESHNESS_VIEW, "LANDING_RAW", "SINK_POSITIONS")  # no table of a source can bear these there


@dataclass(frozen=True)
class Plan:
    """The whole SQL, and what is still to be filled in before it can be run."""

    text: str
    missing: list[str]  # placeholders, as lines for a reader
    tables: int  # published


def render(lake: Lake, config: Config) -> str:
    """All statements, each file under its own heading.

    Raises ConfigError for settings or table names that Snowflake cannot take as they are.
    """
    return build(lake, config).text


def build(lake: Lake, config: Config) -> Plan:
    """The plan of `render`, and what it lacks. Errors as there."""
    tables = sorted(published(lake), key=lambda t: (t.kind == "freshness", t.schema, t.table))
    storage = storage_of(lake, config.snowflake)
    values = _values(lake, config, storage, tables)
    parts = [made for text in templates().values() if (made := fill(text, values).strip())]
    return Plan("\n\n".join([_heading(lake, storage, tables), *parts]) + "\n", storage.missing, len(tables))


def templates() -> dict[str, str]:
    """snowflake/sql/*.sql by file name, in order."""
    found = [f for f in files("snowflake").joinpath("sql").iterdir() if f.name.endswith(".sql")]
    return {f.name: f.read_text(encoding="utf-8") for f in sorted(found, key=lambda f: f.name)}


def _heading(lake: Lake, storage: Storage, tables: list[PublishedTable]) -> str:
    lines = [f"Lakeward: the lake {lake.root} as Snowflake is to see it"]
    if tables:
        lines.append(f"{len(tables)} published tables, at {max(t.cut.at for t in tables)} of the source")
    else:
        lines.append("NOTHING IS PUBLISHED YET: run `lakeward gold`, then render this plan again")
    if lake.local:
        lines += [
            "LOCAL LAKE: Snowflake reads object stores only, and Iceberg's metadata names its files by absolute path.",
            "Set [lake] root to the object store and run the pipeline there; what follows shows the form.",
        ]
    lines += [f"PLACEHOLDER: {line}" for line in storage.missing]
    return "\n".join(f"-- {comment(line)}" for line in lines)


def _values(lake: Lake, whole: Config, storage: Storage, tables: list[PublishedTable]) -> Values:
    config = whole.snowflake
    database = unquoted(config.database)
    provider = storage.provider
    exported = [t for t in tables if t.export_location is not None]
    delta = delta_tables(lake, whole)
    own = (database, OWN_SCHEMA)
    refuse_twins(
        [
            *[(t.schema, t.table) for t in tables if t.kind != "freshness"],
            *[(EXPORT_SCHEMA.format(t.schema), t.table) for t in exported],
            *[(DELTA_SCHEMA.format(n.schema), n.table) for n in delta],
            *[(LANDED_SCHEMA.format(s.name.schema), t) for s in landed(lake, whole) for t in _landed(s.name.table)],
        ],
        config.names,
        own=(OWN_SCHEMA, OWN_TABLES),
    )
    values: dict[str, Any] = {
        "database": database,
        "external_volume": plain(config.external_volume, "external_volume"),
        "storage_integration": plain(config.storage_integration, "storage_integration"),
        "read_role": unquoted(config.read_role),
        "warehouse": unquoted(config.warehouse) if config.warehouse else None,
        "s3": provider == "S3",
        "gcs": provider == "GCS",
        "azure": provider == "AZURE",
        "s3compat": provider == "S3COMPAT",
        "integrated": provider != "S3COMPAT",
        "base_url": storage.base_url,
        "export_url": f"{storage.base_url}{EXPORT_FOLDER}/",
        "export_url_s3compat": f"{storage.base_url}{EXPORT_FOLDER}/",
        "export_urls": [f"{storage.base_url}{EXPORT_FOLDER}/"],
        "stage": (*own, "EXPORTS"),
        "file_format": (*own, "PARQUET_FILES"),
        "json_format": (*own, "JSON_FILES"),
        "published": ((*own, "EXPORTS"), PUBLISHED_FILE),
        "schemas": [{"schema": (database, s)} for s in _schemas(tables, exported, delta, config)],
        "delta": bool(delta),
        **_tables(lake, config, database, storage.base_url, tables, delta),
    }
    freshness = next((t for t in tables if t.kind == "freshness"), None)
    if freshness is not None:
        values["freshness"] = _place(freshness, config, database)
        values["freshness_view"] = (*own, FRESHNESS_VIEW)
    catalog = catalog_values(whole, storage, tables, delta=bool(delta))
    landing = landing_values(lake, whole, storage)
    values["schemas"] += [{"schema": schema} for schema in sorted({t["table"][:2] for t in landing["landed_tables"]})]
    if landing["landing"]:
        values["export_urls"].append(landing["landing_url"])
    return {**values, **catalog, **landing, **_provider_settings(config, storage)}


def _tables(
    lake: Lake,
    config: Snowflake,
    database: str,
    base_url: str,
    tables: list[PublishedTable],
    delta: list[TableName],
) -> dict[str, Any]:
    """The tables of each way: Iceberg, external, Delta. Freshness is apart, for it is made and refreshed last."""
    exports = [_export(lake, config, database, base_url, t) for t in tables if t.export_location is not None]
    iceberg = [
        {
            "table": _place(t, config, database),
            "metadata_file": relative(lake, t.metadata_file),
            "catalog_namespace": t.catalog_name[0],
            "catalog_table": t.catalog_name[1],
            "fresh": t.kind == "freshness",
        }
        for t in tables
    ]
    return {
        "tables": [t for t in iceberg if not t["fresh"]],
        "freshness_tables": [t for t in iceberg if t["fresh"]],
        "exports": exports,
        "export_stages": [e for e in exports if "own_stage" in e],
        "delta_tables": [
            {
                "table": (database, spell(DELTA_SCHEMA.format(n.schema), config.names), spell(n.table, config.names)),
                "base_location": f"silver/{n.folder}/",
            }
            for n in delta
        ],
    }


def _provider_settings(config: Snowflake, storage: Storage) -> dict[str, Any]:
    if storage.provider == "S3":
        example = "arn:aws:iam::123456789012:role/YOUR-ROLE"
        return {
            "aws_role_arn": storage.setting(config.storage_aws_role_arn, "storage_aws_role_arn", example),
            "aws_external_id": config.storage_aws_external_id,
        }
    if storage.provider == "AZURE":
        return {"azure_tenant_id": storage.setting(config.azure_tenant_id, "azure_tenant_id", "YOUR-TENANT-ID")}
    if storage.provider == "S3COMPAT":
        for name in ("storage_key_id", "storage_secret_key"):
            if getattr(config, name) is None:
                storage.missing.append(f"[snowflake] {name} is not set")
        return {
            "storage_key_id": "storage_key_id",
            "storage_secret_key": "storage_secret_key",
            "endpoint": storage.setting(config.storage_endpoint, "storage_endpoint", "s3.YOUR-PROVIDER.example"),
        }
    return {}


def _schemas(
    tables: list[PublishedTable], exported: list[PublishedTable], delta: list[TableName], config: Snowflake
) -> list[str]:
    sources = [] if config.catalog == "linked" else [t.schema for t in tables if t.kind != "freshness"]
    sources += [EXPORT_SCHEMA.format(t.schema) for t in exported] + [DELTA_SCHEMA.format(n.schema) for n in delta]
    return sorted({OWN_SCHEMA, *(spell(schema, config.names) for schema in sources)})


def _place(table: PublishedTable, config: Snowflake, database: str) -> tuple[str, str, str]:
    """Where an analyst finds the table."""
    if config.catalog == "linked":  # by the catalog's own names, case and all
        return unquoted(config.linked_database), *table.catalog_name
    if table.kind == "freshness":
        return database, OWN_SCHEMA, FRESHNESS
    return database, spell(table.schema, config.names), spell(table.table, config.names)


def _landed(table: str) -> tuple[str, str]:
    return table, HISTORY.format(table)


def delta_tables(lake: Lake, config: Config) -> list[TableName]:
    """The silver tables that [snowflake] delta shows as they are."""
    globs = config.snowflake.delta
    if not globs:
        return []
    bronze = load_bronze(lake).tables
    names = [bronze[n].name for n in load_silver(lake).tables if n in bronze]
    return sorted(n for n in names if any(fnmatch.fnmatchcase(str(n), glob) for glob in globs))


def _export(lake: Lake, config: Snowflake, database: str, base_url: str, table: PublishedTable) -> dict[str, Any]:
    """The external table on an export. A folder that cannot stand without quotes is that of a stage of the table's own,
    in the stage's URL."""
    assert table.export_location is not None, "only exported tables come here"
    folder = relative(lake, table.export_location).removeprefix(f"{EXPORT_FOLDER}/")
    place = (database, spell(EXPORT_SCHEMA.format(table.schema), config.names), spell(table.table, config.names))
    above, _, last = folder.rpartition("/")
    stage = {} if bare_path(f"{folder}/") else {"own_stage": place, "own_url": f"{base_url}{EXPORT_FOLDER}/{above}/"}
    return {
        "table": place,
        "columns": [(spell(name, config.names), snowflake_type(kind), name) for name, kind in table.columns],
        "location": (place, f"{last}/") if stage else ((database, OWN_SCHEMA, "EXPORTS"), f"{folder}/"),
        **stage,
    }
