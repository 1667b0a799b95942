"""MySQL's binary JSON to text for whole columns, compiled. What it does not do itself it leaves to `json_binary`.

Documents with opaque values other than DECIMAL, with doubles of more than 15 digits, or that are damaged in any way
are handed to the plain implementation, which prints or refuses them. So both give the same text, and a test compares
them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numba import njit

from bronze.decode.arrays import Bytes, Int64s, check_size, string
from bronze.decode.decimals import put_decimal
from bronze.decode.decimals import size as decimal_size
from bronze.decode.json_binary import to_text
from bronze.memory import borrowed

_DEPTH_MAX = 100
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_NAMES = np.frombuffer(b"nulltruefalse", np.uint8)


def json_texts(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes) -> pa.Array:
    """A string array. Raises ValueError for a damaged document."""
    offsets = np.zeros(absent.size + 1, np.int64)
    left = np.zeros(absent.size, np.uint8)
    room = 4 * int(length[absent == 0].sum()) + 64 * absent.size + 64
    out = np.empty(room, np.uint8)
    _texts(data, offset, length, absent, left, offsets, out)
    check_size(int(offsets[-1]))
    array = string(offsets.astype(np.int32), out[: offsets[-1]].copy(), absent)
    array.validate(full=True)
    if left.any():
        rest = np.flatnonzero(left)
        texts = [to_text(data[offset[i] : offset[i] + length[i]].tobytes()) for i in rest.tolist()]
        chosen = np.arange(absent.size)
        chosen[rest] = absent.size + np.arange(rest.size)
        both = pa.chunked_array([array, pa.array(texts, pa.binary()).cast(pa.string())])
        array = pa.concat_arrays(both.take(pa.array(chosen)).chunks)
    return array


@njit(cache=True, nogil=True, forceinline=True)
def _number(data, at, width):  # type: ignore[no-untyped-def]
    v = np.uint64(data[at]) | np.uint64(data[at + 1]) << np.uint64(8)
    for k in range(2, width):
        v |= np.uint64(data[at + k]) << np.uint64(8 * k)
    return v


@njit(cache=True, nogil=True, forceinline=True)
def _put_unsigned(out, at, v):  # type: ignore[no-untyped-def]
    digits = 1
    ten = np.uint64(10)
    while digits < 20 and v >= ten:  # of 20 digits is the largest
        digits += 1
        ten *= np.uint64(10)
    for k in range(digits - 1, -1, -1):
        rest = v // np.uint64(10)
        out[at + k] = np.uint8(48 + (v - rest * np.uint64(10)))
        v = rest
    return at + digits


@njit(cache=True, nogil=True, forceinline=True)
def _put_quoted(data, start, n, out, at):  # type: ignore[no-untyped-def]
    """Where the string ends in `out`, or -1 where it does not fit."""
    if at + n + 2 > out.size:
        return -1
    out[at] = 34
    at += 1
    plain = 0
    while plain < n:
        c = data[start + plain]
        if c < 32 or c == 34 or c == 92:
            break
        out[at + plain] = c
        plain += 1
    at += plain
    for k in range(plain, n):
        c = data[start + k]
        if c >= 32 and c != 34 and c != 92:
            if at + 2 > out.size:
                return -1
            out[at] = c
            at += 1
            continue
        if at + 8 > out.size:
            return -1
        out[at] = 92
        short = c
        if c == 8:
            short = 98
        elif c == 9:
            short = 116
        elif c == 10:
            short = 110
        elif c == 12:
            short = 102
        elif c == 13:
            short = 114
        if short >= 32:
            out[at + 1] = short
            at += 2
            continue
        out[at + 1] = 117
        out[at + 2] = 48
        out[at + 3] = 48
        out[at + 4] = 48 + (c >> 4)
        out[at + 5] = _HEX[c & 15]
        at += 6
    if at + 1 > out.size:
        return -1
    out[at] = 34
    return at + 1


@njit(cache=True, nogil=True)
def _put_double(value, out, at):  # type: ignore[no-untyped-def]
    """A double of at most 15 digits, 0.00001 <= |value| < 1e15; -1 for any other.

    A decimal of 15 digits names one double, so the first scale at which the digits read back is the shortest text.
    """
    size = abs(value)
    if not (size >= 0.00001 and size < 1e15):
        return -1
    scale = 1.0
    for places in range(20):
        scaled = np.rint(size * scale)
        if scaled >= 1e15:
            return -1
        if scaled / scale == size:
            if value < 0:
                out[at] = 45
                at += 1
            unit = np.uint64(1)
            for _ in range(places):
                unit *= np.uint64(10)
            whole = np.uint64(scaled) // unit
            rest = np.uint64(scaled) - whole * unit
            at = _put_unsigned(out, at, whole)
            out[at] = 46
            at += 1
            if places == 0:
                out[at] = 48
                return at + 1
            for _ in range(places):
                unit //= np.uint64(10)
                digit = rest // unit
                out[at] = np.uint8(48 + digit)
                rest -= digit * unit
                at += 1
            return at
        scale *= 10.0
    return -1


@njit(cache=True, nogil=True)
def _put_opaque(data, at, end, out, to):  # type: ignore[no-untyped-def]
    """A DECIMAL, which is what SQL's own numbers become in a document; -1 for any other opaque value."""
    # Its type (246), one byte of length, precision, scale, digits.
    if at + 5 > end or data[at] != 246 or data[at + 1] > 127:
        return -1
    size = np.int64(data[at + 1])
    precision = np.int64(data[at + 2])
    scale = np.int64(data[at + 3])
    if precision == 0 or precision > 65 or scale > precision or at + 2 + size > end:
        return -1
    if size != 2 + decimal_size(precision, scale) or to + precision + 8 > out.size:
        return -1
    return put_decimal(data, at + 4, precision, scale, out, to)


