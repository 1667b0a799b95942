"""Where Snowflake sees the lake: its base URL, the provider, and paths relative to it.

A lake in a local folder has no such place. The plan is then rendered all the same, with placeholders that are named
as such, so that somebody who tries Lakeward out can see what it would do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from lakeward.config import Snowflake
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake

Provider = Literal["S3", "GCS", "AZURE", "S3COMPAT"]

_PROVIDERS: dict[str, Provider] = {
    "s3": "S3",
    "s3gov": "S3",
    "s3china": "S3",
    "s3compat": "S3COMPAT",
    "gcs": "GCS",
    "azure": "AZURE",
}
_EXAMPLES: dict[Provider, str] = {
    "S3": "s3://YOUR-BUCKET/lake/",
    "GCS": "gcs://YOUR-BUCKET/lake/",
    "AZURE": "azure://YOUR-ACCOUNT.blob.core.windows.net/YOUR-CONTAINER/lake/",
    "S3COMPAT": "s3compat://YOUR-BUCKET/lake/",
}


@dataclass
class Storage:
    """The lake's place in an object store. `missing` says which settings are placeholders, as lines for a reader."""

    provider: Provider
    base_url: str  # ends in /
    missing: list[str] = field(default_factory=list)

    def setting(self, value: str | None, name: str, example: str) -> str:
        """The setting's value; else `example`, and a line in `missing`."""
        if value is None:
            self.missing.append(f"[snowflake] {name} is not set: {example} is a placeholder")
        return value or example


def storage_of(lake: Lake, config: Snowflake) -> Storage:
    """Raises ConfigError for a base URL that Snowflake would not take, or that is of another provider."""
    url = config.storage_base_url or from_root(lake, config.storage_provider)
    if url is None:
        found = Storage(config.storage_provider, _EXAMPLES[config.storage_provider])
        found.setting(None, "storage_base_url", found.base_url)
        return found
    scheme = urlsplit(url).scheme
    if scheme not in _PROVIDERS:
        raise ConfigError(
            f"[snowflake] storage_base_url = {url!r} is not a URL that Snowflake reads",
            hint=f"write it like {_EXAMPLES[config.storage_provider]}",
        )
    provider = _PROVIDERS[scheme]
    if scheme == "s3" and config.storage_provider == "S3COMPAT":
        provider, url = "S3COMPAT", f"s3compat{url.removeprefix('s3')}"
    if config.storage_provider not in ("S3", provider):  # S3 is also what stands there when nothing was said
        raise ConfigError(
            f"[snowflake] storage_provider is {config.storage_provider}, and the lake is at {url}",
            hint=f'set storage_provider = "{provider}"',
        )
    return Storage(provider, url if url.endswith("/") else url + "/")


def from_root(lake: Lake, provider: Provider) -> str | None:
    """The lake's root in Snowflake's spelling; None for a folder."""
    if lake.local:
        return None
    parts = urlsplit(lake.root)
    if parts.scheme in ("s3", "s3a", "s3n"):
        return f"{'s3compat' if provider == 'S3COMPAT' else 's3'}://{parts.netloc}{parts.path}"
    if parts.scheme == "gs":
        return f"gcs://{parts.netloc}{parts.path}"
    if parts.scheme in ("abfs", "abfss"):
        container, _, account = parts.netloc.partition("@")
        return f"azure://{account.replace('.dfs.', '.blob.')}/{container}{parts.path}"
    return lake.root


def relative(lake: Lake, location: str) -> str:
    """A path or URI below the lake's root as a path relative to it. Raises TerminalError for another place."""
    root, place = _without_scheme(lake.root), _without_scheme(location)
    if not place.startswith(f"{root}/"):
        raise TerminalError(
            f"gold names a file that is not in the lake {lake.root}: {location}",
            hint="the lake was moved: publish it anew with `lakeward gold` where it is now",
        )
    return place[len(root) + 1 :]


def _without_scheme(place: str) -> str:
    scheme, colon, rest = place.partition(":")
    if not colon or not scheme.isalnum():
        return place.rstrip("/")
    if scheme == "file":
        return "/" + rest.lstrip("/").rstrip("/")
    return rest.rstrip("/")  # //bucket/…, whether it is s3a or s3
