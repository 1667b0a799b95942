"""Each rule of Snowflake's for the lake: a table that breaks it is named, and one that does not passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)
from servers.iceberg_writer import add, create, described, write
from servers.published import CASES, CUT, gold_table
from servers.published import case as published_case

from gold.state import GoldState, load_gold, save_gold
from lakeward.config import Config, parse
from lakeward.errors import GateStoppedError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver
from snowflake.lakehouse.apply import SHOWN
from snowflake.lakehouse.conformance import run
from snowflake.lakehouse.conformance.delta import check_delta
from snowflake.lakehouse.conformance.rules import RULES, Finding
from snowflake.lakehouse.conformance.sql import check_sql
from snowflake.lakehouse.plan import build
from snowflake.lakehouse.statements import statements

COLUMNS = (
    NestedField(1, "id", IntegerType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "at", TimestampType()),
    NestedField(4, "v", ListType(5, IntegerType(), element_required=False)),
)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int32()),
        "name": pa.array(["aaaa", "mmmm", "zzzz"]),
        "at": pa.array([0, 1, 2], pa.timestamp("us")),
        "v": pa.array([[1], [], None], pa.list_(pa.int32())),
    }
)


class Shop:
    """A lake with one published table, which a test writes."""

    def __init__(self, root: Path) -> None:
        self.root, self.lake = root, Lake(str(root))
        self.folder = root / "gold" / "shop" / "t"

    def publish(self, table: Any) -> None:
        entry = gold_table(str(self.root), "shop", "t", export=False)
        entry.metadata_file = table if isinstance(table, str) else table.metadata_location
        save_gold(self.lake, GoldState(cut=CUT, tables={"shop.t": entry}))

    def broken(self, *, values: bool = True) -> dict[str, str]:
        return {f.rule: f.what for f in run.check(self.lake, Config(), values=values).findings}


@pytest.fixture
def shop(tmp_path) -> Shop:
    return Shop(tmp_path)


def good(shop: Shop, *fields: NestedField) -> Any:
    return create(shop.folder, Schema(*(fields or COLUMNS)))


def file_of(shop: Shop, values: pa.Table = ROWS, **options: Any) -> Any:
    table = good(shop)
    return add(table, described(write(table, values, **options), values.num_rows, null_value_counts={1: 1}))


def changed(name: str, values: pa.Array) -> pa.Table:
    return ROWS.set_column(ROWS.column_names.index(name), name, values)


def lying(shop: Shop, true: bytes = b"zzzz", said: bytes = b"nnnn") -> Any:
    """The footer's greatest name is less than the data's, or another of its statistics is not true."""
    table = good(shop)
    path = write(table, ROWS)
    data = path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert true in data[footer:]
    path.write_bytes(data[:footer] + data[footer:].replace(true, said))
    return add(table, described(path, 3))


def no_text() -> pa.Array:
    offsets, data = pa.py_buffer(b"\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00"), b"a\xffc"
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(data)])


def listed(shop: Shop, rows: int = 3, *, twice: bool = False, **said: Any) -> Any:
    table = good(shop)
    one = described(write(table, ROWS), rows, **said)
    return add(table, *([one, one] if twice else [one]))


def broken_metadata(shop: Shop) -> str:
    return edited(file_of(shop), b'"name"', b'"n\xffme"')


def edited(table: Any, old: bytes, new: bytes) -> str:
    place = Path(table.metadata_location)
    assert old in place.read_bytes()
    place.write_bytes(place.read_bytes().replace(old, new))
    return str(place)


def nested(*names: str, required: bool = False) -> NestedField:
    fields = (NestedField(i, n, IntegerType(), required=required) for i, n in enumerate(names, 2))
    return NestedField(1, "p", StructType(*fields))


def wide() -> NestedField:
    return NestedField(1, "w", StructType(*(NestedField(i, f"c{i}", IntegerType()) for i in range(2, 1003))))


BREAK = {
    "delete-files, equality": ("delete-files", lambda s: listed(s, content=DataFileContent.EQUALITY_DELETES)),
    "delete-files, position": ("delete-files", lambda s: listed(s, content=DataFileContent.POSITION_DELETES)),
    "delete-files, ORC": ("delete-files", lambda s: listed(s, file_format=FileFormat.ORC)),
    "format-version": ("format-version", lambda s: create(s.folder, Schema(*COLUMNS), "1")),
    "unsigned": ("parquet-types", lambda s: file_of(s, changed("id", pa.array([1, 2, None], pa.uint32())))),
    "list of item": ("parquet-types", lambda s: file_of(s, use_compliant_nested_type=False)),
    "int96": ("timestamps", lambda s: file_of(s, use_deprecated_int96_timestamps=True)),
    "nanoseconds": ("timestamps", lambda s: file_of(s, changed("at", pa.array([0, 1, 2], pa.timestamp("ns"))))),
    "digits": ("width", lambda s: edited(good(s, NestedField(1, "d", DecimalType(38, 0))), b"(38", b"(39")),
    "sub-columns": ("width", lambda s: good(s, wide())),
    "text": ("utf-8", lambda s: file_of(s, changed("name", no_text()))),
    "metadata": ("utf-8", broken_metadata),
    "outside": ("paths", lambda s: listed(s, file_path="/elsewhere/x.parquet")),
    "not there": ("paths", lambda s: listed(s, file_path=str(s.folder / "gone.parquet"))),
    "size": ("paths", lambda s: listed(s, file_size_in_bytes=7)),
    "twice": ("paths", lambda s: listed(s, twice=True)),
    "rows": ("statistics", lambda s: listed(s, rows=4)),
    "nulls": ("statistics", lambda s: listed(s, null_value_counts={1: 0})),
    "bounds": ("statistics", lying),
    "bounds, lower": ("statistics", lambda s: lying(s, b"aaaa", b"bbbb")),
    "nulls by the footer": ("statistics", lambda s: lying(s, b"\x01\0\0\0\x16\x02(", b"\x01\0\0\0\x16\x04(")),
    "manifest bounds, upper": ("statistics", lambda s: listed(s, upper_bounds={2: b"nnnn"})),
    "manifest bounds, lower": ("statistics", lambda s: listed(s, lower_bounds={1: (2).to_bytes(4, "little")})),
    "manifest bounds of a time": ("statistics", lambda s: listed(s, upper_bounds={3: (1).to_bytes(8, "little")})),
    "manifest bounds, no number": ("statistics", lambda s: listed(s, upper_bounds={1: b"x"})),
    "case, nested": ("names", lambda s: good(s, nested("Srid"))),
    "twins, nested": ("names", lambda s: good(s, nested("srid", "SRID"))),
    "required, nested": ("statistics", lambda s: good(s, nested("srid", required=True))),
    "required element": (
        "statistics",
        lambda s: good(s, NestedField(1, "v", ListType(2, IntegerType(), element_required=True))),
    ),
    "reserved in CREATE TABLE": ("names", lambda s: good(s, NestedField(1, "constraint", IntegerType()))),
    "required": ("statistics", lambda s: good(s, NestedField(1, "id", IntegerType(), required=True))),
    "case": ("names", lambda s: good(s, NestedField(1, "Id", IntegerType()))),
    "twins": (
        "names",
        lambda s: good(s, NestedField(1, "id", IntegerType()), NestedField(2, "ID", IntegerType())),
    ),
    "reserved": ("names", lambda s: good(s, NestedField(1, "current_date", IntegerType()))),
}


@pytest.mark.parametrize("case", BREAK)
def test_a_table_that_breaks_a_rule_is_named_with_the_remedy_and_stops_the_gate(shop, case):
    rule, make = BREAK[case]
    shop.publish(make(shop))
    assert rule in shop.broken()
    with pytest.raises(GateStoppedError, match=rf"(?s)shop\.t: .*rule {rule}: ") as stopped:
        run.gate(shop.lake, Config(), values=True)
    assert RULES[rule][1] in str(stopped.value)
    assert stopped.value.exit_code == 3


def test_bounds_that_hold_pass_cut_short_or_of_a_narrower_type(shop):
    table = good(shop, NestedField(1, "id", LongType()), *COLUMNS[1:])
    small, after = (1).to_bytes(4, "little"), (2).to_bytes(8, "little")
    said = described(
        write(table, ROWS),
        3,
        lower_bounds={1: small, 2: b"aa", 3: bytes(8)},
        upper_bounds={1: after, 2: b"{", 3: after},
    )
    shop.publish(add(table, said))
    assert shop.broken() == {}


def test_files_of_an_export_and_of_silver_as_delta_are_opened_once(shop):
    table = file_of(shop)
    config = parse({"snowflake": {"delta": ["shop.*"]}})
    shop.publish(table)
    name = TableName("shop", "t")
    column = column_from_catalog("id", "int", nullable=False)
    bronze = BronzeTable(TableSchema(name, (column,), ("id",), "primary"), "streaming", generation=1)
    save_bronze(shop.lake, BronzeState(tables={"shop.t": bronze}))
    save_silver(shop.lake, SilverState(cut=CUT, tables={"shop.t": SilverTable(CUT.at, 1, 1, 3, 1, ["id"])}))
    silver, export = shop.root / "silver" / "shop" / "t", shop.root / "export" / "shop" / "t" / "cut=1-7-4711"
    (silver / "_delta_log").mkdir(parents=True)
    export.mkdir(parents=True)
    actions = [{"protocol": {"minReaderVersion": 1}}, {"metaData": {}}, {"add": {"path": "x%20y.parquet"}}]
    actions += [{"add": {"path": "gone.parquet"}}]
    (silver / "_delta_log" / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    marked = [{"add": {"path": "x%20y.parquet"}}, *({"remove": {"path": p}} for p in ("gone.parquet", "x%20y.parquet"))]
    (silver / "_delta_log" / f"{1:020d}.json").write_text("\n".join(map(json.dumps, marked)))
    state = load_gold(shop.lake)
    state.tables["shop.t"].export_location = str(export)
    save_gold(shop.lake, state)
    for folder, file in ((silver, "x y.parquet"), (export, "part-0.parquet")):
        pq.write_table(ROWS, folder / file, use_deprecated_int96_timestamps=True)
    broken = {f.where: f.rule for f in run.check(shop.lake, config).findings}
    assert broken == {"silver shop.t": "timestamps", "the export of shop.t": "timestamps"}
    for folder, file in ((silver, "x y.parquet"), (export, "part-0.parquet")):
        pq.write_table(ROWS, folder / file)
    assert run.gate(shop.lake, config).files == 2
    assert run.gate(shop.lake, config).files == 0


def test_a_volume_that_is_not_where_the_lake_is_is_named(tmp_path):
    for url, count in (("s3://bucket/lake/", 0), ("s3://bucket/", 1), ("s3://bucket/lake2", 1)):
        lake, config = published_case(tmp_path, "s3", storage_base_url=url)
        assert len(list(run._base_url(lake, config))) == count


def test_a_table_that_breaks_none_passes_and_is_read_once(shop):
    table = file_of(shop)
    shop.publish(table)
    first = run.gate(shop.lake, Config())
    assert (first.tables, first.files) == (1, 1)
    assert run.gate(shop.lake, Config()).files == 0
    assert run.gate(shop.lake, Config(), values=True).files == 1  # its values are new
    assert run.gate(shop.lake, Config(), values=True).files == 0
    add(table, described(write(table, ROWS), 3))
    shop.publish(table)
    assert run.gate(shop.lake, Config(), values=True).files == 1


def test_a_file_whose_column_cannot_be_null_passes_in_a_table_whose_column_can(shop):
    table = good(shop)
    path = write(table, ROWS.slice(0, 2))
    schema = pq.read_schema(path)
    strict = pa.schema([f.with_nullable(f.name != "id") for f in schema])
    pq.write_table(pq.read_table(path).cast(strict), path)
    shop.publish(add(table, described(path, 2)))
    assert shop.broken() == {}


def test_a_column_whose_large_values_have_dropped_its_statistics_passes(shop):
    shop.publish(file_of(shop, write_statistics=False))
    assert shop.broken() == {}


def test_the_gate_after_gold_reads_footers_and_the_check_reads_values(shop):
    shop.publish(lying(shop))
    assert shop.broken(values=False) == {}
    assert shop.broken(values=True) == {"statistics": "column 'name' (number 1) is not as stated"}


def test_a_snapshot_that_snowflake_stands_at_and_that_was_expired_is_named(shop):
    table = file_of(shop)
    shop.publish(table)
    shop.lake.write(SHOWN, {"snapshots": {"shop.t": table.current_snapshot().snapshot_id}})
    assert shop.broken() == {}
    shop.lake.write(SHOWN, {"snapshots": {"shop.t": 4711}})
    assert shop.broken() == {"retention": "Snowflake stands at snapshot 4711, which was expired"}
    run.gate(shop.lake, Config())  # what follows it moves Snowflake on


def test_a_plan_that_breaks_a_rule_and_a_volume_elsewhere_stop_the_gate(tmp_path, shop, monkeypatch):
    shop.publish(file_of(shop))
    said = Finding("sql", "CREATE EXTERNAL VOLUME", "the volume lets Snowflake write")
    monkeypatch.setattr(run, "check_sql", lambda plan: [said])
    with pytest.raises(GateStoppedError, match="lets Snowflake write"):
        run.gate(shop.lake, Config())
    monkeypatch.setattr(run, "check_sql", lambda plan: [])
    elsewhere = Finding("paths", "[snowflake] storage_base_url", "the volume is at s3://elsewhere/")
    monkeypatch.setattr(run, "_base_url", lambda lake, config: [elsewhere])
    with pytest.raises(GateStoppedError, match="s3://elsewhere/"):
        run.gate(shop.lake, Config())


@pytest.mark.parametrize(
    ("rule", "protocol", "settings", "commits"),
    [
        (None, {"minReaderVersion": 3, "readerFeatures": ["deletionVectors"]}, {}, 5),
        ("delta-protocol", {"minReaderVersion": 4}, {}, 1),
        ("delta-protocol", {"minReaderVersion": 2}, {"delta.columnMapping.mode": "name"}, 1),
        ("delta-protocol", {"minReaderVersion": 1}, {"delta.enableRowTracking": "true"}, 1),
        ("delta-log", {"minReaderVersion": 1}, {}, 1001),
        ("paths", {}, {}, 0),
    ],
)
def test_silver_that_snowflake_cannot_read_as_delta_is_named(tmp_path, rule, protocol, settings, commits):
    log = tmp_path / "silver" / "shop" / "t" / "_delta_log"
    log.mkdir(parents=True)
    for version in range(commits):
        actions = [{"protocol": protocol}, {"metaData": {"configuration": settings}}] if version == 0 else [{}]
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    found = list(check_delta(Lake(str(tmp_path)), TableName("shop", "t")))
    assert [f.rule for f in found] == ([rule] if rule else [])


def test_of_a_log_that_begins_with_a_checkpoint_the_protocol_and_the_files_are_read_there(tmp_path):
    log = tmp_path / "silver" / "shop" / "t" / "_delta_log"
    log.mkdir(parents=True)
    for version, feature in ((1000, "none"), (2000, "name")):  # what stands is what the last one says
        rows = [
            {"protocol": {"minReaderVersion": 4}, "metaData": None, "add": None},
            {"protocol": None, "metaData": {"configuration": [("delta.columnMapping.mode", feature)]}, "add": None},
            {"protocol": None, "metaData": None, "add": {"path": f"{version}.parquet"}},
            {"protocol": None, "metaData": None, "add": {"path": "gone.parquet"}},
        ]
        settings = pa.map_(pa.string(), pa.string())
        kinds = {"protocol": [("minReaderVersion", pa.int32())], "metaData": [("configuration", settings)]}
        kinds["add"] = [("path", pa.string())]
        schema = pa.schema([(name, pa.struct(fields)) for name, fields in kinds.items()])
        pq.write_table(pa.Table.from_pylist(rows, schema), log / f"{version:020d}.checkpoint.parquet")
    for version in range(999, 2012):
        (log / f"{version:020d}.json").write_text("{}")
    actions = [{"add": {"path": "new.parquet"}}, {"remove": {"path": "gone.parquet"}}]
    (log / f"{2012:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    live: set[str] = set()
    found = list(check_delta(Lake(str(tmp_path)), TableName("shop", "t"), live))
    assert [f.what for f in found] == ["reader version 4", "its columns are mapped"]
    assert {Path(file).name for file in live} == {"2000.parquet", "new.parquet"}


@pytest.mark.parametrize("name", CASES)
def test_every_plan_keeps_the_rules_for_sql(tmp_path, name):
    made = build(*published_case(tmp_path, name))
    assert list(check_sql(statements(made.text))) == []


@pytest.mark.parametrize(
    ("case", "right", "wrong"),
    [
        ("s3", "ALLOW_WRITES = FALSE", "ALLOW_WRITES = TRUE"),
        ("linked", "ALLOWED_WRITE_OPERATIONS = NONE", "ALLOWED_WRITE_OPERATIONS = ALL"),
        ("s3", "METADATA_FILE_PATH = 'gold", "METADATA_FILE_PATH = '/gold"),
        ("s3", "REFRESH 'gold", "REFRESH '/gold"),
        ("delta", "BASE_LOCATION = 'silver", "BASE_LOCATION = '../silver"),
        ("s3", "  CATALOG = 'LAKEWARD_CATALOG'\n", ""),
        ("s3", "AUTO_REFRESH = FALSE\n  FILE", "AUTO_REFRESH = TRUE\n  FILE"),
        ("s3", "GRANT SELECT ON ICEBERG", "GRANT INSERT ON ICEBERG"),
        ("s3", "GRANT SELECT ON VIEW", "GRANT SELECT ON FUTURE VIEWS IN SCHEMA"),
        ("s3", "CREATE ROLE", "DROP ROLE"),
    ],
)
def test_a_statement_that_breaks_a_rule_is_named(tmp_path, case, right, wrong):
    text = build(*published_case(tmp_path, case)).text
    assert right in text
    assert {f.rule for f in check_sql(statements(text.replace(right, wrong)))} == {"sql"}
