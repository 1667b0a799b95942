"""Tables that are swapped or made anew are followed in the run that sees it."""

from __future__ import annotations

import pytest
from servers.sparkless import Sparkless

from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of


@pytest.fixture(params=["mysql", "mariadb"])
def source(request, own_server, tmp_path):
    server = own_server(request.param)
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v INT)")
        cursor.execute("INSERT INTO shop.t VALUES (1, 1), (2, 2)")
        lake = Sparkless(tmp_path, ensure_replicator(server, [EVERY_SCHEMA]), ["shop.t", "shop.u"])
        lake.run(url_of(server))
        yield server, cursor, lake


def current(lake, table):
    """The rows of the table's newest generation."""
    known = lake.state.tables[table]
    assert (known.status, known.reason) == ("streaming", None)
    rows = {}
    for event in lake.events(table):
        place = event["source"]
        if place["generation"] == known.generation or (
            not place["snapshot"] and (place["epoch"], place["file"], place["pos"]) >= tuple(known.start)[:3]
        ):
            row = event["after"] or event["before"]
            rows[row["id"]] = event["after"]
    return sorted(tuple(row.values()) for row in rows.values() if row)


@pytest.mark.parametrize(
    "swap",
    [
        ["RENAME TABLE shop.t TO shop._t_del, shop._t_gho TO shop.t"],  # gh-ost
        ["RENAME TABLE shop.t TO shop._t_old, shop._t_gho TO shop.t", "DROP TABLE shop._t_old"],  # pt-osc
        ["DROP TABLE shop.t", "RENAME TABLE shop._t_gho TO shop.t"],
    ],
)
def test_an_online_schema_change_is_followed_in_the_run_that_sees_it(source, swap) -> None:
    server, cursor, lake = source
    cursor.execute("CREATE TABLE shop._t_gho LIKE shop.t")
    cursor.execute("ALTER TABLE shop._t_gho ADD COLUMN w INT NOT NULL DEFAULT 7")
    cursor.execute("INSERT INTO shop._t_gho (id, v) SELECT id, v FROM shop.t")
    cursor.execute("UPDATE shop.t SET v = 3 WHERE id = 2")
    cursor.execute("UPDATE shop._t_gho SET v = 3 WHERE id = 2")
    for statement in swap:
        cursor.execute(statement)
    cursor.execute("INSERT INTO shop.t VALUES (4, 4, 4)")
    lake.run(url_of(server))
    assert current(lake, "shop.t") == [(1, 1, 7), (2, 3, 7), (4, 4, 4)]


def test_a_table_that_is_dropped_and_made_anew_is_read_again(source) -> None:
    server, cursor, lake = source
    cursor.execute("CREATE TABLE IF NOT EXISTS shop.t (id INT PRIMARY KEY, v INT)")
    lake.run(url_of(server))
    assert lake.state.tables["shop.t"].generation == 1
    cursor.execute("DROP TABLE shop.t")
    cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, other VARCHAR(10))")
    cursor.execute("INSERT INTO shop.t VALUES (9, 'new')")
    lake.run(url_of(server))
    assert current(lake, "shop.t") == [(9, "new")]
