"""Readers that share no code with Spark agree with silver on every type: PyIceberg and DuckDB."""

from __future__ import annotations

import datetime as dt
import glob
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from gold.export import files_of
from lakeward.config import TableConfig
from lakeward.errors import ConfigError
from lakeward.lake import Lake

UTC = dt.UTC
COLUMNS = {
    "id": "int unsigned",
    "u": "bigint unsigned",
    "d": "decimal(38,10)",
    "long_d": "decimal(60,0)",
    "f": "float",
    "b": "bit(1)",
    "day": "date",
    "at": "datetime(6)",
    "instant": "timestamp(6)",
    "place": "point",
    "vec": "vector(2)",
    "raw": "blob",
    "word": "text",
}
POINT = b"\x01\x01\x00\x00\x00" + bytes(16)
ROWS: list[tuple[Any, ...]] = [
    (
        4294967295,
        Decimal(18446744073709551615),
        Decimal("1234567890123456789012345678.0123456789"),
        "9" * 60,
        16777216.0,
        True,
        dt.date(1582, 10, 10),  # a day that Java's old calendar lacks
        dt.datetime(1000, 1, 1, 0, 0, 0, 1),  # noqa: DTZ001 - a DATETIME has no time zone
        dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC),
        (4326, POINT),
        [1.5, -0.0],
        b"\x00\xff",
        "naïve 🚲",
    ),
    (1, *[None] * 12),
]


@pytest.fixture
def typed(shop):
    table = shop.create("typed", COLUMNS, ["id"])
    rows = [(*row, 1, "t", 0) for row in ROWS]
    shop.spark.createDataFrame(rows, shop.spark.table(table).schema).write.format("delta").mode("append").save(
        shop.lake.table("silver", shop.bronze.tables["shop.typed"].name)
    )
    shop.publish()
    shop.spark.sql(f"UPDATE {table} SET __ts_ms = 2")  # each type through the MERGE, too
    shop.publish()
    shop.assert_mirrored()
    return shop


def test_pyiceberg_reads_every_type_as_it_was(typed):
    table = StaticTable.from_metadata(typed.published("shop.typed").metadata_file)
    read = table.scan().to_arrow().select(list(COLUMNS)).to_pylist()
    named: list[dict[str, Any]] = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
    for row in named:
        if row["place"] is not None:
            row["place"] = dict(zip(("srid", "wkb"), row["place"], strict=True))
    assert sorted(read, key=lambda r: r["id"]) == sorted(named, key=lambda r: r["id"])
    assert all(field.optional for field in table.schema().fields)


def test_duckdb_reads_the_iceberg_table_and_the_parquet_export_alike(typed, duckdb):
    entry = typed.published("shop.typed")
    listed = 'id, u, d, long_d, f, b, day, "at", instant, place.srid, hex(place.wkb), vec, hex(raw), word'
    iceberg = duckdb(f"SELECT {listed} FROM iceberg_scan('{entry.metadata_file}') ORDER BY id DESC")
    parquet = duckdb(f"SELECT {listed} FROM '{entry.export_location}/*.parquet' ORDER BY id DESC")
    assert iceberg == parquet
    assert iceberg[0][:4] == ["4294967295", "18446744073709551615", "1234567890123456789012345678.0123456789", "9" * 60]
    assert iceberg[0][6:8] == ["1582-10-10", "1000-01-01 00:00:00.000001"]
    assert iceberg[0][9:] == ["4326", POINT.hex().upper(), "[1.5, -0.0]", "00FF", "naïve 🚲"]
    assert iceberg[1] == ["1", *["None"] * 13]


def test_data_files_hold_no_unsigned_integer_and_no_nanosecond_and_lists_of_three_levels(typed):
    folders = (typed.published("shop.typed").location + "/data", typed.published("shop.typed").export_location)
    for folder in folders:
        files = glob.glob(f"{folder}/*.parquet")
        assert files
        for file in files:
            schema = pq.read_schema(file)
            assert not [f for f in schema if pa.types.is_unsigned_integer(f.type)]
            assert schema.field("at").type == pa.timestamp("us")
            assert schema.field("instant").type == pa.timestamp("us", "UTC")
            paths = [pq.ParquetFile(file).schema.column(i).path for i in range(len(pq.ParquetFile(file).schema))]
            assert "vec.list.element" in paths
            codecs = {pq.read_metadata(file).row_group(0).column(i).compression for i in range(3)}
            assert codecs == {"ZSTD"}


