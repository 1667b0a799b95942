"""Dates and times as MySQL packs them, to Arrow.

Formats: MySQL manual, "Data Type Storage Requirements", and the source's `my_time.cc` (`my_datetime_packed_from_binary`
and kin). The calendar is proleptic Gregorian for every year from 1 to 9999, as the server's own.

Zero and partial dates, days that do not exist (2020-02-31 under ALLOW_INVALID_DATES) and the year 0 become NULL and
are counted: Arrow, Spark and Iceberg have no place for them. A time of day that no clock shows is damage: ValueError.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numba import njit

from bronze.decode.arrays import Bytes, Int64s, fixed, string


class Temporal(NamedTuple):
    """Values, and how many became NULL for want of a real date."""

    array: pa.Array
    zero_dates: int


def date(packed: Int64s, absent: Bytes) -> Temporal:
    """DATE: year << 9 | month << 5 | day."""
    absent = absent.copy()
    out = np.zeros(absent.size, np.int32)
    zeros = _dates(packed, absent, out)
    return Temporal(fixed(pa.date32(), out, absent), int(zeros))


def datetime2(packed: Int64s, absent: Bytes, fsp: int) -> Temporal:
    """DATETIME(fsp) since MySQL 5.6: 5 bytes and the fraction, read as one big-endian number."""
    absent = absent.copy()
    out = np.zeros(absent.size, np.int64)
    zeros = put_datetimes(packed, absent, *fraction(fsp), out)
    _check(zeros >= 0)
    return Temporal(fixed(pa.timestamp("us"), out, absent), int(zeros))


def datetime_old(packed: Int64s, absent: Bytes) -> Temporal:
    """DATETIME before 5.6: the number YYYYMMDDhhmmss."""
    absent = absent.copy()
    out = np.zeros(absent.size, np.int64)
    zeros = _old_datetimes(packed, absent, out)
    _check(zeros >= 0)
    return Temporal(fixed(pa.timestamp("us"), out, absent), int(zeros))


def timestamp2(packed: Int64s, absent: Bytes, fsp: int) -> Temporal:
    """TIMESTAMP(fsp): 4 bytes of seconds since 1970 UTC and the fraction, as one big-endian number."""
    absent = absent.copy()
    out = np.zeros(absent.size, np.int64)
    zeros = put_timestamps(packed, absent, *fraction(fsp), out)
    _check(zeros >= 0)
    return Temporal(fixed(pa.timestamp("us", "UTC"), out, absent), int(zeros))


def fraction(fsp: int) -> tuple[int, int]:
    """The bits of the fraction in a packed value, and how many microseconds its unit has."""
    digits = (fsp + 1) // 2
    return 8 * digits, 10 ** (6 - 2 * digits)


def time2(packed: Int64s, absent: Bytes, fsp: int) -> pa.Array:
    """TIME(fsp) as the server prints it: 3 bytes and the fraction, biased by half the range."""
    bits, unit = fraction(fsp)
    signed = packed - (0x800000 << bits)
    size = np.abs(signed)
    hms, micros = size >> bits, (size & ((1 << bits) - 1)) * unit
    return _clock(signed < 0, hms >> 12 & 0x3FF, hms >> 6 & 63, hms & 63, micros, fsp, absent)


def time_old(packed: Int64s, absent: Bytes) -> pa.Array:
    """TIME before 5.6: the signed number hhmmss."""
    size = np.abs(packed)
    none = np.zeros(packed.size, np.int64)
    return _clock(packed < 0, size // 10000, size // 100 % 100, size % 100, none, 0, absent)


def year(packed: Int64s, absent: Bytes) -> pa.Array:
    """YEAR: years since 1900, and 0 for the year 0000."""
    return fixed(pa.int32(), np.where(packed == 0, 0, packed + 1900).astype(np.int32), absent)


def _clock(
    negative: object, hours: Int64s, minutes: Int64s, seconds: Int64s, micros: Int64s, fsp: int, absent: Bytes
) -> pa.Array:
    clock = (hours <= 838) & (minutes <= 59) & (seconds <= 59) & (micros <= 999_999)
    _check(bool((clock | (absent != 0)).all()))
    offsets = np.zeros(absent.size + 1, np.int32)
    out = np.empty(absent.size * 18, np.uint8)
    _times(negative, hours, minutes, seconds, micros, fsp, absent, offsets, out)
    return string(offsets, out[: offsets[-1]].copy(), absent)


def _check(sound: bool) -> None:
    if not sound:
        raise ValueError("a time of day that no clock shows")


@njit(cache=True, nogil=True)
def _days(y, m, d):  # type: ignore[no-untyped-def]
    """Days since 1970-01-01, or -2**31 where there is no such day (Howard Hinnant, days_from_civil)."""
    if y < 1 or y > 9999 or m < 1 or m > 12 or d < 1 or d > 31:
        return np.int64(-(2**31))
    if d > 28:
        last = 31
        if m == 2:
            last = 29 if y % 4 == 0 and (y % 100 != 0 or y % 400 == 0) else 28
        elif m == 4 or m == 6 or m == 9 or m == 11:
            last = 30
        if d > last:
            return np.int64(-(2**31))
    y -= m <= 2
    era = y // 400
    of_era = y - era * 400
    day = (153 * (m - 3 if m > 2 else m + 9) + 2) // 5 + d - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + day - 719468


@njit(cache=True, nogil=True)
def _dates(packed, absent, out):  # type: ignore[no-untyped-def]
    zeros = 0
    for i in range(absent.size):
        if absent[i] == 0:
            v = packed[i]
            days = _days(v >> 9, v >> 5 & 15, v & 31)
            if days == -(2**31):
                absent[i] = 1
                zeros += 1
            else:
                out[i] = days
    return zeros


@njit(cache=True, nogil=True)
def put_timestamps(packed, absent, fraction_bits, fraction_unit, out):  # type: ignore[no-untyped-def]
    """Write microseconds since 1970 UTC. How many zero dates there were, which become absent; -1 for damage."""
    zeros = 0
    for i in range(absent.size):
        if absent[i] == 0:
            if packed[i] == 0:
                absent[i] = 1
                zeros += 1
                continue
            micros = (packed[i] & ((np.int64(1) << fraction_bits) - 1)) * fraction_unit
            if micros > 999999:
                return -1
            out[i] = (packed[i] >> fraction_bits) * 1000000 + micros
    return zeros


@njit(cache=True, nogil=True)
def put_datetimes(packed, absent, fraction_bits, fraction_unit, out):  # type: ignore[no-untyped-def]
    """Write microseconds since 1970-01-01 00:00. What comes back is as of `put_timestamps`."""
    zeros = 0
    for i in range(absent.size):
        if absent[i] == 0:
            fraction = packed[i] & ((np.int64(1) << fraction_bits) - 1)
            # 40 bits whose highest is the sign, always set; a shift of an int64 drags its own sign along.
            v = packed[i] >> fraction_bits & 0x7FFFFFFFFF
            months = v >> 22
            days = _days(months // 13, months % 13, v >> 17 & 31)
            if days == -(2**31):
                absent[i] = 1
                zeros += 1
            else:
                micros = fraction * fraction_unit
                if v >> 12 & 31 > 23 or v >> 6 & 63 > 59 or v & 63 > 59 or micros > 999999:
                    return -1
                seconds = (v >> 12 & 31) * 3600 + (v >> 6 & 63) * 60 + (v & 63)
                out[i] = (days * 86400 + seconds) * 1000000 + micros
    return zeros


@njit(cache=True, nogil=True)
def _old_datetimes(packed, absent, out):  # type: ignore[no-untyped-def]
    zeros = 0
    for i in range(absent.size):
        if absent[i] == 0:
            v = packed[i]
            day = v // 1000000
            days = _days(day // 10000, day // 100 % 100, day % 100)
            if days == -(2**31):
                absent[i] = 1
                zeros += 1
            else:
                if v // 10000 % 100 > 23 or v // 100 % 100 > 59 or v % 100 > 59:
                    return -1
                seconds = v // 10000 % 100 * 3600 + v // 100 % 100 * 60 + v % 100
                out[i] = (days * 86400 + seconds) * 1000000
    return zeros


@njit(cache=True, nogil=True)
def _times(negative, hours, minutes, seconds, micros, fsp, absent, offsets, out):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(absent.size):
        if absent[i] == 0:
            if negative[i]:
                out[at] = 45
                at += 1
            h = hours[i]
            if h >= 100:
                out[at] = 48 + h // 100
                at += 1
            out[at] = 48 + h // 10 % 10
            out[at + 1] = 48 + h % 10
            out[at + 2] = 58
            out[at + 3] = 48 + minutes[i] // 10
            out[at + 4] = 48 + minutes[i] % 10
            out[at + 5] = 58
            out[at + 6] = 48 + seconds[i] // 10
            out[at + 7] = 48 + seconds[i] % 10
            at += 8
            if fsp > 0:
                out[at] = 46
                rest = micros[i]
                unit = 100000
                for k in range(fsp):
                    out[at + 1 + k] = 48 + rest // unit
                    rest %= unit
                    unit //= 10
                at += fsp + 1
        offsets[i + 1] = at
