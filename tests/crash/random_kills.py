"""A source that never stops changing, its shape too, and a pipeline that is killed again and again at any moment.

Run by hand: LAKEWARD_KILLS=100 python -m pytest -n 0 -s tests/crash/random_kills.py

LAKEWARD_KILLS is how many times a server's pipeline is killed (3). On the way the source is restarted once, and
once the lake's disk is full: where this process may mount a file system, the lake has a small one of its own. At the
end silver equals the source, and bronze holds each event once.
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymysql
import pytest
from servers.running import Database

KILLS = int(os.environ.get("LAKEWARD_KILLS", "3"))
DISK = "1g" if KILLS > 20 else "300m"
pytestmark = [
    pytest.mark.timeout(600 + 120 * KILLS),
    # PyMySQL leaves the socket of a connection that a restart cuts off in its handshake to the collector.
    pytest.mark.filterwarnings("ignore:unclosed.*socket:ResourceWarning"),
]


class Traffic:
    """Changes of rows and of shapes, without end, in a thread; over a restart of the server too."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database, self.random = database, random.Random(seed)
        self.transactions = self.alters = 0
        self._stop = threading.Event()
        self._columns: list[str] = []
        self._made = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(pymysql.Error, OSError):  # the server is being restarted
                connection = self.database.connection()
                with contextlib.closing(connection), connection.cursor() as cursor:
                    while not self._stop.is_set():
                        self._transaction(cursor)
                        if self.transactions % 150 == 149:
                            self._alter(cursor)
                        time.sleep(0.02)
            time.sleep(0.2)

    def _transaction(self, cursor: Any) -> None:
        r = self.random
        self.transactions += 1
        a, b, amount = r.randint(1, 300), r.randint(1, 300), r.randint(1, 50)
        cursor.execute("BEGIN")
        cursor.execute("UPDATE accounts SET amount = amount - %s WHERE id = %s", (amount, a))
        cursor.execute("UPDATE accounts SET amount = amount + %s WHERE id = %s", (amount, b))
        cursor.execute("INSERT INTO moves (source, target, amount) VALUES (%s, %s, %s)", (a, b, amount))
        cursor.execute("INSERT INTO log VALUES ('move')")
        cursor.execute("COMMIT" if r.random() < 0.95 else "ROLLBACK")
        if r.random() < 0.1:
            cursor.execute("DELETE FROM log LIMIT 2")
            cursor.execute("DELETE FROM moves WHERE id < %s", (self.transactions // 2,))

    def _alter(self, cursor: Any) -> None:
        self.alters += 1
        what = self.random.choice(["add", "default", "drop", "modify", "rename", "swap", "truncate", "table"])
        if what in ("add", "default"):
            self._made += 1
            self._columns.append(f"extra{self._made}")
            kind = "INT" if what == "add" else "VARCHAR(9) NOT NULL DEFAULT 'old'"
            cursor.execute(f"ALTER TABLE accounts ADD COLUMN extra{self._made} {kind}")
        elif what == "drop" and self._columns:
            cursor.execute(f"ALTER TABLE accounts DROP COLUMN {self._columns.pop()}")
        elif what == "modify":
            cursor.execute(f"ALTER TABLE moves MODIFY amount DECIMAL({self.random.randint(12, 20)},2)")
        elif what == "rename":
            cursor.execute("ALTER TABLE log RENAME COLUMN what TO said")
            cursor.execute("ALTER TABLE log RENAME COLUMN said TO what")
        elif what == "swap":
            cursor.execute("CREATE TABLE accounts_new LIKE accounts")
            cursor.execute("INSERT INTO accounts_new SELECT * FROM accounts")
            cursor.execute("RENAME TABLE accounts TO accounts_old, accounts_new TO accounts")
            cursor.execute("DROP TABLE accounts_old")
        elif what == "truncate":
            cursor.execute("TRUNCATE TABLE moves")
        elif what == "table":
            self._made += 1
            cursor.execute(f"CREATE TABLE made{self._made} (id INT PRIMARY KEY) AS SELECT id FROM accounts LIMIT 50")


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[bool]:
    """Whether `folder` has a file system of its own, of DISK bytes."""
    folder.mkdir()
    mounted = False
    if os.geteuid() == 0 and shutil.which("mount"):
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "lakeward-test", str(folder)]
        mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(folder)], check=True)


def _fill(folder: Path, left: int) -> Path:
    """A file that leaves `left` bytes of the folder's disk."""
    ballast = folder / "ballast"
    with ballast.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, shutil.disk_usage(folder).free - left)
    return ballast


@pytest.mark.parametrize("flavour", ["mysql", "mariadb"])
def test_killed_at_random_moments_under_live_traffic_the_lake_ends_equal(
    flavour: str, request: pytest.FixtureRequest, own_server: Any, spark: Any, doubled: Any, tmp_path: Path
) -> None:
    from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator

    if flavour not in os.environ.get("LAKEWARD_TEST_SERVERS", "mysql,mariadb"):
        pytest.skip("this server was not asked for")
    server = own_server(flavour)
    r = random.Random(7)
    killed = 0
    with contextlib.ExitStack() as stack:
        mounted = stack.enter_context(_small_disk(tmp_path / "disk"))
        database = stack.enter_context(Database.create(server, "live"))
        command = request.getfixturevalue("command_of")(
            tmp_path / "disk", database, ensure_replicator(server, [EVERY_SCHEMA])
        )
        database.execute("CREATE TABLE accounts (id INT PRIMARY KEY, amount DECIMAL(12,2))")
        database.execute(
            "CREATE TABLE moves (id INT AUTO_INCREMENT PRIMARY KEY, source INT, target INT, amount DECIMAL(12,2))"
        )
        database.execute("CREATE TABLE log (what VARCHAR(10))")
        database.executemany("INSERT INTO accounts VALUES (%s, 1000)", [(i,) for i in range(1, 301)])
        with Traffic(database, 7) as traffic:
            longest_s, round_ = 0.0, 0
            while killed < KILLS and round_ < 3 * KILLS + 5:
                ballast = restart = None
                if round_ == 1:
                    restart = threading.Timer(r.uniform(0.1, 0.6) * longest_s, server.restart)
                    restart.start()
                if round_ == 2 and mounted:
                    ballast = _fill(tmp_path / "disk", left=1 << 16)
                began = time.monotonic()
                # The first run is left alone, so that it is known how long one takes.
                code, _, err = command("run", kill_after_s=r.uniform(0.1, 1.1) * longest_s if round_ else None)
                longest_s = time.monotonic() - began if code == 0 else longest_s
                if ballast is not None:
                    ballast.unlink()
                if restart is not None:  # a run that begins while there is no server says so and ends
                    restart.join()
                assert code in ((-9, 1) if ballast else (-9, 0)), err
                killed += code == -9
                round_ += 1
                print(f"{flavour} run {round_}: {code}; {killed} kills, {traffic.alters} schema changes", flush=True)
        proof = command.json("verify")
        assert proof["equal"], proof
        assert doubled(spark, command) == []
        assert command.json("verify")["equal"]
    assert killed == KILLS
    gc.collect()
