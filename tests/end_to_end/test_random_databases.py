"""A database that nobody designed for, with random traffic, equals its lake after every round.

LAKEWARD_SEEDS is how many seeds to try on each server (3), LAKEWARD_FIRST_SEED where to begin.
"""

from __future__ import annotations

import os

import pymysql
import pytest
from databases.random_database import random_tables, traffic

pytestmark = pytest.mark.timeout(1200)
FIRST = int(os.environ.get("LAKEWARD_FIRST_SEED", "1"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("LAKEWARD_SEEDS", "3")))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_database_under_random_traffic_equals_its_lake(pipeline, seed: int) -> None:
    db = pipeline.database
    tables = random_tables(seed, db.flavour)
    db.execute("SET sql_mode = ''")
    for table in tables:
        db.execute(table.create())

    def change(transactions: int, part: int) -> None:
        with db.root.cursor() as cursor:
            for statements in traffic(seed * 100 + part, tables, transactions):
                cursor.execute("BEGIN")
                for statement in statements:
                    try:
                        cursor.execute(statement)
                    except pymysql.DataError:  # one server refuses a value that the other takes
                        continue
                cursor.execute("COMMIT")

    change(30, 0)
    pipeline.run()
    for part in (1, 2):
        change(40, part)
        pipeline.run()
    proof = pipeline.verify()
    differing = [(t.name, t.differences[:3]) for t in proof.tables if not t.equal]
    assert proof.equal, differing
    assert len(proof.tables) == len(tables)
    pipeline.assert_each_event_once()
