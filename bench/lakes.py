"""A lake of its own for a benchmark's server."""

from __future__ import annotations

from pathlib import Path

from lakeward.cli.app import App
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.server import EmbeddedServer
from lakeward.names import TableName


def lake_of(server: EmbeddedServer, table: TableName) -> App:
    """The command line's view of a new lake, beside the server's data, that follows one table."""
    folder = Path(server.folder) / "lake"
    folder.mkdir()
    (folder / "password").write_text(ensure_replicator(server, [EVERY_SCHEMA]))
    (folder / "lakeward.toml").write_text(
        f'[source]\nurl = "mysql://replicator@127.0.0.1:{server.port}"\npassword = "file:{folder}/password"\n'
        f'include = ["{table}"]\n[lake]\nroot = "{folder}/lake"\n'
    )
    return App(str(folder / "lakeward.toml"))
