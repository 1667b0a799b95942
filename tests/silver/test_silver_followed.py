"""A change of columns that was cut off is finished, and done only once, in bronze's images and in silver's table."""

from __future__ import annotations

from bronze.commit import PROPERTIES, image_fields, reshape_images
from bronze.envelope import envelope_ddl
from lakeward.delta import create, rename_column, struct, version
from lakeward.names import TableName
from lakeward.schema import TableSchema, column_from_catalog
from silver import delta

RENAMED = [("a", "b c"), ("b c", "d")]


def schema(**columns):
    made = (column_from_catalog(name, kind, nullable=True) for name, kind in columns.items())
    return TableSchema(TableName("shop", "t"), tuple(made), (), "row")


def test_images_whose_renaming_was_cut_off(spark, tmp_path) -> None:
    location = str(tmp_path / "bronze")
    create(spark, location, struct(envelope_ddl(schema(id="int", a="int", gone="int"))), PROPERTIES)
    rename_column(spark, location, ("before", "a"), "b c")
    for _ in range(2):
        reshape_images(spark, location, schema(id="bigint", d="int"), RENAMED)
        for image in ("before", "after"):
            assert image_fields(spark, location, image) == {"id": "bigint", "d": "int", "gone": "int"}
        done = version(spark, location)
        reshape_images(spark, location, schema(id="bigint", d="int"), RENAMED)
        assert version(spark, location) == done


def test_a_table_whose_following_was_cut_off(spark, tmp_path) -> None:
    before = [("id", "INT"), ("a", "STRING"), ("n", "DECIMAL(8,2)"), ("f", "FLOAT"), ("gone", "INT")]
    after = [("late", "INT"), ("f", "DOUBLE"), ("id", "BIGINT"), ("d", "STRING"), ("n", "DECIMAL(12,4)")]
    for keep in (False, True):
        location = str(tmp_path / f"silver-{keep}")
        delta.ensure(spark, location, before)
        spark.sql(f"INSERT INTO delta.`{location}` VALUES (1, 'i', 1.25, 0.5, 7)")
        rename_column(spark, location, ("a",), "b c")
        delta.follow(spark, location, after, RENAMED, keep=keep)
        done = version(spark, location)
        delta.follow(spark, location, after, RENAMED, keep=keep)
        assert version(spark, location) == done
        (row,) = spark.read.format("delta").load(location).collect()
        found = {name: str(value) for name, value in row.asDict().items()}
        kept = {"gone": "7"} if keep else {}
        assert found == {"late": "None", "f": "0.5", "id": "1", "d": "i", "n": "1.2500", **kept}
