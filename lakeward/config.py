"""`lakeward.toml` as a value: read once, checked whole, never changed.

A wrong file is refused before anything is touched: an unknown key is named with its nearest neighbour, a value of
the wrong kind with the kind that is wanted. Secrets never stand in the file: a setting that holds one says where it
is (`env:NAME` or `file:PATH`) and is read only when it is used, so it is in no repr, state file or log.
"""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
import math
import os
import tomllib
import types
import typing
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_origin
from urllib.parse import unquote, urlsplit

from lakeward.errors import ConfigError
from lakeward.names import TableName
from lakeward.rowfilter import Filter, parse_filter
from lakeward.secretive import is_literal_secret, secret_in, shown
from lakeward.storage import check_root

TlsMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]
EMBEDDED = "embedded"
_REFERENCES = ("env:", "file:")


@dataclass(frozen=True)
class Secret:
    """Where a secret is: `env:NAME` or `file:PATH` (relative to the configuration file)."""

    where: str
    base: Path = Path()

    def reveal(self) -> str:
        """The secret itself. Raises ConfigError when the variable or file is not there."""
        kind, _, name = self.where.partition(":")
        if kind == "env":
            value = os.environ.get(name)
            if value is None:
                raise ConfigError(f"the environment variable {name} is not set", hint=f"export {name}=…")
            return value
        path = self.base / name
        try:
            return path.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise ConfigError(
                f"the secret's file {path} cannot be read: {error.strerror}",
                hint="create it, readable by this user alone",
            ) from error


@dataclass(frozen=True)
class Tls:
    mode: TlsMode = "preferred"
    ca: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Source:
    url: str = EMBEDDED  # mysql://user@host:port, or "embedded"
    password: Secret | None = None
    tls: Tls = field(default_factory=Tls)
    server_id: int = 7001  # unique among the source's replicas
    include: tuple[str, ...] = ()  # schema.table globs; every table the user may read where empty
    exclude: tuple[str, ...] = ()
    zero_dates: Literal["null", "fail"] = "null"
    max_batch_bytes: int = 256 << 20  # binlog bytes a bronze batch reads before it ends at a transaction's end
    max_task_bytes: int = 120 << 20  # that a task of bronze holds of events before it writes them out
    chunk_rows: int = 250_000  # rows of a snapshot chunk

    @property
    def embedded(self) -> bool:
        return self.url == EMBEDDED

    def address(self) -> tuple[str, str, int]:
        """(user, host, port) of `url`."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("mysql", "mariadb") or not parts.hostname:
            raise ConfigError(
                f"[source] url = {shown(self.url)!r} is not of the form mysql://user@host:port",
                hint="mend [source] url",
            )
        return unquote(parts.username or "replicator"), parts.hostname, parts.port or 3306

    def wants(self, table: TableName) -> bool:
        """Whether the include and exclude globs pick this table. Case counts, as it does on the server."""
        name = str(table)
        included = not self.include or any(fnmatch.fnmatchcase(name, glob) for glob in self.include)
        return included and not any(fnmatch.fnmatchcase(name, glob) for glob in self.exclude)


@dataclass(frozen=True)
class LakeConfig:
    root: str = "lake"  # a folder, or s3a://
    mask_key: Secret = field(default_factory=lambda: Secret("env:LAKEWARD_MASK_KEY"))
    endpoint: str | None = None  # of a store that speaks S3's protocol and is not AWS: http://minio:9000
    region: str | None = None
    keep_days: int = 7  # that `maintain` leaves readable what has been replaced, in every layer
    bronze_days: int | None = None  # events older than that, and of no more use, are removed by it; default: never
    maintain_every: float = 24.0  # hours after which a round of `run` ends with it; 0: never


@dataclass(frozen=True)
class Outbox:
    """The columns of an outbox table, named as Debezium's outbox router names them where nothing else is said."""

    id: str = "id"  # what names an event
    type: str = "type"  # what it is routed by: each type has a table of its own
    key: str = "aggregateid"
    aggregate: str = "aggregatetype"
    payload: str = "payload"  # JSON

    def required(self, names: Collection[str]) -> tuple[str, ...]:
        """The columns that an outbox with the columns `names` has to have: the aggregate's may be missing where it is
        not asked for by name."""
        optional = self.aggregate == Outbox.aggregate and self.aggregate not in names
        return (self.id, self.type, self.key, self.payload, *(() if optional else (self.aggregate,)))


