"""A statement may take as long as it takes; a server that says nothing is an error, and soon.

The server here speaks as much of Snowflake's protocol as a statement needs: it answers that the statement is still
running, until it is done or has been cancelled.
"""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lakeward.config import parse
from lakeward.errors import TransientError
from snowflake.lakehouse import connection

RUNNING = {"success": True, "code": "333333", "data": {"getResultUrl": "/queries/q/result", "queryId": "q"}}
CANCELLED = {"success": False, "code": "000604", "message": "SQL execution canceled", "data": {"queryId": "q"}}
DONE = {
    "success": True,
    "code": None,
    "data": {"queryId": "q", "rowtype": [], "rowset": [], "total": 0, "queryResultFormat": "json"},
}
LOGIN = {
    "success": True,
    "data": {"token": "t", "masterToken": "m", "sessionId": 1, "parameters": [], "sessionInfo": {}},
}


class Server(ThreadingHTTPServer):
    """Each statement ends after `seconds`, and `silent` says nothing more once somebody is logged in."""

    daemon_threads = True
    seconds = 0.0
    silent = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.over = threading.Event()
        self.cancelled = False
        self.began = 0.0


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        answer: dict[str, Any] = {"success": True}
        if "login-request" in self.path:
            answer = LOGIN
        elif self.server.silent:
            self.server.over.wait()
            return
        elif "abort-request" in self.path:
            self.server.cancelled = True
        elif "query-request" in self.path:
            assert b"MERGE" in gzip.decompress(body)
            self.server.began = time.monotonic()
            answer = RUNNING
        self._answer(answer)

    def do_GET(self) -> None:
        time.sleep(0.2)
        done = time.monotonic() - self.server.began > self.server.seconds
        self._answer(CANCELLED if self.server.cancelled else DONE if done else RUNNING)

    def _answer(self, doc: dict[str, Any]) -> None:
        body = json.dumps(doc).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.over.set()
        made.shutdown()


@pytest.fixture
def session(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[connection.Session]:
    monkeypatch.setenv("PASSWORD_OF_TEST", "snow")
    monkeypatch.setattr(connection, "NETWORK_SECONDS_MAX", 1)
    monkeypatch.setattr(connection, "SOCKET_SECONDS_MAX", 1)
    place = {"host": "127.0.0.1", "port": server.server_address[1], "protocol": "http"}
    login = {"account": "a", "user": "u", "password": "env:PASSWORD_OF_TEST"}
    made = connection.connect(parse({"snowflake": {**login, **place}}).snowflake)
    yield made
    server.silent = False
    made.close()


def test_a_statement_may_take_longer_than_a_request(session, server):
    server.seconds = 3.0
    session.run("MERGE INTO t USING s ON 1 = 1")
    assert not server.cancelled
    assert time.monotonic() - server.began > 3.0


def test_a_server_that_says_nothing_is_an_error_soon(session, server):
    server.silent = True
    began = time.monotonic()
    with pytest.raises(TransientError, match="MERGE INTO t"):
        session.run("MERGE INTO t USING s ON 1 = 1")
    assert time.monotonic() - began < 20
