"""The catalog: which tables, which columns, which key; and what is refused by name."""

from __future__ import annotations

import contextlib

import pytest

from bronze.source import catalog
from bronze.source.catalog import describe, discover, estimated_rows
from bronze.source.connection import connect
from lakeward.config import parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.names import TableName


@pytest.fixture
def found(database, replicator_password):
    """`found(include=…, tables=…)`: table -> schema."""

    def run(include=("*",), exclude=(), tables=None):
        source = {
            "url": f"mysql://replicator@127.0.0.1:{database.server.port}",
            "include": [f"{database.name}.{glob}" for glob in include],
            "exclude": [f"{database.name}.{glob}" for glob in exclude],
        }
        config = parse({"source": source, "tables": {f"{database.name}.{n}": t for n, t in (tables or {}).items()}})
        with contextlib.closing(connect(config.source, replicator_password)) as conn:
            return {s.name.table: s for s in discover(conn, config)}

    return run


def test_keys_are_configured_primary_unique_or_the_whole_row(database, found) -> None:
    for ddl in (
        "p (b INT, a INT, c INT NOT NULL UNIQUE, PRIMARY KEY (a, b))",
        "u (a INT NOT NULL, b INT NOT NULL, c INT NOT NULL, UNIQUE x (a, b), UNIQUE y (c))",
        "n (a INT, UNIQUE (a))",
        "prefixed (a VARCHAR(99) NOT NULL, UNIQUE (a(10)))",
        "configured (a INT PRIMARY KEY, b INT)",
    ):
        database.execute(f"CREATE TABLE {ddl}")
    database.execute("CREATE VIEW v AS SELECT * FROM n")
    schemas = found(tables={"configured": {"keys": ["b"]}})
    assert {n: (s.keys, s.key_kind) for n, s in schemas.items()} == {
        "p": (("a", "b"), "primary"),
        "u": (("c",), "unique"),
        "n": ((), "row"),
        "prefixed": ((), "row"),
        "configured": (("b",), "configured"),
    }


def test_a_functional_unique_key_is_no_key(database, found) -> None:
    if database.flavour != "mysql":
        pytest.skip("MariaDB has no functional key parts")
    database.execute("CREATE TABLE f (a INT NOT NULL, b INT NOT NULL, UNIQUE ((a + 1)))")
    assert found()["f"].keys == ()


def test_a_generated_invisible_primary_key_is_the_key(database, found) -> None:
    if database.flavour != "mysql":
        pytest.skip("MariaDB has none")
    database.execute("SET sql_generate_invisible_primary_key = ON")
    database.execute("CREATE TABLE g (a INT)")
    assert (found()["g"].keys, [c.name for c in found()["g"].columns]) == (("my_row_id",), ["my_row_id", "a"])


def test_include_and_exclude_pick_tables_and_exclude_columns_drops_columns(database, found) -> None:
    for name in ("users", "tmp_a", "orders"):
        database.execute(f"CREATE TABLE {name} (id INT PRIMARY KEY, password TEXT)")
    schemas = found(include=["users", "tmp_*"], exclude=["tmp_*"], tables={"users": {"exclude_columns": ["password"]}})
    assert {n: [c.name for c in s.columns] for n, s in schemas.items()} == {"users": ["id"]}


@pytest.mark.parametrize(
    ("tables", "message", "hint"),
    [
        ({"user": {"keys": ["id"]}}, "matches no table", "users"),
        ({"users": {"keys": ["idd"]}}, "no column", "'id'"),
        ({"users": {"mask": {"emial": "sha256"}}}, "no column", "'email'"),
        ({"users": {"keys": ["id"], "exclude_columns": ["id"]}}, "leaves out", "one of them"),
    ],
)
def test_configuration_that_fits_nothing_names_the_nearest(tables, message, hint, database, found) -> None:
    database.execute("CREATE TABLE users (id INT PRIMARY KEY, email TEXT)")
    with pytest.raises(ConfigError, match=message) as caught:
        found(tables=tables)
    assert hint in str(caught.value.hint)


