"""`verify` finds whatever differs between silver and the source, says it, and `--repair` mends it through bronze."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from lakeward.cli.proof import prove

pytestmark = pytest.mark.timeout(1200)

# A column's type, a value of it, and Spark SQL that changes one bit of that value or one digit.
TYPES = [
    ("SMALLINT", "-7", "{c} ^ 1"),
    ("TINYINT(1)", "1", "{c} ^ 2"),
    ("BIGINT UNSIGNED", "18446744073709551615", "{c} - 1"),
    ("DECIMAL(38,20)", "1.5", "CAST('1.50000000000000000001' AS DECIMAL(38,20))"),
    ("DECIMAL(65,30)", "1.5", "overlay({c} PLACING '1' FROM length({c}))"),
    ("FLOAT", "0.1", "CAST(0.100000009 AS FLOAT)"),
    ("DOUBLE", "-0e0", "0e0"),
    ("BIT(1)", "b'1'", "NOT {c}"),
    ("BIT(64)", "b'1'", "{c} + 1"),
    ("DATE", "'2024-02-29'", "date_add({c}, 1)"),
    ("DATETIME(6)", "'9999-12-31 23:59:59.000001'", "{c} + INTERVAL 1 MICROSECOND"),
    ("TIMESTAMP(6) NULL", "'2024-02-29 12:00:00.000001'", "{c} + INTERVAL 1 MICROSECOND"),
    ("TIME(6)", "'-838:59:59.000000'", "overlay({c} PLACING '1' FROM length({c}))"),
    ("YEAR", "2024", "{c} ^ 1"),
    ("VARCHAR(20) CHARACTER SET latin1", "'Łódź é '", "rtrim({c})"),
    ("LONGTEXT", "REPEAT('y', 3000)", "overlay({c} PLACING 'x' FROM 1777)"),
    ("BINARY(4)", "'a'", "X'61000001'"),
    ("BLOB", "X'00FF'", "X'00FE'"),
    ("ENUM('a','b')", "'a'", "'b'"),
    ("SET('a','b')", "'a,b'", "'a'"),
    ("JSON", "'{\"a\": [1, 2]}'", "replace({c}, ' ', '')"),
    ("POINT", "ST_GeomFromText('POINT(1 2)')", "named_struct('srid', {c}.srid + 1, 'wkb', {c}.wkb)"),
]
OF = {
    "mysql": [("VECTOR(2)", "TO_VECTOR('[1,2]')", "array(CAST(1 AS FLOAT), CAST(2.0000002 AS FLOAT))")],
    "mariadb": [("UUID", "'123e4567-e89b-12d3-a456-426655440000'", "overlay({c} PLACING '1' FROM 36)")],
}


@pytest.fixture
def damaged(pipeline, monkeypatch):
    """A lake of six tables, most damaged in silver. What should be found, by table: {(key, what)}."""
    monkeypatch.setattr("silver.proof.chunks.CHUNK_ROWS", 50)
    db, spark = pipeline.database, pipeline.spark
    pipeline.write_config(rest=f'[tables."{db.name}.ours"]\ndeletes = "soft"\nhistory = "scd2"\n')
    types = [*TYPES, *OF[db.flavour]]
    declared = ", ".join(f"c{i} {kind}" for i, (kind, _, _) in enumerate(types))
    db.execute("SET sql_mode = ''")
    db.execute(f"CREATE TABLE matrix (id INT PRIMARY KEY, {declared})")
    for i in range(len(types)):
        db.execute(f"INSERT INTO matrix VALUES ({i}, {', '.join(v for _, v, _ in types)})")
    numbers = [(i,) for i in range(1, 401)]
    db.execute("CREATE TABLE ours (id INT PRIMARY KEY, v INT)")
    db.execute("CREATE TABLE theirs (a VARCHAR(9), b INT, v INT, PRIMARY KEY (a, b))")
    db.execute("CREATE TABLE plain (v INT)")
    db.execute("CREATE TABLE sound (id INT PRIMARY KEY, v INT)")
    db.execute("CREATE TABLE gated (id INT PRIMARY KEY, v INT)")
    db.execute("INSERT INTO gated VALUES (1, 5), (2, 500), (3, 7)")
    rule = {
        "type": "expect_column_values_to_be_between",
        "kwargs": {"column": "v", "max_value": 100},
        "meta": {"severity": "quarantine"},
    }
    pipeline.expect("gated", rule)
    db.executemany("INSERT INTO ours VALUES (%s, 7)", numbers)
    db.executemany("INSERT INTO theirs VALUES ('Ä', %s, 7)", numbers)
    db.executemany("INSERT INTO plain VALUES (%s)", [*numbers, (5,)])
    db.execute("INSERT INTO sound VALUES (1, 1)")
    pipeline.bronze()
    pipeline.silver()
    at = {t: f"delta.`{pipeline.app.lake.table('silver', pipeline.table_name(t))}`" for t in pipeline.status()}
    changed = ", ".join(f"c{i} = IF(id = {i}, {e.format(c=f'c{i}')}, c{i})" for i, (_, _, e) in enumerate(types))
    spark.sql(f"UPDATE {at['matrix']} SET {changed}")
    spark.sql(f"DELETE FROM {at['ours']} WHERE id = 17")  # lost
    spark.sql(f"INSERT INTO {at['ours']} SELECT * FROM {at['ours']} WHERE id = 301")  # doubled
    wrong = spark.sql(
        f"SELECT 'Ä' AS a, id + 1000 AS b, v, __ts_ms, __transaction_id, __transaction_order "
        f"FROM {at['ours']} WHERE id = 44"
    )  # a row in the wrong table
    wrong.write.format("delta").mode("append").save(at["theirs"][7:-1])
    spark.sql(f"DELETE FROM {at['ours']} WHERE id = 44")
    spark.sql(f"UPDATE {at['gated']} SET v = 6 WHERE id = 1")
    spark.sql(f"DELETE FROM {at['plain']} WHERE v = 9")
    spark.sql(f"INSERT INTO {at['plain']} SELECT * FROM {at['plain']} WHERE v = 6")
    return {
        "matrix": {(f"id={i}", "differs", f"c{i}") for i in range(len(types))},
        "ours": {
            ("id=17", "missing in silver", ""),
            ("id=301", "doubled in silver", ""),
            ("id=44", "missing in silver", ""),
        },
        "theirs": {("a=Ä,b=1044", "only in silver", "")},
        "plain": {("v=9", "missing in silver", ""), ("v=6", "doubled in silver", "")},
        "gated": {("id=1", "differs", "v")},
        "sound": set(),
    }


def found(proof):
    return {
        t.name.partition(".")[2]: {
            (",".join(f"{k}={v}" for k, v in d["key"].items()), d["what"], ",".join(d.get("columns", [])))
            for d in t.differences
        }
        for t in proof.tables
    }


def test_whatever_differs_is_found_and_mended_through_bronze_alone(pipeline, damaged, monkeypatch) -> None:
    proof = pipeline.verify()
    assert {t: (damaged[t] - keys, keys - damaged[t]) for t, keys in found(proof).items() if keys != damaged[t]} == {}
    assert not proof.equal
    proofs = {t.name.partition(".")[2]: t for t in proof.tables}
    assert proofs["sound"].equal
    assert [(d["key"], d["what"]) for d in proofs["gated"].quarantined] == [({"id": "2"}, "missing in silver")]
    assert (proofs["theirs"].chunks_differing, proofs["theirs"].chunks > 5) == (1, True)
    assert proofs["ours"].chunks_differing <= 3
    values = [d["values"] for d in proofs["matrix"].differences]
    assert all(v["source"] != v["silver"] for d in values for v in d.values())
    json.dumps(proof.to_json())

    ops = {t: Counter(pipeline.ops(t)) for t in damaged}
    assert prove(pipeline.app, [], repair=True).equal
    added = {t: dict(Counter(pipeline.ops(t)) - ops[t]) for t in damaged}
    # Bronze only ever grows, by what differed; a table without a key is read afresh.
    assert added == {
        "matrix": {"r": len(damaged["matrix"])},
        "ours": {"r": 3},
        "theirs": {"d": 1},
        "plain": {"r": 401},
        "gated": {"r": 1},
        "sound": {},
    }
    pipeline.assert_each_event_once()
    assert pipeline.verify().equal
    # The history had the rows all along, so it has no new versions; nothing is left deleted or twice.
    history = pipeline.table("silver", "ours", "__history")
    assert history.count() == history.where("__is_current").count() == 400
    assert pipeline.table("silver", "ours").count() == 400
    # The lake goes on as ever, at the same position and behind it.
    pipeline.database.execute("UPDATE ours SET v = 8 WHERE id = 17")
    pipeline.database.execute("INSERT INTO theirs VALUES ('Ä', 1044, 1)")
    pipeline.run()
    assert pipeline.verify().equal
