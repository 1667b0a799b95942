"""The commands as a user types them: the README's, on the embedded server; and a cluster of separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from gold.published import published
from lakeward.cli import parser

PROJECT = Path(__file__).resolve().parents[2]
READERS = PROJECT / ".venv-readers" / "bin" / "python"
README = (PROJECT / "README.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Any:
    """Run a shell line in a folder that has the default configuration and the project's environment."""
    shutil.copy(PROJECT / "lakeward.toml", tmp_path)
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parents[1])
    env = {**os.environ, "LAKEWARD_SPARK_MASTER": "local[2]"}

    def run(line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            line, shell=True, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=500, check=False
        )

    yield run
    run(".venv/bin/lakeward demo down")


def run_printed_queries(stdout: str, folder: Path) -> None:
    """Run what `lakeward gold` has printed, each query by what it names, as it stands; each has a row."""
    _, _, text = stdout.partition("\nthree queries to run next. With Spark, in ")
    in_spark, _, in_duckdb = text.partition("without Spark, in DuckDB:\n")
    python, *lines = in_spark.splitlines()
    queries = [line for line in lines if "spark.sql(" in line]
    assert len(queries) + bool(in_duckdb) == 3, stdout
    # The same calls, whose rows are counted beside what is shown of them.
    counted = [f"print('rows', {query.strip().removesuffix('.show()')}.count())" for query in queries]
    program = "\n".join([line.strip() for line in lines] + counted)
    done = subprocess.run(
        [python.rstrip(":"), "-c", program],
        cwd=folder,
        env={**os.environ, "LAKEWARD_SPARK_MASTER": "local[2]"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    counts = [int(n) for n in re.findall(r"^rows (\d+)$", done.stdout, re.MULTILINE)]
    if in_duckdb:
        counted_by_duckdb = f"import duckdb; print(duckdb.sql({in_duckdb.strip()!r}).fetchall()[0][0])"
        found = subprocess.run([READERS, "-c", counted_by_duckdb], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        counts.append(int(found.stdout))
    assert len(counts) == 3
    assert all(counts), done.stdout


def test_the_commands_of_the_readme_run_as_written(elsewhere: Any, tmp_path: Path) -> None:
    made = subprocess.run(
        ["make", "-n", "bronze", "silver", "gold"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout
    stages = re.findall(r"^\.venv/bin/lakeward .+$", made, re.MULTILINE)
    assert stages == [".venv/bin/lakeward bronze silver gold"]
    written = re.findall(r"^    (\.venv/bin/lakeward .+)$", README, re.MULTILINE)
    assert len(written) == 4
    for line in [*stages, *written]:
        done = elsewhere(line)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if line.endswith("gold"):
            run_printed_queries(done.stdout, tmp_path)
        if line.endswith("verify"):
            assert "silver equals the source" in done.stdout
        if line.endswith("plan"):
            assert "CREATE ICEBERG TABLE" in done.stdout
            assert "ALLOW_WRITES = FALSE" in done.stdout


def test_a_cluster_whose_executors_share_only_the_lake_gives_the_same(pipeline: Any) -> None:
    if pipeline.database.flavour != "mysql":
        pytest.skip("the server makes no difference to the cluster")
    db = pipeline.database
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))")
    db.executemany("INSERT INTO t VALUES (%s, %s)", [(i, f"v{i}") for i in range(500)])
    cluster = {"LAKEWARD_SPARK_MASTER": "local-cluster[2,1,1024]"}
    for _ in range(2):
        done = pipeline.command("run", **cluster)
        assert done.returncode == 0, done.stderr
        db.execute("UPDATE t SET v = 'new' WHERE id < 10")
        db.execute("DELETE FROM t WHERE id > 490")
    proof = pipeline.command("verify", "--json", **cluster)
    assert json.loads(proof.stdout)["equal"], proof.stderr


def test_a_catalog_in_a_database_is_published_to_and_maintained(pipeline: Any) -> None:
    if pipeline.database.flavour != "mysql":
        pytest.skip("the server makes no difference to a catalog")
    db, catalog = pipeline.database, pipeline.folder / "catalog.db"
    every = "maintain_every = 0.000001\n"  # an hour's: the second run comes later than that
    pipeline.write_config(rest=f'{every}[gold]\ncatalog = "jdbc"\nuri = "jdbc:sqlite:{catalog}"\n')
    db.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    db.executemany("INSERT INTO t VALUES (%s, 1)", [(i,) for i in range(12)])
    said: list[bool] = []
    for command in ("run", "run", "maintain"):
        done = pipeline.command(command)
        assert done.returncode == 0, done.stderr
        said.append("\nmaintain " in f"\n{done.stdout}")
        assert "maintenance failed" not in done.stderr
        db.execute("UPDATE t SET n = n + 1 WHERE id < 3")
    assert said == [False, True, True]
    with contextlib.closing(sqlite3.connect(catalog)) as connection:
        [(place,)] = connection.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_name = 't'"
        ).fetchall()
    entry = next(t for t in published(pipeline.app.lake) if t.table == "t")
    assert (entry.metadata_file, entry.rows) == (place, 12)
    rows = StaticTable.from_metadata(place).scan().to_arrow()
    assert sorted(rows["n"].to_pylist()) == [1] * 9 + [2] * 3


def test_status_and_verify_print_one_json_document_of_the_contract(pipeline: Any) -> None:
    pipeline.database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    pipeline.database.execute("INSERT INTO t VALUES (1)")
    assert pipeline.command("run").returncode == 0
    status = json.loads(pipeline.command("status", "--json").stdout)
    assert status["cut"]
    assert status["lag_ms"] >= 0
    [table] = status["tables"]
    assert (table["name"], table["state"], table["rows"]) == (f"{pipeline.database.name}.t", "streaming", 1)
    done = pipeline.command("verify", "--json")
    proof = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert (proof["equal"], proof["tables"][0]["equal"], proof["tables"][0]["rows"]) == (True, True, 1)
    assert proof["tables"][0]["differences"] == []
    assert proof["position"]


def test_every_command_of_the_parser_is_in_the_documentation() -> None:
    text = (PROJECT / "docs" / "operations.md").read_text(encoding="utf-8")
    commands = parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    missing = [name for name in commands or () if f"lakeward {name}" not in text]
    assert not missing


def test_usage_errors_exit_with_two(pipeline: Any) -> None:
    assert pipeline.command("nonsense").returncode == 2
    assert pipeline.command("resnapshot").returncode == 2
