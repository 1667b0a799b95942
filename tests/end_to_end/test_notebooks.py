"""The scheduled notebook's cells, one after the other, in a process of their own as a scheduler runs them.

The analyst's notebook is run over the shipped mart: see tests/gold/test_gold_marts.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from servers.notebooks import cells

pytestmark = pytest.mark.timeout(1200)


def test_the_scheduled_run_copies_the_source_and_shows_where_it_stands(pipeline: Any) -> None:
    if pipeline.database.flavour != "mysql":
        pytest.skip("the server makes no difference to a notebook")
    pipeline.database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    pipeline.database.execute("INSERT INTO t VALUES (1), (2)")
    done = subprocess.run(
        [sys.executable, "-c", cells("scheduled_run.ipynb")],
        cwd=pipeline.folder,
        env={**os.environ, "LAKEWARD_SPARK_MASTER": "local[2]"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2 events in 1 tables" in done.stdout
    assert f"{pipeline.database.name}.t" in done.stdout
    assert "streaming" in done.stdout
    assert "|t " in done.stdout  # the freshness table, in the session that the run left alone
    assert pipeline.rows("t", "id") == [(1,), (2,)]
