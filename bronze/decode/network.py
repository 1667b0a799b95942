"""MariaDB's UUID, INET4 and INET6: fixed bytes in the binlog, printed as the server prints them.

In the binlog a UUID stands in the order it is printed in, whatever the order in the table's own pages (MariaDB source:
`plugin/type_uuid/sql_type_uuid.h`, `UUID::pack`). All three leave trailing zero bytes out, as BINARY does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bronze.decode.arrays import Bytes, Int64s, gather, string

WIDTHS = {"uuid": 16, "inet6": 16, "inet4": 4}
_DASHED = np.array([n for n in range(36) if n not in (8, 13, 18, 23)])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def uuid(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes) -> pa.Array:
    """Lower-case text with dashes. Raises ValueError for a value of more than 16 bytes."""
    raw = _rows(data, offset, length, absent, 16)
    text = np.full((absent.size, 36), ord("-"), np.uint8)
    text[:, _DASHED] = _HEX[np.stack([raw >> 4, raw & 15], axis=2).reshape(absent.size, 32)]
    offsets = np.zeros(absent.size + 1, np.int32)
    offsets[1:] = np.cumsum(np.where(absent == 0, 36, 0))
    return string(offsets, text[absent == 0].ravel(), absent)


def inet4(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes) -> pa.Array:
    """1.2.3.4. Raises ValueError for a value of more than 4 bytes."""
    rows = _rows(data, offset, length, absent, 4).tolist()
    return pa.array([".".join(map(str, row)) for row in rows], pa.string(), mask=absent == 1)


def inet6(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes) -> pa.Array:
    """Compressed text. Raises ValueError for a value of more than 16 bytes."""
    rows = _rows(data, offset, length, absent, 16)
    return pa.array([inet6_text(row.tobytes()) for row in rows], pa.string(), mask=absent == 1)


def inet6_text(raw: bytes) -> str:
    """The server's print of 16 bytes.

    The first longest run of zero groups becomes `::`, even a run of one, which RFC 5952 and inet_ntop leave; the last
    four bytes are dotted behind `::` and `::ffff:` (MariaDB source: `sql/sql_type_inet.cc`, Inet6::to_string).
    """
    groups = [int.from_bytes(raw[n : n + 2], "big") for n in range(0, 16, 2)]
    start, size = _longest_gap(groups)
    dotted = start == 0 and (size == 6 or (size == 5 and groups[5] == 0xFFFF))
    if size == 0:
        return ":".join(f"{g:x}" for g in groups)
    head = ":".join(f"{g:x}" for g in groups[:start])
    tail = [f"{g:x}" for g in groups[start + size : 6 if dotted else 8]]
    if dotted:
        tail.append(".".join(map(str, raw[12:])))
    return f"{head}::{':'.join(tail)}"


def _longest_gap(groups: list[int]) -> tuple[int, int]:
    best, size = 0, 0
    n = 0
    while n < 8:
        end = n
        while end < 8 and groups[end] == 0:
            end += 1
        if end - n > size:
            best, size = n, end - n
        n = end + 1
    return best, size


def _rows(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes, width: int) -> Bytes:
    """Values as rows of `width` bytes, with the trailing zeros put back; NULL as zeros."""
    if (length > width).any():
        raise ValueError(f"a value of more than {width} bytes")
    _, raw = gather(data, offset, length, np.zeros(absent.size, np.uint8), pad=width)
    return raw.reshape(absent.size, width)
