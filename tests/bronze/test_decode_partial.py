"""Updates logged by part of a JSON value (PARTIAL_JSON), on the real server, and by hand."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from servers.binlog import Log
from servers.running import Database

from bronze.binlog.columns import WireColumn
from bronze.binlog.items import Presence
from bronze.decode.json_binary import to_text
from bronze.decode.json_diff import patched
from bronze.decode.rows import DecodedRows, decode_rows
from lakeward.embedded.server import EmbeddedServer
from lakeward.errors import FailClosedError
from lakeward.schema import Column

DEEP = (
    '{"a": {"b": [1, 2.5, {"c": null, "d": "x"}], "quo\\"te": 1, "with space": {"é.[": [true]}}, "n": 70000, "z": []}'
)


@pytest.fixture
def log(mysql_server: EmbeddedServer) -> Iterator[Log]:
    with Database.create(mysql_server, "partial_json") as database:
        database.execute("CREATE TABLE p (id INT PRIMARY KEY, a JSON, n VARCHAR(20), b JSON, c JSON NOT NULL)")
        database.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
        yield Log(database)


def decoded(log: Log) -> list[dict[str, Any]]:
    """The after images, one a row, in order."""
    found = []
    for event in log.rows():
        rows = decode_rows(event.table_map.columns, [(event.op, event.images)], [event.presence])
        assert not rows.lost
        rows.after.validate(full=True)
        found += rows.after.to_pylist()
    return found


def partly_logged(log: Log) -> int:
    """The events that hold a change in a value's place."""
    events = [e for e in log.rows() if e.presence is not None and e.presence.diffs]
    return sum(len(bytes(e.images)) > 0 for e in events)


STATEMENTS = [
    "UPDATE p SET a = JSON_SET(a, '$.a.b[2].c', 'new', '$.a.b[9]', 7)",
    'UPDATE p SET a = JSON_REPLACE(a, \'$.a."with space"."é.["[0]\', CAST(1.50 AS DECIMAL(5,2)))',
    "UPDATE p SET a = JSON_REMOVE(a, '$.a.b[0]', '$.n'), n = 'other'",
    "UPDATE p SET a = JSON_SET(a, '$.zz', NOW(6), '$.k', CAST('10:11:12' AS TIME), '$.a.\"quo\\\\\"te\"', 'é\"\\n')",
    "UPDATE p SET b = JSON_SET(b, '$[0]', JSON_OBJECT('x', JSON_ARRAY(1, 2))), a = JSON_REMOVE(a, '$.zz')",
    "UPDATE p SET b = JSON_SET(b, '$[last]', 'end', '$[last-1]', -5, '$[500]', 'beyond')",
    "UPDATE p SET b = JSON_REMOVE(b, '$[last]', '$[0].x[1]'), c = JSON_REPLACE(c, '$.o', b'1010101010101010')",
    "UPDATE p SET c = JSON_SET(c, '$.o', ST_GeomFromText('POINT(1 2)'), '$.u', 18446744073709551615, '$.f', 1e300)",
    "UPDATE p SET c = JSON_SET(c, '$.o', UNHEX('00FF10'), '$.big', REPEAT('y', 70000)), n = NULL WHERE id = 1",
    "UPDATE p SET c = JSON_SET(c, '$.big', 'small again', '$.bb', REPEAT('w', 100000)) WHERE id = 2",
    "UPDATE p SET a = NULL, b = JSON_ARRAY_INSERT(b, '$[1]', 'in'), c = JSON_REMOVE(c, '$.bb')",
    "UPDATE p SET a = '[]', b = JSON_ARRAY_APPEND(b, '$', 2)",
    "UPDATE p SET a = JSON_SET(a, '$[0]', 1, '$[1]', 2, '$[0]', 3), id = id + 10",
    "UPDATE p SET b = JSON_SET(b, '$', 5)",
    "UPDATE p SET c = JSON_MERGE_PATCH(c, '{\"o\": null}')",
]


