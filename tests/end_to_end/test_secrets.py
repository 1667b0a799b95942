"""Masked, excluded and filtered-out values are in no file that Lakeward writes, however they reach it."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers.clear_text import found_in

from lakeward import crash

pytestmark = pytest.mark.timeout(1200)
MASKED, EXCLUDED, OUTSIDE = "zq-masked-7731", "zq-excluded-8842", "zq-outside-9953"
SECRETS = (MASKED, EXCLUDED, OUTSIDE, "424242424")
KNOWN = "zq-inside-1064"  # not secret: what shows that the search finds what is there


class Killed(BaseException):
    pass


def test_no_file_holds_a_masked_an_excluded_or_a_filtered_out_value(pipeline, monkeypatch, capfd) -> None:
    monkeypatch.setenv("LAKEWARD_MASK_KEY", "a key")
    db = pipeline.database
    (pipeline.folder / "expectations").mkdir()
    rule = {"column": "n", "min_value": 0}
    meta = {"name": "n is not negative", "severity": "quarantine", "threshold": 1.0}
    suite = [{"type": "expect_column_values_to_be_between", "kwargs": rule, "meta": meta}]
    suite_file = pipeline.folder / "expectations" / f"{db.name}.people.json"
    suite_file.write_text(json.dumps({"name": "people", "expectations": suite}))
    where = f"\"region = 'EU' AND NOT pw = '{OUTSIDE}'\""
    pipeline.write_config(
        rest=f'[tables."{db.name}.people"]\nmask = {{ email = "sha256", pin = "sha256" }}\nexclude_columns = ["pw"]\n'
        f'where = {where}\nhistory = "scd2"\n[tables."{db.name}.outbox"]\noutbox = {{}}\n[quality]\nthreshold = 1.0\n'
    )
    db.execute("CREATE TABLE outbox (id INT PRIMARY KEY, aggregateid INT, type VARCHAR(20), payload JSON)")
    db.execute(
        "CREATE TABLE people (id INT PRIMARY KEY, region VARCHAR(20), email VARCHAR(60), pin INT, pw VARCHAR(60), "
        "v VARCHAR(60), n INT)"
    )
    rows = [
        (1, "eu", MASKED, 424242424, EXCLUDED, KNOWN, 1),
        (2, "US", MASKED, 424242424, EXCLUDED, OUTSIDE, 1),
        (3, "EU", MASKED, 424242424, OUTSIDE, OUTSIDE, 1),
        (4, "Eu", MASKED, 424242424, EXCLUDED, KNOWN, -1),
        (5, "eU", MASKED, None, EXCLUDED, KNOWN, 1),
    ]
    db.executemany("INSERT INTO people VALUES (%s, %s, %s, %s, %s, %s, %s)", rows)
    pipeline.run()
    for statement in (
        f"UPDATE people SET email = CONCAT(email, '{MASKED}'), pw = '{EXCLUDED} more' WHERE id < 3",
        f"UPDATE people SET region = 'US', v = '{OUTSIDE}' WHERE id = 5",
        f"INSERT INTO people VALUES (6, 'EU', '{MASKED}', 424242424, '{EXCLUDED}', '{KNOWN}', -6)",
        f"INSERT INTO people VALUES (7, NULL, '{MASKED}', 424242424, '{EXCLUDED}', '{OUTSIDE}', -7)",
        f"ALTER TABLE people ALTER pw SET DEFAULT '{EXCLUDED}', ALTER email SET DEFAULT '{MASKED}' /* {OUTSIDE} */",
        f"ALTER TABLE people ALTER v SET DEFAULT '{OUTSIDE}', COMMENT '{MASKED}'",
    ):
        db.execute(statement)
    # An outbox, with the kills below: rows that are gone in the transaction that made them.
    connection = db.connection()
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        for number in range(4):
            cursor.execute("INSERT INTO outbox VALUES (%s, 7, 'made', %s)", (number, json.dumps({"n": number})))
        cursor.execute("DELETE FROM outbox WHERE id < 3")
        cursor.execute("COMMIT")
    connection.close()
    wanted, moment = crash.point, ""

    def die(name: str) -> None:
        if name == moment:
            raise Killed

    for moment in ("bronze.after_intent", "silver.after_intent", "gold.after_intent"):  # noqa: B007
        monkeypatch.setattr(crash, "point", die)
        with pytest.raises(Killed):
            pipeline.run()
        monkeypatch.setattr(crash, "point", wanted)
        assert found_in(pipeline.folder / "lake", SECRETS) == {}
    pipeline.run()
    assert pipeline.rows("people", "id") == [(1,)]
    events = pipeline.table("silver", "outbox__made").orderBy("__file", "__pos", "__row").select("__id", "__key", "n")
    assert [tuple(r) for r in events.collect()] == [(str(n), "7", n) for n in range(4)]
    assert [r[0] for r in pipeline.rows("outbox", "id")] == [3]
    proof = pipeline.verify()
    assert proof.equal, proof
    masks = {
        tuple(r) for r in pipeline.table("bronze", "people").selectExpr("after.email", "after.pin").distinct().collect()
    }
    assert len({email for email, _ in masks if email}) == 2, "equal values have equal masks, others do not"
    assert {len(value) for mask in masks for value in mask if value} == {64}
    quarantined = [f for f in found_in(pipeline.folder / "lake", [KNOWN]) if f.startswith("quarantine/")]
    assert quarantined, "nothing is in quarantine"
    assert found_in(pipeline.folder / "lake", SECRETS) == {}
    assert found_in(pipeline.folder / ".lakeward", SECRETS) == {}
    said = capfd.readouterr()
    assert not [s for s in SECRETS if s in said.out + said.err]


def test_the_search_finds_what_is_packed(tmp_path, spark) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"x": [{"y": MASKED}] * 100}), folder / "p.parquet", compression="zstd")
    assert found_in(tmp_path, SECRETS) == {"a/b/p.parquet": {MASKED}}
    own = spark.newSession()
    own.conf.set("spark.sql.catalog.gold.warehouse", str(tmp_path / "gold"))
    own.createDataFrame([(MASKED[:16],)], "v STRING").writeTo("gold.shop.t").using("iceberg").create()
    manifests = [f for f in found_in(tmp_path / "gold", [MASKED[:10]]) if f.endswith(".avro")]
    assert manifests, "the bounds in an Iceberg manifest are not found"