@dataclass(frozen=True)
class TableConfig:
    keys: tuple[str, ...] | None = None
    history: Literal["scd1", "scd2"] = "scd1"
    deletes: Literal["hard", "soft"] = "hard"
    truncate: Literal["apply", "ignore"] = "apply"
    dropped_columns: Literal["drop", "keep"] = "drop"  # what silver does with a column that the source drops
    exclude_columns: tuple[str, ...] = ()
    mask: Mapping[str, str] = field(default_factory=dict)
    tinyint1: Literal["int", "boolean"] = "int"
    export_by: tuple[str, ...] = ()  # columns: the Parquet export has a folder for each of their values
    where: str | None = None  # rows of which it is not true stay outside
    outbox: Outbox | None = None  # its inserts become events in tables of their own

    @property
    def filter(self) -> Filter | None:
        return None if self.where is None else parse_filter(self.where, "where")


@dataclass(frozen=True)
class Quality:
    suites: str = "expectations"  # folder of Great Expectations suites, one <schema>.<table>.json a table
    data_docs: str | None = None  # folder of the pages; default <state folder>/data_docs
    threshold: float = 0.05  # share of a batch's rows in quarantine above which the gate stops the run


@dataclass(frozen=True)
class Gold:
    catalog: Literal["hadoop", "jdbc", "rest", "glue"] = "hadoop"
    uri: str | None = None  # of the catalog: jdbc:sqlite:/path, https://catalog.example.com
    properties: Mapping[str, str] = field(default_factory=dict)  # Iceberg's own; env:NAME and file:PATH for secrets
    jars: tuple[str, ...] = ()  # Maven coordinates that the catalog needs, such as a JDBC driver
    mirror: tuple[str, ...] = ("*",)
    models: str | None = None  # folder of marts; default gold/models beside the configuration file, where there is one
    export: tuple[str, ...] = ("*",)  # mirrored tables that are also written as Parquet files for external tables
    export_keep_minutes: int = 60  # that a replaced export stays for readers that are still in it
    every: float = 0.0  # seconds between publications of `run --continuous`; 0: in each round
    folder: Path = Path()  # of the configuration file

    def revealed(self) -> dict[str, str]:
        """`properties` with the secrets they name. Raises ConfigError when one is not there."""
        return {
            key: Secret(value, self.folder).reveal() if value.startswith(_REFERENCES) else value
            for key, value in self.properties.items()
        }


