"""Numba kernels of the snapshot read: packets of the text protocol to offsets, and text to numbers.

Pure functions over arrays; nothing here talks to a server. They never skip what they do not understand: each parser
returns the row of the first text it cannot read, and -1 when all went well. Sources: MySQL internals, 'Text Resultset'
and 'Sending Payloads Larger than 16MB'.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

MORE, FULL, END, ERROR, BROKEN = 0, 1, 2, 3, 4
_MAX_PAYLOAD = 0xFFFFFF


@numba.njit(cache=True, nogil=True)
def split_rows(
    buffer: Any, start: int, end: int, sequence: int, offsets: Any, lengths: Any, row: int
) -> tuple[int, int, int, int]:
    """Splits the packets in `buffer[start:end]` into `offsets[column, row]` and `lengths` (-1 for NULL).

    Returns (state, start of the first packet not consumed, next sequence number, rows). The state is MORE (the next
    packet is not whole yet), FULL (no room for another row), END (the EOF packet is next), ERROR (an error packet is
    next) or BROKEN (the bytes are not a text result set of this many columns). A row of several packets is moved
    together in place.
    """
    columns, room = offsets.shape
    while True:
        if end - start < 4:
            return MORE, start, sequence, row
        size = buffer[start] | (np.int64(buffer[start + 1]) << 8) | (np.int64(buffer[start + 2]) << 16)
        if end - start - 4 < size:
            return MORE, start, sequence, row
        if buffer[start + 3] != sequence:
            return BROKEN, start, sequence, row
        if size == 0:
            return BROKEN, start, sequence, row
        first = buffer[start + 4]
        if first == 0xFE and size < 9:
            return END, start, sequence, row
        if first == 0xFF:
            return ERROR, start, sequence, row
        if row == room:
            return FULL, start, sequence, row
        stop, after = start + 4 + size, start + 4 + size
        packets = 1
        if size == _MAX_PAYLOAD:
            stop, after, packets = _gather(buffer, start, end, sequence)
            if packets == 0:
                return MORE, start, sequence, row
            if packets < 0:
                return BROKEN, start, sequence, row
        at = start + 4
        for column in range(columns):
            if at >= stop:
                return BROKEN, start, sequence, row
            length: Any = np.int64(buffer[at])
            at += 1
            if length == 0xFB:
                offsets[column, row] = at
                lengths[column, row] = -1
                continue
            if length >= 0xFC:
                width = 2 if length == 0xFC else 3 if length == 0xFD else 8
                length = 0
                for i in range(width):
                    length |= np.int64(buffer[at + i]) << (8 * i)
                at += width
            if length < 0 or at + length > stop:
                return BROKEN, start, sequence, row
            offsets[column, row] = at
            lengths[column, row] = length
            at += length
        if at != stop:
            return BROKEN, start, sequence, row
        row += 1
        start = after
        sequence = (sequence + packets) & 0xFF


@numba.njit(cache=True, nogil=True)
def _gather(buffer: Any, start: int, end: int, sequence: int) -> tuple[int, int, int]:
    """Moves the payloads of a row's packets together: (end of the row, end of its last packet, packets).

    0 packets: not all of them are there yet, and nothing was moved. -1: a packet is out of order.
    """
    at, packets = start, 0
    while True:
        if end - at < 4:
            return 0, 0, 0
        size = buffer[at] | (np.int64(buffer[at + 1]) << 8) | (np.int64(buffer[at + 2]) << 16)
        if end - at - 4 < size:
            return 0, 0, 0
        if buffer[at + 3] != (sequence + packets) & 0xFF:
            return 0, 0, -1
        packets += 1
        at += 4 + size
        if size < _MAX_PAYLOAD:
            break
    after = at
    to = start + 4 + _MAX_PAYLOAD
    at = to
    for _ in range(packets - 1):
        size = buffer[at] | (np.int64(buffer[at + 1]) << 8) | (np.int64(buffer[at + 2]) << 16)
        buffer[to : to + size] = buffer[at + 4 : at + 4 + size]
        to += size
        at += 4 + size
    return to, after, packets


@numba.njit(cache=True, nogil=True)
def validity(lengths: Any, bits: Any) -> int:
    """Sets the bits of rows that are not NULL; returns how many are NULL."""
    nulls = 0
    for row in range(lengths.size):
        if lengths[row] < 0:
            nulls += 1
        else:
            bits[row >> 3] |= np.uint8(1 << (row & 7))
    return nulls


@numba.njit(cache=True, nogil=True)
def total_length(lengths: Any) -> int:
    total = 0
    for row in range(lengths.size):
        if lengths[row] > 0:
            total += lengths[row]
    return total


@numba.njit(cache=True, nogil=True)
def gather_bytes(buffer: Any, offsets: Any, lengths: Any, skip: int, ends: Any, data: Any) -> int:
    """The values' bytes end to end, each without its first `skip`; returns a row that is shorter than that, or -1."""
    at = 0
    ends[0] = 0
    for row in range(lengths.size):
        size = lengths[row] - skip
        if lengths[row] >= 0:
            if size < 0:
                return row
            start = offsets[row] + skip
            if size <= 32:
                for i in range(size):
                    data[at + i] = buffer[start + i]
            else:
                data[at : at + size] = buffer[start : start + size]
            at += size
        ends[row + 1] = at
    return -1


