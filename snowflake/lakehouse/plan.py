"""The SQL that exposes this lake in Snowflake: `render(lake, config)`.

Pure: it reads gold's record of what is published and the configuration, reaches no network and changes nothing. The
statements are those of snowflake/sql/, in the order of their numbers, filled in by `snowflake.lakehouse.template`. All
of them can be run again; after a run of gold the part 31 (and 41, where external tables are used) brings Snowflake up
to date.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from gold.published import PublishedTable, published
from lakeward.config import Config, Snowflake
from lakeward.lake import Lake
from snowflake.lakehouse.spelling import plain, refuse_twins, snowflake_type, spell, unquoted
from snowflake.lakehouse.storage import Storage, relative, storage_of
from snowflake.lakehouse.template import Values, comment, fill

EXPORT_FOLDER = "export"
EXPORT_SCHEMA = "{}__EXPORT"  # of a source schema's external tables
OWN_SCHEMA = "LAKEWARD"  # the stage, the file format, freshness, and the sink's positions


def render(lake: Lake, config: Config) -> str:
    """All statements, each file under its own heading.

    Raises ConfigError for settings or table names that Snowflake cannot take as they are.
    """
    tables = sorted(published(lake), key=lambda t: (t.kind == "freshness", t.schema, t.table))
    storage = storage_of(lake, config.snowflake)
    values = _values(lake, config.snowflake, storage, tables)
    parts = [fill(text, values).strip() for text in templates().values()]
    return "\n\n".join([_heading(lake, storage, tables), *parts]) + "\n"


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


def _values(lake: Lake, config: Snowflake, storage: Storage, tables: list[PublishedTable]) -> Values:
    database = unquoted(config.database)
    provider = storage.provider
    exported = [t for t in tables if t.export_location is not None]
    own = (database, OWN_SCHEMA)
    refuse_twins(
        [
            (OWN_SCHEMA.lower(), ""),
            *[(t.schema, t.table) for t in tables],
            *[(_export_schema(t), t.table) for t in exported],
        ],
        config.names,
    )
    values: dict[str, Any] = {
        "database": database,
        "external_volume": plain(config.external_volume, "external_volume"),
        "catalog_integration": plain(config.catalog_integration, "catalog_integration"),
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
        "schemas": [{"schema": (database, s)} for s in _schemas(tables, exported, config)],
        "tables": [
            {
                "table": (database, *_spelled(t, config)),
                "metadata_file": relative(lake, t.metadata_file),
            }
            for t in tables
        ],
        "exports": [_export(lake, config, database, t) for t in exported],
    }
    freshness = next((t for t in tables if t.kind == "freshness"), None)
    if freshness is not None:
        values["freshness"] = (database, *_spelled(freshness, config))
        values["freshness_view"] = (*own, "FRESHNESS_NOW")
    return {**values, **_provider_settings(config, storage)}


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
        storage.missing.append("AWS_KEY_ID and AWS_SECRET_KEY of the external volume and of the stage")
        return {"endpoint": storage.setting(config.storage_endpoint, "storage_endpoint", "s3.YOUR-PROVIDER.example")}
    return {}


def _schemas(tables: list[PublishedTable], exported: list[PublishedTable], config: Snowflake) -> list[str]:
    published_in = {_spelled(t, config)[0] for t in tables}
    return sorted({OWN_SCHEMA, *published_in, *(spell(_export_schema(t), config.names) for t in exported)})


def _spelled(table: PublishedTable, config: Snowflake) -> tuple[str, str]:
    if table.kind == "freshness":
        return OWN_SCHEMA, table.table.upper()
    return spell(table.schema, config.names), spell(table.table, config.names)


def _export_schema(table: PublishedTable) -> str:
    return EXPORT_SCHEMA.format(table.schema)


def _export(lake: Lake, config: Snowflake, database: str, table: PublishedTable) -> dict[str, Any]:
    assert table.export_location is not None, "only exported tables come here"
    folder = relative(lake, table.export_location).removeprefix(f"{EXPORT_FOLDER}/")
    return {
        "table": (database, spell(_export_schema(table), config.names), spell(table.table, config.names)),
        "columns": [(spell(name, config.names), snowflake_type(kind), name) for name, kind in table.columns],
        "location": ((database, OWN_SCHEMA, "EXPORTS"), f"{folder}/"),
    }
