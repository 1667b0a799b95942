"""The source goes away in the middle of a run: the run waits, goes on where it was, and gives up in the end."""

from __future__ import annotations

import itertools
import threading
from unittest import mock

import pytest
from servers.sparkless import Sparkless, run_tasks

from bronze import outage
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import ConnectionLostError

FLAVOURS = ["mysql", "mariadb"]
ROWS = 400


@pytest.fixture
def source(request, own_server, tmp_path):
    """A server with a table, and a lake that has its snapshot; batches of a few transactions."""
    server = own_server(request.param)
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE shop")
        cursor.execute("CREATE TABLE shop.t (id INT PRIMARY KEY, v VARCHAR(100))")
        lake = Sparkless(tmp_path, ensure_replicator(server, [EVERY_SCHEMA]), ["shop.*"], max_batch_bytes=20_000)
        lake.run(url_of(server))
        for n in range(ROWS):
            cursor.execute("INSERT INTO shop.t VALUES (%s, REPEAT('x', 100))", (n,))
    return server, lake


def after_batches(count, act):
    """Bronze's tasks, and `act` before the one after `count` of them."""
    done = []

    def tasks(*arguments):
        done.append(1)
        if len(done) == count + 1:
            act()
        return run_tasks(*arguments)

    return mock.patch("servers.sparkless.run_tasks", tasks)


@pytest.mark.parametrize("source", FLAVOURS, indirect=True)
def test_a_server_that_restarts_in_mid_stream_is_waited_for_and_nothing_is_lost_or_doubled(source, capfd) -> None:
    server, lake = source

    def crash() -> None:
        server.kill()
        threading.Timer(1.5, server.start).start()

    with after_batches(2, crash):
        report = lake.run(url_of(server))
    assert [e["after"]["id"] for e in lake.events("shop.t")] == list(range(ROWS))
    assert report.events == {"shop.t": ROWS}
    said = capfd.readouterr().err
    assert "trying again in 1 s (1 of 6)" in said


@pytest.mark.parametrize("source", FLAVOURS, indirect=True)
def test_a_server_that_stays_away_ends_the_run_after_bounded_growing_pauses(source, capfd) -> None:
    server, lake = source
    pauses: list[float] = []
    with (
        after_batches(2, server.kill),
        mock.patch("bronze.outage.sleep", pauses.append),
        pytest.raises(ConnectionLostError) as lost,
    ):
        lake.run(url_of(server))
    assert pauses == list(outage.PAUSES_S)
    assert lost.value.exit_code == 1
    assert "see whether the source runs" in str(lost.value)
    assert capfd.readouterr().err.count("trying again") == len(pauses)
    read = len(lake.events("shop.t"))
    assert 0 < read < ROWS
    server.start()
    lake.run(url_of(server))
    assert [e["after"]["id"] for e in lake.events("shop.t")] == list(range(ROWS))


@pytest.mark.parametrize("source", FLAVOURS, indirect=True)
def test_a_connection_that_is_cut_is_opened_again(source) -> None:
    server, lake = source

    def cut() -> None:
        with server.admin() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE user = 'replicator'")
            for (session,) in cursor.fetchall():
                cursor.execute(f"KILL {int(session)}")

    with after_batches(2, cut):
        lake.run(url_of(server))
    assert [e["after"]["id"] for e in lake.events("shop.t")] == list(range(ROWS))


@pytest.mark.parametrize("source", ["mariadb"], indirect=True)
def test_progress_ends_a_row_of_failures(source) -> None:
    server, lake = source
    pauses: list[float] = []
    calls = itertools.count(1)

    def tasks(*arguments):
        if next(calls) % 2 == 0:
            raise ConnectionLostError("cut by the test")
        return run_tasks(*arguments)

    with mock.patch("servers.sparkless.run_tasks", tasks), mock.patch("bronze.outage.sleep", pauses.append):
        lake.run(url_of(server))
    assert set(pauses) == {outage.PAUSES_S[0]}
    assert len(pauses) > len(outage.PAUSES_S)
    assert [e["after"]["id"] for e in lake.events("shop.t")] == list(range(ROWS))
