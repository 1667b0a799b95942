"""Changes of a JSON value to the value after them, as MySQL's `binlog_row_value_options = PARTIAL_JSON` logs them.

A diff is an operation, a path and, but for a removal, a value in binary JSON. Only the containers on the path are
taken apart, a level at a time; everything beside it is copied as it stands, so a small change of a large document
costs little more than its copy. The result is again binary JSON, which prints what the server's own does.

Source: MySQL, sql/json_diff.cc (Json_diff_vector::read_binary, apply_json_diffs), sql-common/json_path.cc for what
paths are spelled like, sql-common/json_binary.h for documents.
"""

from __future__ import annotations

import bisect
import json
import re
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from bronze.binlog.compressed import packed
from bronze.decode.json_binary import variable_length

_REPLACE, _INSERT, _REMOVE = range(3)
_OBJECT, _ARRAY = 0, 2  # small ones; with 1 added large ones, whose numbers have four bytes
_SIZES: Final = {4: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}  # of scalars without a length of their own
_INLINED: Final = (4, 5, 6, 7, 8)  # in a large container
_DEPTH_MAX: Final = 100  # the server's own bound
_LEG: Final = re.compile(rb'\.(?:"((?:[^"\\]|\\.)*)"|([^.\["*\s][^.\[]*))|\[(last(?:-(\d{1,9}))?|\d{1,10})\]', re.S)


class _Value(NamedTuple):
    """A value: its type byte, and its bytes where they stand outside the container that holds it."""

    kind: int
    raw: memoryview


class _Container(NamedTuple):
    """An object's or array's members, copies to be changed. An object's keys are sorted by length, then bytes."""

    keys: list[bytes] | None
    values: list[_Value]


class _Cell(NamedTuple):
    """An array's element, counted from its end where `last`."""

    number: int
    last: bool


def patched(document: bytes, diffs: bytes) -> bytes:
    """The document after `diffs`. Raises ValueError where they are damaged, or are not of this document."""
    try:
        value = _document(memoryview(document))
        for operation, path, new in _read(memoryview(diffs)):
            value = _changed(value, path, operation, new)
    except (struct.error, LookupError, EOFError, RecursionError) as error:
        raise ValueError("a change of a JSON value that ends too early") from error
    return bytes((value.kind,)) + bytes(value.raw)


def _read(data: memoryview) -> Iterator[tuple[int, list[bytes | _Cell], _Value | None]]:
    at = 0
    while at < len(data):
        operation = data[at]
        if operation > _REMOVE:
            raise ValueError(f"the unknown change {operation} of a JSON value")
        text, at = _text(data, at + 1)
        new = None
        if operation != _REMOVE:
            raw, at = _text(data, at)
            new = _document(raw)
        yield operation, _path(bytes(text)), new


def _text(data: memoryview, at: int) -> tuple[memoryview, int]:
    """Bytes with their length before them (net_field_length), and where they end."""
    length, at = packed(data, at)
    if at + length > len(data):
        raise ValueError("a change of a JSON value that ends too early")
    return data[at : at + length], at + length


def _path(text: bytes) -> list[bytes | _Cell]:
    """`$.a."b c"[2][last-1]` → its legs. Raises ValueError for the root, which is never changed in part."""
    legs: list[bytes | _Cell] = []
    at = 1
    while at < len(text) and (leg := _LEG.match(text, at)):
        at = leg.end()
        if leg[1] is not None:
            legs.append(json.loads(b'"' + leg[1] + b'"', strict=False).encode())
        elif leg[2] is not None:
            legs.append(leg[2])
        else:
            last = leg[3].startswith(b"last")
            legs.append(_Cell(int(leg[4] or 0) if last else int(leg[3]), last))
    if text[:1] != b"$" or at != len(text) or not legs:
        raise ValueError("a change of a JSON value at a path that is none")
    return legs


def _changed(value: _Value, legs: list[bytes | _Cell], operation: int, new: _Value | None) -> _Value:
    """The value with the change made at the end of the path, built anew from there up."""
    if len(legs) > _DEPTH_MAX:
        raise ValueError(f"a JSON path of more than {_DEPTH_MAX} levels")
    box, leg = _opened(value), legs[0]
    found = _find(box, leg)
    if len(legs) > 1:
        if found is None:
            raise ValueError("a change of a JSON value at a place that it has not")
        box.values[found] = _changed(box.values[found], legs[1:], operation, new)
    elif operation == _INSERT:
        assert new is not None
        _insert(box, leg, found, new)
    elif found is None:
        raise ValueError("a change of a JSON value at a place that it has not")
    elif new is not None:
        box.values[found] = new
    else:
        del box.values[found]
        if box.keys is not None:
            del box.keys[found]
    return _closed(box)


