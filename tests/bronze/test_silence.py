"""A server that stops answering with its sockets open: every wait for it ends, and what is read stays exact."""

from __future__ import annotations

import contextlib
import time
from unittest import mock

import pytest
from servers.silent import silent_proxy
from servers.sparkless import Sparkless

from bronze.source import connection
from bronze.source.connection import connect
from bronze.source.preflight import check
from lakeward.config import parse
from lakeward.errors import ConnectionLostError

ROWS = 300
PATIENCE_S = 5.0  # for a byte on a connection that has worked: a busy machine may take seconds
HANDSHAKE_S = 0.5  # for a connection to a server that is known to be silent
PAUSES_S = (1.0, 2.0)


@pytest.fixture
def way(server):
    """The way to the server. Once it is silent, new connections are given up soon: they cannot succeed."""
    with silent_proxy(server.port) as proxy, contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch("bronze.source.connection.READ_TIMEOUT_S", PATIENCE_S))
        stack.enter_context(mock.patch("bronze.binlog.wire.SILENT_S", PATIENCE_S))
        stack.enter_context(mock.patch("bronze.binlog.wire._SEVERAL_HEARTBEATS", 0))
        stack.enter_context(mock.patch("bronze.outage.PAUSES_S", PAUSES_S))
        stack.enter_context(mock.patch("bronze.source.connection.CONNECT_TIMEOUT_S", 20))
        proxy.when_silent = lambda: handshakes_take(HANDSHAKE_S)
        yield proxy


def handshakes_take(seconds: float) -> None:
    connection.CONNECT_TIMEOUT_S = seconds


def speak(way) -> None:
    handshakes_take(20)
    way.speak()


@pytest.fixture
def pauses():
    """Those between tries, noted and not waited for."""
    found: list[float] = []
    with mock.patch("bronze.outage.sleep", found.append):
        yield found


@pytest.fixture
def lake(database, replicator_password, tmp_path):
    """A lake of a table that is empty yet."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(1000))")
    return Sparkless(tmp_path, replicator_password, [f"{database.name}.*"], tls={"mode": "disabled"})


def url(proxy) -> str:
    return f"mysql://replicator@127.0.0.1:{proxy.port}"


def ids(lake, database) -> list[int]:
    return sorted(e["after"]["id"] for e in lake.events(f"{database.name}.t"))


def insert(database) -> None:
    """ROWS transactions of about 1,200 bytes of binlog."""
    for n in range(ROWS):
        database.execute("INSERT INTO t VALUES (%s, REPEAT('x', 1000))", (n,))


def test_a_server_that_falls_silent_in_mid_stream_is_given_up_in_bounded_time_and_loses_nothing(
    lake, way, database, pauses, capfd
) -> None:
    lake.run(url(way))
    insert(database)
    way.left = 200_000
    began = time.monotonic()
    with pytest.raises(ConnectionLostError) as lost:
        lake.run(url(way))
    assert time.monotonic() - began < 60
    assert pauses == list(PAUSES_S)
    assert way.silent_connections >= len(PAUSES_S)
    assert f"127.0.0.1:{way.port} fell silent while its binlog was read" in capfd.readouterr().err
    said = str(lost.value)
    assert f"127.0.0.1:{way.port} does not answer" in said
    assert "see whether the source runs and can be reached" in said
    assert ids(lake, database) == []
    speak(way)
    lake.run(url(way))
    assert ids(lake, database) == list(range(ROWS))


def test_a_stream_that_fell_silent_goes_on_on_a_new_connection(lake, way, database) -> None:
    lake.source["tls"] = {"mode": "required"}
    lake.run(url(way))
    insert(database)
    way.left = 200_000
    with mock.patch("bronze.outage.sleep", side_effect=lambda _: speak(way)):
        report = lake.run(url(way))
    assert ids(lake, database) == list(range(ROWS))
    assert report.events == {f"{database.name}.t": ROWS}


def test_a_snapshot_that_falls_silent_is_given_up_in_bounded_time_and_goes_on(lake, way, database, pauses) -> None:
    insert(database)
    way.left = 150_000
    with pytest.raises(ConnectionLostError, match="does not answer") as lost:
        lake.run(url(way))
    assert "see whether the source runs" in str(lost.value)
    assert pauses == list(PAUSES_S)
    speak(way)
    lake.run(url(way))
    assert ids(lake, database) == list(range(ROWS))


@pytest.mark.parametrize("left", [0, 50, 200])
def test_a_server_that_accepts_and_never_answers_is_told_with_its_address(
    left, way, server, replicator_password
) -> None:
    way.left = left  # none of the greeting, a part of it, or a part of what follows
    handshakes_take(HANDSHAKE_S)
    source = parse({"source": {"url": url(way)}}).source
    began = time.monotonic()
    with pytest.raises(ConnectionLostError) as lost:
        connect(source, replicator_password)
    assert time.monotonic() - began < PATIENCE_S  # that of a query is for one whose server was heard
    assert f"127.0.0.1:{way.port} does not answer" in str(lost.value)


def test_a_preflight_that_falls_silent_is_given_up(way, database, replicator_password) -> None:
    config = parse({"source": {"url": url(way), "include": [f"{database.name}.*"]}})
    with contextlib.closing(connect(config.source, replicator_password)) as opened:
        way.left = 3_000
        with pytest.raises(ConnectionLostError, match="timed out"):
            check(opened, config)
