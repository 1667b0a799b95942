"""What a repair adds to bronze: the rows that differ, at the proof's position, in an order that stays right.

Without Spark: silver's side is a table in memory (`Rows`), and bronze's events are folded to the tables they leave.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from servers.folded import assert_each_once_and_in_order, folded, row_of
from servers.sparkless import Sparkless

from bronze.source.connection import connect
from bronze.source.server import exact_read
from lakeward.config import parse
from silver import verify
from silver.checksum import Sums
from silver.proof import chunks
from silver.proof.differences import Held
from silver.proof.repair import mend_rows
from silver.proof.sides import Silver, Source, _add


class Rows:
    """As much of a DataFrame as a proof asks for."""

    schema = None

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def mapInArrow(self, function: Callable[..., Iterator[pa.RecordBatch]], _: object) -> Rows:
        found = list(function(iter(self._rows.to_batches(max_chunksize=70))))
        return Rows(pa.Table.from_batches(found))

    def toArrow(self) -> pa.Table:
        return self._rows


class InMemory(Silver):
    def sums(self) -> Sums:
        found = Sums(self.chunking.count)
        for rows in self.rows(lambda rows: np.ones(len(rows), np.bool_)):
            _add(found, rows, self.chunking)
        return found


class World:
    def __init__(self, database: Any, password: str, folder: Any) -> None:
        self.database, self.password = database, password
        self.url = f"mysql://replicator@127.0.0.1:{database.server.port}"
        self.bronze = Sparkless(folder, password, [f"{database.name}.*"])
        self.name = f"{database.name}.t"

    def repair(self, damage: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> verify.TableProof:
        """Prove silver's rows, which are the source's `damage`d, and mend them."""
        config = parse({"source": {"url": self.url, "include": [f"{self.database.name}.*"]}})
        nothing = Held(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        with contextlib.closing(connect(config.source, self.password)) as connection:
            at = exact_read(connection, 1)
            self.bronze.run(self.url, until=at)
            schema = self.bronze.state.tables[self.name].schema
            chunking = chunks.cut(connection, schema, 400)
            source = Source(connection, schema, chunking, None)
            rows = damage([row for batch in source.batches() for row in batch.to_pylist()])
            image = pa.array(rows, schema.image())
            table = pa.Table.from_arrays(image.flatten(), names=[f"c{i}" for i in range(len(schema.columns))])
            lake = InMemory(Rows(table), schema, chunking)  # type: ignore[arg-type]
            with mock.patch("silver.verify._held", return_value=nothing), self.bronze.patched():
                finding = verify._finding(None, None, source, lake, source.sums(), lake.sums())  # type: ignore[arg-type]
                assert finding.by_rows
                with mock.patch("silver.proof.repair.physical_names", return_value=None):
                    mend_rows(None, self.bronze.lake, at, [finding])  # type: ignore[arg-type]
        return finding.proof

    def assert_bronze_tells_the_source(self) -> None:
        state, events = self.bronze.state, self.bronze.events(self.name)
        assert state.checkpoint is not None
        table = state.tables[self.name]
        columns = [c.name for c in table.schema.columns]
        source = self.database.query(f"SELECT {', '.join(columns)} FROM t")
        expected = Counter(row_of(table.schema, dict(zip(columns, row, strict=True))) for row in source)
        ordered = sorted(events, key=lambda e: (_place(e), not e["source"]["snapshot"], e["source"]["row"]))
        assert folded(ordered, table, state.checkpoint.at._replace(pos=state.checkpoint.at.pos + 1)) == expected
        assert_each_once_and_in_order([events])

    def repaired(self) -> list[dict[str, Any]]:
        return [e for e in self.bronze.events(self.name) if str(e["transaction"]["id"]).startswith("repair:")]


def _place(event: dict[str, Any]) -> tuple[int, int, int]:
    return event["source"]["epoch"], event["source"]["file"], event["source"]["pos"]


@pytest.mark.parametrize("key", ["id INT PRIMARY KEY, a VARCHAR(9)", "id INT, a VARCHAR(9), PRIMARY KEY (a, id)"])
def test_a_repair_adds_what_differs_once_and_later_events_win(
    key: str, database, replicator_password, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 50)
    world = World(database, replicator_password, tmp_path)
    database.execute(f"CREATE TABLE t ({key}, v INT)")
    database.executemany("INSERT INTO t VALUES (%s, 'Ä', 7)", [(i,) for i in range(1, 401)])
    world.bronze.run(world.url)
    database.execute("UPDATE t SET v = 8 WHERE id = 5")

    def damage(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        kept = [r | {"v": 6} if r["id"] == 44 else r for r in rows if r["id"] != 17]
        doubled = [r for r in rows if r["id"] == 301]
        alone = [{"id": 1000 + i // 2, "a": "x", "v": i // 2} for i in range(6)]  # each of them twice
        return [*kept, *doubled, *alone]

    proof = world.repair(damage)
    assert not proof.equal
    assert (proof.differing, proof.chunks_differing <= 6, proof.chunks >= 8) == (6, True, True)
    what = {d["key"]["id"]: d["what"] for d in proof.differences}
    assert what == {
        "17": "missing in silver",
        "44": "differs",
        "301": "doubled in silver",
        **dict.fromkeys(("1000", "1001", "1002"), "only in silver"),
    }
    assert proof.mended == {"read": 3, "deleted": 3}
    first = world.repaired()
    assert sorted((e["op"], (e["after"] or e["before"])["id"]) for e in first) == [
        *(("d", i) for i in (1000, 1001, 1002)),
        *(("r", i) for i in (17, 44, 301)),
    ]
    world.assert_bronze_tells_the_source()

    # Where nothing has happened since, a second repair stands behind the first one, at the same place.
    assert world.repair(lambda rows: rows[1:]).mended == {"read": 1, "deleted": 0}
    again = world.repaired()
    assert [e["source"]["row"] for e in again] == list(range(7))
    assert len({_place(e) for e in again}) == 1
    state = world.bronze.state
    assert state.checkpoint is not None
    assert state.checkpoint.at.row == 7
    assert state.tables[world.name].repaired == state.batch
    world.bronze.run(world.url)
    assert world.bronze.state.checkpoint.at.row == 7

    database.execute("UPDATE t SET v = 9 WHERE id IN (17, 301)")
    database.execute("INSERT INTO t VALUES (1001, 'x', 1)")
    database.execute("DELETE FROM t WHERE id = 44")
    world.bronze.run(world.url)
    world.assert_bronze_tells_the_source()


def test_a_repair_that_is_killed_after_its_intent_is_finished_and_not_made_twice(
    database, replicator_password, tmp_path
) -> None:
    world = World(database, replicator_password, tmp_path)
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 2)")

    def killed(name: str) -> None:
        if name == "bronze.after_intent" and world.bronze.state.intent["tables"][world.name].get("repaired"):
            raise KeyboardInterrupt

    with mock.patch("lakeward.crash.point", killed), pytest.raises(KeyboardInterrupt):
        world.repair(lambda rows: rows[1:])
    assert world.repaired() == []
    world.bronze.run(world.url)
    assert [(e["op"], e["after"]["id"]) for e in world.repaired()] == [("r", 1)]
    world.assert_bronze_tells_the_source()
