"""The source dies under load, its replica is promoted, and silver goes on there, equal to it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from servers.load import load
from servers.replicas import SETTINGS, await_executed, promote, replicate
from servers.running import Database

from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.server import EmbeddedServer
from lakeward.state import load_bronze

pytestmark = pytest.mark.timeout(1200)
ACCOUNTS = 200  # that money moves between
TABLES = (
    "CREATE TABLE accounts (id INT PRIMARY KEY, amount INT, note VARCHAR(40))",
    "CREATE TABLE log (w INT, what VARCHAR(10))",  # rows of a table without a key are counted, so a double would show
    f"INSERT INTO accounts VALUES {', '.join(f'({i}, 1000, NULL)' for i in range(ACCOUNTS + 5))}",
)


def move(cursor: Any, w: int, n: int) -> None:
    """A unit of money from one account to another."""
    here, there = (n * 7 + w) % ACCOUNTS, (n * 11 + w) % ACCOUNTS
    for account in sorted((here, there)):  # in one order, or they lock each other out
        more = (account == there) - (account == here)
        cursor.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", (more, account))
    cursor.execute("INSERT INTO log VALUES (%s, 'move')", (w,))


def moving(server: EmbeddedServer) -> Any:
    return load(lambda: server.admin("shop"), move, writers=3, pause_s=0.005, dies=True)


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_silver_goes_on_at_the_promoted_replica_and_equals_it(
    flavour: str, own_server: Any, new_pipeline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, replica = own_server(flavour), own_server(flavour, settings=SETTINGS[flavour])
    password = ensure_replicator(source, [EVERY_SCHEMA])
    monkeypatch.setenv("SOURCE_PASSWORD", password)
    replicate(source, replica)
    with source.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("USE shop")
        for statement in TABLES:
            cursor.execute(statement)
        lake = new_pipeline(tmp_path, Database("shop", source, connection), password)
        lake.run()
        with moving(source):
            time.sleep(0.5)
            lake.bronze()
            lake.silver()
            lake.bronze()  # bronze is ahead of silver when the source dies
            checkpoint = load_bronze(lake.app.lake).checkpoint
            assert checkpoint is not None
            await_executed(replica, checkpoint.gtid)
            source.kill()
    promote(replica)
    with replica.admin("shop") as connection, connection.cursor() as cursor:
        lake = new_pipeline(tmp_path, Database("shop", replica, connection), password)
        cursor.execute("UPDATE accounts SET id = id + 1000 WHERE id >= 200")
        cursor.execute("DELETE FROM log WHERE w = 1 LIMIT 3")
        with moving(replica):
            time.sleep(0.3)
            lake.run()
        lake.run()
        proof = lake.verify()
        assert proof.equal, proof
        lake.assert_each_event_once()
        assert sum(r[0] for r in lake.rows("accounts", "amount")) == (ACCOUNTS + 5) * 1000
        assert [s["epoch"] for s in load_bronze(lake.app.lake).servers] == [1, 2]
