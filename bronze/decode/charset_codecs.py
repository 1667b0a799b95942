"""The character sets that need no table, and the values of any UTF that are malformed: one value at a time.

A malformed byte of a set that the server converts becomes `?`, one for each byte, as the server's conversion does
it. Surrogates are well-formed to the server in ucs2, utf32 and utf8mb3: it sends them on as three bytes that are not
UTF-8, and each of those becomes U+FFFD. Seen on MySQL 9.7 and MariaDB 11.4.
"""

from __future__ import annotations

from collections.abc import Callable

_SURROGATE = "\ufffd" * 3
# Python follows GB 18030-2000 here, the servers the edition of 2005.
_GB18030_2005 = {0x1E3F: 0xE7C7, 0xE7C7: 0x1E3F}
_CODECS = {
    "utf8mb4": "utf-8",
    "utf8mb3": "utf-8",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "gb18030": "gb18030",
}
KNOWN = tuple(_CODECS)


def convert(value: bytes, charset: str) -> tuple[str, bool]:
    """The text of `value` in a set of KNOWN, and whether any of it had to be replaced."""
    try:
        text = value.decode(_CODECS[charset])
    except UnicodeDecodeError:
        if charset == "utf8mb4":
            return value.decode("utf-8", "replace"), True
        return _step_by_step(value, _NEXT[charset]), True
    if charset == "gb18030":
        return text.translate(_GB18030_2005), False
    if charset in ("ucs2", "utf8mb3") and text and max(text) > "\uffff":
        return _step_by_step(value, _NEXT[charset]), True
    return text, False


def _step_by_step(value: bytes, following: Callable[[bytes], tuple[str, int]]) -> str:
    parts = []
    at = 0
    while at < len(value):
        char, size = following(value[at : at + 4])
        parts.append(char)
        at += size
    return "".join(parts)


def _utf8mb3(ahead: bytes) -> tuple[str, int]:
    for size in (1, 2, 3):
        try:
            char = ahead[:size].decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            continue
        return (_SURROGATE if "\ud800" <= char <= "\udfff" else char), size
    return "?", 1


def _ucs2(ahead: bytes) -> tuple[str, int]:
    if len(ahead) < 2:
        return "?", 1
    point = int.from_bytes(ahead[:2], "big")
    return (_SURROGATE if 0xD800 <= point <= 0xDFFF else chr(point)), 2


def _utf16(ahead: bytes, codec: str = "utf-16-be") -> tuple[str, int]:
    for size in (2, 4):
        try:
            char = ahead[:size].decode(codec)
        except UnicodeDecodeError:
            continue
        return char, min(size, len(ahead))
    return "?", 1


def _utf16le(ahead: bytes) -> tuple[str, int]:
    return _utf16(ahead, "utf-16-le")


def _utf32(ahead: bytes) -> tuple[str, int]:
    point = int.from_bytes(ahead, "big")
    if len(ahead) < 4 or point > 0x10FFFF:
        return "?", 1
    return (_SURROGATE if 0xD800 <= point <= 0xDFFF else chr(point)), 4


def _gb18030(ahead: bytes) -> tuple[str, int]:
    two = len(ahead) > 1 and 0x81 <= ahead[0] <= 0xFE and 0x40 <= ahead[1] <= 0xFE and ahead[1] != 0x7F
    four = len(ahead) == 4 and ahead[0] >= 0x81 and ahead[2] >= 0x81 and _digits(ahead[1], ahead[3])
    size = 2 if two else 4 if four else 1
    try:
        return ahead[:size].decode("gb18030").translate(_GB18030_2005), size
    except UnicodeDecodeError:
        return "?", size


def _digits(*values: int) -> bool:
    return all(0x30 <= value <= 0x39 for value in values)


_NEXT = {
    "utf8mb3": _utf8mb3,
    "ucs2": _ucs2,
    "utf16": _utf16,
    "utf16le": _utf16le,
    "utf32": _utf32,
    "gb18030": _gb18030,
}
