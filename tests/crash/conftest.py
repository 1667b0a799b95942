"""Crash tests drive the command itself, as processes that can be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from servers.running import Database

LAKEWARD = str(Path(sys.executable).with_name("lakeward"))


@dataclass
class Command:
    """`lakeward` on a lake of the tables of `database`."""

    folder: Path
    database: Database
    password: str = field(repr=False)

    def __call__(self, *arguments: str, kill_after_s: float | None = None, **environment: str) -> tuple[int, str, str]:
        """(exit code, stdout, stderr); the code is -9 when it was killed, by itself or after `kill_after_s`.

        It runs in a process group of its own, and Java and Python workers with it: a kill takes them all, as pulling
        the plug would.
        """
        env = {**os.environ, "SOURCE_PASSWORD": self.password, "LAKEWARD_SPARK_MASTER": "local[2]", **environment}
        process = subprocess.Popen(
            [LAKEWARD, *arguments],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=kill_after_s or 1200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
        return process.returncode, out, err

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
