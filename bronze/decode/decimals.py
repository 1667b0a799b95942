"""DECIMAL as MySQL packs it (source: `strings/decimal.cc`, decimal2bin): groups of nine digits in four bytes.

The first bit is the sign, inverted; a negative number has all its bits inverted. Up to 38 digits become decimal128;
more (MySQL has 65) the exact text that the server prints.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from bronze.decode.arrays import Bytes, Int64s, fixed, string

_BYTES = np.array([0, 1, 1, 2, 2, 3, 3, 4, 4, 4], np.int64)  # bytes that hold so many digits
_TENS = np.array([10**n for n in range(10)], np.uint64)
_ONE_HALF: Final = 18  # digits that 64 bits hold


@njit(cache=True, nogil=True)
def size(precision, scale):  # type: ignore[no-untyped-def]
    """The bytes of one value."""
    whole = precision - scale
    return whole // 9 * 4 + _BYTES[whole % 9] + scale // 9 * 4 + _BYTES[scale % 9]


def decimal(data: Bytes, offset: Int64s, absent: Bytes, precision: int, scale: int) -> pa.Array:
    """decimal128(precision, scale), or strings above 38 digits, of values that stand at `offset` in `data`.

    Raises ValueError for bytes that are no DECIMAL of this size.
    """
    if precision <= 38:
        halves = np.zeros(2 * absent.size, np.uint64)
        _check(put_numbers(data, offset, absent, widths(precision, scale), halves))
        return fixed(pa.decimal128(precision, scale), halves, absent)
    offsets = np.zeros(absent.size + 1, np.int32)
    out = np.empty(absent.size * (precision + 3), np.uint8)
    _check(_texts(data, offset, absent, precision, scale, offsets, out))
    return string(offsets, out[: offsets[-1]].copy(), absent)


def _check(sound: bool) -> None:
    if not sound:
        raise ValueError("a DECIMAL with more in a group than its digits can say")


def widths(precision: int, scale: int) -> npt.NDArray[np.int64]:
    """The digits of each group, in order."""
    whole = precision - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    return np.array([digits for digits in groups if digits], np.int64)


@njit(cache=True, nogil=True)
def _group(data, at, n, flip, first):  # type: ignore[no-untyped-def]
    """One group of `n` bytes; the number's first byte has the sign bit to be taken off."""
    v = np.uint64(0)
    for k in range(n):
        byte = np.uint64(data[at + k])
        if first and k == 0:
            byte ^= np.uint64(0x80)
        v = v << np.uint64(8) | (byte ^ flip)
    return v


@njit(cache=True, nogil=True)
def put_numbers(data, offset, absent, groups, halves):  # type: ignore[no-untyped-def]
    """Write the low and the high half of each value's unscaled 128 bits, one after the other; none where it is absent.

    `groups` are the type's `widths`. False for bytes that are no DECIMAL of this size.
    """
    mask = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    digits = 0
    for g in range(groups.size):
        digits += groups[g]
    for i in range(absent.size):
        if absent[i]:
            continue
        at = offset[i]
        negative = data[at] & 0x80 == 0
        flip = np.uint64(0xFF) if negative else np.uint64(0)
        hi = np.uint64(0)
        lo = np.uint64(0)
        for g in range(groups.size):
            n = _BYTES[groups[g]]
            ten = _TENS[groups[g]]
            v = _group(data, at, n, flip, g == 0)
            at += n
            if v >= ten:
                return False
            if digits <= _ONE_HALF:
                lo = lo * ten + v
                continue
            # (hi, lo) * ten + v, through 32-bit halves of lo
            a = (lo & mask) * ten + v
            b = (lo >> half) * ten + (a >> half)
            lo = b << half | (a & mask)
            hi = hi * ten + (b >> half)
        if negative:
            lo = ~lo + np.uint64(1)
            hi = ~hi + np.uint64(1 if lo == 0 else 0)
        halves[2 * i] = lo
        halves[2 * i + 1] = hi
    return True


@njit(cache=True, nogil=True)
def put_decimal(data, p, precision, scale, out, at):  # type: ignore[no-untyped-def]
    """Print the DECIMAL at `data[p]` into `out` at `at`, which has room for precision + 3 bytes.

    Where the text ends, or -1 where it is damaged.
    """
    negative = data[p] & 0x80 == 0
    flip = np.uint64(0xFF) if negative else np.uint64(0)
    start = at
    if negative:
        out[at] = 45
        at += 1
    started = False
    zero = True
    whole = precision - scale
    digit = 0
    first = True
    while digit < precision:
        # Whole groups of nine digits stand at the point, what is left over farthest from it.
        left = (whole if digit < whole else precision) - digit
        digits = (left % 9 if left % 9 else 9) if digit < whole else min(left, 9)
        n = _BYTES[digits]
        v = _group(data, p, n, flip, first)
        first = False
        p += n
        if v >= _TENS[digits]:
            return -1
        ten = _TENS[digits - 1]
        for _ in range(digits):
            if digit == whole:
                if not started:
                    out[at] = 48
                    at += 1
                started = True
                out[at] = 46
                at += 1
            c = v // ten
            v -= c * ten
            ten //= np.uint64(10)
            zero = zero and c == 0
            started = started or c != 0
            if started:
                out[at] = 48 + c
                at += 1
            digit += 1
    if not started:
        out[at] = 48
        at += 1
    if negative and zero:
        for k in range(start, at - 1):
            out[k] = out[k + 1]
        at -= 1
    return at


@njit(cache=True, nogil=True)
def _texts(data, offset, absent, precision, scale, offsets, out):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(absent.size):
        if not absent[i]:
            at = put_decimal(data, offset[i], precision, scale, out, at)
            if at < 0:
                return False
        offsets[i + 1] = at
    return True
