"""Crash tests drive the command itself, as processes that can be killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from servers.command import run_lakeward
from servers.running import Database


@dataclass
class Command:
    """`lakeward` on a lake of the tables of `database`."""

    folder: Path
    database: Database
    password: str = field(repr=False)

    def __call__(self, *arguments: str, kill_after_s: float | None = None, **environment: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr), as `servers.command.run_lakeward` gives them."""
        done = run_lakeward(self.folder, self.password, *arguments, kill_after_s=kill_after_s, **environment)
        return done.returncode, done.stdout, done.stderr

    def ok(self, *arguments: str) -> str:
        code, out, err = self(*arguments)
        assert code == 0, err
        return out

    def json(self, *arguments: str) -> Any:
        _, out, err = self(*arguments, "--json")
        assert out, err
        return json.loads(out)


def command_of(folder: Path, database: Database, password: str) -> Command:
    """`lakeward` in `folder`, whose lake is a folder in it."""
    (folder / "lakeward.toml").write_text(
        f"""[source]
url = "mysql://replicator@127.0.0.1:{database.server.port}"
password = "env:SOURCE_PASSWORD"
include = ["{database.name}.*"]
chunk_rows = 400
[lake]
root = "lake"
""",
        encoding="utf-8",
    )
    return Command(folder, database, password)


@pytest.fixture(name="command_of", scope="session")
def command_of_() -> Callable[[Path, Database, str], Command]:
    return command_of


@pytest.fixture
def command(database: Database, replicator_password: str, tmp_path: Path) -> Command:
    return command_of(tmp_path, database, replicator_password)


@pytest.fixture(scope="session")
def doubled() -> Callable[[Any, Command], list[str]]:
    """Tables of bronze with an event twice, counted on a Spark session given by the test."""

    def found(spark: Any, command: Command) -> list[str]:
        place = ("source.epoch", "source.file", "source.pos", "source.row", "source.generation")
        folders = sorted((command.folder / "lake" / "bronze" / command.database.name).iterdir())
        assert folders
        frames = {f.name: spark.read.format("delta").load(str(f)).groupBy(*place).count() for f in folders}
        return [name for name, places in frames.items() if not places.where("count > 1").isEmpty()]

    return found
