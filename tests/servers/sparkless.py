"""Bronze without Spark: its tasks run in this process, and a table's commits are kept in a list.

For tests of what bronze reads, where a session would take most of the time. What is committed twice under one number
counts once, as Delta sees to it.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow.parquet as pq

import bronze.run
from bronze.report import BronzeReport
from bronze.tasks import _answer, _error
from bronze.work import Manifest
from lakeward.config import parse
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint
from lakeward.state import BronzeState, load_bronze


class _Context:
    defaultParallelism = 2


class _Session:
    sparkContext = _Context()


class Sparkless:
    """A lake in `folder`, and bronze over it."""

    def __init__(self, folder: Path, password: str, include: Sequence[str], **source: Any) -> None:
        self.lake = Lake(str(folder / "lake"))
        self.password = password
        self.source = {"include": list(include), **source}
        self.tables: dict[str, Any] = {}
        self.lock = threading.Lock()  # tables are committed side by side
        self.ledger = folder / "commits.json"  # {location: {batch: [paths]}}

    def spark(self) -> Any:
        return _Session()

    def run(self, url: str, until: Checkpoint | None = None, **options: Any) -> BronzeReport:
        """One `lakeward bronze`."""
        config = parse({"source": {"url": url, **self.source}, "tables": self.tables})
        with self.patched():
            return bronze.run.run(self.spark, self.lake, config, self.password, until=until, **options)

    @property
    def state(self) -> BronzeState:
        return load_bronze(self.lake)

    def events(self, table: str) -> list[dict[str, Any]]:
        """The envelopes of `schema.table`, in the order of the source; a snapshot's rows first."""
        location = self.lake.table("bronze", TableName(*table.split(".", 1)))
        files = [f"{location}/{p}" for paths in self._commits().get(location, {}).values() for p in paths]
        found = [row for f in files for row in pq.ParquetFile(f).read().to_pylist()]

        def place(event: Mapping[str, Any]) -> tuple[Any, ...]:
            s = event["source"]
            return s["epoch"], s["file"], s["pos"], not s["snapshot"], s["row"]

        return sorted(found, key=place)

    @contextlib.contextmanager
    def patched(self) -> Iterator[None]:
        fakes: dict[str, Callable[..., Any]] = {
            "bronze.run.run_tasks": lambda *a: run_tasks(*a),
            "bronze.snapshot.run.run_tasks": lambda *a: run_tasks(*a),
            "bronze.run.ensure_table": lambda *_: "created",
            "bronze.run.physical_names": lambda *_: None,
            "bronze.snapshot.run.physical_names": lambda *_: None,
            "bronze.snapshot.run.ensure_table": lambda *_: "created",
            "bronze.batch.commit": self._commit,
            "bronze.schema_changes.commit": self._commit,
            "bronze.schema_changes.ensure": lambda *_: None,
            "bronze.batch.add_columns": lambda *_: None,
            "bronze.batch.reshape_images": lambda *_: None,
            "bronze.batch.image_fields": lambda *_: {},
        }
        with contextlib.ExitStack() as stack:
            for name, fake in fakes.items():
                stack.enter_context(mock.patch(name, fake))
            yield

    def _commits(self) -> dict[str, dict[str, list[str]]]:
        return json.loads(self.ledger.read_text()) if self.ledger.exists() else {}

    def _commit(self, _: Any, location: str, files: Sequence[Any], *, batch: int) -> bool:
        with self.lock:
            commits = self._commits()
            batches = commits.setdefault(location, {})
            if any(int(b) >= batch for b in batches):
                return False
            batches[str(batch)] = [f.path for f in files]
            self.ledger.write_text(json.dumps(commits))
        return True


def run_tasks(_: Any, task: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """`bronze.tasks.run_tasks` in this process."""
    answers = [json.loads(_answer(task, pickle.dumps(item))) for item in items]
    return [_error(a["error"]) if "error" in a else Manifest(**a) for a in answers]
