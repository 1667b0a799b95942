"""MySQL's binary JSON to the text that SELECT prints, byte for byte.

Format and printing follow the MySQL source: `sql-common/json_binary.h` for the layout, `sql-common/json_dom.cc`
(`Json_wrapper::to_string`) for the text, `strings/dtoa.cc` (`my_gcvt`) for doubles. Keys come in stored order (by
length, then bytes). Every offset is checked: a damaged document raises ValueError.
"""

from __future__ import annotations

import base64
import re
import struct

import numpy as np

from bronze.decode.decimals import decimal, size

_LITERALS = {0: b"null", 1: b"true", 2: b"false"}
_INT16, _UINT16, _INT32, _UINT32 = struct.Struct("<h"), struct.Struct("<H"), struct.Struct("<i"), struct.Struct("<I")
_INT64, _UINT64, _DOUBLE = struct.Struct("<q"), struct.Struct("<Q"), struct.Struct("<d")
_NUMBERS = {5: _INT16, 6: _UINT16, 7: _INT32, 8: _UINT32, 9: _INT64, 10: _UINT64}
_DEPTH_MAX = 100  # the server's own bound
_SPECIAL = re.compile(rb'[\x00-\x1f"\\]')
_ESCAPES = {
    **{bytes([c]): b"\\u00%02x" % c for c in range(32)},
    b'"': b'\\"',
    b"\\": b"\\\\",
    b"\b": b"\\b",
    b"\t": b"\\t",
    b"\n": b"\\n",
    b"\f": b"\\f",
    b"\r": b"\\r",
}
_DECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7
_DECIMAL_DIGITS = 81  # nine groups: an expression may have more than the 65 of a column (`my_decimal.h`)
_BASE64_LINE = 76


def to_text(document: bytes) -> bytes:
    """The text of one document, UTF-8. An empty one is `null`, as to the server.

    Raises ValueError where the document is damaged.
    """
    if not document:
        return b"null"
    printer = _Printer(document)
    try:
        printer.value(document[0], 1, 1)
    except (struct.error, IndexError) as error:
        raise ValueError("a JSON document that ends too early") from error
    return b"".join(printer.parts)