def test_the_freshness_table_says_of_each_table_what_is_there(typed, duckdb):
    entry = typed.published("lakeward.freshness")
    assert entry.location == f"{typed.lake.root}/gold/lakeward/freshness"
    rows = StaticTable.from_metadata(entry.metadata_file).scan().to_arrow().to_pylist()
    mirror = typed.published("shop.typed")
    cut = typed.silver.cut
    assert rows == [
        {
            "table_schema": "shop",
            "table_name": "typed",
            "kind": "mirror",
            "cut": f"1:7:{cut.at.pos}",
            "epoch": 1,
            "file": 7,
            "pos": cut.at.pos,
            "source_commit_ms": cut.ts_ms,
            "source_commit_at": dt.datetime.fromtimestamp(cut.ts_ms / 1000, UTC),
            "published_at": dt.datetime.fromtimestamp(mirror.published_ms / 1000, UTC),
            "rows": 2,
            "metadata_file": mirror.metadata_file,
        }
    ]
    assert duckdb(f"SELECT rows FROM iceberg_scan('{entry.metadata_file}')") == [["2"]]


def test_an_export_is_a_new_folder_that_the_pointer_names_and_replaced_ones_stay_for_their_readers(
    typed, duckdb, monkeypatch
):
    folder = Path(typed.lake.path("export", "shop", "typed"))
    real, pointed = Lake.replace, []

    def replaced(lake: Lake, relative: str, data: bytes) -> None:
        if relative.endswith("current.json"):
            named = json.loads(data)
            files = (folder / named["folder"]).rglob("*.parquet")
            assert sum(pq.read_metadata(f).num_rows for f in files) == named["rows"]  # whole before it is named
            pointed.append(named["folder"])
        real(lake, relative, data)

    monkeypatch.setattr(Lake, "replace", replaced)

    def pointer() -> dict[str, Any]:
        said: dict[str, Any] = json.loads((folder / "current.json").read_text())
        return said

    def change() -> str:
        typed.spark.sql(f"UPDATE {typed.sql_name(typed.bronze.tables['shop.typed'].name)} SET __ts_ms = __ts_ms + 1")
        typed.publish()
        return str(pointer()["folder"])

    def kept() -> set[str]:
        return {p.name for p in folder.iterdir() if p.is_dir()}

    first = pointer()["folder"]
    assert typed.published("shop.typed").export_location == str(folder / first)
    before = kept()
    typed.publish()
    assert pointer()["folder"] == first  # nothing changed
    second = change()
    assert kept() == {*before, second}
    long_ago = {**pointer(), "earlier": [{**e, "replaced_ms": 0} for e in pointer()["earlier"]]}
    (folder / "current.json").write_text(json.dumps(long_ago))
    typed.config = replace(typed.config, tables={"shop.typed": TableConfig(export_by=("day", "B"))})
    third = change()
    assert pointed == [second, third]
    assert kept() == {second, third}  # the last one is kept, whenever it was replaced
    assert not list(folder.glob("*/_SUCCESS"))

    # A folder a value, with the columns in the files too.
    files = {str(f.relative_to(folder / third).parent) for f in (folder / third).rglob("*.parquet")}
    nothing = "__HIVE_DEFAULT_PARTITION__"
    assert files == {"by_day=1582-10-10/by_b=true", f"by_day={nothing}/by_b={nothing}"}
    read = duckdb(f"SELECT id, day, b FROM '{folder}/{third}/**/*.parquet' WHERE by_day IS NOT NULL")
    assert read == [["4294967295", "1582-10-10", "true"]]
    typed.config = replace(typed.config, tables={"shop.typed": TableConfig(export_by=("at",))})
    with pytest.raises(ConfigError, match=r"export_by names 'at', a timestamp_ntz"):
        change()
    assert pointer()["folder"] == third


@pytest.mark.parametrize(("mebibytes", "files"), [(0, 1), (255, 1), (511, 1), (512, 2), (600, 2), (5000, 19)])
def test_an_exports_files_have_256_to_512_mebibytes_where_there_is_enough(mebibytes, files):
    assert files_of(mebibytes << 20) == files
    assert files == 1 or 256 <= mebibytes / files < 512
