"""The embedded server, on both flavours: real processes, killed, restarted and found again."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys

import pymysql
import pytest

from lakeward.embedded import process
from lakeward.embedded.binaries import find_server, probe
from lakeward.embedded.options import SOURCE, SOURCE_OF_FLAVOUR
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator, replicator_sql
from lakeward.embedded.server import SOCKET_PATH_MAX, EmbeddedServer
from lakeward.errors import TerminalError


def variables(server):
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL VARIABLES")
        return dict(cursor.fetchall())


def as_replicator(server, **options):
    password = ensure_replicator(server, [EVERY_SCHEMA])
    return pymysql.connect(host=server.host, port=server.port, user="replicator", password=password, **options)


def test_the_server_has_every_setting_that_lakeward_asks_of_a_source(server):
    found = variables(server)
    asked = {**SOURCE, **SOURCE_OF_FLAVOUR[server.flavour]}
    renamed = {name.removeprefix("loose-").replace("-", "_"): value for name, value in asked.items()}
    assert found["log_bin"] == "ON"
    assert found["time_zone"] == renamed.pop("default_time_zone")
    assert found["max_allowed_packet"] == str(1 << 30)
    del renamed["log_bin"], renamed["max_allowed_packet"]
    assert {name: found[name] for name in renamed if name in found} == {n: v for n, v in renamed.items() if n in found}
    assert {"binlog_format", "binlog_row_image", "binlog_row_metadata"} <= found.keys() & renamed.keys()


def test_nobody_but_this_machine_can_reach_the_server(server):
    found = variables(server)
    assert found["bind_address"] == "127.0.0.1"
    assert found["skip_name_resolve"] == "ON"


def test_root_is_reached_through_the_socket_alone_and_the_socket_by_this_user_alone(server):
    with pytest.raises(pymysql.err.OperationalError):
        pymysql.connect(host=server.host, port=server.port, user="root")
    for folder in (server.folder, server.socket.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_two_servers_never_share_an_identity(own_server, mysql_server):
    other = own_server("mysql")
    for name in ("server_id", "server_uuid", "port"):
        assert variables(other)[name] != variables(mysql_server)[name]


def test_a_server_that_copies_no_other_makes_its_own_data(own_server):
    server = own_server("mysql", settings={"lower_case_table_names": "1"})
    assert variables(server)["lower_case_table_names"] == "1"


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_killed_server_comes_back_with_its_port_its_identity_and_its_rows(own_server, flavour):
    server = own_server(flavour)
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE d")
        cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
        cursor.execute("INSERT INTO d.t VALUES (1), (2)")
    before, pid = variables(server), server.pid
    server.kill()
    assert not server.is_running()
    assert server.pid is None
    server.start()
    assert server.pid != pid
    after = variables(server)
    same = ("port", "server_id", "server_uuid" if flavour == "mysql" else "gtid_binlog_pos")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM d.t ORDER BY id")
        assert cursor.fetchall() == ((1,), (2,))


def test_another_process_finds_the_server_and_can_stop_it(own_server):
    server = own_server("mariadb")
    script = (
        "import sys; from pathlib import Path; from lakeward.embedded.server import EmbeddedServer\n"
        "server = EmbeddedServer.attach(Path(sys.argv[1])); print(server.pid, server.port); server.stop()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(server.folder)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.stderr == ""
    assert done.stdout.split()[1] == str(server.port)
    assert not server.is_running()
    assert EmbeddedServer.attach(server.folder) is None
    server.start()
    found = EmbeddedServer.attach(server.folder)
    assert found is not None
    assert found.pid == server.pid


def test_the_server_outlives_the_process_that_started_it(own_server):
    server = own_server("mariadb")
    server.stop()
    script = (
        "import sys; from pathlib import Path; from lakeward.embedded.server import EmbeddedServer\n"
        "EmbeddedServer.open(Path(sys.argv[1])).start()"
    )
    subprocess.run([sys.executable, "-c", script, str(server.folder)], check=True, timeout=120)
    found = EmbeddedServer.attach(server.folder)
    assert found is not None
    assert found.pid is not None
    assert os.getsid(found.pid) == found.pid
    found.admin().close()


def test_a_pid_that_was_given_to_another_process_is_not_the_server(own_server):
    server = own_server("mariadb")
    server.kill()
    (server.folder / "server.pid").write_text(f"{os.getpid()}\n")
    assert EmbeddedServer.attach(server.folder) is None
    server.kill()
    assert process.command_line(os.getpid())


def test_a_taken_port_is_named_when_the_server_comes_back(own_server):
    server = own_server("mariadb")
    server.stop()
    with socket.create_server((server.host, server.port)), pytest.raises(TerminalError) as caught:
        server.start()
    assert f"free port {server.port}" in str(caught.value)
    assert "ddress already in use" in str(caught.value)


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_a_setting_of_the_test_wins_and_a_bare_one_too(own_server, flavour):
    server = own_server(flavour, settings={"skip-log-bin": "", "binlog-row-metadata": "MINIMAL"})
    found = variables(server)
    assert (found["log_bin"], found["binlog_row_metadata"]) == ("OFF", "MINIMAL")


def test_a_server_that_cannot_start_shows_its_log(own_server):
    server = own_server("mariadb")
    server.stop()
    server.settings["no_such_variable"] = "1"
    with pytest.raises(TerminalError, match="it ended while it was starting") as caught:
        server.start()
    assert "no_such_variable" in str(caught.value.facts["log"])


def test_a_folder_whose_path_is_too_long_for_a_socket_gets_a_short_one(tmp_path):
    binary = find_server()
    folder = tmp_path / ("long" * 30)
    server = EmbeddedServer(binary, folder)
    assert len(os.fsencode(server.socket)) <= SOCKET_PATH_MAX
    assert server.socket == EmbeddedServer(binary, folder).socket


def test_an_empty_folder_holds_no_server(tmp_path):
    assert EmbeddedServer.attach(tmp_path) is None
    with pytest.raises(TerminalError, match="holds no embedded server"):
        EmbeddedServer.open(tmp_path)


def test_data_is_made_once(own_server):
    with pytest.raises(TerminalError, match="holds a server already"):
        own_server("mariadb").initialise()


def test_a_program_that_does_not_run_is_refused_by_name(tmp_path):
    with pytest.raises(TerminalError, match="mysqld does not run"):
        probe(tmp_path / "mysqld")


def test_a_server_too_old_to_describe_its_binlog_is_refused(tmp_path):
    old = tmp_path / "mysqld"
    old.write_text("#!/bin/sh\necho 'mysqld  Ver 5.7.44 for Linux on x86_64'\n")
    old.chmod(0o755)
    with pytest.raises(TerminalError, match=r"8\.0\.14|mysql 5\.7\.44"):
        probe(old)


def test_the_replication_user_may_do_three_things_and_no_more(own_server):
    server = own_server("mariadb")
    with server.admin() as connection, connection.cursor() as cursor:
        for statement in replicator_sql(["shop", "a_b"], "secret", host="127.0.0.1"):
            cursor.execute(statement)
        cursor.execute("SHOW GRANTS FOR 'replicator'@'127.0.0.1'")
        grants = sorted(row[0].partition(" TO ")[0] for row in cursor.fetchall())
    assert grants == [
        "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.*",
        "GRANT SELECT ON `a\\_b`.*",
        "GRANT SELECT ON `shop`.*",
    ]


def test_the_replication_user_reads_rows_and_positions_and_writes_nothing(database):
    server = database.server
    database.execute("CREATE TABLE t (id INT)")
    position = "SHOW BINARY LOG STATUS" if server.flavour == "mysql" else "SHOW MASTER STATUS"
    with as_replicator(server, database=database.name) as connection, connection.cursor() as cursor:
        assert cursor.execute(position) == 1
        assert cursor.execute("SHOW BINARY LOGS") > 0
        assert cursor.execute("SELECT * FROM t") == 0
        for refused in ("INSERT INTO t VALUES (1)", "DROP TABLE t", "FLUSH TABLES", "LOCK TABLES t READ"):
            with pytest.raises(pymysql.MySQLError):
                cursor.execute(refused)


def test_the_password_is_in_one_file_that_its_owner_alone_reads(server):
    password = ensure_replicator(server, [EVERY_SCHEMA])
    file = server.folder / "password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text().strip() == password
    assert password not in json.dumps(json.loads((server.folder / "server.json").read_text()))
    assert password not in server.error_log.read_text()


def test_the_certificate_proves_the_server_to_who_verifies_it(server):
    verified = {"ssl_ca": str(server.folder / "tls" / "ca.pem"), "ssl_verify_identity": True}
    with as_replicator(server, **verified) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW STATUS LIKE 'Ssl_cipher'")
        assert cursor.fetchone()[1]
