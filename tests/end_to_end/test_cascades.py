"""What foreign keys do to children where the binlog does not say it, from a real server to silver's history."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import referring
from servers.running import Database

from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.server import EmbeddedServer

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def shop(unlogged_server: EmbeddedServer) -> Iterator[Database]:
    with Database.create(unlogged_server, f"cascades_{unlogged_server.flavour}") as made:
        yield made


def test_children_follow_their_parents_through_foreign_keys_in_rows_history_and_change_feed(
    shop: Database, new_pipeline: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = ensure_replicator(shop.server, [EVERY_SCHEMA])
    monkeypatch.setenv("SOURCE_PASSWORD", password)
    lake = new_pipeline(tmp_path, shop, password)
    rest = (("orders", 'history = "scd2"'), ("visit", 'deletes = "soft"\nhistory = "scd2"'))
    lake.write_config(rest="".join(f'[tables."{shop.name}.{table}"]\n{what}\n' for table, what in rest))
    referring.make(shop)
    lake.bronze()
    lake.silver()
    referring.change(shop)
    assert shop.query("SELECT COUNT(*) FROM visit WHERE firm = 5") == [(1,)]
    proof = lake.verify()
    assert proof.equal, [(t.name, t.differences) for t in proof.tables if not t.equal]
    versions = lake.table("silver", "visit", "__history")
    found = sorted((r["id"], r["firm"], r["__is_current"]) for r in versions.collect())
    assert (6, 3, True) in found
    assert [v for v in found if v[0] == 44] == [(44, 41, True)]
    assert [v for v in found if v[0] == 2] == [(2, 2, True)]
    assert [v[1:] for v in found if v[0] == 4] == [(4, False)]
    feed = (
        lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        .load(lake.app.lake.table("silver", lake.table_name("orders")))
    )  # fmt: skip
    deleted = sorted((r["customer"], r["no"]) for r in feed.where("_change_type = 'delete'").collect())
    assert deleted[:2] == [("Dee", 1), ("ann", 1)]
