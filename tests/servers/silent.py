"""A way to a server that can fall silent: the sockets stay open and nothing comes any more."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Callable, Iterator


class SilentProxy:
    """Hands everything on between its clients and a server's port, until it has `left` bytes of the server's no more.

    From then on it still accepts connections and reads what clients say, and answers nothing; `speak` ends that.
    """

    def __init__(self, port: int) -> None:
        self.left: float = float("inf")
        self.when_silent: Callable[[], object] = lambda: None  # called as it falls silent
        self.silent_connections = 0  # that were opened since it fell silent
        self._port = port
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def speak(self) -> None:
        """For connections that are opened from now on; those that it left without an answer are cut."""
        with self._lock:
            self.left = float("inf")
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.speak()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._hand_on, args=(client,), daemon=True).start()

    def _hand_on(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._port)) as server:
            with self._lock:
                self._open |= {client, server}
                self.silent_connections += self.left <= 0
            try:
                self._pump(client, server)
            except OSError:
                return
            finally:
                with self._lock:
                    self._open -= {client, server}

    def _pump(self, client: socket.socket, server: socket.socket) -> None:
        while True:
            listening = [client] if self.left <= 0 else [client, server]
            for end in select.select(listening, [], [], 0.05)[0]:
                data = end.recv(16 << 10)
                if not data:
                    return
                if end is client:
                    server.sendall(data)
                    continue
                with self._lock:
                    data = data[: int(min(len(data), max(self.left, 0)))]
                    self.left -= len(data)
                    silent = self.left <= 0 < len(data)
                if silent:
                    self.when_silent()
                client.sendall(data)


@contextlib.contextmanager
def silent_proxy(port: int) -> Iterator[SilentProxy]:
    """A proxy to `port` of this machine, that speaks."""
    proxy = SilentProxy(port)
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join()
