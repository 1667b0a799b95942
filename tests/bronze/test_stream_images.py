"""Rows written under binlog_row_image MINIMAL, NOBLOB and FULL_NODUP: what bronze says of them is enough.

Each test replays bronze's events as silver does (a column that is named in `absent` keeps what it was) and compares
with the source, or finds that the table is to be read again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow.parquet as pq
import pytest
from servers.binlog import Log
from servers.running import Database

from bronze.batch import land
from bronze.source.catalog import describe
from bronze.source.server import position_now
from bronze.stream import read_range
from bronze.work import Followed, Manifest, Work
from bronze.writer import Target
from lakeward.config import TableConfig, parse
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.state import BronzeState, load_bronze

CREATE = """CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, a INT NOT NULL DEFAULT 7, b VARCHAR(20), c INT, bl BLOB,
 g INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED,
 at DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), `two words` TEXT)"""
ALL = "id, a, b, c, bl, g, s, at, `two words`"
UPDATES = [
    "UPDATE t SET a = a + 1 WHERE id < 3",
    "UPDATE t SET c = 5, b = NULL WHERE id = 2",
    "UPDATE t SET a = a + 5, `two words` = 'new' WHERE id = 1",
    "UPDATE t SET bl = 'other' WHERE id = 3",
    "DELETE FROM t WHERE id = 2",
    "UPDATE t SET `two words` = NULL",
]


class Bronze:
    """A table, followed from now on."""

    def __init__(self, database: Database, folder: Path, table: str = "t", **options: Any) -> None:
        self.log = Log(database)
        self.folder = folder
        name = TableName(database.name, table)
        config = parse({"source": {"url": self.log.url}, "lake": {"root": str(folder)}, "tables": {str(name): options}})
        schema = describe(database.root, config, name)
        assert schema is not None
        settings: TableConfig = config.table(name)
        self.followed = Followed(schema, self.log.start.at, Target("t"), settings.exclude_columns)
        self.name = str(name)

    def read(self) -> tuple[Manifest, list[dict[str, Any]]]:
        """What the binlog holds of it: the manifest, and the envelopes."""
        start, stop = self.log.start, position_now(self.log.database.root, 1).at
        work = Work(
            self.log.settings, b"key", self.log.server.flavour, 4712, "uuid", self.log.name(start.at.file), start.at,
            start.gtid, stop, 1 << 30, str(self.folder), {self.name: self.followed},
        )  # fmt: skip
        manifest = read_range(work)
        files = [pq.read_table(self.folder / "t" / f["path"]) for f in manifest.files.get(self.name, [])]
        return manifest, [row for file in files for row in file.to_pylist()]


def replayed(rows: list[tuple[Any, ...]], names: list[str], envelopes: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """`rows` (by their first column) after the events."""
    found = {row[0]: dict(zip(names, row, strict=True)) for row in rows}
    for event in envelopes:
        old = found.pop(event["before"][names[0]]) if event["before"] else {}
        if event["after"]:
            unknown = event["source"]["absent"] or ()
            assert all(event["after"][name] is None for name in unknown)
            row = {n: old[n] if n in unknown else v for n, v in event["after"].items()}
            found[row[names[0]]] = row
    return sorted((tuple(row.values()) for row in found.values()), key=repr)


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB", "FULL_NODUP"])
def test_updates_and_deletes_without_all_columns_come_out_whole(database: Database, tmp_path: Path, image: str) -> None:
    if image == "FULL_NODUP" and database.flavour == "mysql":
        pytest.skip("MySQL has no such image")
    database.execute(CREATE)
    for n in range(3):
        database.execute("INSERT INTO t (b, c, bl, `two words`) VALUES (%s, %s, 'blob', 'text')", (f"b{n}", n))
    before = database.query(f"SELECT {ALL} FROM t ORDER BY id")
    bronze = Bronze(database, tmp_path)
    database.execute(f"SET SESSION binlog_row_image = {image}")
    for statement in UPDATES:
        database.execute(statement)
    manifest, envelopes = bronze.read()
    names = [c.name for c in bronze.followed.schema.columns]
    if database.flavour == "mariadb":  # whose after images may lack what has changed
        assert "binlog_row_image" in manifest.altered[bronze.name]
        assert len(envelopes) == len(UPDATES) + 2
        return
    assert manifest.altered == {}
    assert replayed(before, names, envelopes) == sorted(database.query(f"SELECT {ALL} FROM t"), key=repr)
    told = [e["source"]["absent"] for e in envelopes if e["op"] == "u"]
    minimal = ["b", "bl", "two words"] if image == "MINIMAL" else ["bl", "two words"]
    assert told[0] == (["b", "c", *minimal[1:]] if image == "MINIMAL" else minimal)
    (deleted,) = [e for e in envelopes if e["op"] == "d"]
    assert deleted["source"]["absent"] is None
    assert deleted["source"]["before_absent"] == (names[1:] if image == "MINIMAL" else minimal)


def test_a_replace_that_resets_columns_is_whole_or_has_the_table_read_again(database: Database, tmp_path: Path) -> None:
    database.execute(CREATE)
    database.execute("INSERT INTO t (id, a, b, c, bl) VALUES (1, 1, 'b', 1, 'blob'), (2, 2, 'b', 2, 'blob')")
    for image in ("MINIMAL", "NOBLOB"):
        before = database.query(f"SELECT {ALL} FROM t ORDER BY id")
        bronze = Bronze(database, tmp_path)
        database.execute(f"SET SESSION binlog_row_image = {image}")
        database.execute("REPLACE INTO t (id, b) VALUES (1, 'new')")
        database.execute("INSERT INTO t (id, b) VALUES (2, 'x') ON DUPLICATE KEY UPDATE c = 9")
        database.execute("SET SESSION binlog_row_image = FULL")
        database.execute("UPDATE t SET a = 70, bl = 'blob'")
        manifest, envelopes = bronze.read()
        if bronze.name not in manifest.altered:
            names = [c.name for c in bronze.followed.schema.columns]
            now = sorted(database.query(f"SELECT {ALL} FROM t"), key=repr)
            assert replayed(before, names, envelopes) == now
        assert (bronze.name in manifest.altered) == (database.flavour == "mariadb")


def test_an_insert_without_its_defaults_has_the_table_read_again(database: Database, tmp_path: Path) -> None:
    database.execute(CREATE)
    database.execute("CREATE TABLE d (a INT DEFAULT 5, b INT DEFAULT 6)")
    whole = Bronze(database, tmp_path)
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("INSERT INTO t VALUES (1, 2, 'b', 3, 'bl', DEFAULT, DEFAULT, NOW(), 'text')")
    manifest, envelopes = whole.read()
    assert manifest.altered == {}
    assert envelopes[0]["source"]["absent"] is None
    some = Bronze(database, tmp_path)
    database.execute("INSERT INTO t (c) VALUES (4), (5)")
    manifest, envelopes = some.read()
    virtual = ["g"] if database.flavour == "mariadb" else []
    lacking = ["a", "b", "bl", *virtual, "two words"]
    assert f"inserted rows without {', '.join(lacking)} at" in manifest.altered[some.name]
    assert [e["source"]["absent"] for e in envelopes] == [lacking] * 2
    assert [e["after"]["c"] for e in envelopes] == [4, 5]
    assert {e["after"]["id"] for e in envelopes} == {2, 3}, "the server tells what it counted"
    nothing = Bronze(database, tmp_path, "d")
    database.execute("INSERT INTO d VALUES ()")
    manifest, envelopes = nothing.read()
    if database.flavour == "mysql":  # an event without a byte of a row
        assert nothing.name in manifest.altered
        assert envelopes == []
    else:
        assert manifest.altered == {}
        assert [e["after"] for e in envelopes] == [{"a": 5, "b": 6}]


def test_a_row_that_moves_to_another_key_without_its_other_values_has_the_table_read_again(
    database: Database, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    bronze = Bronze(database, tmp_path)
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("UPDATE t SET id = 100 WHERE id = 1")
    manifest, envelopes = bronze.read()
    assert bronze.name in manifest.altered
    assert [(e["before"]["id"], e["after"]["id"], e["source"]["absent"]) for e in envelopes] == [(1, 100, ["v"])]


def test_rows_that_the_images_do_not_name_have_the_table_read_again(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, code INT NOT NULL, v INT)")
    database.execute("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
    bronze = Bronze(database, tmp_path, keys=["code"])
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("DELETE FROM t WHERE id = 1")
    manifest, _ = bronze.read()
    assert "it is not known which" in manifest.altered[bronze.name]


def test_a_table_without_a_key_is_logged_whole_before(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (a INT, b INT, c TEXT)")
    database.execute("INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y')")
    before = database.query("SELECT * FROM t")
    bronze = Bronze(database, tmp_path)
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("UPDATE t SET b = 9 WHERE a = 1")
    database.execute("DELETE FROM t WHERE a = 2")
    manifest, envelopes = bronze.read()
    assert manifest.altered == {}
    assert [e["source"]["before_absent"] for e in envelopes] == [None, None]
    assert replayed(before, ["a", "b", "c"], envelopes) == [(1, 9, "x")]


def test_masked_and_excluded_columns_are_absent_like_others(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, email VARCHAR(50), pw TEXT, v INT, w TEXT)")
    database.execute("INSERT INTO t VALUES (1, 'a@b', 'secret', 1, 'w')")
    bronze = Bronze(database, tmp_path, mask={"email": "sha256"}, exclude_columns=["pw"])
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("UPDATE t SET v = 2")
    database.execute("UPDATE t SET email = 'c@d'")
    database.execute("UPDATE t SET pw = 'new'")
    _, (first, second, third) = bronze.read()
    assert first["source"]["absent"] == ["email", "w"]
    assert first["source"]["before_absent"] == ["email", "v", "w"]
    assert first["after"] == {"id": 1, "email": None, "v": 2, "w": None}
    assert second["source"]["absent"] == ["v", "w"]
    assert len(second["after"]["email"]) == 64
    assert third["source"]["absent"] == ["email", "v", "w"]


def test_whole_images_among_others_are_told_apart(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, w TEXT)")
    database.execute("INSERT INTO t VALUES (1, 1, 'w')")
    bronze = Bronze(database, tmp_path)
    database.execute("UPDATE t SET v = 2")
    database.execute("SET SESSION binlog_row_image = MINIMAL")
    database.execute("UPDATE t SET v = 3")
    database.execute("SET SESSION binlog_row_image = FULL")
    database.execute("UPDATE t SET v = 4")
    database.execute("TRUNCATE t")
    _, envelopes = bronze.read()
    assert [e["source"]["absent"] for e in envelopes] == [None, ["w"], None, None]
    assert [e["source"]["before_absent"] for e in envelopes] == [None, ["v", "w"], None, None]
    assert [e["after"] for e in envelopes][:3] == [
        {"id": 1, "v": 2, "w": "w"},
        {"id": 1, "v": 3, "w": None},
        {"id": 1, "v": 4, "w": "w"},
    ]


def test_texts_whose_bytes_are_no_text_are_counted_up_to_the_state(database: Database, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET cp1250)")
    bronze = Bronze(database, tmp_path)
    database.execute("INSERT INTO t VALUES (1, x'6181'), (2, 'plain'), (3, x'8181')")
    manifest, envelopes = bronze.read()
    assert [e["after"]["v"] for e in envelopes] == ["a?", "plain", "??"]
    assert manifest.replaced == 2
    state = BronzeState()
    for _ in range(2):
        land(cast(Any, None), Lake(str(tmp_path)), state, [Manifest(replaced=manifest.replaced)])
    assert load_bronze(Lake(str(tmp_path))).replaced == 4
