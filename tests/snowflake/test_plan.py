"""The plan: golden SQL, and names that try to get out of their quotes."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from servers.published import CASES, CUT, PROVIDERS, gold_table, lake_with
from servers.published import case as published_case
from sqlglot import exp

from gold.state import GoldState, save_gold
from lakeward.config import Config, parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver
from snowflake.lakehouse import merge_sql, plan
from snowflake.lakehouse.merge_sql import Target
from snowflake.lakehouse.spelling import spell
from snowflake.lakehouse.statements import bare, location_of, property_of, statements
from snowflake.lakehouse.template import fill

GOLDEN = Path(__file__).with_name("golden")
_spec = importlib.util.spec_from_file_location("tokens", Path(__file__).with_name("tokens.py"))
assert _spec is not None
assert _spec.loader is not None
_tokens = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_tokens)
tokens, shape, split, after = _tokens.tokens, _tokens.shape, _tokens.split, _tokens.after

NASTY = [
    '"',
    "'",
    "\\",
    ";",
    "--",
    "/*",
    "*/",
    "`",
    ".",
    " ",
    "\n",
    "\r",
    "$$",
    "{{",
    "}}",
    "é",
    "☃",
    "DROP TABLE x",
    "a",
]
NAMES = st.lists(
    st.one_of(st.sampled_from(NASTY), st.characters(exclude_categories=["Cs"])), min_size=1, max_size=6
).map("".join)


def settings(doc) -> Config:
    return parse({"snowflake": doc})


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_the_golden_one(tmp_path, case):
    made = plan.render(*published_case(tmp_path, case))
    golden = GOLDEN / f"{case}.sql"
    if os.environ.get("LAKEWARD_WRITE_GOLDEN"):
        golden.write_text(made, encoding="utf-8")
    assert made == golden.read_text(encoding="utf-8")
    assert "PLACEHOLDER" not in made or case == "s3compat"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_snowflake_never_writes_and_every_path_lies_below_the_volume(tmp_path, provider):
    root, doc = CASES[provider]
    made = plan.render(lake_with(tmp_path, root), settings(doc))
    code = "\n".join(line for line in made.splitlines() if not line.startswith("--"))
    assert code.count("ALLOW_WRITES = FALSE") == code.count("CREATE EXTERNAL VOLUME") == 1
    paths = re.findall(r"(?:METADATA_FILE_PATH = |REFRESH )'([^']*)'", code)
    assert len(paths) == 8
    assert all(path.startswith("gold/") and ".." not in path for path in paths)
    assert "FUTURE" not in code
    assert not re.search(r"GRANT (?!USAGE ON|SELECT ON)", code)
    assert re.findall(r"'(s3a|abfss|gs)://", code) == []


def test_freshness_is_refreshed_last(tmp_path):
    made = plan.render(lake_with(tmp_path), Config())
    refreshed = [line for line in made.splitlines() if line.startswith("ALTER ICEBERG TABLE")]
    assert '"FRESHNESS"' in refreshed[-1]
    made = plan.render(*published_case(tmp_path / "delta", "delta"))
    kinds = ("ICEBERG TABLE", "EXTERNAL TABLE")
    moved = [s.name[-1] for s in statements(made) if s.kind in kinds and s.action != "grant"]
    assert len(moved) == 14
    assert [place for place, name in enumerate(moved) if name == "FRESHNESS"] == [12, 13]  # made last, too


def test_a_local_lake_gets_a_whole_plan_that_names_its_placeholders(tmp_path):
    made = plan.render(lake_with(tmp_path), Config())
    heading = made.split("\n\n")[0]
    assert "LOCAL LAKE" in heading
    assert "storage_base_url is not set: s3://YOUR-BUCKET/lake/ is a placeholder" in heading
    assert made.count("CREATE ICEBERG TABLE") == 4
    assert "NOTHING IS PUBLISHED YET" in plan.render(Lake(str(tmp_path / "empty")), Config())


def test_sqlglot_reads_what_it_knows_into_trees(tmp_path):
    made = plan.render(lake_with(tmp_path), Config())
    trees = [t for t in sqlglot.parse(made, read="snowflake") if t is not None]
    kinds = {(type(t), t.args.get("kind")) for t in trees if isinstance(t, exp.Create)}
    assert {k for _, k in kinds} >= {"DATABASE", "SCHEMA", "TABLE", "STAGE", "VIEW"}
    created = [t.find(exp.Table) for t in trees if isinstance(t, exp.Create) and t.args.get("kind") == "TABLE"]
    assert {t.name for t in created if t} >= {"TRIPS", "USERS", "REVENUE", "FRESHNESS"}


def test_only_the_letters_a_to_z_are_made_capitals():
    assert spell("straße_é", "upper") == "STRAßE_é"  # else it would be one with STRASSE
    assert spell("Straße", "source") == "Straße"


def test_tables_whose_names_differ_only_in_case_are_refused_by_name(tmp_path):
    lake = Lake(str(tmp_path))
    tables = [gold_table(str(tmp_path), "shop", name) for name in ("Trips", "trips")]
    save_gold(lake, GoldState(tables={t.table: t for t in tables}))
    with pytest.raises(ConfigError, match=r"shop\.Trips and shop\.trips would bear one name"):
        plan.render(lake, Config())
    assert '"shop"."Trips"' in plan.render(lake, settings({"names": "source"}))
    tables = [gold_table(str(tmp_path), schema, name) for schema, name in (("shop", "trips"), ("Shop", "users"))]
    save_gold(lake, GoldState(tables={t.table: t for t in tables}))
    with pytest.raises(ConfigError, match=r"Shop and shop\.trips would bear one name"):
        plan.render(lake, Config())


def test_a_metadata_file_outside_of_the_lake_is_refused(tmp_path):
    lake = Lake(str(tmp_path))
    save_gold(lake, GoldState(tables={"a.b": gold_table("/elsewhere", "a", "b")}))
    with pytest.raises(TerminalError, match="not in the lake"):
        plan.render(lake, Config())


@pytest.mark.parametrize(
    ("doc", "message"),
    [
        ({"storage_base_url": "http://x/"}, "not a URL that Snowflake reads"),
        ({"storage_base_url": "gcs://b/", "storage_provider": "AZURE"}, "storage_provider is AZURE"),
        ({"external_volume": "a'b"}, "not a plain name"),
    ],
)
def test_settings_that_snowflake_cannot_take_are_refused(tmp_path, doc, message):
    with pytest.raises(ConfigError, match=message):
        plan.render(lake_with(tmp_path), settings(doc))


@hypothesis.settings(deadline=None, max_examples=40)
@given(NAMES, NAMES, NAMES)
def test_no_name_leaves_its_quotes_in_a_template(schema, table, text):
    template = (
        "CREATE TABLE {{name:t}} ({{external_columns:c}}) COMMENT = {{literal:x}}; -- {{comment:x}}\n"
        "GRANT {{identifier:i}};"
    )

    def filled(schema: str, table: str, text: str) -> str:
        columns = [(table, "NUMBER(10,0)", text)]
        return fill(template, {"t": ("DB", schema, table), "c": columns, "x": text, "i": table})

    made = filled(schema, table, text)
    assert shape(made) == shape(filled("a", "b", "c"))
    said = tokens(made)
    assert [t.text for t in said if t.kind == "identifier"] == ["DB", schema, table, table, table]
    assert [t.text for t in said if t.kind == "string"] == [text, text]


ROOT = "s3a://bucket/lake"


def lake_of(names: list[tuple[str, str]]) -> Lake:
    """A lake at ROOT that has published, exported and mirrored tables of these names; nothing of it is written."""
    tables, bronze, silver = {}, {}, {}
    for name in (TableName(*n) for n in names):
        made = gold_table(ROOT, *name, columns=[("id", "int")])
        made.metadata_file = f"{ROOT}/gold/{name.folder}/metadata/v3.metadata.json"
        made.export_location = f"{ROOT}/export/{name.folder}/cut=1-7-4711"
        tables[str(name)] = made
        column = column_from_catalog("id", "int", nullable=False)
        bronze[str(name)] = BronzeTable(TableSchema(name, (column,), ("id",), "primary"), "streaming", generation=1)
        silver[str(name)] = SilverTable(CUT.at, 1, 1, 3, 1, ["id"])
    lake, docs = Lake(ROOT), dict[str, Any]()
    for method, now in (("write", docs.__setitem__), ("read", lambda n: json.loads(json.dumps(docs.get(n))))):
        setattr(lake, method, now)
    save_gold(lake, GoldState(tables=tables))
    save_bronze(lake, BronzeState(tables=bronze))
    save_silver(lake, SilverState(cut=CUT, tables=silver))
    return lake


def paths(made: str) -> dict[tuple[str, str], set[str]]:
    """What an independent reader sees that each table of a plan lies at: (kind, table) and the places, as URLs."""
    stages: dict[tuple[str, ...], str] = {}
    found: dict[tuple[str, str], set[str]] = {}
    for statement in split(made):
        words = [t.text for t in statement[:6] if t.kind == "word"]
        name = tuple(t.text for t in statement if t.kind == "identifier")[:3]
        if "STAGE" in words:
            stages[name] = after(statement, "URL")[0].text
        if "TABLE" in words and words[0] in ("CREATE", "ALTER"):
            places = [t[0].text for w in ("METADATA_FILE_PATH", "BASE_LOCATION") if (t := after(statement, w))]
            places += [t.text for t in statement if t.kind == "string" and words[:1] == ["ALTER"]]
            places = [f"s3://bucket/lake/{place}" for place in places]
            if location := after(statement, "LOCATION"):
                stage = tuple(t.text for t in location if t.kind == "identifier")[:3]
                behind = location[6:]  # @ "a" . "b" . "c"
                end = next(i for i, t in enumerate(behind) if t.text == "REFRESH_ON_CREATE")
                places = [stages[stage] + "".join(t.text for t in behind[:end])[1:]]
            found.setdefault((name[1], name[2]), set()).update(places)
    return found


@hypothesis.settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=3, unique=True))
@hypothesis.example([("shop", "订单"), ("shop", "a  b"), ("本店", "plain")])
@hypothesis.example([("--", "'@x'/--"), ("a\nb", "c//d"), ("x__EXPORT", "/*")])
def test_every_path_of_a_plan_is_read_back_as_the_place_of_its_table(names):
    config = parse(
        {
            "snowflake": {**CASES["s3"][1], "names": "source", "delta": ["*"], "warehouse": "w"},
            "landing": {"tables": ["*"]},
        }
    )
    try:
        made = plan.build(lake_of(names), config).text
    except ConfigError:
        hypothesis.assume(False)  # two names that Snowflake cannot tell apart, or one of Lakeward's own
    wanted: dict[tuple[str, str], set[str]] = {}
    base = "s3://bucket/lake"
    for name in (TableName(*n) for n in names):
        for schema, place in (
            (name.schema, f"{base}/gold/{name.folder}/metadata/v3.metadata.json"),
            (f"{name.schema}__EXPORT", f"{base}/export/{name.folder}/cut=1-7-4711/"),
            (f"{name.schema}__SILVER", f"{base}/silver/{name.folder}/"),
        ):
            wanted.setdefault((schema, name.table), set()).add(place)
    assert {k: v for k, v in paths(made).items() if v} == wanted
    assert "LANDED" in made
    external = [location_of(s) for s in statements(made) if s.kind == "EXTERNAL TABLE" and s.action == "replace"]
    assert all(place is not None and place[1].endswith("cut=1-7-4711/") for place in external)


@pytest.mark.parametrize(
    "text", ["SELECT @a/x--y/;", "SELECT @a//b;", "SELECT 1 /* x */;", "SELECT $$a$$;", 'SELECT "a;']
)
def test_a_plan_that_snowflake_would_read_otherwise_is_refused(text):
    with pytest.raises(ValueError, match="left its place"):
        statements(text)


@hypothesis.settings(deadline=None, max_examples=40)
@given(NAMES, NAMES, st.lists(NAMES, min_size=1, max_size=3, unique=True))
def test_no_name_leaves_its_quotes_in_the_sink(schema, table, columns):
    kinds = ["VARIANT", "TIMESTAMP_LTZ(6)", "VARCHAR"]
    target = Target("DB", schema, table, tuple(zip(columns, kinds, strict=False)), keys=(0,))
    plain = Target("DB", "s", "t", tuple((f"p{i}", kind) for i, (_, kind) in enumerate(target.columns)), keys=(0,))
    for of in (
        merge_sql.create,
        lambda t: merge_sql.merge(t, "S"),
        lambda t: merge_sql.append(t, "S", 1),
        lambda t: merge_sql.add_column(t, t.columns[0]),
    ):
        made = of(target)
        assert shape(made) == shape(of(plain))
        said = [t.text for t in tokens(made) if t.kind == "identifier"]
        assert said[said.index("DB") : said.index("DB") + 3] == ["DB", schema, table]
        assert len(sqlglot.parse(made, read="snowflake")) == 1
    tree = sqlglot.parse_one(merge_sql.merge(target, "S"), read="snowflake")
    assert isinstance(tree, exp.Merge)
    assert tree.this.name == table
    assert tree.this.db == schema


@hypothesis.settings(deadline=None, max_examples=100)
@given(NAMES, NAMES, NAMES)
@hypothesis.example("s", "x URL = 'y' COPY GRANTS", "-- '")
def test_a_plan_is_read_back_as_it_was_written(schema, table, text):
    template = (
        "CREATE STAGE IF NOT EXISTS {{name:t}} -- {{comment:x}}\n  URL = {{literal:x}};\n"
        "GRANT SELECT ON ICEBERG TABLE {{name:t}} TO ROLE {{identifier:x}};\n"
        "CREATE DYNAMIC TABLE IF NOT EXISTS {{name:t}} AS"
        " SELECT {{landed_columns:c}}, {{landed_sent:s}} ORDER BY {{landed_key:k}};"
    )
    columns, keys = [(table, "BINARY", [text])], [("VARCHAR", [schema, text])]
    values = {"t": ("DB", schema, table), "x": text, "c": columns, "k": keys, "s": (columns, keys)}
    stage, grant, dynamic = statements(fill(template, values))
    assert (stage.kind, stage.name, property_of(stage, "URL")) == ("STAGE", ("DB", schema, table), text)
    assert bare(stage) == "CREATE STAGE IF NOT EXISTS .. URL ="
    assert (grant.name, grant.role) == (("DB", schema, table), (text,))
    assert (dynamic.kind, dynamic.name) == ("DYNAMIC TABLE", ("DB", schema, table))
    assert [t.text for t in tokens(dynamic.text) if t.kind == "string"] == [
        *("v", "BASE64", "u", json.dumps(text, ensure_ascii=False), "v", text, schema, text)
    ]


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("{{raw:x}}", {"x": "y"}),
        ("{{literal:missing}}", {}),
        ("{{ literal:x }}", {"x": "y"}),
        ("{{path:x}}", {"x": "/absolute"}),
        ("{{path:x}}", {"x": "a/../../b"}),
        ("{{url:x}}", {"x": "file:///etc/"}),
        ("{{stage_path:x}}", {"x": (("a",), "b'; DROP")}),
        ("{{stage_path:x}}", {"x": (("a",), "shop/-8ba2--5355-/")}),
        ("{{external_columns:x}}", {"x": [("a", "INT); DROP", "a")]}),
        ("-- @each x", {"x": []}),
        ("-- @end", {}),
    ],
)
def test_a_template_that_says_something_else_is_refused(template, values):
    with pytest.raises(ValueError, match=r"."):
        fill(template, values)
