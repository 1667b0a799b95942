"""Writers that keep a server busy while a test reads it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pymysql
from pymysql.connections import Connection


@contextlib.contextmanager
def load(
    connect: Callable[[], Connection],
    transaction: Callable[[Any, int, int], None],
    *,
    writers: int,
    pause_s: float,
    dies: bool = False,
) -> Iterator[None]:
    """`transaction(cursor, w, n)` with n = 1, 2, … in each of the threads w = 0, 1, …, committed, until the end.

    With `dies` a thread ends with its connection, since the server will be killed.
    """
    over = threading.Event()
    expected = (pymysql.Error, OSError) if dies else ()

    def write(w: int) -> None:
        with contextlib.suppress(*expected), contextlib.closing(connect()) as connection, connection.cursor() as cursor:
            n = 0
            while not over.is_set():
                n += 1
                cursor.execute("BEGIN")
                transaction(cursor, w, n)
                cursor.execute("COMMIT")
                time.sleep(pause_s)

    threads = [threading.Thread(target=write, args=(w,)) for w in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