@dataclass(frozen=True)
class Snowflake:
    account: str | None = None
    user: str | None = None
    password: Secret | None = None
    private_key: Secret | None = None  # PEM of the key pair
    private_key_passphrase: Secret | None = None  # where that PEM is encrypted
    oauth_token: Secret | None = None  # an access token, in the place of a key pair or a password
    role: str | None = None
    warehouse: str | None = None
    database: str = "LAKEWARD"
    external_volume: str = "LAKEWARD_VOLUME"
    catalog_integration: str = "LAKEWARD_CATALOG"
    storage_provider: Literal["S3", "GCS", "AZURE", "S3COMPAT"] = "S3"
    storage_base_url: str | None = None  # where Snowflake sees the lake's root: s3://bucket/lake/
    storage_aws_role_arn: str | None = None
    storage_aws_external_id: str | None = None
    azure_tenant_id: str | None = None
    storage_endpoint: str | None = None
    storage_key_id: Secret | None = None  # of an S3-compatible store
    storage_secret_key: Secret | None = None
    storage_integration: str = "LAKEWARD_STORAGE"
    # How GCS and Azure tell the landing's pipe of new files: an integration that is there, or the queue to make one of
    notification_integration: str | None = None
    gcp_pubsub_subscription: str | None = None  # projects/<project>/subscriptions/<name>
    azure_storage_queue: str | None = None  # https://<account>.queue.core.windows.net/<queue>
    # How Snowflake finds gold's tables: by their metadata files, or through the catalog of [gold]
    catalog: Literal["object_store", "rest", "glue", "linked"] = "object_store"
    linked_database: str = "LAKEWARD_LINKED"  # of catalog = "linked": Snowflake fills it from the REST catalog
    rest_uri: str | None = None
    rest_catalog_name: str | None = None  # the warehouse, or an AWS account's number
    rest_auth: Literal["oauth", "bearer", "sigv4"] = "oauth"
    rest_vended_credentials: bool = False  # the catalog hands out storage credentials; no external volume is used
    rest_oauth_token_uri: str | None = None
    rest_oauth_client_id: str | None = None
    rest_oauth_client_secret: Secret | None = None
    rest_oauth_scopes: tuple[str, ...] = ("PRINCIPAL_ROLE:ALL",)
    rest_bearer_token: Secret | None = None
    aws_catalog_role_arn: str | None = None  # the role that reads Glue, or signs requests to a REST catalog
    aws_catalog_id: str | None = None  # the AWS account of Glue
    aws_region: str | None = None
    delta: tuple[str, ...] = ()  # silver tables that are also shown as they are, by Delta's own log
    refresh: Literal["manual", "after_gold"] = "manual"
    read_role: str = "LAKEWARD_READER"
    sink: Literal["manual", "after_silver"] = "manual"
    sink_schema: str | None = None  # default: the source schema's own name
    sink_file_rows: int = 1_000_000  # rows of a Parquet file that the sink uploads
    sink_batch_rows: int = 5_000_000  # changes after which a MERGE begins; a commit of silver is never cut in two
    sink_batch_seconds: int = 60  # of `run --continuous`: how long changes wait for others
    names: Literal["upper", "source"] = "upper"  # a to z of a source's names become A to Z, so nobody has to quote them
    host: str | None = None  # for a private endpoint, or a server of one's own in tests
    port: int | None = None
    protocol: Literal["https", "http"] = "https"

    @property
    def has_login(self) -> bool:
        """Whether a login is configured; whether it is right, only Snowflake knows."""
        secrets = (self.private_key, self.oauth_token, self.password)
        return self.account is not None and any(secret is not None for secret in secrets)


@dataclass(frozen=True)
class Landing:
    tables: tuple[str, ...] = ()  # schema.table globs whose events are landed as JSON; none where empty
    prefix: str = "landing"  # a folder below the lake's root
    max_file_rows: int = 500_000  # a file is closed at the first of these
    max_file_bytes: int = 128 << 20  # of JSON, before gzip
    max_file_seconds: int = 60


@dataclass(frozen=True)
class Config:
    source: Source = field(default_factory=Source)
    lake: LakeConfig = field(default_factory=LakeConfig)
    tables: Mapping[str, TableConfig] = field(default_factory=dict)
    quality: Quality = field(default_factory=Quality)
    gold: Gold = field(default_factory=Gold)
    snowflake: Snowflake = field(default_factory=Snowflake)
    landing: Landing = field(default_factory=Landing)
    folder: Path = Path()  # of the configuration file: relative paths start here

    def table(self, name: TableName) -> TableConfig:
        return self.tables.get(str(name), TableConfig())

    @property
    def root(self) -> str:
        """The lake's root as an absolute path, or as the URI it is."""
        return self.lake.root if "://" in self.lake.root else str((self.folder / self.lake.root).resolve())

    @property
    def embedded_folder(self) -> Path:
        """Where the embedded server lives: beside the configuration, not in the lake."""
        return (self.folder / ".lakeward" / "embedded").resolve()

    def path(self, relative: str) -> Path:
        return (self.folder / relative).resolve()


def load(path: str | os.PathLike[str]) -> Config:
    """The configuration in the file at `path`.

    Raises ConfigError for a file that is missing or is not TOML, an unknown key, a value of the wrong kind, and a
    secret that stands in the file in clear.
    """
    file = Path(path)
    try:
        doc = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no configuration file {file}", hint="`lakeward init` writes one") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}", hint="mend the file at that place") from error
    return parse(doc, folder=file.resolve().parent)