@njit(cache=True, nogil=True)
def _put_scalar(data, kind, at, end, out, to):  # type: ignore[no-untyped-def]
    """Where the value ends in `out`, which has room for 32 bytes and not always for a string; -1: leave it."""
    if to + 32 > out.size:
        return -1
    if kind == 12:
        n = np.int64(0)
        for k in range(5):
            if at >= end:
                return -1
            byte = np.int64(data[at])
            at += 1
            n |= (byte & 127) << (7 * k)
            if byte < 128:
                break
            if k == 4:
                return -1
        if at + n > end:
            return -1
        return _put_quoted(data, at, n, out, to)
    if kind == 4:
        if at >= end or data[at] > 2:
            return -1
        first = np.int64(data[at]) * 4
        letters = 5 if data[at] == 2 else 4
        for k in range(letters):
            out[to + k] = _NAMES[first + k]
        return to + letters
    if kind == 15:
        return _put_opaque(data, at, end, out, to)
    width = 2 if kind in (5, 6) else 4 if kind in (7, 8) else 8 if kind in (9, 10, 11) else 0
    if width == 0 or at + width > end:
        return -1
    v = _number(data, at, width)
    if kind == 11:
        one = np.empty(1, np.uint64)
        one[0] = v
        return _put_double(one.view(np.float64)[0], out, to)
    if kind in (5, 7, 9) and v >> np.uint64(8 * width - 1):
        out[to] = 45
        to += 1
        v = ~v + np.uint64(1)
        if width < 8:
            v &= (np.uint64(1) << np.uint64(8 * width)) - np.uint64(1)
    return _put_unsigned(out, to, v)


@njit(cache=True, nogil=True)
def _put_document(data, at, end, out, to, stack):  # type: ignore[no-untyped-def]
    """Where the document ends in `out`, or -1: leave it. `stack` rows: kind, start, members, next member."""
    kind = np.int64(data[at])
    at += 1
    depth = 0
    limit = to + 8 * (end - at) + 64
    while True:
        if kind <= 3:
            width = 4 if kind & 1 else 2
            if depth == _DEPTH_MAX or at + 2 * width > end or to + 16 > out.size:
                return -1
            members = np.int64(_number(data, at, width))
            entry = (width + 2 if kind < 2 else 0) + width + 1
            if at + 2 * width + members * entry > end:
                return -1
            stack[depth, 0] = kind
            stack[depth, 1] = at
            stack[depth, 2] = members
            stack[depth, 3] = 0
            depth += 1
            out[to] = 123 if kind < 2 else 91
            to += 1
        else:
            to = _put_scalar(data, kind, at, end, out, to)
            if to < 0:
                return -1
        while depth and stack[depth - 1, 3] == stack[depth - 1, 2]:
            depth -= 1
            if to + 1 > out.size:
                return -1
            out[to] = 125 if stack[depth, 0] < 2 else 93
            to += 1
        if depth == 0:
            return to
        # Offsets of a damaged document may lead round in a circle.
        if to > limit or to + 16 > out.size:
            return -1
        top = depth - 1
        box = stack[top, 0]
        start = stack[top, 1]
        n = stack[top, 3]
        stack[top, 3] = n + 1
        width = 4 if box & 1 else 2
        if n:
            out[to] = 44
            out[to + 1] = 32
            to += 2
        values = start + 2 * width
        if box < 2:
            key = values + n * (width + 2)
            values += stack[top, 2] * (width + 2)
            begin = start + np.int64(_number(data, key, width))
            size = np.int64(_number(data, key + width, 2))
            if begin + size > end:
                return -1
            to = _put_quoted(data, begin, size, out, to)
            if to < 0 or to + 2 > out.size:
                return -1
            out[to] = 58
            out[to + 1] = 32
            to += 2
        at = values + n * (width + 1)
        kind = np.int64(data[at])
        at += 1
        if not (kind in (4, 5, 6) or (width == 4 and kind in (7, 8))):
            at = start + np.int64(_number(data, at, width))
            if at >= end:
                return -1


@njit(cache=True, nogil=True)
def _texts(data, offset, length, absent, left, offsets, out):  # type: ignore[no-untyped-def]
    data, offset, length, out = borrowed(data), borrowed(offset), borrowed(length), borrowed(out)
    kept = np.empty((_DEPTH_MAX, 4), np.int64)
    stack = borrowed(kept)
    at = 0
    for i in range(absent.size):
        if not absent[i]:
            end = -1
            if length[i] > 0:
                end = _put_document(data, offset[i], offset[i] + length[i], out, at, stack)
            if end < 0:
                left[i] = 1
            else:
                at = end
        offsets[i + 1] = at
    return kept.size  # so that it lives as long as `stack`
