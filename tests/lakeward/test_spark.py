"""The session alters no value and runs on separate worker processes as it does on one."""

from __future__ import annotations

import pytest

from lakeward import spark as lakeward_spark


def test_a_first_century_date_survives_delta(spark, tmp_path):
    rows = spark.sql("SELECT DATE'0001-01-01' AS d, TIMESTAMP_NTZ'0001-01-01 00:00:00.000001' AS t")
    rows.write.format("delta").save(str(tmp_path / "t"))
    back = spark.read.format("delta").load(str(tmp_path / "t")).selectExpr("string(d)", "string(t)").first()
    assert tuple(back) == ("0001-01-01", "0001-01-01 00:00:00.000001")


def test_iceberg_lies_under_the_lakes_gold_folder(spark):
    warehouse = spark.conf.get("spark.sql.catalog.gold.warehouse")
    spark.sql("CREATE TABLE gold.shop.users (id BIGINT) USING iceberg")
    location = spark.sql("DESCRIBE TABLE EXTENDED gold.shop.users").where("col_name = 'Location'").first()
    assert location["data_type"].removeprefix("file:") == f"{warehouse}/shop/users"


def test_workers_import_the_project(spark):
    def imported(batches):
        import lakeward.errors
        import snowflake.lakehouse

        assert lakeward.errors
        assert snowflake.lakehouse
        yield from batches

    assert spark.range(3).mapInArrow(imported, "id BIGINT").count() == 3


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[4]", 4), ("local[4, 2]", 4), ("local-cluster[2,3,1024]", 6), ("spark://h:7077", None)],
)
def test_cores_are_read_from_the_master(master, cores):
    assert lakeward_spark._cores_of(master) == cores


@pytest.mark.parametrize(("gib", "heap"), [(1, 2048), (16, 2730), (24, 4096), (256, 4096)])
def test_the_heap_follows_the_memory_of_the_machine(monkeypatch, gib, heap):
    monkeypatch.setattr("os.sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gib << 18}.get)
    for limit, expected in (("max\n", heap), (f"{1 << 30}\n", 2048)):
        monkeypatch.setattr("pathlib.Path.read_text", lambda _path, limit=limit: limit)
        assert lakeward_spark._heap() == f"{expected}m"


def test_a_relative_lake_is_made_absolute_and_a_url_stays():
    assert lakeward_spark._absolute("lake").startswith("/")
    assert lakeward_spark._absolute("s3a://bucket/lake/") == "s3a://bucket/lake"


def test_kernels_compiled_from_other_sources_are_never_used(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(lakeward_spark, "__file__", str(tmp_path / "lakeward" / "spark.py"))
    inlined = tmp_path / "bronze" / "decode" / "decimals.py"
    inlined.parent.mkdir(parents=True)
    inlined.write_text("one = 1\n")
    before = lakeward_spark._kernel_cache()
    assert lakeward_spark._kernel_cache() == before
    inlined.write_text("one = 2\n")
    assert lakeward_spark._kernel_cache() != before
