"""Cascades as a part of silver's runs: killed at any moment, held back and replayed, over tables that had no event."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from servers.killed import killed_at

from lakeward.config import TableConfig
from lakeward.foreign_keys import Action, ForeignKey
from lakeward.names import TableName
from lakeward.state import load_silver
from silver.replay import recompute


def _refers(ledger: Any, child: str, column: str, parent: str, on_delete: Action, on_update: Action = "") -> None:
    key = ForeignKey("fk", (column,), TableName("shop", parent), ("id",), on_delete, on_update)
    table = ledger.state.tables[f"shop.{child}"]
    table.foreign_keys = [*(table.foreign_keys or []), key.to_json()]


@pytest.fixture
def shop(ledger, make_schema):
    ledger.tables = {"shop.b": TableConfig(history="scd2"), "shop.heap": TableConfig(deletes="soft")}
    tables = {
        "a": ledger.follow(make_schema("a", {"id": "int"}, ("id",)), [{"id": i} for i in (1, 2, 3)]),
        "b": ledger.follow(
            make_schema("b", {"id": "int", "a": "int"}, ("id",)), [{"id": i, "a": i // 10} for i in (10, 11, 20, 30)]
        ),
        "c": ledger.follow(
            make_schema("c", {"id": "int", "b": "int"}, ("id",)), [{"id": 1, "b": 10}, {"id": 2, "b": 20}]
        ),
        "heap": ledger.follow(make_schema("heap", {"a": "int"}, ()), [{"a": 1}, {"a": 1}, {"a": 3}]),
    }
    _refers(ledger, "b", "a", "a", "CASCADE", "CASCADE")
    _refers(ledger, "c", "b", "b", "SET NULL")
    _refers(ledger, "heap", "a", "a", "CASCADE", "SET NULL")
    ledger.silver()
    return tables


@pytest.mark.parametrize("point", ["before_intent", "between_merges"])
def test_what_cascades_did_is_there_once_whenever_a_run_was_killed(ledger, shop, point):
    a, b, c, heap = shop.values()
    with ledger.transaction():
        ledger.delete(a, {"id": 1})
    with ledger.transaction():
        ledger.update(a, {"id": 3}, {"id": 4})
    ledger.flush()
    with killed_at(f"silver.{point}"):
        ledger.rerun()
    with ledger.transaction():
        ledger.insert(a, {"id": 1})
        ledger.insert(b, {"id": 10, "a": 1})  # the same key again, after the cascade
    ledger.flush()
    ledger.rerun()
    assert ledger.content(b) == Counter([(10, 1), (20, 2), (30, 4)])
    assert ledger.content(c) == Counter([(1, None), (2, 20)])
    assert ledger.content(heap) == Counter([(None,)])
    for schema in shop.values():
        ledger.assert_told_truly(schema)
    feed = Counter(ledger.changes(c, 1))
    assert feed == Counter(
        [("insert", (1, 10)), ("insert", (2, 20)), ("update_preimage", (1, 10)), ("update_postimage", (1, None))]
    )
    ended = ledger.read(b, "__history").where("NOT __is_current").select("id", "a").collect()
    assert Counter(map(tuple, ended)) == Counter([(10, 1), (11, 1), (30, 3)])
    assert load_silver(ledger.lake).tables["shop.c"].cut == ledger.state.checkpoint.at
    before = {name: ledger.version(schema) for name, schema in shop.items()}
    ledger.silver()
    assert {name: ledger.version(schema) for name, schema in shop.items()} == before
    none = ledger.spark.createDataFrame(
        [], "epoch INT, file BIGINT, pos BIGINT, row BIGINT, generation INT, cascade BIGINT"
    )
    keys = ledger.spark.createDataFrame([(11,), (30,)], "id INT")
    recompute(ledger.spark, ledger.lake, ledger.config, b, keys, held=none)
    assert ledger.content(b) == Counter([(10, 1), (20, 2), (30, 4)])
