"""An Iceberg REST catalog over HTTP: Iceberg's own server-side handlers, in the JVM that Spark runs in.

Iceberg publishes no server. It does publish what a server calls (`org.apache.iceberg.rest.CatalogHandlers`, its JSON
readers and writers), and a catalog to keep tables in; here they answer behind Python's HTTP server. Spark's REST
client, which is under test, sees the protocol and nothing else.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

STATUS = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "NoSuchViewException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
    "ValidationException": 400,
    "IllegalArgumentException": 400,
    "ForbiddenException": 403,
}


class RestCatalog:
    """`uri` is what a client is given; `seen` lists the requests as (method, path) and `tokens` their bearers."""

    def __init__(self, spark: SparkSession, warehouse: str) -> None:
        jvm: Any = spark._jvm
        self.jvm = jvm
        self.gateway: Any = spark.sparkContext._gateway
        self.seen: list[tuple[str, str]] = []
        self.tokens: set[str | None] = set()
        jackson = jvm.org.apache.iceberg.shaded.com.fasterxml.jackson
        self.mapper = jackson.databind.ObjectMapper()
        any_visibility = getattr(jackson.annotation, "JsonAutoDetect$Visibility").ANY
        self.mapper.setVisibility(jackson.annotation.PropertyAccessor.FIELD, any_visibility)
        self.mapper.configure(jackson.databind.DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, False)
        naming = getattr(jackson.databind, "PropertyNamingStrategies$KebabCaseStrategy")()
        self.mapper.setPropertyNamingStrategy(naming)
        jvm.org.apache.iceberg.rest.RESTSerializers.registerAll(self.mapper)
        context: Any = spark.sparkContext._jsc
        self.catalog = jvm.org.apache.iceberg.hadoop.HadoopCatalog(context.hadoopConfiguration(), warehouse)
        self.handlers = jvm.org.apache.iceberg.rest.CatalogHandlers

    def answer(self, method: str, path: str, body: str) -> str | None:
        """The response's JSON; None for an empty one."""
        parts = [unquote(p) for p in path.strip("/").split("/")]
        assert parts.pop(0) == "v1", path
        if parts == ["config"]:
            return '{"defaults": {}, "overrides": {}}'
        if parts == ["namespaces"]:
            body = json.dumps({**json.loads(body), "properties": {}})  # a folder has none
            return self._json(self.handlers.createNamespace(self.catalog, self._read(body, "CreateNamespaceRequest")))
        space = self._namespace(parts[1])
        if len(parts) == 2:
            if method == "HEAD":
                self.handlers.namespaceExists(self.catalog, space)
                return None
            return self._json(self.handlers.loadNamespace(self.catalog, space))
        if len(parts) == 3:
            assert (method, parts[2]) == ("POST", "tables"), (method, path)
            request = self._read(body, "CreateTableRequest")
            staged = self.handlers.stageTableCreate if request.stageCreate() else self.handlers.createTable
            return self._json(staged(self.catalog, space, request))
        if parts[2] == "views":
            raise KeyError(path)
        table = self.jvm.org.apache.iceberg.catalog.TableIdentifier.of(space, parts[3])
        if len(parts) == 5:
            return None  # metrics
        if method == "HEAD":
            self.handlers.tableExists(self.catalog, table)
            return None
        if method == "GET":
            mode = getattr(self.jvm.org.apache.iceberg.rest, "RESTCatalogProperties$SnapshotMode").ALL
            return self._json(self.handlers.loadTable(self.catalog, table, mode))
        request = self._read(body, "UpdateTableRequest")
        return self._json(self.handlers.updateTable(self.catalog, table, request))

    def _namespace(self, encoded: str) -> Any:
        levels = encoded.split("\x1f")
        array = self.gateway.new_array(self.jvm.java.lang.String, len(levels))
        for i, level in enumerate(levels):
            array[i] = level
        return self.jvm.org.apache.iceberg.catalog.Namespace.of(array)

    def _read(self, body: str, kind: str) -> Any:
        return self.mapper.readValue(body, self.jvm.java.lang.Class.forName(f"org.apache.iceberg.rest.requests.{kind}"))

    def _json(self, response: Any) -> str:
        return str(self.mapper.writeValueAsString(response))


@contextlib.contextmanager
def rest_catalog(spark: SparkSession, warehouse: str) -> Iterator[tuple[RestCatalog, str]]:
    """A running catalog that keeps its tables under `warehouse`, and its URI."""
    catalog = RestCatalog(spark, warehouse)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            path = urlsplit(self.path).path
            catalog.seen.append((self.command, path))
            catalog.tokens.add(self.headers.get("Authorization"))
            try:
                text = catalog.answer(self.command, path, body)
                self._send(200 if text is not None else 204, text or "")
            except Py4JJavaError as error:
                kind = error.java_exception.getClass().getSimpleName()
                self._fail(STATUS.get(kind, 500), kind, error.java_exception.getMessage())
            except (AssertionError, KeyError) as error:
                self._fail(404, "NoSuchViewException", str(error))

        def _fail(self, code: int, kind: str, message: str) -> None:
            self._send(code, json.dumps({"error": {"message": message, "type": kind, "code": code}}))

        def _send(self, code: int, text: str) -> None:
            data = text.encode() if self.command != "HEAD" else b""
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_HEAD = do_DELETE = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield catalog, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