def test_a_value_logged_by_its_changes_is_what_select_prints(log: Log) -> None:
    pad = json.dumps({f"key{n}": "pad" * 5 for n in range(40)})
    for key in (1, 2, 3):
        log.database.execute(
            "INSERT INTO p VALUES (%s, %s, 'n', JSON_ARRAY(1, 'two', REPEAT('3', 200)), JSON_MERGE_PATCH(%s, %s))",
            [key, DEEP, pad, '{"o": 1}'],
        )
    expected: list[tuple[Any, ...]] = log.database.query("SELECT id, a, n, b, c FROM p ORDER BY id")
    for statement in STATEMENTS:
        keys = {k for (k,) in log.database.query("SELECT id FROM p")}
        log.database.execute(statement)
        if "WHERE id = 1" in statement:
            keys = {1}
        elif "WHERE id = 2" in statement:
            keys = {2}
        shift = 10 if "id + 10" in statement else 0
        after = log.database.query("SELECT id, a, n, b, c FROM p ORDER BY id")
        expected += [row for row in after if row[0] - shift in keys]
    found = [tuple(row.values()) for row in decoded(log)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert partly_logged(log) >= 8


def test_random_changes_of_random_documents_are_what_select_prints(log: Log) -> None:
    rng = random.Random(5)
    log.database.execute("INSERT INTO p VALUES (1, %s, NULL, '{}', '[]')", [json.dumps(_document(rng, 5))])
    expected = log.database.query("SELECT a, b, c FROM p")
    for n in range(250):
        sets = ", ".join(f"{c} = {_change(rng, c)}" for c in rng.sample("abc", rng.randint(1, 3)))
        if rng.random() < 0.1:
            sets = f"a = '{json.dumps(_document(rng, 4))}'"
        log.database.execute(f"UPDATE p SET {sets}, n = {n}")
        expected += log.database.query("SELECT a, b, c FROM p")
    assert [(row["a"], row["b"], row["c"]) for row in decoded(log)] == expected
    assert partly_logged(log) > 100


def _document(rng: random.Random, depth: int) -> Any:
    kind = rng.random() if depth else 1.0
    if kind < 0.45:
        return {rng.choice(_KEYS): _document(rng, depth - 1) for _ in range(rng.randint(0, 6))}
    if kind < 0.7:
        return [_document(rng, depth - 1) for _ in range(rng.randint(0, 6))]
    return rng.choice([None, True, 5, -70000, 3.25, 2**40, "text", "p" * rng.randint(0, 300)])


_KEYS = ["a", "b", "cc", "a b", "é", "$", "1", "key.with", "longer_key_here"]


def _change(rng: random.Random, column: str) -> str:
    def path() -> str:
        legs = [f"[{rng.randint(0, 4)}]" if rng.random() < 0.4 else f'."{rng.choice(_KEYS)}"' for _ in range(3)]
        return "'$" + "".join(legs[: rng.randint(1, 3)]) + "'"

    def value() -> str:
        text = json.dumps(_document(rng, 2))
        return rng.choice([f"CAST('{text}' AS JSON)", "1.5", "NULL", "CURDATE()", "x'0102'", "'s'"])

    name = rng.choice(["JSON_SET", "JSON_SET", "JSON_REPLACE", "JSON_REMOVE"])
    pairs = [path() if name == "JSON_REMOVE" else f"{path()}, {value()}" for _ in range(rng.randint(1, 4))]
    return f"{name}({column}, {', '.join(pairs)})"


def test_a_change_without_its_value_is_lost_and_said_so(log: Log) -> None:
    log.database.execute("INSERT INTO p VALUES (1, %s, 'n', '{}', '[]')", [DEEP])
    log.database.execute("SET SESSION binlog_row_image = MINIMAL")
    log.database.execute("UPDATE p SET a = JSON_SET(a, '$.n', 3), n = 'm'")
    event = log.rows()[-1]
    rows = decode_rows(event.table_map.columns, [(event.op, event.images)], [event.presence])
    assert rows.lost == {0: (1,)}
    assert rows.after.to_pylist() == [{"id": 1, "a": None, "n": "m", "b": None, "c": None}]


# By hand.

_DOC = WireColumn(245, 4, 0, Column("doc", "json"))
_BOTH = Presence((0,), (0,), diffs=True)
_OBJECT = b"\x00" + struct.pack("<HH", 1, 12) + struct.pack("<HHBH", 11, 1, 5, 7) + b"k"


def _update(diffs: bytes, *, options: bytes = b"\x01\x01", before: bytes = _OBJECT) -> DecodedRows:
    images = b"\0" + struct.pack("<I", len(before)) + before
    images += options + b"\0" + struct.pack("<I", len(diffs)) + diffs
    return decode_rows((_DOC,), [("u", images)], [_BOTH])


def _diff(operation: int, path: bytes, value: bytes | None = None) -> bytes:
    tail = b"" if value is None else bytes([len(value)]) + value
    return bytes([operation, len(path)]) + path + tail


def test_a_change_made_by_hand_is_applied() -> None:
    assert _update(_diff(0, b"$.k", b"\x05\x09\x00")).after.to_pylist() == [{"doc": '{"k": 9}'}]
    assert _update(_diff(1, b"$.j", b"\x04\x01") + _diff(2, b"$.k")).after.to_pylist() == [{"doc": '{"j": true}'}]
    assert _update(b"").after.to_pylist() == [{"doc": '{"k": 7}'}]
    whole = _update(b"\x05\x01\x00", options=b"\x00")
    assert whole.after.to_pylist() == [{"doc": "1"}], "value options of 0 mean that no value is partial"


@pytest.mark.parametrize(
    "diffs",
    [
        _diff(3, b"$.k"),
        _diff(0, b"$", b"\x04\x01"),
        _diff(0, b"$.x", b"\x04\x01"),
        _diff(0, b"$[0]", b"\x04\x01"),
        _diff(0, b"$.k.l", b"\x04\x01"),
        _diff(1, b"$.k", b"\x04\x01"),
        _diff(1, b"$[0]", b"\x04\x01"),
        _diff(2, b"$.x"),
        _diff(0, b"$.k", b"\x05\x01"),
        _diff(0, b"$.k"),
        _diff(0, b"k", b"\x04\x01"),
        _diff(0, b"$.k*", b"\x04\x01"),
        _diff(0, b"$.k", b"\x04\x01")[:-1],
        b"\x00\xff",
        b"\x00\xfe" + b"\xff" * 8,
    ],
)
def test_a_change_that_is_not_one_of_the_value_is_refused(diffs: bytes) -> None:
    with pytest.raises(FailClosedError, match="'doc'"):
        _update(diffs)


def test_a_change_of_null_and_unknown_options_are_refused() -> None:
    images = b"\x01" + b"\x01\x01" + b"\0" + struct.pack("<I", 0)
    with pytest.raises(FailClosedError, match="NULL"):
        decode_rows((_DOC,), [("u", images)], [_BOTH])
    with pytest.raises(FailClosedError):
        _update(_diff(2, b"$.k"), options=b"\x02\x01")
    with pytest.raises(FailClosedError):  # found by the fuzz test: an image without columns has value options too
        decode_rows((_DOC,), [("u", b"\x01")], [Presence((0,), (), diffs=True)])
    assert decode_rows((_DOC,), [("u", b"\x01\x00")], [Presence((0,), (), diffs=True)]).counts.tolist() == [1]


def test_damaged_changes_are_refused_or_applied_but_never_crash() -> None:
    rng = random.Random(3)
    inner = b"\x02" + struct.pack("<HH", 2, 10) + struct.pack("<BHBH", 5, 1, 5, 2)
    base = patched(_OBJECT, _diff(1, b"$.list", inner) + _diff(1, b"$.s", b"\x0c\x03abc"))
    good = _diff(0, b"$.list[1]", b"\x05\x09\x00") + _diff(1, b"$.list[0]", _OBJECT) + _diff(2, b"$.k")
    assert to_text(patched(base, good)) == b'{"s": "abc", "list": [{"k": 7}, 1, 9]}'
    refused = 0
    for _ in range(20_000):
        document, diffs = bytearray(base), bytearray(good[: rng.randrange(len(good) + 1)])
        for part in (document, diffs):
            for _ in range(rng.randrange(3)):
                if part:
                    part[rng.randrange(len(part))] = rng.randrange(256)
        try:
            to_text(patched(bytes(document), bytes(diffs)))
        except ValueError:
            refused += 1
    assert refused > 5000
