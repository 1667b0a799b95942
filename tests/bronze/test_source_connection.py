"""Connections: each TLS mode, each way they fail, and never a password in what is said."""

from __future__ import annotations

import contextlib
import pickle
import socket
import ssl

import pytest

from bronze.source.connection import Settings, connect, open_connection, settings
from lakeward.config import parse
from lakeward.errors import LakewardError, TerminalError, TransientError

SECRET = "s3cret-pässword'\"\\"


def _source(port, *, host="127.0.0.1", user="replicator", **tls):
    return parse({"source": {"url": f"mysql://{user}@{host}:{port}", "tls": tls or {"mode": "preferred"}}}).source


def _cipher(conn):
    with conn.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return cursor.fetchone()[1]


@pytest.mark.parametrize("mode", ["disabled", "preferred", "required"])
def test_each_mode_encrypts_or_does_not(mode, server, replicator_password) -> None:
    with contextlib.closing(connect(_source(server.port, mode=mode), replicator_password)) as conn:
        assert bool(_cipher(conn)) == (mode != "disabled")


def test_no_ca_is_loaded_where_no_certificate_is_verified(server, replicator_password, monkeypatch) -> None:
    loaded = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_: loaded.append(1))
    for mode in ("preferred", "required", "verify_ca"):
        with contextlib.suppress(TerminalError):
            connect(_source(server.port, mode=mode), replicator_password).close()
        assert bool(loaded) == (mode == "verify_ca")


def test_the_servers_certificate_is_checked(server, replicator_password) -> None:
    ca = str(server.folder / "tls" / "ca.pem")
    for mode in ("verify_ca", "verify_identity"):
        with contextlib.closing(connect(_source(server.port, mode=mode, ca=ca), replicator_password)) as conn:
            assert _cipher(conn)
        with pytest.raises(TerminalError, match="no TLS connection") as caught:
            connect(_source(server.port, mode=mode), replicator_password)
        assert caught.value.hint is not None
        assert "ca" in caught.value.hint


def test_a_session_is_the_same_whatever_the_server_defaults_to(server, replicator_password) -> None:
    with contextlib.closing(connect(_source(server.port), replicator_password)) as conn, conn.cursor() as cursor:
        cursor.execute("SELECT @@time_zone, @@sql_mode, @@autocommit, @@character_set_results")
        assert cursor.fetchone() == ("+00:00", "", 1, "utf8mb4")


@pytest.mark.parametrize("mode", ["disabled", "required"])
def test_a_password_of_any_characters_opens_the_connection(mode, database) -> None:
    user = f"u{database.name}"
    database.execute("CREATE USER %s@'127.0.0.1' IDENTIFIED BY %s", (user, SECRET))
    try:
        with contextlib.closing(connect(_source(database.server.port, user=user, mode=mode), SECRET)) as conn:
            assert conn.open
    finally:
        database.execute("DROP USER %s@'127.0.0.1'", (user,))


def test_a_wrong_password_is_told_with_the_user_and_without_the_password(server) -> None:
    with pytest.raises(TerminalError, match="refused the user 'replicator'") as caught:
        connect(_source(server.port), SECRET)
    assert SECRET not in str(caught.value)
    assert f"127.0.0.1:{server.port}" in str(caught.value)


def test_an_unknown_host_is_told() -> None:
    with pytest.raises(TerminalError, match=r"no-such-host\.invalid:3306"):
        connect(_source(3306, host="no-such-host.invalid"), SECRET)


def test_a_refused_connection_is_terminal_at_first_and_transient_once_the_server_was_reached() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(TerminalError, match=f"127.0.0.1:{port}"):
        connect(_source(port), SECRET)
    with pytest.raises(TransientError):
        open_connection(settings(_source(port), SECRET), proven=True)


def test_a_tls_file_that_is_not_there_is_named() -> None:
    with pytest.raises(TerminalError, match="TLS file") as caught:
        connect(_source(3306, mode="verify_ca", ca="/no/such/ca.pem"), SECRET)
    assert "/no/such/ca.pem" in str(caught.value)


def test_settings_travel_and_do_not_show_the_password() -> None:
    made = settings(_source(3306), SECRET)
    assert SECRET not in repr(made) + str(made) + f"{made}"
    back = pickle.loads(pickle.dumps(made))
    assert (type(back), back["password"]) == (Settings, SECRET)


def test_a_server_without_tls_is_refused_where_tls_is_required(own_server) -> None:
    server = own_server("mariadb", settings={"skip-ssl": ""})
    with pytest.raises(LakewardError, match="no TLS connection"):
        connect(_source(server.port, user="root", mode="required"), "")
