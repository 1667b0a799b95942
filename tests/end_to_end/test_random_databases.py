"""A database that nobody designed for, with random traffic, equals its lake after every round, as `verify` proves of
silver, and as PyIceberg and DuckDB read it from gold.

Its sessions are those of `databases.random_sessions`: rows, XA transactions, partial images, and tables that are
altered, renamed, swapped and made anew. After the first round some table is read again while traffic goes on. Before
each later run another one is killed, at one of its named moments or at any time at all.

LAKEWARD_SEEDS is how many seeds to try on each server (3), LAKEWARD_FIRST_SEED where to begin. Each seed is a schema of
its own, and up to TOGETHER of them share a lake and its runs, which cost more than what the seeds put into them. Where
a shared run fails, its seeds are tried again in halves, so that the one it fails for is told.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from databases.random_database import random_tables
from databases.random_sessions import Traffic
from servers.killed import GOLD, SILVER, STREAM
from servers.readers import mirror_faults
from servers.running import Database

from bronze.resnapshot import mark
from lakeward import crash
from lakeward.embedded.server import EmbeddedServer

FIRST = int(os.environ.get("LAKEWARD_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("LAKEWARD_SEEDS", "3")))
TOGETHER = 25
GROUPS = [SEEDS[first : first + TOGETHER] for first in range(0, len(SEEDS), TOGETHER)]
pytestmark = pytest.mark.timeout(1200 + 60 * TOGETHER)
STARTS_S = 8.0  # a process, until it has a Spark
Faults = dict[int, list[str]]


@pytest.mark.parametrize("seeds", GROUPS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_random_databases_under_random_traffic_equal_their_lake(
    seeds: Sequence[int],
    server: EmbeddedServer,
    new_pipeline: Callable[..., Any],
    replicator_password: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", replicator_password)

    def lake(name: str, database: Database, **source: Any) -> Any:
        return new_pipeline(tmp_path_factory.mktemp(name), database, replicator_password, **source)

    assert {seed: faults for seed, faults in _faults(seeds, server, lake).items() if faults} == {}


def _faults(seeds: Sequence[int], server: EmbeddedServer, lake: Callable[..., Any]) -> Faults:
    with contextlib.ExitStack() as stack:
        databases = {s: stack.enter_context(Database.create(server, f"random_{os.getpid()}_{s}")) for s in seeds}
        include = [f"{database.name}.*" for database in databases.values()]
        pipeline = lake(f"random-{seeds[0]}-", databases[seeds[0]], include=include)
        try:
            return _round_trip(pipeline, databases)
        except Exception as error:  # noqa: BLE001 - whatever fails is a fault of one of the seeds
            failed = f"{type(error).__name__}: {error}"
            # Said at once, since the seeds are tried again, in halves, before the test ends.
            print(f"seeds {seeds[0]} to {seeds[-1]}: {traceback.format_exc()[-8000:]}", flush=True)
    if len(seeds) == 1:
        return {seeds[0]: [failed]}
    middle = len(seeds) // 2
    found: Faults = {}
    for half in (seeds[:middle], seeds[middle:]):
        found |= _faults(half, server, lake)
    if not any(found.values()):
        return {seed: [f"only where seeds {list(seeds)} share a lake: {failed}"] for seed in seeds}
    return found


def _round_trip(pipeline: Any, databases: Mapping[int, Database]) -> Faults:
    """The seeds' databases through the pipeline, with traffic before each of three runs; what differs then."""
    r = random.Random(min(databases))
    with contextlib.ExitStack() as stack:
        sessions = {}
        for seed, database in databases.items():
            tables = random_tables(seed, database.flavour)
            sessions[seed] = stack.enter_context(Traffic(seed, database, tables, definitions=8))
            sessions[seed].create()

        def burst(transactions: int) -> None:
            for traffic in sessions.values():
                traffic.burst(transactions)

        burst(4)
        began = time.monotonic()
        pipeline.run()
        longest_s = STARTS_S + time.monotonic() - began
        burst(4)
        _mark_one_of_each(pipeline, sessions)
        _killed(pipeline, **{crash.VARIABLE: r.choice([*STREAM, *SILVER, *GOLD])})
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(burst, 1)
            pipeline.run()
            load.result()
        burst(4)
        _killed(pipeline, kill_after_s=r.uniform(0, longest_s))
        pipeline.run()
        proofs, doubled = pipeline.verify().tables, pipeline.doubled()
        pipeline.gold()
        mirrored = mirror_faults(pipeline.app)
        found: Faults = {}
        for seed, database in databases.items():
            mine = [t for t in proofs if t.name.startswith(f"{database.name}.")]
            found[seed] = [f"{t.name} differs: {t.differences[:3]}" for t in mine if not t.equal]
            found[seed] += [f"{name} holds an event twice" for name in doubled if name.startswith(f"{database.name}.")]
            read = [faults for name, faults in mirrored.items() if name.startswith(f"{database.name}.")]
            found[seed] += [fault for faults in read for fault in faults]
            if not len(mine) == len(read) == len(sessions[seed].tables):
                found[seed].append(f"the lake has only {[t.name for t in mine]}")
        return found


def _mark_one_of_each(pipeline: Any, sessions: Mapping[int, Traffic]) -> None:
    """`lakeward resnapshot` of a table of each seed: the next run reads it."""
    followed = [n for n, t in pipeline.bronze_state().tables.items() if t.status == "streaming"]
    chosen = [next((n for n in followed if n.startswith(f"{t.database.name}.")), None) for t in sessions.values()]
    mark(lambda: pipeline.spark, pipeline.app.lake, [name for name in chosen if name])


def _killed(pipeline: Any, **how: Any) -> None:
    """`lakeward run`, killed as `Pipeline.command` is told to, unless it ends before that."""
    done = pipeline.command("run", limit_s=1200, **how)
    print(f"{how}: {done.returncode}", flush=True)
    if done.returncode not in (-signal.SIGKILL, 0):
        raise RuntimeError(f"a run to be killed failed by itself: {done.stderr[-4000:]}")
