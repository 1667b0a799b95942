"""Changes of a table's columns are followed in the stream; where they cannot be, nothing lands wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.folded import folded
from servers.sparkless import Sparkless

from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import LakewardError

TABLE = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), n INT, secret VARCHAR(30))"


@pytest.fixture
def lake(database, replicator_password, tmp_path):
    database.execute(TABLE)
    database.execute("INSERT INTO t VALUES (1, 'i', 1, 's3cret-1'), (2, 'j', 2, 's3cret-2')")
    return Sparkless(tmp_path, replicator_password, [f"{database.name}.*"], tls={"mode": "disabled"})


def run(database, lake, *statements):
    for statement in statements:
        database.execute(statement)
    lake.run(url_of(database.server))
    return lake.state.tables[f"{database.name}.t"]


def rows(database, lake, table):
    """The lake's rows; columns in the order of their names."""
    return sorted(folded(lake.events(f"{database.name}.t"), table, lake.state.checkpoint.at))


def test_rows_around_two_changes_in_one_run_keep_their_values(database, lake) -> None:
    run(database, lake)
    table = run(
        database,
        lake,
        "UPDATE t SET a = 'x' WHERE id = 1",
        "ALTER TABLE t RENAME COLUMN a TO b, DROP COLUMN secret, ADD late INT",
        "UPDATE t SET b = 'y' WHERE id = 2",
        "ALTER TABLE t CHANGE id no BIGINT NOT NULL, MODIFY n INT AFTER b",
        "INSERT INTO t (no, b) VALUES (9000000000, 'z')",
        "ALTER TABLE t ADD unseen INT",
    )
    assert (table.status, table.generation) == ("streaming", 1)
    assert table.schema.keys == ("no",)
    assert [(c.name, c.spark) for c in table.schema.columns if c.name in ("no", "unseen")] == [
        ("no", "BIGINT"), ("unseen", "INT"),
    ]  # fmt: skip
    found = [(r[0].strip('"'), int(r[3])) for r in rows(database, lake, table)]  # b, no
    assert found == [("x", 1), ("y", 2), ("z", 9000000000)]


@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD a VARCHAR(10)"],
        ["ALTER TABLE t MODIFY a VARCHAR(10) CHARACTER SET latin1"],
        ["ALTER TABLE t DEFAULT CHARACTER SET latin1", "ALTER TABLE t MODIFY a VARCHAR(20)"],
        ["ALTER TABLE t ADD x INT NOT NULL DEFAULT 7"],
        ["ALTER TABLE t ADD x INT AS (n + 1)"],
        ["ALTER TABLE t ADD x TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP"],
    ],
)
def test_what_cannot_be_followed_has_the_table_read_again_alone(database, lake, statements) -> None:
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    run(database, lake)
    table = run(database, lake, *statements, "INSERT INTO t (id) VALUES (3)", "INSERT INTO other VALUES (1)")
    assert (table.status, table.generation) == ("streaming", 2)
    assert len(rows(database, lake, table)) == 3
    assert lake.state.tables[f"{database.name}.other"].generation == 1


def test_a_name_that_went_with_an_earlier_reading_is_given_to_no_other_column(database, lake) -> None:
    run(database, lake)
    table = run(database, lake, "ALTER TABLE t MODIFY n TINYINT, DROP COLUMN a")
    assert (table.generation, table.left) == (2, ["a"])
    table = run(database, lake, "ALTER TABLE t ADD a INT", "UPDATE t SET a = 5")
    assert (table.status, table.generation, table.left) == ("streaming", 3, [])
    assert [row[0] for row in rows(database, lake, table)] == ["5", "5"]


def test_a_column_that_is_left_out_lands_under_no_other_name(database, lake) -> None:
    name = f"{database.name}.t"
    lake.tables = {name: {"exclude_columns": ["secret"]}}
    run(database, lake)
    statements = [f"INSERT INTO t VALUES ({i}, 'k', {i}, 's3cret-{i}')" for i in (3, 4)]
    statements.insert(1, "ALTER TABLE t RENAME COLUMN secret TO open")
    with pytest.raises(LakewardError, match="secret"):
        run(database, lake, *statements)
    lake.tables = {name: {"exclude_columns": ["open"]}}
    table = run(database, lake)
    assert len(rows(database, lake, table)) == 4
    assert not any(b"s3cret" in file.read_bytes() for file in Path(lake.lake.root).rglob("*") if file.is_file())
    assert not any({"open", "secret"} & set(e["after"] or {}) for e in lake.events(name))


def test_a_table_that_the_configuration_names_may_be_dropped_and_come_back(database, lake, monkeypatch) -> None:
    monkeypatch.setenv("LAKEWARD_MASK_KEY", "k" * 32)
    database.execute("CREATE TABLE other (id INT PRIMARY KEY)")
    lake.tables = {f"{database.name}.t": {"keys": ["id"], "mask": {"secret": "sha256"}, "where": "n > 0"}}
    run(database, lake)
    gone = run(database, lake, "DROP TABLE t", "INSERT INTO other VALUES (7)")
    assert (gone.status, gone.dropped) == ("stopped", True)
    assert lake.state.tables[f"{database.name}.other"].rows == 1
    assert run(database, lake).status == "stopped", "a run that finds it gone from the beginning"
    back = run(database, lake, TABLE, "INSERT INTO t VALUES (3, 'k', 3, 's3cret-3')")
    assert (back.status, back.dropped) == ("streaming", False)
    assert [row[0] for row in rows(database, lake, back)] == ['"k"']
    lake.tables = {f"{database.name}.T2": {"keys": ["id"]}}
    with pytest.raises(LakewardError, match=r"T2.*matches no table"):
        run(database, lake)