@numba.njit(cache=True, nogil=True)
def parse_integers(buffer: Any, offsets: Any, lengths: Any, out: Any) -> int:
    """Signed decimal text within 64 bits."""
    for row in range(lengths.size):
        size = lengths[row]
        if size < 0:
            out[row] = 0
            continue
        at, stop = offsets[row], offsets[row] + size
        negative = size > 0 and buffer[at] == 45
        if negative:
            at += 1
        if at == stop or stop - at > 20:
            return row
        value = np.int64(0)
        while at < stop:
            digit = np.int64(buffer[at]) - 48
            if digit < 0 or digit > 9:
                return row
            value = value * 10 - digit  # negative all along: -2**63 has no positive twin
            at += 1
        out[row] = value if negative else -value
    return -1


@numba.njit(cache=True, nogil=True)
def parse_decimals(buffer: Any, offsets: Any, lengths: Any, scale: int, out: Any) -> int:
    """Decimal text of at most 38 digits to little-endian 128-bit two's complement: `out[row] = (low, high)`."""
    for row in range(lengths.size):
        out[row, 0] = 0
        out[row, 1] = 0
        size = lengths[row]
        if size < 0:
            continue
        at, stop = offsets[row], offsets[row] + size
        negative = size > 0 and buffer[at] == 45
        if negative:
            at += 1
        low, high = np.uint64(0), np.uint64(0)
        digits, decimals, point = 0, 0, False
        while at < stop:
            c = buffer[at]
            at += 1
            if c == 46 and not point:
                point = True
                continue
            if c < 48 or c > 57:
                return row
            digits += 1
            if point:
                decimals += 1
            # (high, low) * 10 + digit, by halves of 32 bits so that nothing overflows unseen
            bottom = (low & np.uint64(0xFFFFFFFF)) * np.uint64(10) + np.uint64(c - 48)
            middle = (low >> np.uint64(32)) * np.uint64(10) + (bottom >> np.uint64(32))
            low = (middle << np.uint64(32)) | (bottom & np.uint64(0xFFFFFFFF))
            high = high * np.uint64(10) + (middle >> np.uint64(32))
        # ZEROFILL may print a few digits more than the precision; 38 nines are below 2**127.
        if digits == 0 or decimals != scale or high >> np.uint64(63):
            return row
        if negative:
            low = ~low + np.uint64(1)
            high = ~high + np.uint64(1 if low == 0 else 0)
        out[row, 0] = low
        out[row, 1] = high
    return -1


@numba.njit(cache=True, nogil=True)
def _digits(buffer: Any, at: int, count: int) -> Any:
    value: Any = 0
    for i in range(count):
        digit = np.int64(buffer[at + i]) - 48
        if digit < 0 or digit > 9:
            return -1
        value = value * 10 + digit
    return value


@numba.njit(cache=True, nogil=True)
def _days(year: int, month: int, day: int) -> int:
    """Days since 1970-01-01 in the proleptic Gregorian calendar (Hinnant, 'chrono-Compatible Date Algorithms')."""
    y = year - (1 if month <= 2 else 0)
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


@numba.njit(cache=True, nogil=True)
def _last_day(year: int, month: int) -> int:
    if month == 2:
        return 29 if (year % 4 == 0 and year % 100 != 0) or year % 400 == 0 else 28
    return 30 if month in (4, 6, 9, 11) else 31


@numba.njit(cache=True, nogil=True)
def parse_days(buffer: Any, offsets: Any, lengths: Any, out: Any) -> tuple[int, int]:
    """`YYYY-MM-DD…` to days since 1970; only the first ten characters are read.

    A date that no calendar has (zero, partial, year 0, the 31st of February) turns `lengths[row]` into -1. Returns the
    row that cannot be read or -1, and the number of such dates.
    """
    unreal = 0
    for row in range(lengths.size):
        out[row] = 0
        if lengths[row] < 0:
            continue
        at = offsets[row]
        if lengths[row] < 10 or buffer[at + 4] != 45 or buffer[at + 7] != 45:
            return row, unreal
        year, month, day = _digits(buffer, at, 4), _digits(buffer, at + 5, 2), _digits(buffer, at + 8, 2)
        if year < 0 or month < 0 or day < 0 or month > 12 or day > 31:
            return row, unreal
        if year == 0 or month == 0 or day == 0 or day > _last_day(year, month):
            lengths[row] = -1
            unreal += 1
            continue
        out[row] = _days(year, month, day)
    return -1, unreal


@numba.njit(cache=True, nogil=True)
def add_time(buffer: Any, offsets: Any, lengths: Any, days: Any, out: Any) -> int:
    """`days` and the `HH:MM:SS[.ffffff]` after them to microseconds since 1970."""
    for row in range(lengths.size):
        out[row] = 0
        size = lengths[row]
        if size < 0:
            continue
        at = offsets[row]
        if size < 19 or size > 26 or buffer[at + 13] != 58 or buffer[at + 16] != 58:
            return row
        hour, minute = _digits(buffer, at + 11, 2), _digits(buffer, at + 14, 2)
        second = _digits(buffer, at + 17, 2)
        micros = 0
        if size > 20:
            micros = _digits(buffer, at + 20, size - 20)
            if buffer[at + 19] != 46 or micros < 0:
                return row
            for _ in range(26 - size):
                micros *= 10
        if hour < 0 or minute < 0 or second < 0 or hour > 23 or minute > 59 or second > 59:
            return row
        out[row] = ((days[row] * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros
    return -1
