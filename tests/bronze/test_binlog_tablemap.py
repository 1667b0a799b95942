"""The columns a table map describes against those the catalog describes, on both servers."""

from pathlib import Path

import pytest

from bronze.binlog.collations import collation
from bronze.binlog.events import HEADER, TABLE_MAP
from bronze.binlog.files import read_file
from bronze.binlog.tablemap import parse_table_map, table_name
from lakeward.errors import FailClosedError
from lakeward.names import TableName
from lakeward.schema import column_from_catalog

BROAD = """CREATE TABLE broad (
 id BIGINT UNSIGNED NOT NULL, y YEAR, ti TINYINT, tiu TINYINT UNSIGNED NOT NULL, b1 BIT(1), si SMALLINT,
 siu SMALLINT UNSIGNED ZEROFILL, mi MEDIUMINT, b64 BIT(64), b9 BIT(9), miu MEDIUMINT UNSIGNED,
 i INT, iu INT UNSIGNED NOT NULL,
 d1 DECIMAL(10,2), d2 DECIMAL(65,30) UNSIGNED, d0 DECIMAL(5), f FLOAT, fu FLOAT UNSIGNED, dd DOUBLE,
 ddu DOUBLE(10,3) UNSIGNED, y2 YEAR NOT NULL, bi BIGINT, biu BIGINT UNSIGNED,
 da DATE, dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP NULL, ts3 TIMESTAMP(3) NULL, t TIME, t2 TIME(2),
 c CHAR, c10 CHAR(10) NOT NULL, c255 CHAR(255), cl CHAR(20) CHARACTER SET latin1, cb CHAR(5) CHARACTER SET binary,
 bin5 BINARY(5), bin255 BINARY(255), v VARCHAR(10), v300 VARCHAR(300), v0 VARCHAR(0),
 vl VARCHAR(255) CHARACTER SET latin1,
 vu VARCHAR(33) CHARACTER SET utf16, vb VARBINARY(7), vb9 VARBINARY(9000),
 t1 TINYTEXT, te TEXT CHARACTER SET latin1, tm MEDIUMTEXT, tl LONGTEXT COLLATE utf8mb4_bin, b1b TINYBLOB, bb BLOB,
 bm MEDIUMBLOB, bl LONGBLOB,
 e ENUM('a','it''s','é,ü'), el ENUM('x','é') CHARACTER SET latin1, eu ENUM('ñ','b') CHARACTER SET ucs2,
 s SET('q','r','é') COLLATE utf8mb4_unicode_ci, s2 SET('1','2','3','4','5','6','7','8','9'),
 g GEOMETRY, pt POINT, ls LINESTRING, gv INT AS (i + 1) VIRTUAL, gs INT AS (i + 2) STORED, inv INT INVISIBLE,
 `we``ird. näme` INT, %s
 PRIMARY KEY (id, c10(3), iu))"""
ONLY = {
    "mysql": "j JSON, v4 VECTOR(4), vd VECTOR, gc GEOMETRYCOLLECTION, INDEX fi ((i + 5)),",
    "mariadb": "u14 VARCHAR(5) COLLATE utf8mb4_uca1400_as_cs, vn VARCHAR(20) COLLATE utf8mb4_uca1400_nopad_ai_ci,",
}


def map_of(database, table):
    """The last TABLE_MAP event's body of a table, from the file on disk."""
    where = "SHOW BINARY LOGS"
    name = database.query(where)[-1][0]
    wanted = TableName(database.name, table)
    found = None
    for raw in read_file(Path(database.server.folder) / "data" / name):
        if HEADER.unpack_from(raw)[1] == TABLE_MAP and table_name(raw[19:-4]) == wanted:
            found = raw[19:-4]
    assert found is not None
    return found


def test_a_table_map_describes_what_the_catalog_describes(database):
    database.execute(BROAD % ONLY[database.flavour])
    database.execute("INSERT INTO broad (id, tiu, iu, c10, y2) VALUES (1, 1, 1, 'x', 2000)")
    found = parse_table_map(map_of(database, "broad"), database.flavour)
    catalog = database.query(
        "SELECT column_name, column_type, is_nullable, character_set_name, collation_name "
        "FROM information_schema.columns WHERE table_schema = %s AND table_name = 'broad' ORDER BY ordinal_position",
        [database.name],
    )
    expected = [
        column_from_catalog(name, kind, nullable=nullable == "YES", charset=charset, collation=order)
        for name, kind, nullable, charset, order in catalog
    ]
    assert [w.column for w in found.columns] == expected
    assert [found.columns[n].column.name for n in found.key] == ["id", "c10", "iu"]
    assert found.name == TableName(database.name, "broad")


def test_a_primary_key_keeps_its_own_order(database):
    database.execute("CREATE TABLE k (a INT, b INT, c INT, PRIMARY KEY (c, a))")
    database.execute("INSERT INTO k VALUES (1, 2, 3)")
    assert parse_table_map(map_of(database, "k"), database.flavour).key == (2, 0)


def test_the_same_map_is_the_same_object(database):
    database.execute("CREATE TABLE k (a INT PRIMARY KEY)")
    database.execute("INSERT INTO k VALUES (1)")
    body = map_of(database, "k")
    assert parse_table_map(body, database.flavour).columns is parse_table_map(bytes(body), database.flavour).columns


def test_a_map_without_names_is_refused_with_the_statement_that_mends_it(database):
    database.execute("CREATE TABLE k (a INT PRIMARY KEY)")
    database.execute("INSERT INTO k VALUES (1)")
    full = map_of(database, "k")
    # The optional metadata begins after the null bitmap: 8 + names + count 1 + type 1 + metadata length 1 + bitmap 1.
    bare = full[: 8 + 2 + len(database.name) + 2 + len("k") + 4]
    with pytest.raises(FailClosedError) as refused:
        parse_table_map(bare, database.flavour)
    assert "binlog_row_metadata='FULL'" in str(refused.value)


def test_every_collation_of_the_server_is_known(database):
    if database.flavour == "mysql":
        listed = "SELECT id, character_set_name, collation_name FROM information_schema.collations"
    else:
        listed = (
            "SELECT id, character_set_name, full_collation_name "
            "FROM information_schema.collation_character_set_applicability WHERE id IS NOT NULL"
        )
    widths = dict(database.query("SELECT character_set_name, maxlen FROM information_schema.character_sets"))
    rows = database.query(listed)
    assert len(rows) > 200
    for number, charset, name in rows:
        assert collation(number, database.flavour) == (charset, widths[charset], name)


def test_a_collation_nobody_has_is_not_guessed():
    assert collation(0xFFF0) is None
    assert collation(2048 + 21 * 8) is None
    assert collation(400) is None
