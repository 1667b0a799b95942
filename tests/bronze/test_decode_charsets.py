"""Every character of every charset: our UTF-8 is the server's."""

from __future__ import annotations

import numpy as np
import pytest
from servers.running import Database

from bronze.decode import charset_codecs, charset_tables
from bronze.decode.charsets import decode, text
from lakeward.errors import FailClosedError


def test_every_character_becomes_what_the_server_converts_it_to(database: Database) -> None:
    database.execute("SET sql_mode = ''")
    known = {name for (name,) in database.query("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")}
    ours = {*charset_tables.KNOWN, *charset_codecs.KNOWN}
    assert known - {"binary"} <= ours
    compared = 0
    for charset in sorted(ours & known):
        table = f"of_{charset}"
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v TEXT CHARACTER SET {charset})")
        rows = list(enumerate(_samples(charset)))
        values = ",".join(f"({n}, x'{raw.hex()}')" for n, raw in rows)
        database.execute(f"INSERT IGNORE INTO {table} VALUES {values}")
        for stored, printed in database.query(f"SELECT CAST(v AS BINARY), v FROM {table} ORDER BY id"):
            assert decode(stored, charset) == printed, f"{charset} {stored.hex()}"
            compared += len(printed)
    assert compared > 100_000


@pytest.mark.parametrize(
    ("charset", "raw", "expected"),
    [
        ("utf8mb4", b"a\xffb", "a\ufffdb"),
        ("utf8mb4", b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        ("utf8mb3", b"a\xff\xc3(", "a??("),
        ("utf8mb3", "😀".encode(), "????"),
        ("sjis", b"\x81", "?"),
        ("sjis", b"\x81 ", "? "),
        ("gbk", b"\xffA", "?A"),
        ("big5", b"\xa10", "?0"),
        ("euckr", b"\x810", "?0"),
        ("ascii", b"\xffA", "?A"),
        ("utf16", b"\xd8\x00\x00A", "?\x00?"),
        ("utf16", b"\x00A\x00B\xd8", "AB?"),
        ("utf32", b"\x00\x11\x00\x00", "????"),
        ("ucs2", b"\xd8\x00\x00A", "\ufffd\ufffd\ufffdA"),
        ("ucs2", b"A", "?"),
        ("gb18030", b"\xe3\x32\x9a\x36A", "?A"),
    ],
)
def test_bytes_that_cannot_be_read_become_what_the_server_sends(charset: str, raw: bytes, expected: str) -> None:
    done = text(
        np.frombuffer(raw, np.uint8), np.zeros(1, np.int64), np.array([len(raw)]), np.zeros(1, np.uint8), charset
    )
    assert done.array.to_pylist() == [expected]
    assert done.replaced == 1


def test_an_unknown_charset_is_refused_by_name() -> None:
    with pytest.raises(FailClosedError, match="klingon"):
        decode(b"x", "klingon")


def _samples(charset: str) -> list[bytes]:
    """Strings that hold every character of the set that its bytes can spell, one row a lead byte."""
    if charset in charset_codecs.KNOWN:
        points = [*range(1, 0xD800), *range(0xE000, 0x10000)]
        if charset not in ("ucs2", "utf8mb3"):
            points += range(0x10000, 0x10FFFF, 97)
        codec = {"utf16le": "utf-16-le", "utf32": "utf-32-be", "gb18030": "gb18030"}.get(charset, "utf-16-be")
        codec = "utf-8" if charset.startswith("utf8") else codec
        return ["".join(map(chr, points[n : n + 4000])).encode(codec) for n in range(0, len(points), 4000)]
    t = charset_tables.table(charset)
    rows = [bytes([b]) for b in range(1, 256) if t.lead[b] == 1]
    follow = [bytes([b]) for b in range(256) if t.trail[b]]
    for lead in range(256):
        if t.lead[lead] == 2:
            rows.append(b"".join(bytes([lead]) + b for b in follow if lead != 0x8E or b[0] <= 0xDF))
        elif t.lead[lead] == 3:
            rows += [b"".join(bytes([lead]) + a + b for b in follow) for a in follow]
    return rows