def parse(doc: Mapping[str, Any], *, folder: Path = Path()) -> Config:
    """A Config from a TOML document already read. Errors as `load`."""
    doc = dict(doc)
    tables = doc.pop("tables", {})
    if not isinstance(tables, Mapping):
        raise ConfigError('[tables] holds one table a source table: [tables."shop.users"]')
    parsed = {str(n): _build(TableConfig, t, f'[tables."{n}"]', folder) for n, t in tables.items()}
    for name, table in parsed.items():
        if "." not in name:
            raise ConfigError(f'[tables."{name}"] names no schema', hint=f'write [tables."<schema>.{name}"]')
        for column, how in table.mask.items():
            if how != "sha256":
                raise ConfigError(f'[tables."{name}"] mask of {column} is {how!r}', hint='the one mask is "sha256"')
        if table.where is not None:
            parse_filter(table.where, f'[tables."{name}"] where')
    config: Config = _build(Config, doc, "", folder)
    for at, every, unit, zero in (
        ("[lake] maintain_every", config.lake.maintain_every, "hours", "never"),
        ("[gold] every", config.gold.every, "seconds", "each round"),
    ):
        if not 0 <= every < math.inf:
            raise ConfigError(f"{at} = {every} is no number of {unit}", hint=f"0 is for {zero}")
    for key, value in config.gold.properties.items():
        if not isinstance(value, str):
            raise ConfigError(f"[gold] properties: {key} has to be a string", hint="put it in quotes")
        if is_literal_secret(key, value, _REFERENCES):
            raise ConfigError(
                f"[gold] properties: {key} holds a literal; a secret in a file ends up in version control and backups",
                hint=f'write "{key}" = "env:NAME" or "file:PATH"',
            )
    _refuse_secrets_in_addresses(config)
    check_root(config.lake.root)
    if not config.source.embedded:
        config.source.address()
    gold = dataclasses.replace(config.gold, folder=folder)
    return dataclasses.replace(config, tables=parsed, gold=gold, folder=folder)


def _refuse_secrets_in_addresses(config: Config) -> None:
    of_catalog = 'properties = { "jdbc.password" = "env:NAME" }, or { token = "env:NAME" } for a REST server'
    of_store = "let the store's credentials come from the environment, a profile or the machine's role"
    for at, address, instead in (
        ("[source] url", config.source.url, 'write password = "env:NAME" or "file:PATH"'),
        ("[lake] root", config.lake.root, of_store),
        ("[lake] endpoint", config.lake.endpoint, of_store),
        ("[gold] uri", config.gold.uri, f"write {of_catalog}"),
    ):
        if address is not None and secret_in(address):
            raise ConfigError(
                f"{at} holds a password; a secret in a file ends up in version control and backups",
                hint=f"take it out of there and {instead}",
            )


def _build(cls: Any, doc: Any, where: str, folder: Path) -> Any:
    if not isinstance(doc, Mapping):
        raise ConfigError(f"{where} has to be a table of settings, not {doc!r}")
    hints = typing.get_type_hints(cls)
    known = [f.name for f in dataclasses.fields(cls) if f.name != "folder"]
    values = {}
    for key, value in doc.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            section = where or "the top level"
            raise ConfigError(
                f"unknown key {key!r} in {section} of the configuration",
                hint=f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(known)}",
            )
        at = f"{where} {key}" if where else f"[{key}]"
        values[key] = _value(hints[key], value, at, folder)
    return cls(**values)


def _value(kind: Any, value: Any, at: str, folder: Path) -> Any:
    origin, args = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _value(next(a for a in args if a is not type(None)), value, at, folder)
    if kind is Secret:
        if not isinstance(value, str) or not value.startswith(_REFERENCES):
            # The value itself is not repeated: it is most likely the secret.
            raise ConfigError(
                f"{at} holds a literal; a secret in a file ends up in version control and backups",
                hint=f'write {at.split()[-1]} = "env:NAME" or "file:PATH"',
            )
        return Secret(value, folder)
    if dataclasses.is_dataclass(kind):
        return _build(kind, value, at, folder)
    if origin is Literal:
        if value not in args:
            raise ConfigError(f"{at} = {value!r} is not one of {', '.join(map(repr, args))}")
        return value
    if origin is tuple:
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise ConfigError(f"{at} has to be a list of strings, not {value!r}")
        return tuple(value)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{at} has to be a table, not {value!r}")
        return dict(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"{at} has to be of kind {kind.__name__}, not {value!r}")
    if isinstance(value, int) and kind is not bool and value <= 0:
        raise ConfigError(f"{at} = {value} has to be above zero")
    return value
