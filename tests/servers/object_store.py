"""A store of S3's protocol, and a Glue: moto's server, in a process of its own."""

from __future__ import annotations

import contextlib
import secrets
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.fs as pafs
from servers.listening import free_port, listening

REGION = "us-east-1"


@dataclass(frozen=True)
class ObjectStore:
    """A running store with the empty bucket `bucket`."""

    endpoint: str
    bucket: str
    user: str
    password: str = field(repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The credentials, as every AWS program takes them."""
        return {"AWS_ACCESS_KEY_ID": self.user, "AWS_SECRET_ACCESS_KEY": self.password}

    def filesystem(self) -> pafs.S3FileSystem:
        return pafs.S3FileSystem(
            access_key=self.user,
            secret_key=self.password,
            endpoint_override=self.endpoint,
            region=REGION,
            allow_bucket_creation=True,
        )


@contextlib.contextmanager
def object_store(folder: Path, bucket: str = "lake") -> Iterator[ObjectStore]:
    """A store that writes its log in `folder`; it ends, with all that it holds, with the block."""
    port = free_port()
    store = ObjectStore(f"http://127.0.0.1:{port}", bucket, "lakeward", secrets.token_hex(16))
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with listening(command, port, folder / "moto.log"):
        store.filesystem().create_dir(bucket)
        yield store
