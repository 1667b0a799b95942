"""Row filters: the same rows by the binlog, by a snapshot and in a proof, by MySQL's own meaning of the condition."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from servers.folded import folded
from servers.running import Database
from servers.sparkless import Sparkless

from bronze.binlog.columns import WireColumn
from bronze.binlog.items import Presence, RowsEvent
from bronze.conform import Conformed
from bronze.filtered import require_told
from bronze.rowfilter import Capture, condition
from bronze.snapshot.read import read_exact
from bronze.source.catalog import describe
from bronze.source.connection import connect, settings
from lakeward.config import parse
from lakeward.errors import ConfigError, FailClosedError
from lakeward.names import TableName
from lakeward.rowfilter import parse_filter
from lakeward.schema import Column, TableSchema

REFUSED = [
    ("region = EU", "quotes"),
    ("region", "cannot"),
    ("region = NULL", "IS NULL"),
    ("region <=> 'EU'", "cannot"),
    ("LOWER(region) = 'eu'", "plain name"),
    ("region = 'EU'; DROP TABLE t", "more than one"),
    ("region = 'EU' ORDER BY id", "more than one"),
    ("!region = 'EU'", "NOT"),
    (r"region LIKE 'a\_b'", "backslash"),
    ("id IN (SELECT 1)", "list"),
    ("id = 0x41", "literal"),
    ("", "condition"),
]


@pytest.mark.parametrize(("where", "said"), REFUSED)
def test_what_has_no_exact_meaning_is_refused_when_the_configuration_is_read(where: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse({"tables": {"shop.t": {"where": where}}})
    assert said in str(refused.value)
    assert '[tables."shop.t"] where' in str(refused.value)
    assert refused.value.hint


CREATE = """CREATE TABLE t (id INT PRIMARY KEY, region VARCHAR(20), bin VARCHAR(20) COLLATE utf8mb4_bin,
 latin VARCHAR(20) CHARACTER SET latin1, kind ENUM('Bike','boat'), n INT, u BIGINT UNSIGNED, d DECIMAL(8,2),
 f FLOAT, x DOUBLE, flag TINYINT(1), bits BIT(9), y YEAR, day DATE, at DATETIME(3), ts TIMESTAMP(6) NULL, note TEXT)"""
ROWS: list[tuple[Any, ...]] = [
    ("EU", "EU", "ñandú", "Bike", 1, 18446744073709551615, "1.50", 0.1, 0.1, 1, 3, 2020, "2026-01-01",
     "2026-01-01 00:00:00.000", "2026-01-01 10:00:00.5", "x"),
    ("eu", "eu", "NANDU", "boat", -5, 0, "-1.50", 16777217, -0.0, 0, 0, 1901, "0000-00-00", "2026-00-10 00:00:00",
     "2025-12-31 23:59:59.999999", None),
    ("Eü", "EU ", "x", "bike", 2147483647, 9007199254740993, "999999.99", -0.0, 1e300, 2, 511, 2155, "2026-02-31",
     "2026-01-01 00:00:00.001", None, ""),
    ("US", "us", "ß", None, None, None, None, None, None, None, None, None, None, None, None, None),
    ("", "a%", "ss", "boat", 0, 1, "0.00", 1.5, 1.5, -1, 256, 0, "2026-01-02", "9999-12-31 23:59:59.999", None, "EU"),
    (None, None, None, "Bike", 7, 7, "0.01", 7, 7, 1, 7, 2007, "1000-01-01", None, "2026-07-07 07:07:07", "x"),
]  # fmt: skip
CONDITIONS = [
    "region = 'EU'",
    "region <> 'eu'",
    "region IN ('us', 'EÜ') OR region IS NULL",
    "NOT region = 'EU'",
    "NOT (region = 'EU' OR n > 0)",
    "region LIKE 'e%' AND NOT region LIKE '_Ś'",
    "region >= 'EU' AND region < 'UT'",
    "bin = 'EU'",
    "bin LIKE '%u' OR bin = 'A%'",
    "latin = 'ÑANDU' OR latin = 'SS'",
    "kind = 'BIKE'",
    "kind <> 'boat' OR kind IS NULL",
    "n > 0.5 OR n = -5",
    "n BETWEEN -5 AND 1",
    "n <> 1.5",
    "n < 3000000000 AND n > -1e20",
    "u = 18446744073709551615 OR u = 9007199254740993",
    "u > 9007199254740992.5",
    "d = 1.5 OR d > 999999.985",
    "d < -1.495 OR d = 0.001",
    "f <> 0.1",
    "f = 0 OR f >= 16777216",
    "x = 0.1 OR x = 0",
    "x > 1e29",
    "flag = 1",
    "flag <> TRUE",
    "bits > 255",
    "y BETWEEN 1901 AND 2020",
    "y = 0",
    "day >= '1000-01-01'",
    "NOT day = '2026-01-01'",
    "day IS NULL",
    "at > '2026-01-01'",
    "at <= '2026-01-01 00:00:00' OR at IS NULL",
    "ts >= '2026-01-01 10:00:00.5'",
    "ts < '2026-01-01' OR NOT ts IS NULL AND id = 5",
    "note IS NOT NULL AND n IS NOT NULL",
]


@pytest.mark.parametrize("tinyint1", ["int", "boolean"])
def test_every_condition_picks_the_rows_that_the_server_picks(
    database: Database, replicator_url: str, replicator_password: str, tinyint1: str
) -> None:
    """What a snapshot and a proof read (the server's own choice) against what is kept of the same rows as decoded."""
    name = TableName(database.name, "t")
    config = parse({"source": {"url": replicator_url}, "tables": {str(name): {"tinyint1": tinyint1}}})
    database.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
    database.execute(CREATE)
    marks = ", ".join(["%s"] * (len(ROWS[0]) + 1))
    database.executemany(f"INSERT INTO t VALUES ({marks})", [(i, *row) for i, row in enumerate(ROWS)])
    capture = Capture(settings(config.source, replicator_password))
    with contextlib.closing(capture), contextlib.closing(connect(config.source, replicator_password)) as connection:
        schema = describe(connection, config, name)
        assert schema is not None
        columns = {c.name.lower(): c for c in schema.columns}
        (rows,) = read_exact(connection, schema)
        for where in CONDITIONS if tinyint1 == "int" else ["flag = 1", "flag <> 1", "flag = 0 OR flag > 5"]:
            tree = parse_filter(where, "where")
            kept = rows.filter(pa.array(capture.passes(tree, rows, columns))).field("id").to_pylist()
            picked = [
                i
                for batch in read_exact(connection, schema, condition(tree, columns))
                for i in batch.field("id").to_pylist()
            ]
            assert kept == picked, where
            assert 0 < len(kept) < len(ROWS), f"{where} tells nothing apart"


def test_a_row_that_enters_is_inserted_and_one_that_leaves_is_deleted(
    database: Database, tmp_path: Path, replicator_url: str, replicator_password: str
) -> None:
    name = f"{database.name}.t"
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, region VARCHAR(9), v VARCHAR(20), pw VARCHAR(20))")
    database.execute("INSERT INTO t VALUES (1, 'eu', 'a', 'p'), (2, 'US', 'hidden', 'p'), (3, 'EU', 'c', 'p')")
    lake = Sparkless(tmp_path, replicator_password, [name])
    lake.tables = {name: {"where": "region = 'EU'", "exclude_columns": ["region"], "mask": {"pw": "sha256"}}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEWARD_MASK_KEY", "k")
        lake.run(replicator_url)
        for statement in (
            "UPDATE t SET v = 'b'",  # 1 and 3 stay in, 2 stays out
            "UPDATE t SET region = 'us', v = 'hidden' WHERE id = 1",
            "UPDATE t SET region = 'Eu' WHERE id = 2",
            "UPDATE t SET id = 30, region = 'XX', v = 'hidden' WHERE id = 3",
            "UPDATE t SET v = 'hidden' WHERE id = 30",
            "DELETE FROM t WHERE id = 30",
            "INSERT INTO t VALUES (4, NULL, 'hidden', 'p'), (5, 'EU', 'd', 'p'), (6, 'us', 'hidden', 'p')",
            "DELETE FROM t WHERE id = 5",
        ):
            database.execute(statement)
        lake.run(replicator_url)
        stream = [e for e in lake.events(name) if not e["source"]["snapshot"]]
        assert [_short(e) for e in stream] == [
            *(("u", (1, "a"), (1, "b")), ("u", (3, "c"), (3, "b")), ("d", (1, "b"), None), ("c", None, (2, "b"))),
            *(("d", (3, "b"), None), ("c", None, (5, "d")), ("d", (5, "d"), None)),
        ]
        assert "hidden" not in str(lake.events(name))
        assert "region" not in str(lake.events(name)[0]["after"])
        database.execute("TRUNCATE TABLE t")
        lake.run(replicator_url)
        assert lake.events(name)[-1]["op"] == "t"
        # Another filter: the table is read anew before anything else of it is read.
        database.execute("INSERT INTO t VALUES (7, 'US', 'now', 'p'), (8, 'EU', 'hidden', 'p')")
        lake.tables[name]["where"] = "region = 'US'"
        report = lake.run(replicator_url)
        table = lake.state.tables[name]
        assert (table.generation, table.status) == (2, "streaming")
        assert any("where" in warning for warning in report.warnings)
        assert lake.state.checkpoint is not None
        assert [e["after"]["id"] for e in lake.events(name) if e["source"]["generation"] == 2] == [7]
        assert sum(folded(lake.events(name), table, lake.state.checkpoint.at).values()) == 1
        assert "hidden" not in str(lake.events(name))
        lake.run(replicator_url)
        assert lake.state.tables[name].generation == 2
        assert "US" not in (tmp_path / "lake" / "_lakeward" / "bronze.json").read_text()


def _short(event: Mapping[str, Any]) -> tuple[Any, ...]:
    images = (event["before"], event["after"])
    return event["op"], *(None if image is None else (image["id"], image["v"]) for image in images)


def test_images_without_the_filters_columns_have_the_table_read_again_and_are_not_written(
    database: Database, tmp_path: Path, replicator_url: str, replicator_password: str
) -> None:
    name = f"{database.name}.t"
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, region VARCHAR(9), v VARCHAR(20))")
    database.execute("INSERT INTO t VALUES (1, 'EU', 'a'), (2, 'US', 'hidden'), (3, 'EU', 'c')")
    lake = Sparkless(tmp_path, replicator_password, [name])
    lake.tables = {name: {"where": "region = 'EU'"}}
    lake.run(replicator_url)
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("UPDATE t SET v = 'hidden 2' WHERE id = 2")
    database.execute("UPDATE t SET region = 'US', v = 'hidden 3' WHERE id = 1")
    database.execute("UPDATE t SET region = 'EU', v = 'came' WHERE id = 2")
    database.execute("DELETE FROM t WHERE id = 3")
    lake.run(replicator_url)
    events, table = lake.events(name), lake.state.tables[name]
    assert (table.generation, table.status) == (2, "streaming")
    assert "hidden" not in str(events)
    assert [e["after"] for e in events if e["source"]["generation"] == 2] == [{"id": 2, "region": "EU", "v": "came"}]


