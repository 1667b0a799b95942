"""The preflight: each thing that is wrong is found, and what it says mends it."""

from __future__ import annotations

import contextlib

import pytest
from servers.sparkless import Sparkless

from bronze.source.catalog import discover, survey
from bronze.source.connection import connect
from bronze.source.foreign_keys import cascades_logged, of_tables, unlogged
from bronze.source.preflight import check, require
from lakeward.config import parse
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import TerminalError

BAD = [
    ({"binlog_format": "STATEMENT"}, "binlog_format is STATEMENT"),
    ({"binlog_row_image": "MINIMAL"}, "binlog_row_image is MINIMAL"),
    ({"binlog_row_metadata": "MINIMAL"}, "binlog_row_metadata is MINIMAL"),
]


def _findings(port, password, *, user="replicator", include=("*",), server_id=7001):
    config = parse(
        {
            "source": {
                "url": f"mysql://{user}@127.0.0.1:{port}",
                "include": list(include),
                "server_id": server_id,
            }
        }
    )
    with contextlib.closing(connect(config.source, password)) as conn:
        return check(conn, config)


def _errors(found):
    return [f for f in found if f.level == "error"]


@pytest.fixture
def table(database):
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    return database


def test_a_server_as_it_should_be_has_no_errors(table, replicator_password) -> None:
    found = _findings(table.server.port, replicator_password, include=[f"{table.name}.*"])
    assert _errors(found) == []
    require(found)


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_each_wrong_setting_is_found_and_its_statement_mends_it(flavour, own_server) -> None:
    server = own_server(flavour, settings={k: v for setting, _ in BAD for k, v in setting.items()})
    with contextlib.closing(server.admin()) as conn, conn.cursor() as cursor:
        cursor.execute("CREATE USER p@'127.0.0.1' IDENTIFIED BY 'p'")
        cursor.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO p@'127.0.0.1'")
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
        found = _errors(_findings(server.port, "p", user="p"))
        assert [f.what for f in found] == [
            f"{what}, and has to be {'ROW' if 'format' in what else 'FULL'}" for _, what in BAD
        ]
        with pytest.raises(TerminalError) as caught:
            require(found)
        for finding in found:
            assert finding.remedy in str(caught.value)
            cursor.execute(finding.remedy.partition(";")[0])
        assert _errors(_findings(server.port, "p", user="p")) == []


def test_a_server_that_logs_differences_of_json_is_followed_with_a_warning(own_server, tmp_path) -> None:
    server = own_server("mysql", settings={"binlog_row_value_options": "PARTIAL_JSON"})
    password = ensure_replicator(server, [EVERY_SCHEMA])
    with contextlib.closing(server.admin()) as conn, conn.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, doc JSON)")
        found = _findings(server.port, password)
        assert _errors(found) == []
        (said,) = [f for f in found if "PARTIAL_JSON" in f.what]
        lake = Sparkless(tmp_path, password, ["shop.*"])
        lake.run(url_of(server))
        cursor.execute("INSERT INTO shop.t VALUES (1, CONCAT('{\"long\": \"', REPEAT('x', 500), '\", \"n\": 1}'))")
        cursor.execute("UPDATE shop.t SET doc = JSON_SET(doc, '$.n', 2, '$.m', 1.5)")
        lake.run(url_of(server))
        cursor.execute("SELECT doc FROM shop.t")
        assert lake.events("shop.t")[-1]["after"]["doc"] == cursor.fetchone()[0]
        assert lake.state.tables["shop.t"].generation == 1
        cursor.execute(said.remedy.partition(";")[0])
        assert not [f for f in _findings(server.port, password) if "PARTIAL_JSON" in f.what]


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_server_without_a_binlog_is_found(flavour, own_server) -> None:
    server = own_server(flavour, settings={"skip-log-bin": ""})
    with contextlib.closing(server.admin()) as conn, conn.cursor() as cursor:
        cursor.execute("CREATE USER p@'127.0.0.1' IDENTIFIED BY 'p'")
        cursor.execute("GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO p@'127.0.0.1'")
    assert "the binlog is off (log_bin)" in [f.what for f in _errors(_findings(server.port, "p", user="p"))]


def test_missing_grants_are_found_and_the_grant_statement_mends_them(table) -> None:
    user = f"g{table.name}"
    table.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'p'")
    try:
        for expected in (3, 0):
            found = _errors(_findings(table.server.port, "p", user=user, include=[f"{table.name}.*"]))
            assert len(found) == expected, found
            for finding in found:
                table.execute(finding.remedy.partition(";")[0])
    finally:
        table.execute(f"DROP USER {user}@'127.0.0.1'")


def test_a_table_that_may_not_be_read_is_found_by_name(table) -> None:
    user = f"h{table.name}"
    table.execute(f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY 'p'")
    try:
        table.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}@'127.0.0.1'")
        table.execute(f"GRANT INSERT ON {table.name}.* TO {user}@'127.0.0.1'")
        (finding,) = _errors(_findings(table.server.port, "p", user=user, include=[f"{table.name}.*"]))
        assert f"may not read {table.name}.t" in finding.what
        table.execute(finding.remedy.rstrip(";"))
        assert not _errors(_findings(table.server.port, "p", user=user, include=[f"{table.name}.*"]))
    finally:
        table.execute(f"DROP USER {user}@'127.0.0.1'")


