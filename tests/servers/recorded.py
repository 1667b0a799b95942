"""An HTTP proxy in front of a server, which notes who asked for what."""

from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

ITS_OWN = {"connection", "keep-alive", "transfer-encoding", "content-length"}  # of one hop, not of a message


@dataclass
class Recorded:
    """`uri` is what a client is given; `seen` are the requests as (method, path, the Authorization header)."""

    uri: str
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)


@contextlib.contextmanager
def recorded(upstream: str) -> Iterator[Recorded]:
    """A proxy that passes everything on to the server at `upstream`."""
    server_of = urlsplit(upstream).netloc

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _do(self) -> None:
            proxy.seen.append((self.command, urlsplit(self.path).path, self.headers.get("Authorization")))
            body = self._body()
            there = http.client.HTTPConnection(server_of, timeout=60)
            try:
                there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() not in {*ITS_OWN, "expect"}:
                        there.putheader(name, value)
                if body or self.command in ("POST", "PUT"):
                    there.putheader("Content-Length", str(len(body)))
                there.endheaders(body)
                self._pass_on(there.getresponse())
            finally:
                there.close()

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():  # trailers
                pass
            return found

        def _pass_on(self, answer: http.client.HTTPResponse) -> None:
            data = answer.read()
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ITS_OWN:
                    self.send_header(name, value)
            if self.command == "HEAD" and (length := answer.getheader("Content-Length")):
                self.send_header("Content-Length", length)
            elif answer.status != 204:
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = _do

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    proxy = Recorded(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
