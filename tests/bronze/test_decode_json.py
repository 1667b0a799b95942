"""Binary JSON: the compiled printer and the plain one agree, and damage is refused without harm."""

from __future__ import annotations

import json
import random
import struct
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bronze.decode.json_binary import double_text, to_text
from bronze.decode.json_kernel import json_texts

_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(-(10**9), 10**9, places=2, allow_nan=False).map(float)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=8), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_VALUES, max_size=5))
def test_the_compiled_printer_and_the_plain_one_give_the_same_text(values: list[Any]) -> None:
    documents = [_stored(value) for value in values]
    plain = [to_text(document).decode() for document in documents]
    assert _texts(documents) == plain
    assert [_same(json.loads(text)) for text in plain] == [_same(value) for value in values]


@settings(max_examples=300, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False) | st.decimals(-(10**7), 10**7, places=4).map(float))
def test_a_double_reads_back_from_its_text(value: float) -> None:
    assert float(double_text(value)) == value
    assert _texts([_stored(value)]) == [double_text(value)]


@settings(max_examples=500, deadline=None)
@given(
    st.integers(1, 65).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p), st.integers(1 - 10**p, 10**p - 1)))
)
def test_a_decimal_is_printed_with_all_its_digits(number: tuple[int, int, int]) -> None:
    precision, scale, unscaled = number
    body = bytes([precision, scale]) + _packed(unscaled, precision, scale)
    opaque = bytes([15, 246, len(body)]) + body
    text = f"{Decimal(unscaled).scaleb(-scale, Context(prec=70)):f}"
    assert _texts([opaque]) == [to_text(opaque).decode()] == [text]
    for damaged in (opaque[:-1], opaque[:2] + bytes([len(body) - 1]) + opaque[3:]):
        with pytest.raises((ValueError, pa.ArrowInvalid)):
            _texts([damaged])


def test_damaged_documents_are_refused_or_printed_but_never_crash() -> None:
    rng = random.Random(7)
    whole = _stored({"a": [1, "text", {"b": [None, 2.5, 70000]}], "long": "x" * 200})
    refused = 0
    for _ in range(5000):
        damaged = bytearray(whole[: rng.randrange(1, len(whole) + 1)])
        for _ in range(rng.randrange(4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            text: str | None = to_text(bytes(damaged)).decode()
        except ValueError:
            text = None
            refused += 1
        if text is None:
            with pytest.raises((ValueError, pa.ArrowInvalid)):
                _texts([bytes(damaged)])
        else:
            assert _texts([bytes(damaged)]) == [text]
    assert refused > 1000


def test_members_that_lead_in_a_circle_are_refused() -> None:
    entry = struct.pack("<BH", 2, 0)
    circle = b"\x02" + struct.pack("<HH", 2, 10) + entry + entry
    with pytest.raises(ValueError, match=r"levels|overlap"):
        to_text(circle)


def test_an_empty_document_is_null_as_to_the_server() -> None:
    assert _texts([b""]) == ["null"]


def _texts(documents: list[bytes]) -> list[str | None]:
    size = np.array([len(d) for d in documents], np.int64)
    offset = np.concatenate([[0], np.cumsum(size)[:-1]]).astype(np.int64)[: len(documents)]
    data = np.frombuffer(b"".join(documents), np.uint8)
    found: list[str | None] = json_texts(data, offset, size, np.zeros(size.size, np.uint8)).to_pylist()
    return found


def _packed(unscaled: int, precision: int, scale: int) -> bytes:
    """A DECIMAL as MySQL packs it."""
    digits = f"{abs(unscaled):0{precision}d}"
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    groups = [whole[: len(whole) % 9]] + [whole[n : n + 9] for n in range(len(whole) % 9, len(whole), 9)]
    groups += [fraction[n : n + 9] for n in range(0, len(fraction), 9)]
    packed = bytearray(b"".join(int(g).to_bytes((0, 1, 1, 2, 2, 3, 3, 4, 4, 4)[len(g)], "big") for g in groups if g))
    packed[0] ^= 0x80
    return bytes(packed) if unscaled >= 0 else bytes(byte ^ 0xFF for byte in packed)


def _same(value: Any) -> str:
    """Equal for equal documents, telling 1 from 1.0 and -0.0 from 0.0."""
    return json.dumps(value, sort_keys=True)


def _stored(value: Any) -> bytes:
    """A document as MySQL stores it; large containers for long members, so both layouts are met."""
    kind, body = _encoded(value)
    return bytes([kind]) + body


def _encoded(value: Any) -> tuple[int, bytes]:
    if value is None or value is True or value is False:
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        kinds = ((5, "<h", -(2**15), 2**15), (6, "<H", 0, 2**16), (7, "<i", -(2**31), 2**31))
        wider = ((8, "<I", 0, 2**32), (9, "<q", -(2**63), 2**63), (10, "<Q", 0, 2**64))
        kind, form = next((k, f) for k, f, low, high in (*kinds, *wider) if low <= value < high)
        return kind, struct.pack(form, value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    if isinstance(value, str):
        raw = value.encode()
        return 12, _varlen(len(raw)) + raw
    return _container(value)


def _container(value: Any) -> tuple[int, bytes]:
    keyed = isinstance(value, dict)
    keys = [key.encode() for key in value] if keyed else []
    members = [_encoded(v) for v in (value.values() if keyed else value)]
    size = sum(map(len, keys)) + sum(len(body) for _, body in members) + 8 * len(members)
    large = size > 60
    form, width = ("<I", 4) if large else ("<H", 2)
    at = 2 * width + len(keys) * (width + 2) + len(members) * (width + 1)
    key_entries, value_entries, tail = b"", b"", b""
    for key in keys:
        key_entries += struct.pack(form, at) + struct.pack("<H", len(key))
        tail += key
        at += len(key)
    for kind, body in members:
        if kind in (4, 5, 6) or (large and kind in (7, 8)):
            value_entries += bytes([kind]) + body.ljust(width, b"\xff" if kind == 5 and body[-1] > 127 else b"\0")
        else:
            value_entries += bytes([kind]) + struct.pack(form, at)
            tail += body
            at += len(body)
    head = struct.pack(form, len(members)) + struct.pack(form, at)
    return (0 if keyed else 2) + large, head + key_entries + value_entries + tail


def _varlen(length: int) -> bytes:
    out = b""
    while length > 127:
        out += bytes([length & 127 | 128])
        length >>= 7
    return out + bytes([length])