def _find(box: _Container, leg: bytes | _Cell) -> int | None:
    """The number of the member that a leg names."""
    if isinstance(leg, bytes):
        if box.keys is None:
            return None
        at = bisect.bisect_left(box.keys, (len(leg), leg), key=_order)
        return at if at < len(box.keys) and box.keys[at] == leg else None
    if box.keys is not None:
        return None
    at = len(box.values) - 1 - leg.number if leg.last else leg.number
    return at if 0 <= at < len(box.values) else None


def _insert(box: _Container, leg: bytes | _Cell, found: int | None, new: _Value) -> None:
    if isinstance(leg, bytes):
        if box.keys is None or found is not None:
            raise ValueError("an addition to a JSON value at a place that it has, or cannot have")
        at = bisect.bisect_left(box.keys, (len(leg), leg), key=_order)
        box.keys.insert(at, leg)
    elif box.keys is not None:
        raise ValueError("an array's element for a JSON object")
    elif leg.last:
        at = max(0, len(box.values) - 1 - leg.number)
    else:
        at = min(leg.number, len(box.values))
    box.values.insert(at, new)


def _order(key: bytes) -> tuple[int, bytes]:
    return len(key), key


def _document(raw: memoryview) -> _Value:
    """A whole document; an empty one is `null`, as to the server."""
    return _member(raw[0], raw, 1) if raw else _Value(4, memoryview(b"\0"))


def _member(kind: int, data: memoryview, at: int) -> _Value:
    """The value of type `kind` whose bytes begin at `at`."""
    if kind <= 3:
        (size,) = struct.unpack_from("<I" if kind & 1 else "<H", data, at + (4 if kind & 1 else 2))
    elif kind in _SIZES:
        size = _SIZES[kind]
    elif kind in (12, 15):
        length, end = variable_length(data, at + (kind == 15))
        size = end - at + length
    else:
        raise ValueError(f"a JSON value of the unknown type {kind}")
    if at + size > len(data):
        raise ValueError("a JSON value that ends past its container")
    return _Value(kind, data[at : at + size])


def _opened(value: _Value) -> _Container:
    kind, data = value
    if kind > 3:
        raise ValueError("a change inside a JSON value that has no members")
    large, keyed = kind & 1, kind < _ARRAY
    number, width = ("<I", 4) if large else ("<H", 2)
    (count,) = struct.unpack_from(number, data)
    entries = 2 * width + (count * (width + 2) if keyed else 0)
    if entries + count * (width + 1) > len(data):
        raise ValueError("a JSON container with more members than bytes")
    keys: list[bytes] = []
    for n in range(count if keyed else 0):
        start, length = struct.unpack_from(number + "H", data, 2 * width + n * (width + 2))
        keys.append(bytes(data[start : start + length]))
        if len(keys[-1]) != length:
            raise ValueError("a JSON key that ends past its object")
    values = []
    for n in range(count):
        entry = entries + n * (width + 1)
        member = data[entry]
        if member in (4, 5, 6) or (large and member in (7, 8)):
            values.append(_Value(member, data[entry + 1 : entry + 1 + _SIZES[member]]))
        else:
            values.append(_member(member, data, struct.unpack_from(number, data, entry + 1)[0]))
    if sum(len(v.raw) for v in values if v.kind not in _INLINED) > len(data):
        raise ValueError("a JSON container whose members overlap")
    return _Container(keys if keyed else None, values)


def _closed(box: _Container) -> _Value:
    """A large container of the members, whose own bytes are copied as they stand."""
    count = len(box.values)
    at = 8 + count * 5 + (count * 6 if box.keys is not None else 0)
    head = []
    for key in box.keys or ():
        head.append(struct.pack("<IH", at, len(key)))
        at += len(key)
    for kind, raw in box.values:
        if kind in _INLINED:
            head.append(bytes((kind,)) + bytes(raw).ljust(4, b"\0"))
        else:
            head.append(struct.pack("<BI", kind, at))
            at += len(raw)
    body = [raw for kind, raw in box.values if kind not in _INLINED]
    whole = b"".join([struct.pack("<II", count, at), *head, *(box.keys or ()), *body])
    return _Value((_ARRAY if box.keys is None else _OBJECT) + 1, memoryview(whole))
