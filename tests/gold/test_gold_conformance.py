"""What gold writes, through updates, deletes and a schema change, breaks none of the rules that Snowflake has."""

from __future__ import annotations

from snowflake.lakehouse.conformance import run

COLUMNS = {
    "Id": "int unsigned",
    "u": "bigint unsigned",
    "d": "decimal(38,10)",
    "f": "float",
    "b": "bit(1)",
    "day": "date",
    "at": "datetime(6)",
    "instant": "timestamp(6)",
    "place": "point",
    "vec": "vector(2)",
    "raw": "blob",
    "word": "text",
    "n": "int",
    "g": "decimal(8,2)",
}
ROW = (
    "18446744073709551615, -0.5, 1.5f, true, DATE'0001-01-01', TIMESTAMP_NTZ'1000-01-01 00:00:00.000001',"
    " TIMESTAMP'2038-01-19 03:14:07.999999Z', named_struct('srid', 4326, 'wkb', X'0101'), array(1.5f, -0.0f), X'00FF',"
    " 'naïve 🚲', -7, -123456.78, 1, 't', 0"
)


def test_every_type_after_updates_deletes_and_a_schema_change_keeps_snowflakes_rules(shop):
    typed = shop.create("typed", COLUMNS, ["Id"])
    log = shop.create("log", {"line": "text"}, [])
    shop.spark.sql(f"INSERT INTO {typed} VALUES (4294967295, {ROW}), (1, {'NULL, ' * 13} 1, 't', 0), (2, {ROW})")
    shop.spark.sql(f"INSERT INTO {log} VALUES ('a', 1, 't', 0), ('a', 1, 't', 0)")
    shop.publish()
    first = run.gate(shop.lake, shop.config, values=True)
    assert (first.tables, first.findings) == (3, [])
    shop.spark.sql(f"ALTER TABLE {typed} ADD COLUMN late STRING AFTER word")
    shop.spark.sql(f"UPDATE {typed} SET word = 'x', late = 'y' WHERE Id = 1")
    shop.spark.sql(f"DELETE FROM {typed} WHERE Id = 2")
    shop.publish()
    mapped = "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true')"
    widened = ("ALTER COLUMN n TYPE BIGINT", "ALTER COLUMN g TYPE DECIMAL(30,2)", "ALTER COLUMN f TYPE DOUBLE")
    for clause in (mapped, *widened, "RENAME COLUMN g TO `the g`", "RENAME COLUMN word TO g", "DROP COLUMN raw"):
        shop.spark.sql(f"ALTER TABLE {typed} {clause}")
    assert shop.publish().tables["shop.typed"] == "merged"
    again = run.gate(shop.lake, shop.config)
    assert again.files > 0
    assert run.gate(shop.lake, shop.config, values=True).findings == []
