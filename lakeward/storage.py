"""An object store under the lake: what Spark and Python need to reach it.

Credentials are never Lakeward's: both sides take them where every AWS program does (environment, profile, role of the
machine). `[lake] endpoint` and `region` become the standard variables of the process and of its executors, so that
Arrow, Spark and any SDK see the same store.

Two writers must never commit the same version of a Delta table. The lake's lock keeps it to one run on a machine,
Delta's log store to one committer in a process; see docs/operations.md for more than one machine.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lakeward.errors import ConfigError
from lakeward.secretive import shown

if TYPE_CHECKING:
    from lakeward.config import LakeConfig

ENDPOINT, REGION, CHECKSUMS = "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_REQUEST_CHECKSUM_CALCULATION"
HADOOP = "org.apache.hadoop:hadoop-aws:3.4.2"  # Spark's own Hadoop's
SDK_VERSION = "2.29.52"  # what hadoop-aws 3.4.2 was released with; its bundle of all of AWS has 600 MB
# fmt: off
SDK = (
    "annotations", "apache-client", "arns", "auth", "aws-core", "aws-query-protocol", "aws-xml-protocol",
    "aws-json-protocol", "checksums", "checksums-spi", "crt-core", "endpoints-spi", "http-auth", "http-auth-aws",
    "http-auth-aws-eventstream", "http-auth-spi", "http-client-spi", "identity-spi", "json-utils", "metrics-spi",
    "netty-nio-client", "profiles", "protocol-core", "regions", "retries", "retries-spi", "s3",
    "s3-transfer-manager", "sdk-core", "sts", "third-party-jackson-core", "utils",
)
# fmt: on
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_UNPROVEN = "Lakeward's jars do not have Spark's connector for it, and no test has had a lake there"
_EMPTIED = "Arrow empties a file there before it writes it anew, so that a killed run would lose where it stood"
_ELSEWHERE = {
    "s3a": "s3a:// is written in small letters",
    "s3": "Spark knows this store as s3a://",
    "s3n": "Spark knows this store as s3a://",
    "file": "a folder is written without a scheme",
    "gs": _UNPROVEN,
    **dict.fromkeys(("abfs", "abfss", "wasb", "wasbs"), f"{_UNPROVEN}; {_EMPTIED}"),
}


def check_root(root: str) -> None:
    """Raise ConfigError for a `[lake] root` that is neither a folder nor s3a://, the two that a lake is tested on."""
    found = _URL.match(root)
    if found is None:
        return
    where, scheme = f"[lake] root = {shown(root)!r}", found[1]
    if scheme != "s3a":
        reason = _ELSEWHERE.get(scheme.lower(), "no test has had a lake there")
        raise ConfigError(f"{where} cannot hold a lake: {reason}", hint="give it a folder, or s3a://bucket/path")
    if not urlsplit(root).netloc:
        raise ConfigError(f"{where} names no bucket", hint="write s3a://bucket/path")


def artifacts(lake_root: str) -> tuple[str, ...]:
    """The Maven artifacts by which Spark reaches the lake; none for a folder. Raises nothing."""
    if urlsplit(lake_root).scheme != "s3a":
        return ()
    return (HADOOP, *sdk(SDK))


def sdk(modules: Iterable[str]) -> tuple[str, ...]:
    """The Maven artifacts of these modules of AWS's SDK, and what they take from others."""
    others = ("software.amazon.eventstream:eventstream:1.0.1", "org.reactivestreams:reactive-streams:1.0.4")
    return (*(f"software.amazon.awssdk:{module}:{SDK_VERSION}" for module in modules), *others)


def announce(lake: LakeConfig) -> dict[str, str]:
    """Set the standard variables in this process for `[lake] endpoint` and `region`; those that were set."""
    wanted = {}
    if lake.endpoint:
        wanted[ENDPOINT] = lake.endpoint
        # Many stores refuse the checksums that AWS's newer libraries send unasked.
        wanted[CHECKSUMS] = os.environ.get(CHECKSUMS, "WHEN_REQUIRED")
    if region := lake.region or (os.environ.get(REGION, "us-east-1") if lake.endpoint else None):
        wanted[REGION] = region
    os.environ.update(wanted)
    return wanted


def settings(lake_root: str, lake: LakeConfig) -> dict[str, str]:
    """Spark's settings for the lake's file system; none for a folder. Calls `announce`."""
    if urlsplit(lake_root).scheme != "s3a":
        return {}
    variables = announce(lake)
    found = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    found["spark.hadoop.fs.s3a.connection.maximum"] = "200"  # a task reads many columns at once
    if lake.endpoint:
        found["spark.hadoop.fs.s3a.endpoint"] = lake.endpoint
        found["spark.hadoop.fs.s3a.path.style.access"] = "true"  # a store of one's own has no host name a bucket
        found["spark.hadoop.fs.s3a.connection.ssl.enabled"] = str(lake.endpoint.startswith("https:")).lower()
    if REGION in variables:
        found["spark.hadoop.fs.s3a.endpoint.region"] = variables[REGION]
    return found