class _Printer:
    """Walks one document. No text has eight times its document's bytes: offsets that lead in circles stop there."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.parts: list[bytes] = []
        self.room = 8 * len(data) + 64

    def put(self, text: bytes) -> None:
        self.room -= len(text)
        if self.room < 0:
            raise ValueError("a JSON document whose members overlap")
        self.parts.append(text)

    def value(self, kind: int, at: int, depth: int) -> None:
        data = self.data
        if kind <= 3:
            self.container(kind, at, depth)
        elif kind == 4:
            self.put(_literal(data[at]))
        elif kind in _NUMBERS:
            self.put(b"%d" % _NUMBERS[kind].unpack_from(data, at)[0])
        elif kind == 11:
            self.put(double_text(_DOUBLE.unpack_from(data, at)[0]).encode())
        elif kind == 12:
            length, at = variable_length(data, at)
            self.put(quoted(_slice(data, at, length)))
        elif kind == 15:
            length, start = variable_length(data, at + 1)
            self.put(_opaque(data[at], _slice(data, start, length)))
        else:
            raise ValueError(f"a JSON value of the unknown type {kind}")

    def container(self, kind: int, start: int, depth: int) -> None:
        """Objects (0 small, 1 large) and arrays (2, 3): counts and offsets of two bytes, or of four where large."""
        if depth > _DEPTH_MAX:
            raise ValueError(f"a JSON document of more than {_DEPTH_MAX} levels")
        data, large, keyed = self.data, kind & 1, kind < 2
        number, width = (_UINT32, 4) if large else (_UINT16, 2)
        (count,) = number.unpack_from(data, start)
        keys = start + 2 * width
        values = keys + (count * (width + 2) if keyed else 0)
        if values + count * (width + 1) > len(data):
            raise ValueError("a JSON container with more members than bytes")
        self.put(b"{" if keyed else b"[")
        for n in range(count):
            if n:
                self.put(b", ")
            if keyed:
                entry = keys + n * (width + 2)
                (offset,) = number.unpack_from(data, entry)
                (length,) = _UINT16.unpack_from(data, entry + width)
                self.put(quoted(_slice(data, start + offset, length)))
                self.put(b": ")
            entry = values + n * (width + 1)
            member = data[entry]
            if member in (4, 5, 6) or (large and member in (7, 8)):
                self.value(member, entry + 1, depth)
            else:
                (offset,) = number.unpack_from(data, entry + 1)
                self.value(member, start + offset, depth + 1)
        self.put(b"}" if keyed else b"]")


def quoted(raw: bytes) -> bytes:
    """A JSON string: quotes, backslashes and what is below 0x20 escaped, all else kept."""
    if _SPECIAL.search(raw):
        raw = _SPECIAL.sub(lambda match: _ESCAPES[match[0]], raw)
    return b'"' + raw + b'"'


def double_text(value: float) -> str:
    """A double as the server prints it in JSON: shortest digits that read back, `.0` where it would look whole.

    `my_gcvt` with room for everything: plain up to 15 digits before the point and 14 zeros behind it.
    """
    sign, digits, point = _digits(value)
    count = len(digits)
    if point >= -14 and (point <= 15 or count > point):
        if point <= 0:
            return f"{sign}0.{'0' * -point}{digits}"
        if point < count:
            return f"{sign}{digits[:point]}.{digits[point:]}"
        return f"{sign}{digits}{'0' * (point - count)}.0"
    fraction = f".{digits[1:]}" if count > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1}"


def _digits(value: float) -> tuple[str, str, int]:
    """(sign, significant digits, where the decimal point stands in them)."""
    text = repr(value)
    sign = "-" if text[0] == "-" else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent or 0) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    return (sign, digits, point) if digits else (sign, "0", 1)


def _literal(number: int) -> bytes:
    if number not in _LITERALS:
        raise ValueError(f"the unknown JSON literal {number}")
    return _LITERALS[number]


def variable_length(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """A length of seven bits a byte, lowest first, and where it ends."""
    value = 0
    for shift in range(0, 35, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a JSON length of more than five bytes")


def _slice(data: bytes, at: int, length: int) -> bytes:
    if at + length > len(data):
        raise ValueError("a JSON string that ends past its document")
    return data[at : at + length]


def _opaque(kind: int, raw: bytes) -> bytes:
    """A value of an SQL type that JSON does not have."""
    if kind == _DECIMAL:
        return _decimal(raw)
    if kind in (_DATE, _TIME, _DATETIME, _TIMESTAMP):
        if len(raw) != 8:
            raise ValueError("a JSON date or time that is not of eight bytes")
        return b'"' + _moment(kind, _INT64.unpack(raw)[0]).encode() + b'"'
    text = base64.b64encode(raw)
    lines = [text[n : n + _BASE64_LINE] for n in range(0, len(text), _BASE64_LINE)]
    return quoted(b"base64:type%d:" % kind + b"\n".join(lines))


def _decimal(raw: bytes) -> bytes:
    if len(raw) < 3 or not 0 < raw[0] <= _DECIMAL_DIGITS or raw[1] > raw[0] or len(raw) != 2 + size(raw[0], raw[1]):
        raise ValueError("a damaged DECIMAL in a JSON document")
    data = np.frombuffer(raw, np.uint8)
    array = decimal(data, np.array([2]), np.zeros(1, np.uint8), raw[0], raw[1])
    found = array[0].as_py()
    return (found if isinstance(found, str) else f"{found:f}").encode()


def _moment(kind: int, packed: int) -> str:
    """A packed date or time (`my_time.cc`, TIME_from_longlong_…_packed); fractions always have six digits."""
    sign, size_ = ("-", -packed) if packed < 0 else ("", packed)
    whole, micros = size_ >> 24, size_ & 0xFFFFFF
    if kind == _TIME:
        return f"{sign}{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
    months, day = whole >> 22, whole >> 17 & 31
    date = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
    if kind == _DATE:
        return date
    return f"{date} {whole >> 12 & 31:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}.{micros:06d}"
