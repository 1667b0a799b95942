"""What the fuzzer starts from: events that a real server wrote, of every kind and type that it has."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from golden.loader import cases
from servers.binlog import Log
from servers.running import Database

EVENT_BYTES_MAX = 20_000
_TABLES = [
    "CREATE TABLE f (id INT AUTO_INCREMENT PRIMARY KEY, n DECIMAL(12,3), t VARCHAR(300), b BLOB, at DATETIME(6), "
    "e ENUM('a','b'), s SET('x','y','z'), k BIGINT UNSIGNED, l TEXT CHARACTER SET latin1, g GEOMETRY)",
    "CREATE TABLE w (" + ", ".join(f"c{n} INT" for n in range(20)) + ")",
]
_ROWS = [
    "INSERT INTO f (n, t, b, at, e, s, k, l, g) VALUES (1.5, 'text', x'0001', NOW(6), 'a', 'x,z', 1 << 63, 'é', "
    "ST_GeomFromText('POINT(1 2)')), (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
    "UPDATE f SET t = REPEAT('y', 280), n = -1, s = ''",
    "INSERT INTO w (c0, c19) VALUES (1, 2), (3, 4), (NULL, 5)",
    "DELETE FROM w WHERE c0 = 1",
    "DELETE FROM f WHERE id % 3 = 0",
]
_EACH = {
    "mysql": [
        "SET SESSION binlog_transaction_compression = ON",
        "SET SESSION binlog_transaction_compression = OFF",
        "SET SESSION gtid_next = 'AUTOMATIC:some_tag'",
        "SET SESSION gtid_next = 'AUTOMATIC'",
        "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    ],
    "mariadb": [
        "SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10",
        "SET GLOBAL log_bin_compress = OFF, log_bin_compress_min_len = 256",
        "SET SESSION binlog_row_image = FULL_NODUP",
        "SET SESSION binlog_row_image = FULL",
    ],
}
_JSON = [
    "CREATE TABLE j (id INT PRIMARY KEY, a JSON, n INT, b JSON)",
    'INSERT INTO j VALUES (1, \'{"a": {"b": [1, 2.5, {"c": null}]}, "long": "' + "x" * 200 + "\"}', 1, '[1, \"two\"]')",
    "UPDATE j SET a = JSON_SET(a, '$.a.b[2].c', 'new', '$.z', 7), n = 2",
    "UPDATE j SET a = JSON_REMOVE(a, '$.a.b[0]'), b = JSON_REPLACE(b, '$[1]', NOW(6))",
    "UPDATE j SET b = JSON_ARRAY_APPEND(b, '$', 1)",
]
_OTHER = """
BEGIN; INSERT INTO f (t) VALUES ('1'); SAVEPOINT s; INSERT INTO f (t) VALUES ('2'); ROLLBACK TO s; COMMIT
XA START 'x','y',3; INSERT INTO f (t) VALUES ('xa'); XA END 'x','y',3; XA PREPARE 'x','y',3; XA COMMIT 'x','y',3
XA START 'z'; INSERT INTO f (t) VALUES ('xa'); XA END 'z'; XA COMMIT 'z' ONE PHASE
ALTER TABLE f ADD COLUMN more INT DEFAULT 5; INSERT INTO f (t) VALUES ('é'); TRUNCATE w
CREATE TABLE `odd ``name` (a INT COMMENT 'é'); DROP TABLE `odd ``name`
SET SESSION binlog_format = STATEMENT; CREATE VIEW v AS SELECT 1; SET SESSION binlog_format = ROW
"""


def written(database: Database) -> list[bytes]:
    """The events of a workload, in order; the first is the file's format description."""
    database.execute("FLUSH BINARY LOGS")
    log = Log(database)
    log.start = log.start._replace(at=log.start.at._replace(pos=4))
    with contextlib.closing(database.connection()) as connection, connection.cursor() as cursor:
        for statement in _workload(database.flavour):
            cursor.execute(statement)
    return [raw for raw in map(bytes, log.raw()) if len(raw) <= EVENT_BYTES_MAX]


def _workload(flavour: str) -> Iterator[str]:
    yield from _TABLES
    for _ in range(3):
        yield from _ROWS
    for setting in _EACH[flavour]:
        yield setting
        yield from _ROWS
    for image in ("MINIMAL", "NOBLOB", "FULL"):
        yield f"SET SESSION binlog_row_image = {image}"
        yield from _ROWS
    if flavour == "mysql":
        yield from _JSON
        yield "SET SESSION binlog_transaction_compression = ON"
        yield from _JSON[2:]
        yield "SET SESSION binlog_transaction_compression = OFF"
    for script in _OTHER.split("\n"):
        yield from filter(None, script.split("; "))
    for case in cases(flavour):
        yield from case.statements(case.name.replace("-", "_"), flavour)
