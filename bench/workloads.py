"""What is written into the binlog: five kinds of load on tables of a schema `bench`, made by the server itself.

Of ten transactions six insert, three update and one deletes, so a log of N changes holds about 1.3 N row images.
Values are a function of the row's number: the same load is the same bytes on every run, but for times and GTIDs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakeward.embedded.server import EmbeddedServer

SCHEMA = "bench"
CYCLE = "iiiuiiuiud"  # insert, update, delete: one letter a transaction
ROWS = 1000  # of a large transaction

_MIXED = {
    "id": ("INT NOT NULL", "{i}"),
    "customer": ("INT UNSIGNED NOT NULL", "{i} * 2654435761 % 4294967296"),
    "views": ("BIGINT UNSIGNED", "IF({i} % 11 = 0, NULL, {i} * 1000003)"),
    "stock": ("SMALLINT NOT NULL", "{i} % 60000 - 30000"),
    "price": ("DECIMAL(12,2) NOT NULL", "{i} % 1000000 / 7"),
    "state": ("ENUM('new','paid','sent','back') NOT NULL", "1 + {i} % 4"),
    "name": ("VARCHAR(80) NOT NULL", "CONCAT('customer nummer ', {i}, ' Łódź')"),
    "created": ("DATETIME(6) NOT NULL", "'2024-02-29 12:34:56.789012' + INTERVAL {i} MINUTE"),
    "updated": ("TIMESTAMP(3) NOT NULL", "FROM_UNIXTIME(1700000000 + {i} / 1000)"),
    "doc": ("JSON NOT NULL", "JSON_OBJECT('n', {i}, 'tags', JSON_ARRAY('a', 'b'), 'ok', {i} % 2 = 0)"),
}
_WIDE = {
    "id": ("INT NOT NULL", "{i}"),
    **{f"c{n:02d}": list(_MIXED.values())[1 + n % 8] for n in range(99)},
}
_LINE = "JSON_OBJECT('sku', CONCAT('sku-', {i} + %d), 'count', {i} %% 7 + %d, 'net', {i} %% 997 / 4, 'gift', NULL)"
_JSON = {
    "id": ("INT NOT NULL", "{i}"),
    "doc": (
        "JSON NOT NULL",
        "JSON_OBJECT('order', {i}, 'customer', JSON_OBJECT('name', CONCAT('nummer ', {i}), 'city', 'Łódź', 'vip', "
        f"{{i}} % 3 = 0), 'lines', JSON_ARRAY({', '.join(_LINE % (n, n) for n in range(5))}))",
    ),
    "labels": ("JSON NOT NULL", "JSON_ARRAY({i}, -{i}, 'x', TRUE, {i} / 4, JSON_ARRAY('é', ''))"),
}


@dataclass(frozen=True)
class Workload:
    """One kind of load. `rows` is the size of a transaction."""

    key: str
    title: str
    columns: dict[str, tuple[str, str]]  # name: (definition, value of the row {i})
    changed: str  # what an UPDATE sets
    rows: int = ROWS
    compressed: bool = False

    @property
    def table(self) -> str:
        return f"load_{self.key}"

    def ddl(self) -> str:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in self.columns.items())
        return f"CREATE TABLE {SCHEMA}.{self.table} ({columns}, PRIMARY KEY (id))"

    def values(self, i: str) -> str:
        return ", ".join(value.replace("{i}", i) for _, value in self.columns.values())


_CHANGE = "price = price + 1, state = 3, doc = JSON_SET(doc, '$.seen', id)"
WORKLOADS = {
    w.key: w
    for w in (
        Workload("a", "transactions of 1,000 rows", _MIXED, _CHANGE),
        Workload("b", "transactions of one row", _MIXED, _CHANGE, rows=1),
        Workload("c", "100 columns", _WIDE, "c03 = c03 + 1, c04 = 2", rows=ROWS),
        Workload("d", "JSON-heavy", _JSON, "doc = JSON_SET(doc, '$.customer.seen', id)"),
        Workload("e", "compressed transactions", _MIXED, _CHANGE, compressed=True),
    )
}


def prepare(server: EmbeddedServer, workloads: list[Workload]) -> None:
    """The schema and the empty tables; `bench_tools.n` has the numbers from 0 to 999."""
    with server.admin() as connection, connection.cursor() as cursor:
        for schema in (SCHEMA, "bench_tools"):
            cursor.execute(f"DROP DATABASE IF EXISTS {schema}")
            cursor.execute(f"CREATE DATABASE {schema} CHARACTER SET utf8mb4")
        cursor.execute("CREATE TABLE bench_tools.n (i INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO bench_tools.n VALUES {', '.join(f'({n})' for n in range(ROWS))}")
        for workload in workloads:
            cursor.execute(workload.ddl())
            cursor.execute(_procedure(workload))


def write(server: EmbeddedServer, workload: Workload, changes: int, *, first: int = 0, files: int = 1) -> int:
    """Write about `changes` row changes, spread evenly over `files` binlog files. Returns the number written.

    `first` is the first row's number: a second call on the same table begins where the first one ended.
    """
    cycles = max(1, round(changes / len(CYCLE) / workload.rows))
    with server.admin(SCHEMA) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_transaction_compression = {'ON' if workload.compressed else 'OFF'}")
        for part in range(files):
            low, high = (cycles * p // files for p in (part, part + 1))
            if part:
                cursor.execute("FLUSH BINARY LOGS")
            if workload.rows == 1:
                cursor.execute(f"CALL bench_tools.{workload.table}(%s, %s)", (first + low * 6, high - low))
                continue
            for statement in _statements(workload, first, low, high):
                cursor.execute(statement)
    return cycles * len(CYCLE) * workload.rows


def fill(server: EmbeddedServer, workload: Workload, rows: int) -> None:
    """Insert the rows 0 to `rows`, in transactions of `workload.rows`."""
    with server.admin(SCHEMA) as connection, connection.cursor() as cursor:
        for at in range(0, rows, workload.rows):
            wanted = min(workload.rows, rows - at)
            cursor.execute(
                f"INSERT INTO {workload.table} SELECT {workload.values(f'({at} + i)')} FROM bench_tools.n "
                f"WHERE i < {wanted} ORDER BY i"
            )


def inserted(workload: Workload, changes: int) -> int:
    """How many rows `write` of that many changes inserts."""
    return changes // len(CYCLE) * CYCLE.count("i")


def _statements(w: Workload, first: int, low: int, high: int) -> Iterator[str]:
    """Each a transaction of `w.rows` rows."""
    for cycle in range(low, high):
        begin = first + cycle * CYCLE.count("i") * w.rows
        made = 0
        for letter in CYCLE:
            if letter == "i":
                at = begin + made * w.rows
                yield f"INSERT INTO {w.table} SELECT {w.values(f'({at} + i)')} FROM bench_tools.n ORDER BY i"
                made += 1
                continue
            at = begin + (made - 1) * w.rows
            where = f"id BETWEEN {at} AND {at + w.rows - 1}"
            yield (
                f"UPDATE {w.table} SET {w.changed} WHERE {where}"
                if letter == "u"
                else (f"DELETE FROM {w.table} WHERE {where}")
            )


def _procedure(w: Workload) -> str:
    """The same cycles with one row a transaction, in the server: a client would take longer than it writes."""
    body = []
    made = 0
    for letter in CYCLE:
        if letter == "i":
            body.append(f"INSERT INTO {SCHEMA}.{w.table} VALUES ({w.values(f'(at + {made})')});")
            made += 1
        elif letter == "u":
            body.append(f"UPDATE {SCHEMA}.{w.table} SET {w.changed} WHERE id = at + {made - 1};")
        else:
            body.append(f"DELETE FROM {SCHEMA}.{w.table} WHERE id = at + {made - 1};")
    return (
        f"CREATE PROCEDURE bench_tools.{w.table}(at INT, cycles INT) BEGIN WHILE cycles > 0 DO {' '.join(body)} "
        f"SET at = at + {CYCLE.count('i')}, cycles = cycles - 1; END WHILE; END"
    )


@dataclass(frozen=True)
class Start:
    """The beginning of a binlog file, and the GTIDs before it."""

    file: str
    gtids: str


def new_file(server: EmbeddedServer) -> Start:
    """Begin a binlog file."""
    with server.admin() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SELECT @@GLOBAL.gtid_executed")
        ((gtids,),) = cursor.fetchall()
        cursor.execute("SHOW BINARY LOGS")
        return Start(cursor.fetchall()[-1][0], "".join(gtids.split()))
