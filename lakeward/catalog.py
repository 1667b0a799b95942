"""The Iceberg catalog that gold is published in, as Spark's settings: a folder, a database, a REST server, or Glue.

Tables lie at `<root>/gold/<schema>/<table>` whatever the catalog is, so that a table can be moved to another catalog
by registering its metadata file there. With `hadoop` the folder itself is the catalog. That is safe for one writer,
which the lake's lock sees to; a catalog that others write to, or that readers list, should be one of the others.
"""

from __future__ import annotations

from lakeward.config import Gold
from lakeward.errors import ConfigError
from lakeward.storage import SDK, sdk

NAME = "gold"
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
LOCATION = "spark.lakeward.gold"  # where tables of a catalog that has no folders of its own are put
LOWER = "spark.lakeward.gold.lower"  # set where the catalog folds the case of names
S3_FILES = "org.apache.iceberg.aws.s3.S3FileIO"  # what takes the credentials that a REST server hands out
ICEBERG_SDK = (*SDK, "dynamodb", "glue", "kms", "url-connection-client")  # it names the classes of all of them
_PREFIX = f"spark.sql.catalog.{NAME}"


def settings(gold: Gold, lake_root: str) -> dict[str, str]:
    """Spark's settings for the catalog `gold` of the lake at `lake_root` (an absolute path or a URI).

    They hold secrets, and are for a session that is there (`SparkSession.conf`), not for one that is to be started.

    Raises ConfigError for a catalog that is not in this version, or that lacks its uri.
    """
    check(gold)
    warehouse = f"{lake_root}/{NAME}"
    own = {"type": gold.catalog, "cache-enabled": "false"}
    if gold.catalog != "rest":  # a REST server names its warehouses itself
        own["warehouse"] = warehouse
    if gold.uri:
        own["uri"] = gold.uri
    if gold.catalog != "hadoop":
        # The lake's one way to its files; `properties` may name another, for vended credentials.
        own["io-impl"] = "org.apache.iceberg.hadoop.HadoopFileIO"
    if gold.catalog == "jdbc":
        own["jdbc.schema-version"] = "V1"
    if gold.catalog == "glue":
        own["glue.skip-name-validation"] = "true"  # ours are in lower case, and may hold a hyphen
    if _by_aws(gold):
        own["http-client.type"] = "urlconnection"  # Iceberg's own choice needs a newer SDK than hadoop-aws's
    own.update(gold.revealed())
    found = {_PREFIX: "org.apache.iceberg.spark.SparkCatalog", **{f"{_PREFIX}.{k}": v for k, v in own.items()}}
    if gold.catalog != "hadoop":
        found[LOCATION] = warehouse
    if gold.catalog == "glue":
        found[LOWER] = "true"
    return found


def check(gold: Gold) -> None:
    """Raises ConfigError as `settings` does, before anything is started."""
    if gold.catalog in ("jdbc", "rest") and not gold.uri:
        example = (
            "jdbc:sqlite:/var/lib/lakeward/catalog.db" if gold.catalog == "jdbc" else "https://catalog.example.com"
        )
        raise ConfigError(f'[gold] catalog = "{gold.catalog}" needs a uri', hint=f'write uri = "{example}"')
    if gold.catalog in ("hadoop", "glue") and gold.uri:
        raise ConfigError('[gold] uri goes with catalog = "jdbc" or "rest"', hint="name the catalog, or take uri out")


def artifacts(gold: Gold) -> tuple[str, ...]:
    """The Maven artifacts that the catalog needs beside Iceberg: `[gold] jars`, SQLite's driver, AWS's clients."""
    sqlite = (SQLITE,) if gold.catalog == "jdbc" and str(gold.uri).startswith("jdbc:sqlite:") else ()
    aws = sdk(ICEBERG_SDK) if _by_aws(gold) else ()
    return (*sqlite, *aws, *gold.jars)


def _by_aws(gold: Gold) -> bool:
    """Whether Iceberg goes to the catalog, or to the files, by AWS's own clients."""
    return gold.catalog == "glue" or gold.properties.get("io-impl") == S3_FILES
