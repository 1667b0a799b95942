"""The stream's usual path, by whole batches, writes what the path for single events writes."""

from __future__ import annotations

import pytest
from servers.running import Database
from servers.sparkless import Sparkless

from bronze import stream
from bronze.binlog.bulk import RowsBatch, read_blocks
from lakeward.embedded.replicator import ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of


def single(*arguments, **options):
    for item in read_blocks(*arguments, **options):
        yield from item.events() if isinstance(item, RowsBatch) else [item]


@pytest.mark.parametrize("pending", [1, 20_000, 24 << 20])
def test_batches_land_as_single_events_do(database: Database, tmp_path, monkeypatch, pending):
    database.execute("CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(200), d DECIMAL(9,2))")
    database.execute("CREATE TABLE b (id INT PRIMARY KEY, j JSON)")
    url, password = url_of(database.server), ensure_replicator(database.server, ["*"])
    lakes = [Sparkless(tmp_path / name, password, [f"{database.name}.*"]) for name in ("single", "batches")]
    for lake in lakes:
        lake.run(url)
    with database.connection() as connection, connection.cursor() as cursor:
        for n in range(60):
            cursor.execute("BEGIN")
            for k in range(n % 4 + 1):
                cursor.execute(
                    "INSERT INTO a (id, v, d) VALUES (%s, 'ä', 1.5), (%s, NULL, -2)", (n * 10 + k, 5000 + n * 10 + k)
                )
                cursor.execute("INSERT INTO b VALUES (%s, '[1, {}]')", (n * 10 + k,))
            cursor.execute("UPDATE a SET v = CONCAT(id) WHERE id >= %s", (n * 10,))
            cursor.execute("COMMIT")
            if n == 30:
                cursor.execute("ALTER TABLE a ADD COLUMN more INT DEFAULT 7")
                cursor.execute("ALTER TABLE a ALTER COLUMN more SET DEFAULT 8, MODIFY v VARCHAR(200) DEFAULT 'v'")
            if n == 40:
                cursor.execute("TRUNCATE b")
            if n > 30:
                cursor.execute("INSERT INTO a (id, d) VALUES (%s, 9)", (90_000 + n,))
    lakes[1].source["max_task_bytes"] = pending * stream.RAW_SHARE
    lakes[1].run(url)
    del lakes[1].source["max_task_bytes"]
    monkeypatch.setattr(stream, "read_blocks", single)
    lakes[0].run(url)
    for table in ("a", "b"):
        one, many = (lake.events(f"{database.name}.{table}") for lake in lakes)
        assert many == one
        assert len(many) > 100
    states = [lake.state for lake in lakes]
    assert states[0].checkpoint == states[1].checkpoint
    assert {n: (t.rows, t.last) for n, t in states[0].tables.items()} == {
        n: (t.rows, t.last) for n, t in states[1].tables.items()
    }
