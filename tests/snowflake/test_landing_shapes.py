"""Landing over what may become of a bronze table: another shape, another table in its place, values of every kind."""

from __future__ import annotations

import contextlib
import gzip
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from servers.landed import NAME, Bronze, schema_of
from servers.object_store import object_store

from bronze.commit import add_columns
from lakeward.config import parse
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import column_from_catalog
from lakeward.state import BronzeState, BronzeTable, save_bronze
from lakeward.storage import ENDPOINT
from snowflake.lakehouse import landing
from snowflake.lakehouse.landing_files import Group, write

PLAIN = {"id": "int", "v": "int"}


def change(pos: int, after: str) -> tuple[int, str, str, str]:
    return (pos, "c", "NULL", after)


def row(key: int, value: str) -> str:
    return f"named_struct('id', {key}, 'v', {value})"


def test_a_table_that_another_type_replaced_goes_on_where_it_was_and_one_made_anew_has_other_names(spark, tmp_path):
    bronze = Bronze(spark, tmp_path, PLAIN)
    bronze.append(change(1, row(1, "10")))
    bronze.append(change(2, row(2, "20")))
    assert bronze.land().events == 2
    bronze.append(change(3, row(3, "30")))
    assert bronze.shape({"id": "int", "v": "varchar(9)"}) == "replaced"
    bronze.table.generation = 2
    bronze.append(change(4, row(4, "'forty'")))
    assert bronze.land().events == 2
    assert bronze.landed() == [
        *((key, {"id": key, "v": key * 10}) for key in (1, 2, 3)),
        (4, {"id": 4, "v": "forty"}),
    ]
    seen = bronze.files()
    assert len({name.split("-")[0] for name in seen}) == 1
    bronze.append(change(5, row(5, "'fifty'")))
    assert bronze.land().events == 1
    shutil.rmtree(bronze.path)
    bronze.shape(PLAIN)
    for pos in range(6, 10):  # as many commits as there were, and more
        bronze.append(change(pos, row(pos, "1")))
    assert bronze.land().events == 4
    assert [pos for pos, _ in bronze.landed()] == list(range(1, 10))
    assert {name: data for name, data in bronze.files().items() if name in seen} == seen
    shutil.rmtree(bronze.path)
    bronze.table.rows += 1
    bronze.save()
    with pytest.raises(TerminalError, match="bronze has no table at"):
        bronze.land()


def test_a_killed_run_writes_the_same_bytes_though_a_column_came_and_the_bounds_are_others(spark, tmp_path, killed_at):
    bronze = Bronze(spark, tmp_path, PLAIN, max_file_rows=2)
    bronze.append(change(1, row(1, "10")), change(2, row(2, "20")), change(3, row(3, "30")))
    killed_at("landing.before_manifest")
    with pytest.raises(BaseException, match=r"landing\."):
        bronze.land()
    seen = bronze.files()
    assert len(seen) == 2
    add_columns(spark, bronze.path, [column_from_catalog("w", "int", nullable=True)])
    bronze.append(change(4, "named_struct('id', 4, 'v', 40, 'w', 400)"))
    for name in seen:  # as if none of them had been there yet
        (tmp_path / "landing" / "TableName=shop.order-20-items" / name).unlink()
    bronze.config = parse({"landing": {"tables": ["shop.*"], "max_file_rows": 1}})
    assert bronze.land().events == 4
    assert {name: data for name, data in bronze.files().items() if name in seen} == seen
    assert bronze.landed()[2:] == [(3, {"id": 3, "v": 30}), (4, {"id": 4, "v": 40, "w": 400})]


def test_no_digit_of_a_value_is_lost_and_a_table_that_cannot_be_landed_stops_no_other(spark, tmp_path):
    columns = {"id": "int", "d": "decimal(38,30)", "n": "decimal(20,0)", "f": "float", "g": "double", "raw": "blob"}
    bronze = Bronze(spark, tmp_path, columns)
    values = "CAST({} AS DECIMAL(38,30)), 'n', CAST({} AS DECIMAL(20,0)), 'f', CAST({} AS FLOAT), "
    values += "'g', {}D, 'raw', X'00FF'"
    for key, given in enumerate(
        [("'1.234567890123456789E-7'", "18446744073709551615", "'0.1'", "0.1"), ("0", "0", "'-1.5'", "1e300")], 1
    ):
        bronze.append(change(key, f"named_struct('id', {key}, 'd', {values.format(*given)})"))
    bronze.append(change(3, "named_struct('id', 3, 'd', CAST(-12345678.5 AS DECIMAL(38,30)), 'n', NULL, 'f', NULL,"
                            " 'g', NULL, 'raw', NULL)"))  # fmt: skip
    bad = TableName("shop", "bad")
    bronze.others[str(bad)] = BronzeTable(schema_of(PLAIN, bad), "streaming", generation=1, rows=1)
    bronze.save()
    for _ in range(2):  # it is said each time, until it is mended
        with pytest.raises(TerminalError, match=r"without these tables:\n  shop\.bad: bronze has no table at .*bad\n"):
            bronze.land()
    assert bronze.landed() == [
        (1, {"id": 1, "d": "0.000000123456789012345678900000", "n": "18446744073709551615",
             "f": 0.10000000149011612, "g": 0.1, "raw": "AP8="}),
        (2, {"id": 2, "d": "0.000000000000000000000000000000", "n": "0", "f": -1.5, "g": 1e300, "raw": "AP8="}),
        (3, {"id": 3, "d": "-12345678.500000000000000000000000000000", "n": None, "f": None, "g": None, "raw": None}),
    ]  # fmt: skip
    assert landing.unread(bronze.lake, bronze.config) == {str(bad)}


