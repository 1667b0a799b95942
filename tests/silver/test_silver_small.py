"""Tables that the driver writes by itself: the same rows and change feed as Delta's MERGE, or left to it.

`test_silver_model.py` holds both to one model.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.errors import PySparkException

from lakeward.config import TableConfig
from lakeward.delta import rename_column, version
from silver import small


@pytest.mark.parametrize("bytes_max", [small.BYTES_MAX, -1], ids=["small", "delta"])
def test_values_of_every_kind_stay_and_are_told_as_they_are(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch, kinds: dict[str, list[Any]], bytes_max: int
) -> None:
    monkeypatch.setattr(small, "BYTES_MAX", bytes_max)
    columns = {f"c{n}": kind for n, kind in enumerate(kinds)}
    rows = [{"id": i, **{f"c{n}": values[i % 2] for n, values in enumerate(kinds.values())}} for i in range(4)]
    every = ledger.follow(make_schema("every", {"id": "int", **columns}, ("id",)), rows)
    ledger.silver()
    before = ledger.content(every)
    first = version(ledger.spark, ledger.location(every))
    for n in range(len(kinds)):  # each column by itself becomes what it is in the other row
        rows[0] = _updated(ledger, every, rows[0], f"c{n}", rows[1][f"c{n}"])
    ledger.delete(every, rows[3])
    ledger.insert(every, rows[3] | {"id": 9})
    ledger.silver()
    others = [row for row in before if row[0] in (1, 2)]
    assert {row: n for row, n in ledger.content(every).items() if row[0] in (1, 2)} == dict.fromkeys(others, 1)
    found = {row[0]: row[1:] for row in ledger.content(every)}
    assert found.keys() == {0, 1, 2, 9}
    assert found[0] == found[1]
    assert (3, *found[9]) in before
    told = ledger.changes(every, first + 1)
    told_as = ("update_preimage", "update_postimage", "delete", "insert")
    assert Counter(change for change, _ in told) == dict.fromkeys(told_as, 1)
    assert ("update_preimage", next(row for row in before if row[0] == 0)) in told
    ledger.assert_told_truly(every)
    assert _operation(ledger, every) == ("MERGE" if bytes_max < 0 else "WRITE")


def _updated(ledger: Any, schema: Any, row: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    ledger.update(schema, row, row | {name: value})
    return row | {name: value}


def test_a_table_may_become_empty_and_a_batch_may_change_nothing(ledger: Any, make_schema: Any) -> None:
    users = ledger.follow(make_schema("users", {"id": "int", "name": "text"}, ("id",)), [{"id": 1, "name": "a"}])
    ledger.silver()
    ledger.update(users, {"id": 1, "name": "a"}, {"id": 1, "name": "b"})
    ledger.update(users, {"id": 1, "name": "b"}, {"id": 1, "name": "a"})
    before = ledger.version(users)
    assert ledger.silver().tables["shop.users"].updated == 0
    assert ledger.version(users) == before
    ledger.delete(users, {"id": 1, "name": "a"})
    ledger.silver()
    assert ledger.read(users).inputFiles() == []
    ledger.insert(users, {"id": 2, "name": "c"})
    ledger.silver()
    assert ledger.content(users) == Counter([(2, "c")])
    ledger.assert_told_truly(users)
    assert _operation(ledger, users) == "WRITE"


def test_a_column_that_the_source_does_not_have_stays_where_it_is_to_be_kept(ledger: Any, make_schema: Any) -> None:
    ledger.tables = {"shop.users": TableConfig(dropped_columns="keep")}
    users = ledger.follow(make_schema("users", {"id": "int"}, ("id",)), [{"id": 1}, {"id": 2}, {"id": 3}])
    ledger.silver()
    table = f"delta.`{ledger.location(users)}`"
    ledger.spark.sql(f"ALTER TABLE {table} ADD COLUMNS (note STRING AFTER id)")
    ledger.update(users, {"id": 3}, {"id": 5})
    ledger.silver()  # by Delta, since the file lacks the column; the next one has columns of Delta's beside its own
    ledger.spark.sql(f"UPDATE {table} SET note = concat('of ', id)")
    with ledger.transaction():
        ledger.rows(users, "u", [({"id": 1}, {"id": 4})])
        ledger.delete(users, {"id": 2})
    ledger.silver()
    assert _operation(ledger, users) == "WRITE"
    assert {(row["id"], row["note"]) for row in ledger.read(users).collect()} == {(5, "of 5"), (4, None)}


def test_what_needs_more_than_the_driver_knows_is_left_to_delta(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {}
    for name in ("plain", "checked", "mapped", "marked", "many", "heavy"):
        tables[name] = make_schema(name, {"id": "int", "name": "text"}, ("id",))
        ledger.follow(tables[name], [{"id": n, "name": "a"} for n in range(40 if name == "many" else 4)])
    ledger.silver()
    where = {name: f"delta.`{ledger.location(schema)}`" for name, schema in tables.items()}
    ledger.spark.sql(f"ALTER TABLE {where['checked']} ADD CONSTRAINT positive CHECK (id >= 0)")
    rename_column(ledger.spark, ledger.location(tables["mapped"]), ("name",), "called")
    ledger.spark.sql(f"DELETE FROM {where['marked']} WHERE id = 3")
    monkeypatch.setattr("silver.local.ROWS_MAX", 39)

    def taken(name: str) -> bool:
        return small.take(ledger.spark, ledger.lake, ledger.location(tables[name])) is not None

    assert [name for name in tables if taken(name)] == ["plain", "heavy"]
    monkeypatch.setattr(small, "BYTES_MAX", 100)
    assert not taken("heavy")


def test_another_program_that_wrote_first_is_not_written_over(ledger: Any, make_schema: Any) -> None:
    users = ledger.follow(make_schema("users", {"id": "int"}, ("id",)), [{"id": 1}])
    ledger.silver()
    held = small.take(ledger.spark, ledger.lake, ledger.location(users))
    assert held is not None
    rows = ledger.spark.sql(
        "SELECT 'upsert' AS kind, named_struct('c0', 2) AS image, 1L AS ts_ms, 'x' AS tx_id, 1L AS tx_order,"
        " false AS gone"
    )
    ledger.spark.sql(f"UPDATE delta.`{ledger.location(users)}` SET id = 7")
    with pytest.raises(PySparkException, match="conflict detected"):
        held.merge(rows, users, run=9, soft=False)
    assert ledger.content(users) == Counter([(7,)])


def _operation(ledger: Any, schema: Any) -> str:
    return str(DeltaTable.forPath(ledger.spark, ledger.location(schema)).history(1).collect()[0]["operation"])
