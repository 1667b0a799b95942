"""Row images that are whole, damaged, or registered as another type."""

from __future__ import annotations

import random
import struct
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from bronze.binlog.columns import WireColumn
from bronze.decode.fused import fuse
from bronze.decode.rows import decode_rows
from bronze.decode.walk import Images
from lakeward.errors import FailClosedError
from lakeward.schema import Column

_ID = WireColumn(3, 0, 0, Column("id", "int"))
_NAME = WireColumn(15, 40, 45, Column("name", "varchar", length=10, charset="utf8mb4"))
_PRICE = WireColumn(246, 10 << 8 | 2, 0, Column("price", "decimal", precision=10, scale=2))
_AT = WireColumn(18, 6, 0, Column("at", "datetime", fsp=6))
_DOC = WireColumn(245, 4, 0, Column("doc", "json"))
_TABLE = (_ID, _NAME, _PRICE, _AT, _DOC)
_REST = bytes.fromhex("8000000119") + bytes.fromhex("99a5422345000001") + struct.pack("<I", 2) + b"\x04\x01"


def _image(number: int, name: str | None) -> bytes:
    head = struct.pack("<Bi", 0 if name is not None else 2, number)
    return head + (bytes([len(name.encode())]) + name.encode() if name is not None else b"") + _REST


def test_updates_have_both_images_inserts_the_after_and_deletes_the_before() -> None:
    events = [
        ("c", _image(1, "a") + _image(2, None)),
        ("u", _image(1, "a") + _image(1, "b") + _image(2, None) + _image(2, "é")),
        ("d", _image(1, "b")),
        ("c", b""),
        ("c", memoryview(_image(3, ""))),
    ]
    rows = decode_rows(_TABLE, events)
    named = [tuple(row and (row["id"], row["name"]) for row in pair) for pair in _pairs(rows)]
    assert named == [
        (None, (1, "a")),
        (None, (2, None)),
        ((1, "a"), (1, "b")),
        ((2, None), (2, "é")),
        ((1, "b"), None),
        (None, (3, "")),
    ]
    assert rows.event.tolist() == [0, 0, 1, 1, 2, 4]
    assert rows.counts.tolist() == [2, 2, 1, 0, 1]
    rows.before.validate(full=True)
    rows.after.validate(full=True)
    assert [field.name for field in rows.after.type] == [c.column.name for c in _TABLE]
    assert [field.type for field in rows.after.type] == [c.column.arrow for c in _TABLE]


def test_no_events_are_no_rows() -> None:
    rows = decode_rows(_TABLE, [])
    assert (len(rows.before), len(rows.after), rows.counts.tolist()) == (0, 0, [])


def test_more_rows_than_were_expected_are_all_decoded() -> None:
    wide = tuple(WireColumn(3, 0, 0, Column(f"c{n}", "int")) for n in range(9))
    last = b"\0\0" + struct.pack("<9i", *range(9))
    events = [("c", b"\xff\xff" * 50_000), ("u", b"\xff\xff" * 2000), ("c", last)]
    rows = decode_rows(wide, events)
    assert rows.counts.tolist() == [50_000, 1000, 1]
    assert list(rows.after[-1].as_py().values()) == list(range(9))
    assert set(rows.after[0].as_py().values()) == {None}


def test_an_event_cut_anywhere_is_refused_with_its_column() -> None:
    whole = _image(1, "abc")
    for size in range(1, len(whole)):
        with pytest.raises(FailClosedError) as caught:
            decode_rows(_TABLE, [("c", whole), ("c", whole[:size])])
        assert caught.value.facts["event"] == 1
    with pytest.raises(FailClosedError) as caught:
        decode_rows(_TABLE, [("c", whole[:7])])
    assert caught.value.facts["column"] == "name"


def test_bytes_left_over_are_refused() -> None:
    with pytest.raises(FailClosedError):
        decode_rows(_TABLE, [("c", _image(1, "abc") + b"\0")])


def test_an_update_without_its_after_image_is_refused() -> None:
    with pytest.raises(FailClosedError):
        decode_rows(_TABLE, [("u", _image(1, "a")), ("c", _image(2, "b"))])


