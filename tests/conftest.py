"""What tests run on: real servers, a schema of one's own, a real Spark.

Each server is started once a session in a folder of its own and stopped by its process number at the end, also when
the session fails. LAKEWARD_TEST_SERVERS (`mysql`, `mariadb`, or both, the default) says which servers `server` and
`database` run on; a server that cannot be had fails its tests, with what to install.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from servers.running import Database, remove_orphans, running

from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.embedded.server import EmbeddedServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    OwnServer = Callable[..., EmbeddedServer]

FLAVOURS = [name for name in ("mysql", "mariadb") if name in os.environ.get("LAKEWARD_TEST_SERVERS", "mysql,mariadb")]
_names = itertools.count(1)


def pytest_sessionstart() -> None:
    remove_orphans()


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[EmbeddedServer]:
    with running("mysql") as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[EmbeddedServer]:
    with running("mariadb") as server:
        yield server


@pytest.fixture(scope="session", params=FLAVOURS)
def unlogged_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """A server of each flavour that does not log what foreign keys do to children: MySQL as it was before 9.6."""
    if request.param == "mariadb":
        yield request.getfixturevalue("mariadb_server")
        return
    with running("mysql", {"innodb_native_foreign_keys": "ON"}) as server:
        yield server


@pytest.fixture(scope="session", params=FLAVOURS)
def server(request: pytest.FixtureRequest) -> EmbeddedServer:
    """The session's server of each flavour in turn. Shared: no restart, no purge, no global setting."""
    shared: EmbeddedServer = request.getfixturevalue(f"{request.param}_server")
    return shared


@pytest.fixture
def own_server() -> Iterator[OwnServer]:
    """`own_server("mariadb", settings={...})`: a server for this test alone, to kill, restart or purge."""
    with contextlib.ExitStack() as stack:

        def start(flavour: str, *, settings: Mapping[str, str] | None = None) -> EmbeddedServer:
            made: EmbeddedServer = stack.enter_context(running(flavour, settings))
            return made

        yield start


@pytest.fixture
def database(server: EmbeddedServer) -> Iterator[Database]:
    """A schema of this test's own on `server`, dropped at its end."""
    with Database.create(server, f"t{os.getpid()}_{next(_names)}") as made:
        yield made


@pytest.fixture(scope="session")
def replicator_url(server: EmbeddedServer) -> str:
    """`mysql://replicator@127.0.0.1:<port>` of `server`."""
    return url_of(server)


@pytest.fixture(scope="session")
def replicator_password(server: EmbeddedServer) -> str:
    return ensure_replicator(server, [EVERY_SCHEMA])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The product's own session, on two cores."""
    # Here, since tests that need no Spark should not wait for its import.
    from lakeward.spark import session

    made = session(str(tmp_path_factory.mktemp("lake")), app="tests", master="local[2]")
    yield made
    made.stop()
