"""Text of any MySQL character set to UTF-8, as the server's own conversion to utf8mb4 does it.

Both paths into bronze must give one value, and the snapshot gets what the server converts; so this follows the
server, whose tables are in `charset_tables`.

Bytes that cannot be read: like the server, each byte of a malformed sequence becomes `?`, and so does a well-formed
one that Unicode has no character for. utf8mb4 is sent by the server unconverted; there malformed bytes arrive and
become U+FFFD here. The snapshot path has to pass what it receives through `text(…, "utf8mb4")` for the same reason.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numba import njit

from bronze.decode import charset_codecs, charset_tables
from bronze.decode.arrays import Bytes, Int64s, check_size, gather, string
from lakeward.errors import FailClosedError

UTF8 = ("utf8mb4", "utf8mb3", "utf8")  # the last is an old name of utf8mb3
_UNMAPPED = charset_tables.UNMAPPED


class Text(NamedTuple):
    """Strings, and how many of them held bytes that could not be read."""

    array: pa.Array
    replaced: int


def decode(raw: bytes, charset: str) -> str:
    """One value, such as a label of a table map. Raises FailClosedError for a character set that is not known."""
    data = np.frombuffer(raw, np.uint8)
    one = text(data, np.zeros(1, np.int64), np.array([len(raw)]), np.zeros(1, np.uint8), charset)
    return str(one.array[0].as_py())


def text(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes, charset: str | None) -> Text:
    """Strings from values in `charset` that stand at `offset` in `data`.

    Raises FailClosedError for a character set that is not known.
    """
    if charset in UTF8:
        return utf8(*gather(data, offset, length, absent), absent, charset)
    if charset in charset_codecs.KNOWN:
        return _each(*gather(data, offset, length, absent), absent, charset)
    if charset not in charset_tables.KNOWN:
        raise FailClosedError(
            f"text in the character set {charset!r}, which Lakeward does not know",
            hint="name the column in exclude_columns, or convert it to utf8mb4 at the source",
        )
    return _tabled(data, offset, length, absent, charset)


def utf8(offsets: npt.NDArray[np.int32], raw: Bytes, absent: Bytes, charset: str) -> Text:
    """Text in utf8mb4 or utf8mb3, by Arrow's offsets.

    Almost always valid as it stands, which Arrow finds out faster than it could be converted.
    """
    charset = "utf8mb4" if charset == "utf8mb4" else "utf8mb3"
    array = string(offsets, raw, absent)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return _each(offsets, raw, absent, charset)
    if charset == "utf8mb3" and raw.size and int(raw.max()) >= 0xF0:
        return _each(offsets, raw, absent, charset)
    return Text(array, 0)


def _each(offsets: npt.NDArray[np.int32], raw: Bytes, absent: Bytes, charset: str) -> Text:
    """Each distinct value once through Python."""
    whole = raw.tobytes()
    done: dict[bytes, tuple[str, bool]] = {}
    values: list[str | None] = [None] * absent.size
    replaced = 0
    for i in np.flatnonzero(absent == 0).tolist():
        value = whole[offsets[i] : offsets[i + 1]]
        if value not in done:
            done[value] = charset_codecs.convert(value, charset)
        values[i], bad = done[value]
        replaced += bad
    return Text(pa.array(values, pa.string()), replaced)


def _tabled(data: Bytes, offset: Int64s, length: Int64s, absent: Bytes, charset: str) -> Text:
    t = charset_tables.table(charset)
    if t.ascii:
        offsets, raw = gather(data, offset, length, absent)
        if raw.size == 0 or int(raw.max()) < 0x80:
            return Text(string(offsets, raw, absent), 0)
        data, offset, length = raw, offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    room = 3 * int(length[absent == 0].sum())
    check_size(room)
    out = np.empty(room, np.uint8)
    offsets = np.zeros(absent.size + 1, np.int32)
    replaced = _transcode(data, offset, length, absent, t.lead, t.trail, t.single, t.pair, t.triple, offsets, out)
    return Text(string(offsets, out[: offsets[-1]].copy(), absent), int(replaced))


@njit(cache=True, nogil=True)
def _transcode(data, offset, length, absent, lead, trail, single, pair, triple, offsets, out):  # type: ignore[no-untyped-def]
    at = 0
    replaced = 0
    for i in range(absent.size):
        if not absent[i]:
            p = offset[i]
            end = p + length[i]
            bad = 0
            while p < end:
                byte = data[p]
                kind = lead[byte]
                n = 1
                point = np.uint32(_UNMAPPED)
                if kind == 1:
                    point = single[byte]
                elif kind == 2 and p + 1 < end and trail[data[p + 1]]:
                    n = 2
                    point = pair[np.int64(byte) << 8 | data[p + 1]]
                elif kind == 3 and p + 2 < end and trail[data[p + 1]] and trail[data[p + 2]]:
                    n = 3
                    point = triple[np.int64(data[p + 1]) << 8 | data[p + 2]]
                p += n
                if point == _UNMAPPED:
                    bad = 1
                    point = np.uint32(63)
                if point < 0x80:
                    out[at] = point
                    at += 1
                elif point < 0x800:
                    out[at] = 0xC0 | point >> 6
                    out[at + 1] = 0x80 | point & 63
                    at += 2
                else:
                    out[at] = 0xE0 | point >> 12
                    out[at + 1] = 0x80 | point >> 6 & 63
                    out[at + 2] = 0x80 | point & 63
                    at += 3
            replaced += bad
        offsets[i + 1] = at
    return replaced