def test_rows_taken_together_are_what_they_are_column_by_column(monkeypatch) -> None:
    """Over many blocks of rows, with each kind of event, NULLs, zero dates, bad UTF-8 and more rows than expected."""
    rng = random.Random(5)
    columns = (
        *_TABLE,
        WireColumn(8, 0, 0, Column("big", "bigint", unsigned=True)),
        WireColumn(17, 3, 0, Column("seen", "timestamp", fsp=3)),
        WireColumn(252, 2, 63, Column("blob", "blob")),
        WireColumn(247, 1, 45, Column("state", "enum", labels=("a", "b"), charset="utf8mb4")),
        WireColumn(16, 9, 0, Column("flags", "bit", length=9)),
        WireColumn(246, 40 << 8 | 2, 0, Column("wide", "decimal", precision=40, scale=2)),
        WireColumn(246, 30 << 8, 0, Column("money", "decimal", precision=30)),
    )

    def values() -> list[bytes]:
        name = rng.choice([b"", b"a", "Łódź".encode() * 4, b"\xff" * 3])
        blob = rng.randbytes(rng.randrange(90))
        nines = bytes.fromhex("3b9ac9ff")  # 999999999
        money = b"\x80\1" + nines * 3
        return [
            rng.randbytes(4),
            bytes([len(name)]) + name,
            rng.choice([_REST[:5], bytes(255 - b for b in _REST[:5])]),
            rng.choice([_REST[5:13], b"\x80" + b"\0" * 7]),
            _REST[13:],
            rng.randbytes(8),
            rng.choice([b"\0" * 6, b"\x65\0\0\0\x03\xe7"]),
            struct.pack("<H", len(blob)) + blob,
            bytes([rng.randrange(3)]),
            rng.randbytes(2),
            b"\x82" + nines * 4 + b"\7",
            rng.choice([money, bytes(255 - b for b in money)]),
        ]

    def image() -> bytes:
        lacking = rng.choice([0, 0, 0xFFF, rng.randrange(0x1000)])
        return struct.pack("<H", 0xF000 | lacking) + b"".join(v for n, v in enumerate(values()) if not lacking >> n & 1)

    events = []
    for size in (1, 127, 128, 129, 300, 2, 700):
        op = rng.choice("cud")
        events.append((op, b"".join(image() for _ in range(size * (1 + (op == "u"))))))
    assert fuse(columns, Images.of(events)) is not None
    together = decode_rows(columns, events)
    monkeypatch.setattr("bronze.decode.rows.fuse", lambda *_: None)
    apart = decode_rows(columns, events)
    for side in ("before", "after"):
        getattr(together, side).validate(full=True)
        assert getattr(together, side).equals(getattr(apart, side))
    for told in ("event", "counts"):
        assert getattr(together, told).tolist() == getattr(apart, told).tolist()
    assert together.zero_dates == apart.zero_dates > 0
    assert together.replaced == apart.replaced > 0


def test_damaged_events_are_refused_or_decoded_but_never_read_outside() -> None:
    rng = random.Random(11)
    whole = _image(1, "abc") + _image(2, None) + _image(-3, "é" * 9)
    refused = 0
    for _ in range(3000):
        damaged = bytearray(whole[: rng.randrange(len(whole) + 1)])
        for _ in range(rng.randrange(3)):
            if damaged:
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            rows = decode_rows(_TABLE, [(rng.choice("cud"), bytes(damaged))])
        except FailClosedError:
            refused += 1
        else:
            rows.after.validate(full=True)
            rows.before.validate(full=True)
    assert refused > 1000


@pytest.mark.parametrize(
    ("wire", "registered", "body", "expected"),
    [
        (_ID, Column("id", "bigint"), struct.pack("<i", -5), -5),
        (_ID, Column("id", "bigint", unsigned=True), struct.pack("<i", 5), 5),
        (WireColumn(8, 0, 0, Column("n", "bigint")), Column("n", "int"), struct.pack("<q", 7), 7),
        (WireColumn(4, 0, 0, Column("f", "float")), Column("f", "double"), struct.pack("<f", 0.5), 0.5),
        (_PRICE, Column("price", "decimal", precision=20, scale=4), _REST[:5], 1.25),
    ],
)
def test_a_column_registered_wider_is_converted(
    wire: WireColumn, registered: Column, body: bytes, expected: Any
) -> None:
    rows = decode_rows((replace(wire, column=registered),), [("c", b"\0" + body)])
    assert rows.after.type.field(0).type == registered.arrow
    assert rows.after[0].as_py()[registered.name] == expected


def test_a_column_that_cannot_hold_its_values_is_refused_by_name_without_the_value() -> None:
    wire = replace(WireColumn(8, 0, 0, Column("n", "bigint")), column=Column("n", "int"))
    with pytest.raises(FailClosedError, match="'n'") as refused:
        decode_rows((wire,), [("c", b"\0" + struct.pack("<q", 2**40))])
    assert str(2**40) not in str(refused.value), "the column may be masked"


def test_a_label_beyond_the_declared_ones_is_refused_by_name() -> None:
    wire = WireColumn(247, 1, 45, Column("state", "enum", labels=("a", "b"), charset="utf8mb4"))
    assert decode_rows((wire,), [("c", b"\0\2")]).after[0].as_py() == {"state": "b"}
    with pytest.raises(FailClosedError, match="'state'"):
        decode_rows((wire,), [("c", b"\0\3")])
    members = replace(wire, type_code=248, column=replace(wire.column, kind="set"))
    with pytest.raises(FailClosedError, match="'state'"):
        decode_rows((members,), [("c", b"\0\4")])


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (_PRICE, bytes.fromhex("ffffffffff")),  # more than 99999999 in eight digits
        (_AT, bytes.fromhex("99a543ff45000001")),  # 63 minutes
        (_AT, bytes.fromhex("99a5422345ffffff")),  # 16777215 microseconds
        (WireColumn(19, 0, 0, Column("span", "time")), bytes.fromhex("ffffff")),
    ],
)
def test_bytes_that_no_server_writes_for_the_type_are_refused_by_name(wire: WireColumn, body: bytes) -> None:
    with pytest.raises(FailClosedError, match=repr(wire.column.name)):
        decode_rows((wire,), [("c", b"\0" + body)])


def test_an_unknown_type_is_refused_by_name() -> None:
    with pytest.raises(FailClosedError, match="'odd'"):
        decode_rows((WireColumn(200, 0, 0, Column("odd", "int")),), [])


def _pairs(rows: Any) -> list[tuple[Any, Any]]:
    assert isinstance(rows.before, pa.StructArray)
    return list(zip(rows.before.to_pylist(), rows.after.to_pylist(), strict=True))