def test_a_column_with_one_of_lakewards_own_names_is_refused_whatever_its_case(database, found) -> None:
    database.execute("CREATE TABLE c (id INT PRIMARY KEY, __TS_ms INT)")
    with pytest.raises(TerminalError, match="__TS_ms") as caught:
        found()
    assert 'exclude_columns = ["__TS_ms"]' in str(caught.value.hint)
    assert found(tables={"c": {"exclude_columns": ["__TS_ms"]}})


def test_a_system_versioned_table_shows_its_period_and_its_key_ends_in_it(database, found) -> None:
    if database.flavour != "mariadb":
        pytest.skip("MySQL has none")
    database.execute("CREATE TABLE s (id INT PRIMARY KEY, a INT) WITH SYSTEM VERSIONING")
    database.execute(
        "CREATE TABLE x (id INT PRIMARY KEY, b TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
        "e TIMESTAMP(6) GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (b, e)) WITH SYSTEM VERSIONING"
    )
    schemas = found()
    assert (schemas["s"].keys, schemas["x"].keys) == (("id", "row_end"), ("id", "e"))
    assert [c.name for c in schemas["s"].columns] == ["id", "a", "row_start", "row_end"]
    assert schemas["s"].counted


def test_one_table_can_be_described_and_weighed(database, replicator_password) -> None:
    database.execute("CREATE TABLE d (id INT PRIMARY KEY)")
    database.executemany("INSERT INTO d VALUES (%s)", [(i,) for i in range(500)])
    database.execute("ANALYZE TABLE d")
    config = parse({"source": {"url": f"mysql://replicator@127.0.0.1:{database.server.port}"}})
    with contextlib.closing(connect(config.source, replicator_password)) as conn:
        name = TableName(database.name, "d")
        schema = describe(conn, config, name)
        assert schema is not None
        assert schema.keys == ("id",)
        assert describe(conn, config, TableName(database.name, "none")) is None
        assert 250 <= estimated_rows(conn, name) <= 1000


@pytest.mark.parametrize("ddl", ["DROP TABLE d", "RENAME TABLE d TO e"], ids=lambda d: d[:4])
@pytest.mark.parametrize("back", [False, True], ids=["away", "back"])
@pytest.mark.parametrize("settings", [None, {"keys": ["id"]}], ids=["plain", "configured"])
def test_a_table_that_goes_between_its_listing_and_its_columns_is_gone_unless_it_is_back(
    database, replicator_password, found, monkeypatch, ddl, back, settings
) -> None:
    database.execute("CREATE TABLE d (id INT PRIMARY KEY)")
    listed = catalog._tables
    going = [ddl]

    def list_then_alter(conn, config, only=None):
        tables = listed(conn, config, only)
        while going:
            database.execute(going.pop())
        return tables

    monkeypatch.setattr(catalog, "_tables", list_then_alter)
    columns = catalog._columns

    def columns_then_back(conn, tables):
        result = columns(conn, tables)
        if back:
            monkeypatch.setattr(catalog, "_columns", columns)
            database.execute("CREATE TABLE d (id INT PRIMARY KEY, a INT)")
        return result

    monkeypatch.setattr(catalog, "_columns", columns_then_back)
    schemas = found(include=["d"], tables={"d": settings} if settings else None)
    assert {name: [c.name for c in s.columns] for name, s in schemas.items()} == ({"d": ["id", "a"]} if back else {})


def test_a_table_whose_columns_the_server_does_not_show_is_refused(database, replicator_password) -> None:
    database.execute("CREATE TABLE d (id INT PRIMARY KEY)")
    user = f"t{database.name}"
    database.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'p'")
    try:
        database.execute(f"GRANT TRIGGER ON {database.name}.* TO {user}@'127.0.0.1'")
        config = parse({"source": {"url": f"mysql://{user}@127.0.0.1:{database.server.port}"}})
        with (
            contextlib.closing(connect(config.source, "p")) as conn,
            pytest.raises(TerminalError, match=f"may not read {database.name}.d") as caught,
        ):
            discover(conn, config)
        assert f"GRANT SELECT ON `{database.name}`.`d`" in str(caught.value.hint)
    finally:
        database.execute(f"DROP USER {user}@'127.0.0.1'")
