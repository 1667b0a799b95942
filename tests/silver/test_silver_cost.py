"""What a small batch costs, counted in Spark jobs and commands to the JVM, and what is left unread. Never seconds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta.tables import DeltaTable
from golden.loader import cases
from py4j.java_gateway import GatewayClient
from pyspark.sql import DataFrame

from bronze.envelope import envelope_arrow, envelope_ddl
from lakeward.delta import rename_column, struct
from lakeward.kernel import latest_version, listing
from lakeward.position import Position
from lakeward.state import load_silver
from silver import local
from silver import run as silver_run
from silver.fill import whole_events
from silver.local import Held
from silver.plan import TablePlan, plan_run
from silver.prune import RANGES_MAX, ranges, touched

JOBS_MAX = 2  # of a table with a handful of changes, its gate included; it was 32, and 8 by Delta's own MERGE
COMMANDS_MAX = 900  # of such a table to the JVM, its gate left out; PySpark sends them one by one
GATE_COMMANDS_MAX = 150  # of its gate, where an earlier batch of the table has made the conditions
LARGE = {
    "silver.small.BYTES_MAX": -1,
    "silver.merge.REWRITTEN_BYTES_MAX": -1,
    "silver.prune.LISTED_BYTES_MIN": 0,
    "silver.bulk.TABLE_BYTES_MAX": -1,
    "silver.table.DENSE": 1_000_000,
}


@pytest.mark.parametrize("gated", [False, True], ids=["passing", "gated"])
def test_a_table_with_a_few_changes_starts_few_jobs(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch, gated: bool
) -> None:
    gate = silver_run._Quality(ledger.lake, ledger.config) if gated else None
    columns = {"id": "int", "name": "varchar(9)"}
    tables = [
        ledger.follow(make_schema(name, columns, ("id",)), [{"id": n, "name": "a"} for n in range(20)])
        for name in ("first", "second")
    ]
    ledger.flush()
    before = _jobs(ledger)
    ledger.rerun(gate)
    assert (_jobs(ledger) - before) / len(tables) <= JOBS_MAX, "of its first load"
    for table in tables:
        ledger.update(table, {"id": 3, "name": "a"}, {"id": 3, "name": "b"})
        ledger.delete(table, {"id": 4, "name": "a"})
        ledger.insert(table, {"id": 99, "name": "c"})
    ledger.flush()
    before, commands = _jobs(ledger), 0
    send = GatewayClient.send_command

    def counted(client: Any, *arguments: Any, **named: Any) -> Any:
        nonlocal commands
        commands += 1
        return send(client, *arguments, **named)

    with monkeypatch.context() as counting:
        counting.setattr(GatewayClient, "send_command", counted)
        report = ledger.rerun(gate)
    assert (_jobs(ledger) - before) / len(tables) <= JOBS_MAX
    assert 50 < commands / len(tables) <= COMMANDS_MAX + gated * GATE_COMMANDS_MAX
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
    assert _bytes(table.where(" AND ".join(touched(pairs, later, 0)))) < _bytes(table) / 2


def test_a_batch_that_changes_most_of_a_table_gives_its_files_no_deletion_vectors(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in LARGE.items():
        if name != "silver.table.DENSE":
            monkeypatch.setattr(name, value)
    rows = [{"id": n, "v": "old"} for n in range(10)]
    many = ledger.follow(make_schema("many", {"id": "int", "v": "text"}, ("id",)), rows)
    ledger.silver()
    for batch, vectors in ((rows[:6], False), (rows[6:8], True)):
        for row in batch:
            ledger.update(many, row, row | {"v": "new"})
        ledger.silver()
        log = sorted(Path(ledger.location(many)).glob("_delta_log/*.json"))[-1].read_text()
        assert ("deletionVector" in log.replace("DeletionVectors", "")) == vectors
    assert ledger.content(many) == Counter((n, "new" if n < 8 else "old") for n in range(10))
    ledger.assert_told_truly(many)


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


def test_the_driver_holds_what_spark_would_read_and_opens_no_earlier_file(ledger: Any, make_schema: Any) -> None:
    columns = {"id": "int", "name": "varchar(9)", "at": "datetime(3)"}
    users = ledger.follow(make_schema("users", columns, ("id",)), [{"id": n, "name": "a"} for n in range(5)])
    assert _held(ledger) == _read(ledger)  # a snapshot's rows
    ledger.silver()
    ledger.update(users, {"id": 1, "name": "a"}, {"id": 1, "name": None})
    ledger.delete(users, {"id": 2, "name": "a"})
    assert len(_held(ledger) or ()) == 2
    assert _held(ledger) == _read(ledger)
    plan = _plan(ledger)
    where = ledger.lake.table("bronze", users.name)
    (changed,) = _files(ledger, plan, plan.since)
    assert changed in _files(ledger, plan, None)
    assert len(_files(ledger, plan, None)) == 2
    assert listing(ledger.spark, where, plan.bronze_version, None, most=1) is None
    # A file from before a column came, and then names that are not the files' own, are left to Spark.
    ledger.alter(make_schema("users", {**columns, "mail": "text"}, ("id",)))
    ledger.insert(users, {"id": 9})
    assert _held(ledger) is None
    assert len(_read(ledger)) == 3
    ledger.silver()
    ledger.insert(users, {"id": 10})
    assert _held(ledger) == _read(ledger)
    rename_column(ledger.spark, where, ("after", "mail"), "post")
    assert _held(ledger) is None


def test_what_bronze_writes_of_any_type_can_be_held(make_schema: Any) -> None:
    declared = (re.match(r"\w+(\([^)]*\))?( unsigned)?", case.column_ddl.lower()) for case in cases())
    columns = {f"c{n}": kind for n, kind in enumerate(sorted({found[0] for found in declared if found}))}
    schema = make_schema("every", {"id": "int", **columns}, ("id",))
    written, read = envelope_arrow(schema.image()), struct(envelope_ddl(schema))
    assert len(columns) > 30
    assert local.as_now(written, read)
    other = struct(envelope_ddl(make_schema("every", {"id": "bigint", **columns}, ("id",))))
    assert not local.as_now(written, other)


def test_the_driver_holds_nothing_of_an_earlier_generation(ledger: Any, make_schema: Any) -> None:
    users = ledger.follow(make_schema("users", {"id": "int"}, ("id",)), [{"id": n} for n in range(5)])
    ledger.silver()
    ledger.follow(users, [{"id": 1}])
    assert len(_files(ledger, _plan(ledger), None)) == 2
    assert len(_held(ledger) or ()) == 1
    assert _held(ledger) == _read(ledger)


def test_the_driver_holds_no_more_than_its_share(
    ledger: Any, make_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.follow(make_schema("users", {"id": "int"}, ("id",)), [{"id": n} for n in range(100)])
    plan, spark = _plan(ledger), ledger.spark
    real = listing(spark, ledger.lake.table("bronze", plan.schema.name), plan.bronze_version, None, most=9)
    assert real is not None
    large = replace(real, files=dict.fromkeys(real.files, 3 << 20))
    monkeypatch.setattr("silver.local.listing", lambda *_, **__: large)
    held, cut = Held(), ledger.state.checkpoint.at
    taken = held.take(spark, ledger.lake, plan, cut)
    assert taken is not None
    assert taken.count() == 100
    assert held.take(spark, ledger.lake, replace(plan, events=10**6), cut) is None
    assert sum(held.take(spark, ledger.lake, plan, cut) is not None for _ in range(20)) == 9  # 30 of 32 MiB
    few, held = replace(plan, events=1), Held()
    monkeypatch.setattr("silver.local.ROWS_MAX", 99)
    for _ in range(20):
        assert held.take(spark, ledger.lake, few, cut) is None  # whatever the plan takes it for
    monkeypatch.setattr("silver.local.ROWS_MAX", 100)
    assert held.take(spark, ledger.lake, few, cut) is not None  # what was not held took no share


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


def _plan(ledger: Any) -> TablePlan:
    """The next run's, of the only table."""
    ledger.flush()
    run = plan_run(ledger.state, load_silver(ledger.lake), lambda schema: _version(ledger, schema))
    assert run is not None
    (plan,) = run.tables
    return plan


def _files(ledger: Any, plan: TablePlan, since: Position | None) -> Mapping[str, int]:
    found = listing(ledger.spark, ledger.lake.table("bronze", plan.schema.name), plan.bronze_version, since, most=9)
    assert found is not None
    return found.files


def _version(ledger: Any, schema: Any) -> int:
    return latest_version(ledger.spark, ledger.lake.table("bronze", schema.name))


def _held(ledger: Any) -> list[str] | None:
    plan = _plan(ledger)
    found = Held().take(ledger.spark, ledger.lake, plan, ledger.state.checkpoint.at)
    return None if found is None else _shown(found)


def _read(ledger: Any) -> list[str]:
    return _shown(whole_events(ledger.spark, ledger.lake, _plan(ledger), ledger.state.checkpoint.at))


def _shown(events: DataFrame) -> list[str]:
    return sorted(str(row) for row in events.collect())


def _bytes(frame: DataFrame) -> int:
    """Of the data files that are read, after those without the keys are skipped."""
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def _jobs(ledger: Any) -> int:
    return int(ledger.spark._jsc.sc().dagScheduler().numTotalJobs())
