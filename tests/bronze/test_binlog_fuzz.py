"""Damaged events are read whole or refused, never anything else: see tests/fuzz/binlog_fuzzer.py for what that means.

LAKEWARD_FUZZ_CASES=1000000 for so many cases instead of a minute's, LAKEWARD_FUZZ_SEED for others than the usual ones.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz.corpus import written
from servers.running import Database

from lakeward.artifacts import cache_dir
from lakeward.embedded.server import EmbeddedServer

CASES = os.environ.get("LAKEWARD_FUZZ_CASES")
FUZZER = Path(__file__).parents[1] / "fuzz" / "binlog_fuzzer.py"


@pytest.mark.timeout(0 if CASES else 600)  # a million cases take 20 minutes of a core
def test_damaged_events_are_read_or_refused_and_nothing_else(
    mysql_server: EmbeddedServer, mariadb_server: EmbeddedServer, tmp_path: Path
) -> None:
    corpus = tmp_path / "corpus.pickle"
    logs = []
    for server in (mysql_server, mariadb_server):
        with Database.create(server, "fuzz") as database:
            logs.append(written(database))
    corpus.write_bytes(pickle.dumps(logs))
    bounds = ["--cases", CASES] if CASES else ["--seconds", "45"]
    bounds += ["--seed", os.environ.get("LAKEWARD_FUZZ_SEED", "1")]
    # Kernels that check their indices are compiled apart from those that do not.
    kernels = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(cache_dir() / "numba-boundscheck")}
    path = os.pathsep.join((str(FUZZER.parents[2]), str(FUZZER.parents[1])))
    done = subprocess.run(
        [sys.executable, str(FUZZER), str(corpus), *bounds],
        env={**os.environ, **kernels, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    print(done.stdout)
