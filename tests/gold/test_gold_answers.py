"""A catalog that does not answer, or says no: what is said of it, with the remedy and without a secret."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gold import iceberg
from gold.answers import unanswered
from lakeward.config import Gold
from lakeward.errors import TerminalError
from lakeward.lake import Lake

SECRET = "hunter2-of-the-catalog"


@contextlib.contextmanager
def answering(status: int, answer: str | None = None) -> Iterator[str]:
    """A server that answers everything with this status and this text; or, as Iceberg's do, with what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = f"what is {self.headers['Authorization']}?"
            body = (answer or json.dumps({"error": {"message": said, "type": "Any", "code": status}})).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def refused(spark, tmp_path, monkeypatch):
    """`refused(catalog="rest", uri=…)`: the error of the first look at that catalog."""
    monkeypatch.setenv("CATALOG_SECRET", SECRET)

    def look(**gold):
        session = iceberg.catalog_session(spark, Lake(str(tmp_path)), Gold(**gold))
        with pytest.raises(TerminalError) as error:
            iceberg.load(session, iceberg.identifier(session, "shop", "trips"))
        assert SECRET not in str(error.value)
        return str(error.value)

    return look


def test_a_rest_catalog_that_is_not_there_or_refuses_is_named_with_the_remedy(refused):
    token = {"token": "env:CATALOG_SECRET"}
    said = refused(catalog="rest", uri="http://127.0.0.1:9", properties=token)
    assert said.startswith("the catalog at http://127.0.0.1:9 cannot be reached: ")
    assert "Connection refused" in said
    assert "to mend it: see [gold] uri, and that it runs there" in said
    said = refused(catalog="rest", uri="http://catalog.invalid", properties=token)
    assert said.startswith("the catalog at http://catalog.invalid cannot be reached: UnknownHostException")
    for status, what in (
        (401, "does not accept the login: NotAuthorized"),
        (403, "refuses what was asked of it: Forbid"),
    ):
        with answering(status) as uri:
            said = refused(catalog="rest", uri=uri, properties=token)
        assert said.startswith(f"the catalog at {uri} {what}")
        assert "what is Bearer …?" in said
        assert "to mend it: see the token or credential in [gold] properties" in said


def test_what_a_rest_server_says_in_lines_of_its_own_is_shown(refused):
    page = '{\n"message":"java.lang.NoClassDefFoundError: dev/failsafe",\n"status":"500"\n}\n'
    with answering(400, page) as uri:
        said = refused(catalog="rest", uri=uri, properties={"token": "env:CATALOG_SECRET"})
    assert said.startswith(f"the catalog at {uri} fails: ")
    assert "NoClassDefFoundError: dev/failsafe" in said


def test_a_database_that_no_driver_opens_is_named_without_its_parameters(refused):
    uri = f"jdbc:nosuch://db:5432/catalog?password={SECRET}"
    said = refused(catalog="jdbc", uri=uri, properties={"jdbc.password": "env:CATALOG_SECRET"})
    assert said.startswith("the catalog at jdbc:nosuch://db:5432/catalog cannot be opened: ")
    assert "the driver in [gold] jars" in said


def test_what_is_not_the_catalogs_is_left_as_it_is(spark):
    own = {"spark.sql.catalog.gold.type": "rest", "spark.sql.catalog.gold.uri": "http://127.0.0.1:9"}
    assert unanswered(ValueError("connection refused"), own) is None
    with pytest.raises(Exception, match="no_such") as error:
        spark.sql("SELECT * FROM no_such")
    assert unanswered(error.value, own) is None
