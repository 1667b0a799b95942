"""Landing: bronze's events as files that a reader gets once and in order, through whatever dies when."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from servers.landed import NAME, Bronze
from servers.published import case

from lakeward.lake import Lake
from lakeward.state import BronzeState, BronzeTable, save_bronze
from snowflake.lakehouse import landing, landing_files
from snowflake.lakehouse.plan import build
from snowflake.lakehouse.statements import statements

COLUMNS = {"id": "int", "name": "varchar(9)", "u": "bigint unsigned", "at": "datetime(6)", "raw": "blob", "j": "json"}
IMAGE = "named_struct('id', {}, 'name', {}, 'u', 18446744073709551615, 'at', TIMESTAMP_NTZ'1000-01-01 00:00:00.000001',"
IMAGE += " 'raw', X'00FF', 'j', '{{}}')"


def image(key: int | None, name: str = "a") -> str:
    return "NULL" if key is None else IMAGE.format(key, f"'{name}'")


@pytest.fixture
def bronze(spark, tmp_path) -> Bronze:
    return Bronze(spark, tmp_path, COLUMNS, max_file_rows=2)


HISTORY = [
    (1, "r", image(None), image(1)),
    (2, "c", image(None), image(2)),
    (3, "u", image(1), image(1, "b")),
    (4, "u", image(2), image(9, "moved")),
    (5, "d", image(1, "b"), image(None)),
    (6, "c", image(None), image(3)),
]


def test_each_event_is_in_one_file_of_a_manifest_whatever_moment_a_run_was_killed_at(bronze, killed_at, monkeypatch):
    bronze.append(*HISTORY[:4])
    for moment in ("landing.after_file", "landing.before_manifest", "landing.before_state"):
        killed_at(moment)
        with pytest.raises(BaseException, match=r"landing\."):
            bronze.land()
        if moment == "landing.before_manifest":
            seen = bronze.files()
    bronze.append(*HISTORY[4:])  # a later commit does not join the group that was begun
    report = bronze.land()
    assert (report.events, report.files, report.held) == (6, 3, 0)
    assert {name: data for name, data in bronze.files().items() if name in seen} == seen
    assert len(seen) == 2
    events = bronze.manifested()
    assert [(e["op"], int(e["position"].split(":")[2])) for e in events] == [(op, pos) for pos, op, *_ in HISTORY]
    # Text of one width, so that its order is the source's.
    assert all(re.fullmatch(r"\d{10}:\d{12}:\d{20}:\d{10}", e["position"]) for e in events)
    assert events[0]["before"] is None
    assert events[0]["after"]["u"] == str(2**64 - 1)
    assert events[0]["after"]["at"] == "1000-01-01T00:00:00.000001"
    assert events[0]["source"]["snapshot"] is True
    without_spark = landing.run(lambda: pytest.fail("nothing is new"), bronze.lake, bronze.config)
    assert without_spark.files == 0
    monkeypatch.setattr(landing_files, "LINE_BYTES_MAX", 700)
    bronze.append((7, "c", image(None), image(4, "x" * 400)), (8, "c", image(None), image(5)))
    assert bronze.land(patient=True).events == 0  # its last file is young
    report = bronze.land()
    assert (report.events, report.held) == (1, 1)
    (error,) = bronze.files("-errors").values()
    said = json.loads(gzip.decompress(error))
    assert (said["position"].split(":")[2].lstrip("0"), said["reason"]) == (
        "7",
        "larger than the 700 bytes of a VARIANT",
    )
    bronze.append((9, "c", image(None), image(6, "x" * 400)))
    assert (bronze.land().held, len(bronze.files("-errors"))) == (1, 2)
    named = [json.loads(manifest)["errors"] for manifest in bronze.files("-manifest").values()]
    assert [error["path"].split("/")[0] for errors in named for error in errors] == ["landing-errors"] * 2


def test_old_events_that_maintenance_removes_are_not_landed_again_with_their_neighbours(bronze):
    bronze.append(*HISTORY[:2])
    assert landing.unread(bronze.lake, bronze.config) == {str(NAME)}
    bronze.land()
    assert landing.unread(bronze.lake, bronze.config) == set()
    bronze.spark.sql(f"ALTER TABLE delta.`{bronze.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    bronze.spark.sql(f"DELETE FROM delta.`{bronze.path}` WHERE source.pos = 1")
    bronze.spark.sql(f"OPTIMIZE delta.`{bronze.path}`")
    bronze.append(*HISTORY[2:4])
    assert bronze.land().events == 2
    assert [int(e["position"].split(":")[2]) for e in bronze.manifested()] == [1, 2, 3, 4]


def test_the_landed_files_load_by_copy_and_the_dynamic_tables_say_the_state_and_its_history(
    bronze, tmp_path, fake_snowflake, fresh
):
    import snowflake.connector

    bronze.append(*HISTORY)
    bronze.append((7, "t", image(None), image(None)), (8, "c", image(None), image(3, "again")))
    bronze.land()
    lake, config = case(tmp_path / "plan", "landing", database=fresh)
    save_bronze(Lake(str(tmp_path / "plan")), BronzeState(tables={str(NAME): BronzeTable(bronze.schema, "streaming")}))
    plan = statements(build(lake, config).text)
    raw = next(s for s in plan if s.kind == "TABLE")
    pipe = next(s for s in plan if s.kind == "PIPE")
    history, state = (s for s in plan if (s.action, s.kind) == ("replace", "DYNAMIC TABLE"))
    with snowflake.connector.connect(**fake_snowflake, database=fresh) as connection:
        cursor = connection.cursor()
        cursor.execute(f'CREATE SCHEMA IF NOT EXISTS "{fresh}"."LAKEWARD"')
        cursor.execute(f'USE SCHEMA "{fresh}"."LAKEWARD"')
        # fakesnow's COPY knows no columns that are chosen: the events alone, as the statement's first column.
        cursor.execute(re.sub(r", FILE_NAME.*\)", ")", raw.text))
        cursor.execute('CREATE STAGE "LANDING"')
        for file in (tmp_path / "landing").rglob("*.gz"):
            cursor.execute(f"PUT 'file://{file}' @\"LANDING\" AUTO_COMPRESS = FALSE")
        copy = pipe.text.partition("AS COPY")[2].join(["COPY", ""])
        cursor.execute(re.sub(r"\(EVENT.*\n.*FROM (@.*)\)", r"FROM \1", copy))
        cursor.execute(f'SELECT COUNT(*) FROM {raw.name[0]}."LAKEWARD"."LANDING_RAW"')
        assert cursor.fetchall() == [(8,)]
        cursor.execute('INSERT INTO "LANDING_RAW" SELECT EVENT FROM "LANDING_RAW"')  # a file that came twice
        cursor.execute(f'CREATE SCHEMA "{fresh}"."SHOP__LANDED"')
        for made in (history, state):
            query = made.text.partition("\n  AS\n")[2]
            cursor.execute(f'CREATE TABLE "{fresh}"."SHOP__LANDED"."{made.name[-1]}" AS {query}')
        cursor.execute(f'SELECT * FROM "{fresh}"."SHOP__LANDED"."{state.name[-1]}"')
        assert [(row[0], row[1], row[2]) for row in cursor.fetchall()] == [(3, "again", 2**64 - 1)]
        versions = f'"{fresh}"."SHOP__LANDED"."{history.name[-1]}"'
        cursor.execute(f'SELECT "ID", "NAME", DATE_PART(EPOCH_SECOND, "__VALID_TO"), "__IS_CURRENT" FROM {versions}')
        found = sorted(cursor.fetchall(), key=repr)
        assert found == sorted(
            [
                *((1, "a", 3, False), (1, "b", 5, False), (2, "a", 4, False), (9, "moved", 7, False)),
                *((3, "a", 7, False), (3, "again", None, True)),
            ],
            key=repr,
        )
