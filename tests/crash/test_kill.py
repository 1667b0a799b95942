"""kill -9 at each named moment, then the same command: silver equals the source, bronze holds each event once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from servers.folded import assert_each_once_and_in_order, folded, row_of
from servers.killed import GOLD, SILVER, STREAM
from servers.sparkless import Sparkless

pytestmark = pytest.mark.timeout(2400)  # some twenty processes, each with a Spark of its own

TABLES = ("accounts", "moves", "log")


def load(db: Any) -> None:
    db.execute("CREATE TABLE accounts (id INT PRIMARY KEY, owner VARCHAR(30), amount DECIMAL(12,2))")
    db.execute("CREATE TABLE moves (id INT AUTO_INCREMENT PRIMARY KEY, source INT, target INT, amount DECIMAL(12,2))")
    db.execute("CREATE TABLE log (what VARCHAR(10))")
    db.executemany("INSERT INTO accounts VALUES (%s, %s, 1000)", [(i, f"owner {i}") for i in range(1, 1001)])
    db.execute("INSERT INTO log VALUES ('begin'), ('begin')")


def traffic(db: Any, seed: int, transactions: int = 25) -> None:
    """Money moves between accounts, some close and reopen, and a table without a key counts."""
    r = random.Random(seed)
    connection = db.connection()
    with connection.cursor() as cursor:
        for i in range(transactions):
            a, b, amount = r.randint(1, 1000), r.randint(1, 1000), r.randint(1, 50)
            cursor.execute("BEGIN")
            cursor.execute("UPDATE accounts SET amount = amount - %s WHERE id = %s", (amount, a))
            cursor.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", (amount, b))
            cursor.execute("INSERT INTO moves (source, target, amount) VALUES (%s, %s, %s)", (a, b, amount))
            cursor.execute("INSERT INTO log VALUES ('move')")
            cursor.execute("COMMIT")
            if i % 7 == 3:
                cursor.execute("UPDATE accounts SET id = id + 5000 WHERE id = %s", (a,))
                cursor.execute("DELETE FROM log LIMIT 1")
    connection.close()


def test_bronze_killed_at_any_named_moment_loses_and_doubles_nothing(
    database: Any, replicator_password: str, tmp_path: Path
) -> None:
    """Each moment twice: of a snapshot's batch and of a stream's. Without Spark, which none of them depends on."""
    load(database)
    url = f"mysql://replicator@127.0.0.1:{database.server.port}"
    include = f"{database.name}.*"

    def run(moment: str) -> int:
        arguments = [str(tmp_path), url, include]
        return subprocess.run(
            [sys.executable, str(Path(__file__).with_name("kill_bronze.py")), *arguments],
            env={
                **os.environ,
                "LAKEWARD_CRASH_AT": moment,
                "SOURCE_PASSWORD": replicator_password,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            },
            check=False,
            timeout=300,
        ).returncode

    codes = []
    for seed, moment in enumerate([*STREAM, *STREAM[::-1]]):
        traffic(database, seed)
        codes.append(run(moment))
    assert codes == [-9] * len(codes)
    bronze = Sparkless(tmp_path, replicator_password, [include], chunk_rows=400)
    bronze.run(url)
    state = bronze.state
    assert state.checkpoint is not None
    events = {t: bronze.events(f"{database.name}.{t}") for t in TABLES}
    assert_each_once_and_in_order(events.values())
    for name, found in events.items():
        table = state.tables[f"{database.name}.{name}"]
        columns = [c.name for c in table.schema.columns]
        source = database.query(f"SELECT {', '.join(columns)} FROM {name}")
        expected = Counter(row_of(table.schema, dict(zip(columns, row, strict=True))) for row in source)
        assert folded(found, table, state.checkpoint.at) == expected


def test_a_later_stage_killed_at_any_named_moment_loses_and_doubles_nothing(
    command: Any, spark: Any, doubled: Any
) -> None:
    load(command.database)
    # Each moment is tried on one server and every stage on both, since a run takes its time.
    half = 0 if command.database.flavour == "mysql" else 1
    moments = [STREAM[2], *SILVER, *GOLD][half::2]
    killed = []
    for seed, moment in enumerate(moments):
        traffic(command.database, seed)
        code, _, err = command("run", LAKEWARD_CRASH_AT=moment)
        killed.append(code == -9)
        assert code in (-9, 0), err
    assert sum(killed) >= len(moments) - 2, list(zip(moments, killed, strict=True))
    proof = command.json("verify")
    assert proof["equal"], proof
    assert doubled(spark, command) == []
    assert command.json("verify")["equal"]
    command.ok("run")


def test_ten_rounds_of_traffic_with_a_kill_at_a_random_moment_in_each(command: Any, spark: Any, doubled: Any) -> None:
    if command.database.flavour != "mysql":
        pytest.skip("once is enough: the moments above are tried on both servers")
    load(command.database)
    r = random.Random(7)
    for round_ in range(10):
        traffic(command.database, 100 + round_)
        command("run", kill_after_s=r.uniform(2, 14))
    proof = command.json("verify")
    assert proof["equal"], proof
    assert doubled(spark, command) == []
