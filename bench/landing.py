"""Lakeward's bronze stage in a process of its own: `python -m bench.landing <request as JSON>`.

With `rounds` 0 it runs on the lake `lake` itself. Else each round runs on a fresh copy of it, so that every round has
the same backlog; the first one warms up and is not counted where `warm` is set.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.machine import Peak
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator, replicator_url
from lakeward.embedded.server import EmbeddedServer

_PASSWORD = "LAKEWARD_BENCH_PASSWORD"


@dataclass(frozen=True)
class Landed:
    """The events of a round, the seconds of each, the process's seconds and its peak of memory in bytes, of all
    processes together and of each kind (see `bench.machine.Peak`)."""

    events: int
    seconds: list[float]
    process: float
    peak: int
    kinds: dict[str, int]

    @property
    def rate(self) -> float:
        return self.events / min(self.seconds)


def land(server: EmbeddedServer, lake: Path, include: Sequence[str], *, rounds: int = 0, warm: bool = False) -> Landed:
    """Run bronze of the tables `include` on `lake`, or on copies of it."""
    request = {
        "url": replicator_url(server),
        "include": list(include),
        "lake": str(lake),
        "rounds": rounds,
        "warm": warm,
    }
    environment = {**os.environ, _PASSWORD: ensure_replicator(server, [EVERY_SCHEMA])}
    began = time.perf_counter()
    command = [sys.executable, "-m", "bench.landing", json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"bronze failed: {done.stderr[-1500:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Landed(**answer, process=time.perf_counter() - began)


def main() -> None:
    request: Mapping[str, Any] = json.loads(sys.argv[1])
    base = Path(request["lake"])
    base.parent.mkdir(parents=True, exist_ok=True)
    seconds, events = [], 0
    with Peak() as peak, tempfile.TemporaryDirectory(dir=base.parent) as scratch:
        from lakeward.spark import session

        spark = session(str(base), app="bench")
        for number in range(request["rounds"] + request["warm"] or 1):
            lake = base
            if request["rounds"]:
                lake = Path(scratch) / str(number)
                shutil.copytree(base, lake)
            began = time.perf_counter()
            events = _run(spark, str(lake), request)
            seconds.append(time.perf_counter() - began)
            if request["rounds"]:
                shutil.rmtree(lake)
    found = {"events": events, "seconds": seconds[request["warm"] :], "peak": peak.bytes, "kinds": peak.kinds}
    print(json.dumps(found))


def _run(spark: Any, root: str, request: Mapping[str, Any]) -> int:
    from bronze.run import run
    from lakeward.config import parse
    from lakeward.lake import Lake

    source = {"url": request["url"], "include": request["include"]}
    config = parse({"source": source, "lake": {"root": root}})
    report = run(lambda: spark, Lake(root), config, os.environ[_PASSWORD])
    return sum(report.events.values())


if __name__ == "__main__":
    main()
