"""What a small batch costs: counted in Spark jobs, and in what its MERGE leaves unread. Never in seconds."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable

from silver import local
from silver.local import Held
from silver.prune import RANGES_MAX, ranges, touched

JOBS_MAX = 12  # of a table with a handful of changes, its gate left out; it was 25
LARGE = {"silver.merge.REWRITTEN_BYTES_MAX": -1, "silver.prune.LISTED_BYTES_MIN": 0}


def test_a_table_with_a_few_changes_starts_few_jobs(ledger: Any, make_schema: Any) -> None:
    columns = {"id": "int", "name": "varchar(9)"}
    tables = [
        ledger.follow(make_schema(name, columns, ("id",)), [{"id": n, "name": "a"} for n in range(20)])
        for name in ("first", "second")
    ]
    ledger.silver()
    for table in tables:
        ledger.update(table, {"id": 3, "name": "a"}, {"id": 3, "name": "b"})
        ledger.delete(table, {"id": 4, "name": "a"})
        ledger.insert(table, {"id": 99, "name": "c"})
    ledger.flush()
    before = _jobs(ledger)
    report = ledger.rerun()
    assert (_jobs(ledger) - before) / len(tables) <= JOBS_MAX
    assert [(t.inserted, t.updated, t.deleted) for t in report.tables.values()] == [(1, 1, 1)] * 2


def test_a_small_batch_reads_only_the_files_of_its_keys(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LARGE.items():
        monkeypatch.setattr(name, value)
    zero, big = Decimal(0), Decimal(2**64 - 1)  # of BIGINT UNSIGNED
    rows = [{"a": a, "b": b, "v": "old"} for a in (-5, 0, 7, 1_000_000) for b in (zero, big)]
    pairs = ledger.follow(make_schema("pairs", {"a": "int", "b": "bigint unsigned", "v": "text"}, ("a", "b")), rows)
    ledger.silver()
    ledger.update(pairs, rows[1], rows[1] | {"v": "new"})
    ledger.update(pairs, rows[4], rows[4] | {"a": 8})
    ledger.delete(pairs, rows[6])
    ledger.insert(pairs, {"a": 7, "b": Decimal(12), "v": "new"})
    report = ledger.silver()
    done = report.tables["shop.pairs"]
    assert (done.inserted, done.updated, done.deleted) == (2, 1, 2)
    wanted = [(-5, 0, "old"), (-5, big, "new"), (0, 0, "old"), (0, big, "old"), (8, 0, "old"), (7, big, "old")]
    assert ledger.content(pairs) == Counter([*wanted, (1_000_000, big, "old"), (7, 12, "new")])
    ledger.assert_told_truly(pairs)
    said = DeltaTable.forPath(ledger.spark, ledger.location(pairs)).history(1).collect()[0]["operationParameters"]
    assert "1000000" in said["predicate"]  # the delete's key bounds what is read
    # A later batch elsewhere: files that hold none of its keys are not opened.
    ledger.insert(pairs, {"a": 2_000_000, "b": Decimal(1), "v": "new"})
    ledger.silver()
    table, later = ledger.read(pairs).alias("t"), pa.table({"c0": [2_000_000], "c1": [1]})
    assert local._bytes(table.where(" AND ".join(touched(pairs, later, 0)))) < local._bytes(table) / 2


def test_the_ranges_of_keys_hold_each_key_and_the_widest_gaps_are_left_out() -> None:
    assert ranges([4]) == [(4, 4)]
    assert ranges([1, 2, 900, 901]) == [(1, 1), (2, 2), (900, 900), (901, 901)]
    values = sorted({n * n * n for n in range(-40, 40)})
    found = ranges(values)
    assert len(found) == RANGES_MAX
    assert all(any(low <= v <= high for low, high in found) for v in values)
    assert all(a[1] < b[0] for a, b in pairwise(found))


def test_only_whole_numbers_of_a_key_are_said_in_the_log(make_schema: Any) -> None:
    rows = pa.table({"c0": pa.array([5, 3, 3], pa.int32()), "c1": ["x@example.com", "y", "z"]})
    columns = {"id": "int", "mail": "varchar(99)"}
    assert touched(make_schema("t", columns, ("id", "mail")), rows, 0) == [
        "(t.`id` BETWEEN 3 AND 3 OR t.`id` BETWEEN 5 AND 5)"
    ]
    assert touched(make_schema("t", columns, ("mail",)), rows, 0) == []
    assert touched(make_schema("t", columns, ()), rows, 0) == []


def test_the_driver_holds_no_more_than_its_share(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = ledger.spark.range(100).selectExpr("id", "repeat('x', 10) AS text")
    held = Held()
    monkeypatch.setattr("silver.local._bytes", lambda _frame: 3 << 20)
    taken = held.take(frame, 100)
    assert taken is not None
    assert taken.count() == 100
    assert held.take(frame, 10**6) is None
    assert sum(held.take(frame, 1) is not None for _ in range(20)) == 9  # 30 of 32 MiB


def test_what_the_driver_holds_are_the_very_values(ledger: Any, tmp_path: Path) -> None:
    values = [
        "TIMESTAMP'0001-01-01 00:00:00'",
        "TIMESTAMP'9999-12-31 23:59:59.999999'",
        "TIMESTAMP_NTZ'0001-01-01 00:00:00.000001'",
        "DATE'0001-01-01'",
        "18446744073709551615BD",
        "CAST('-0.0' AS DOUBLE)",
        "CAST(16777217 AS FLOAT)",
        "X'00FF'",
        "'a \\u0000 é'",
        "array(CAST(1.5 AS FLOAT))",
        "named_struct('srid', 4326, 'wkb', X'01')",
        "CAST(NULL AS DECIMAL(38,10))",
    ]
    image = ", ".join(f"'a{i} ;', {value}" for i, value in enumerate(values))
    rows = ledger.spark.sql(
        f"SELECT 'u' AS op, named_struct({image}) AS after, 1 AS n UNION ALL SELECT 'd', NULL, NULL"
    )
    rows.write.parquet(str(tmp_path / "rows"))  # as it is read from files, where every field may be NULL
    frame = ledger.spark.read.parquet(str(tmp_path / "rows"))
    held = local.local(ledger.spark, frame.toArrow(), frame.schema)
    assert held.schema == frame.schema
    shown = ["n", "CAST(after AS STRING)"]
    assert sorted(held.selectExpr(*shown).collect(), key=str) == sorted(frame.selectExpr(*shown).collect(), key=str)


def _jobs(ledger: Any) -> int:
    return int(ledger.spark._jsc.sc().dagScheduler().numTotalJobs())