@pytest.mark.parametrize(
    ("table", "waits"),
    [
        ({"status": "snapshot", "generation": 1}, False),
        ({"status": "waiting for snapshot", "generation": 2}, True),
        ({"status": "snapshot", "generation": 2}, True),
        ({"status": "streaming", "generation": 2}, False),
        ({"status": "stopped", "generation": 2}, True),
        ({"status": "stopped", "generation": 2, "high": Position(1, 1, 9)}, True),
        ({"status": "stopped", "generation": 2, "high": Position(1, 1, 5)}, False),
    ],
)
def test_a_table_that_is_read_again_waits_until_it_is_whole(tmp_path, table, waits):
    lake, config = Lake(str(tmp_path)), parse({"landing": {"tables": ["shop.*"]}})
    known = BronzeTable(schema_of(PLAIN), rows=3, **table)
    save_bronze(lake, BronzeState(checkpoint=Checkpoint(Position(1, 1, 5)), tables={str(NAME): known}))

    def spark() -> Any:
        raise LookupError  # it would be landed

    with contextlib.nullcontext() if waits else pytest.raises(TerminalError, match="LookupError"):
        assert landing.run(spark, lake, config).events == 0
    assert landing.unread(lake, config) == {str(NAME)}  # so that maintenance leaves it alone


@pytest.fixture(params=["local", "store"])
def anywhere(request, tmp_path, monkeypatch) -> Iterator[Lake]:
    if request.param == "local":
        yield Lake(str(tmp_path))
        return
    with object_store(tmp_path) as store:
        for name, value in {**store.environment, ENDPOINT: store.endpoint}.items():
            monkeypatch.setenv(name, value)
        yield Lake(f"s3a://{store.bucket}/lakes/one")


def test_a_landed_file_is_never_written_over(anywhere, monkeypatch):
    replace, written = Lake.replace, []

    def noted(lake: Lake, relative: str, data: bytes) -> None:
        written.append((relative, data))
        replace(lake, relative, data)

    monkeypatch.setattr(Lake, "replace", noted)

    def attempt(*rows: tuple[str, str]) -> Group:
        group = Group(NAME, "0a1b2c3d", 0, 1, rows_max=9, bytes_max=999)
        write(anywhere, "landing", group, rows)
        return group

    events = [("1", "{}"), ("2", "{}")]
    first = attempt(*events)
    ((place, whole),) = written
    assert place == "landing/TableName=shop.order-20-items/0a1b2c3d-000000000000-000000000001-000000.json.gz"
    assert attempt(*events).files == first.files
    assert len(written) == 1
    replace(anywhere, place, whole[:10])  # a store that lets a half be seen
    attempt(*events)
    assert written[1:] == [(place, whole)]
    other = gzip.compress(b"{}\n{}\n", compresslevel=1, mtime=7)  # another library's
    replace(anywhere, place, other)
    assert attempt(*events).files[0]["bytes"] == len(other)
    with pytest.raises(TerminalError, match="is there with other events"):
        attempt(("1", '{"a":1}'))
    assert len(written) == 2


@pytest.mark.parametrize(("rows", "size", "files"), [(2, 99, [2, 2, 1]), (9, 30, [2, 3]), (9, 20, [1, 1, 2, 1])])
def test_a_file_ends_at_so_many_events_or_bytes(tmp_path, rows, size, files):
    group = Group(NAME, "0a1b2c3d", 0, 1, rows_max=rows, bytes_max=size)
    write(Lake(str(tmp_path)), "landing", group, [(str(n), "x" * length) for n, length in enumerate([14, 14, 7, 7, 7])])
    assert [file["rows"] for file in group.files] == files


def test_the_error_at_the_end_says_each_table_and_cause():
    full, bug = OSError(28, "No space left on device"), ValueError("first\nsecond")
    said = landing._summary({"shop.a": full, "shop.b": TerminalError("gone", hint="look"), "shop.c": bug})
    assert said.message.splitlines()[1:] == [
        "  shop.a: the lake's disk is full: see its file system with `df`",
        "  shop.b: gone",
        "  shop.c: ValueError: first",
    ]
    assert "look; run again with LAKEWARD_DEBUG=1" in (said.hint or "")