def test_a_filter_that_fits_no_column_is_refused_by_name(
    database: Database, tmp_path: Path, replicator_url: str, replicator_password: str
) -> None:
    name = f"{database.name}.t"
    database.execute(CREATE)
    lake = Sparkless(tmp_path, replicator_password, [name])
    for where, said in {
        "regio = 'EU'": "'regio', which is no column",
        "n = '5'": "without quotes",
        "region = 5": "single quotes",
        "note = 'x'": "IS NULL",
        "day = 'yesterday'": "YYYY-MM-DD",
        "day LIKE '2026%'": "LIKE",
        "y = 70": "four digits",
        "kind > 'a'": "IN",
        "latin = '日本'": "character set",
    }.items():
        lake.tables = {name: {"where": where}}
        with pytest.raises(ConfigError, match=said) as refused:
            lake.run(replicator_url)
        assert name in str(refused.value)


def test_text_is_asked_of_the_source_once_a_value(
    database: Database, replicator_url: str, replicator_password: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = parse({"source": {"url": replicator_url}})
    capture = Capture(settings(config.source, replicator_password))
    column = Column("v", "varchar", charset="utf8mb4", collation="utf8mb4_general_ci")
    values = pa.array([f"{n % 2500}'\\ñ" for n in range(10_000)])
    images = pa.StructArray.from_arrays([values], names=["v"])
    asked: list[str] = []
    query = capture._query

    def counted(sql: str) -> Any:
        asked.append(sql)
        return query(sql)

    monkeypatch.setattr(capture, "_query", counted)
    tree = parse_filter("v LIKE '7%Ñ'", "where")
    try:
        first = capture.passes(tree, images, {"v": column})
        again = capture.passes(tree, images, {"v": column})
    finally:
        capture.close()
    assert first.tolist() == again.tolist() == [v.startswith("7") for v in values.to_pylist()]
    assert len(asked) == 3


def test_earlier_events_that_cannot_be_filtered_are_refused_before_any_is_added() -> None:
    column = Column("region", "varchar", charset="utf8mb4", collation="utf8mb4_bin")
    schema = TableSchema(TableName("shop", "t"), (column,), ("region",), "primary")
    fit = Conformed((WireColumn(15, 80, 46, column),), (0,), ())
    tree = parse_filter("region = 'EU'", "where")
    whole, partial = (cast(RowsEvent, SimpleNamespace(presence=p, file=3, pos=4)) for p in (None, Presence((), (0,))))
    require_told(tree, whole, fit, schema)
    for event, fitted in ((partial, fit), (whole, Conformed((), (), ()))):
        with pytest.raises(FailClosedError, match="filtered"):
            require_told(tree, event, fitted, schema)