@pytest.mark.parametrize(
    "ddl",
    ["ALTER TABLE {}.t CHANGE id other INT", "DROP TABLE {}.t", "RENAME TABLE {0}.t TO {0}.u"],
    ids=lambda d: d[:5],
)
def test_a_table_that_is_altered_while_it_is_looked_at_does_not_count_as_unreadable(
    table, replicator_password, monkeypatch, ddl
) -> None:
    def survey_then_alter(conn, config, known):
        found = survey(conn, config, known)
        table.execute(ddl.format(table.name))
        return found

    monkeypatch.setattr("bronze.source.tables_preflight.survey", survey_then_alter)
    found = _findings(table.server.port, replicator_password, include=[f"{table.name}.*"])
    assert not _errors(found)


def test_the_servers_own_id_is_refused(table, replicator_password) -> None:
    found = _findings(
        table.server.port, replicator_password, include=[f"{table.name}.*"], server_id=table.server.server_id
    )
    assert any("server_id" in f.what for f in _errors(found))


def test_tables_that_need_a_word_get_one(database, replicator_password) -> None:
    database.execute("CREATE TABLE parent (id INT PRIMARY KEY)")
    database.execute(
        "CREATE TABLE child (id INT PRIMARY KEY, p INT, "
        "CONSTRAINT fk FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)"
    )
    database.execute("CREATE TABLE keyless (a INT)")
    database.execute("CREATE TABLE old (id INT PRIMARY KEY) ENGINE = MyISAM")
    database.execute("CREATE TABLE Twin (id INT PRIMARY KEY)")
    database.execute("CREATE TABLE twin (id INT PRIMARY KEY)")
    found = _findings(database.server.port, replicator_password, include=[f"{database.name}.*"])
    said = " | ".join(f.what for f in found if f.level == "warning")
    assert f"{database.name}.keyless has no key" in said
    assert f"{database.name}.old is of the engine MyISAM" in said
    assert f"{database.name}.Twin and {database.name}.twin differ only in case" in said
    assert "foreign key fk" not in said  # logged by the server, or carried out by silver


def test_cascades_that_silver_cannot_carry_out_are_named(database, replicator_password) -> None:
    database.execute("CREATE TABLE parent (id INT PRIMARY KEY)")
    for name, more in (("fine", ""), ("computed", ", twice INT AS (p * 2)")):
        database.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, p INT{more}, "
            f"CONSTRAINT `f``{name}` FOREIGN KEY (p) REFERENCES parent (id) ON DELETE SET NULL ON UPDATE CASCADE)"
        )
    database.execute("CREATE TABLE hidden (id INT PRIMARY KEY)")
    database.execute(
        "CREATE TABLE orphan (id INT PRIMARY KEY, p INT, "
        "CONSTRAINT lost FOREIGN KEY (p) REFERENCES hidden (id) ON DELETE CASCADE)"
    )
    with contextlib.closing(connect(_config(database).source, replicator_password)) as conn:
        logged = cascades_logged(conn)
        found = {f.what for f in check(conn, _config(database)) if "foreign key" in f.what}
        references = unlogged(conn, discover(conn, _config(database)))
    assert logged == (database.flavour == "mysql" and database.server.version >= (9, 6, 0))
    if logged:
        assert found == set()
        return
    assert len(found) == 2
    assert any("f`computed (ON DELETE SET NULL, ON UPDATE CASCADE)" in w and "generated column" in w for w in found)
    assert any("lost (ON DELETE CASCADE)" in w and f"{database.name}.hidden is not followed" in w for w in found)
    assert list(of_tables(references)) == [f"{database.name}.fine"]


def _config(database):
    source = {
        "url": f"mysql://replicator@127.0.0.1:{database.server.port}",
        "include": [f"{database.name}.*"],
        "exclude": [f"{database.name}.hidden"],
    }
    return parse({"source": source})


def test_a_column_outside_the_type_table_is_an_error_that_names_it(database, replicator_password) -> None:
    database.execute("CREATE TABLE c (id INT PRIMARY KEY, __deleted INT)")
    (finding,) = _errors(_findings(database.server.port, replicator_password, include=[f"{database.name}.*"]))
    assert "__deleted" in finding.what
    assert "exclude_columns" in finding.remedy


def test_nothing_to_follow_is_an_error(database, replicator_password) -> None:
    (finding,) = _errors(_findings(database.server.port, replicator_password, include=[f"{database.name}.*"]))
    assert "can read no table" in finding.what


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_an_xa_transaction_that_nobody_ends_gets_the_statement_that_ends_it(flavour, own_server) -> None:
    server = own_server(flavour)
    password = ensure_replicator(server, [EVERY_SCHEMA])
    with contextlib.closing(server.admin()) as conn, conn.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY)")
        for statement in ("START", "END", "PREPARE"):
            cursor.execute(f"XA {statement} 'it''s', 'b', 7")
            if statement == "START":
                cursor.execute("INSERT INTO shop.t VALUES (1)")
    with contextlib.closing(server.admin()) as conn, conn.cursor() as cursor:
        if flavour == "mysql":
            assert not prepared(_findings(server.port, password))
            cursor.execute("GRANT XA_RECOVER_ADMIN ON *.* TO replicator@'127.0.0.1'")
        (finding,) = prepared(_findings(server.port, password))
        assert finding.level == "warning"
        cursor.execute(finding.remedy.partition(": ")[2].partition(";")[0])
        assert not prepared(_findings(server.port, password))
        cursor.execute("SELECT COUNT(*) FROM shop.t")
        assert cursor.fetchone()[0] == 0


def prepared(found):
    return [f for f in found if "is prepared" in f.what]
