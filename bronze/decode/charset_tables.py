"""What each sequence of bytes means in MySQL's character sets, as tables of code points.

Taken from Python's codecs and corrected to what the servers do: Big5's backslash, EUC-JP's user-defined area, latin1,
which is MySQL's name for cp1252 with the five undefined bytes kept as controls. Compared for every sequence of one,
two and three bytes on MySQL 9.7 and MariaDB 11.4, which agree with each other; tests/bronze repeats it.
"""

# ruff: noqa: RUF001 (look-alikes are what these tables are about)

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

UNMAPPED = 0xFFFFFFFF

# Python's codec for each set, and below it what the servers do otherwise ("": no character).
_CODECS = {
    **{name: name for name in ("cp1250", "cp1251", "cp1256", "cp1257", "cp850", "cp852", "cp866", "ascii")},
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "hp8": "hp_roman8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "tis620": "tis_620",
    "latin1": "cp1252",
    "macce": "mac_latin2",
    "macroman": "mac_roman",
    "swe7": "ascii",
    "armscii8": "latin_1",
    "dec8": "latin_1",
    "geostd8": "latin_1",
    "keybcs2": "ascii",
    "big5": "big5",
    "cp932": "cp932",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
}
KNOWN = tuple(_CODECS)
_SINGLES: dict[str, dict[int, str]] = {
    "cp1256": dict.fromkeys((0x8A, 0x8F, 0x98, 0x9A, 0x9F, 0xAA, 0xC0, 0xFF), ""),
    "cp866": {0xFC: "ⁿ", 0xFD: "²"},
    "greek": {0xA1: "ʽ", 0xA2: "ʼ", 0xA4: "", 0xA5: "", 0xAA: ""},
    "hebrew": {0xAF: "‾"},
    "koi8u": {0x95: "•"},
    "latin1": {b: chr(b) for b in (0x81, 0x8D, 0x8F, 0x90, 0x9D)},
    "tis620": dict.fromkeys((0xA0, *range(0xDB, 0xDF), *range(0xFC, 0x100)), "\ufffd"),
    "swe7": {
        **dict(zip(b"@[\\]^`{|}~", "ÉÄÖÅÜéäöåü", strict=True)),
        **dict.fromkeys((0x7F,), ""),
    },
    "armscii8": dict(
        enumerate(
            "❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶզԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'",
            0xA1,
        )
    ),
    "dec8": {
        **dict.fromkeys((0xA4, 0xA6, 0xAC, 0xAD, 0xAE, 0xAF, 0xB4, 0xB8, 0xBE, 0xD0, 0xDE, 0xF0, 0xFE, 0xFF), ""),
        0xA8: "¤",
        0xD7: "Œ",
        0xDD: "Ÿ",
        0xF7: "œ",
        0xFD: "ÿ",
    },
    "geostd8": {
        **dict.fromkeys(range(0x80, 0xA0), ""),
        0x80: "€",
        0x82: "‚",
        0x84: "„",
        0x85: "…",
        0x86: "†",
        0x87: "‡",
        0x89: "‰",
        0x8B: "‹",
        0x9B: "›",
        **dict(enumerate("‘’“”•–—", 0x91)),
        **dict(enumerate("აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ", 0xC0)),
        **dict.fromkeys(range(0xE6, 0x100), ""),
        0xFD: "№",
    },
    "keybcs2": dict(
        enumerate(
            "ČüéďäĎŤčěĚĹÍľĺÄÁÉžŽôöÓůÚýÖÜŠĽÝŘťáíóúňŇŮÔšřŕŔ¼¡«»░▒▓│┤╡╢╖╕╣║╗╝╜╛┐└┴┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀"
            "αßΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡÷≈°∙·√ⁿ²■\xa0",
            0x80,
        )
    ),
}
_PAIRS: dict[str, dict[int, str]] = {
    "big5": {
        **dict.fromkeys((0xA15A, 0xA1C3, 0xA1C5, 0xA1FE, 0xA240, 0xA2CC, 0xA2CE), "\ufffd"),
        **dict(enumerate("碁銹裏墻恒粧嫺", 0xF9D6)),
    },
    "sjis": {0x815F: "\\"},
    "ujis": {0xA1C0: "\\"},
}
# Lead bytes of two-byte characters, and what may follow (both inclusive ranges).
_SHAPES = {
    "big5": ([(0xA1, 0xF9)], [(0x40, 0x7E), (0xA1, 0xFE)]),
    "cp932": ([(0x81, 0x9F), (0xE0, 0xFC)], [(0x40, 0x7E), (0x80, 0xFC)]),
    "sjis": ([(0x81, 0x9F), (0xE0, 0xFC)], [(0x40, 0x7E), (0x80, 0xFC)]),
    "euckr": ([(0x81, 0xFE)], [(0x41, 0x5A), (0x61, 0x7A), (0x81, 0xFE)]),
    "gb2312": ([(0xA1, 0xF7)], [(0xA1, 0xFE)]),
    "gbk": ([(0x81, 0xFE)], [(0x40, 0x7E), (0x80, 0xFE)]),
    "ujis": ([(0x8E, 0x8E), (0xA1, 0xFE)], [(0xA1, 0xFE)]),
    "eucjpms": ([(0x8E, 0x8E), (0xA1, 0xFE)], [(0xA1, 0xFE)]),
}
# IBM's extensions, which eucjpms keeps in the third plane from 0x8FF3F3 on.
_IBM = (
    "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏\ufa10增寬峵嵓﨑德悅愠敎昻晥\ufa12\uf929"
    "栁﨓﨔橫櫢淸淲瀨\ufa15\ufa16甁皂皞\ufa17礰\ufa18\ufa19\ufa1a\ufa1b竧\ufa1c\ufa1d"
    "綠緖\ufa1e荢﨟薰\ufa20﨡蠇\ufa22譿賴赶﨣﨤\ufa25郞\ufa26鄕﨧﨨閒\uf9dc﨩霻靍靑\ufa2a"
    "\ufa2b\ufa2c馞髙魲\ufa2d黑"
)


@dataclass(frozen=True)
class Table:
    """One character set. Code points, UNMAPPED where there is none.

    `lead` says what a byte opens: 0 nothing, 1 a character of one byte, 2 of two, 3 of three. `single` is indexed by
    the byte, `pair` and `triple` by the two bytes (for `triple` those after the lead); `trail` says which may follow.
    """

    lead: npt.NDArray[np.uint8]
    trail: npt.NDArray[np.uint8]
    single: npt.NDArray[np.uint32]
    pair: npt.NDArray[np.uint32]
    triple: npt.NDArray[np.uint32]
    ascii: bool  # whether bytes below 0x80 mean ASCII


@functools.cache
def table(charset: str) -> Table:
    """The table of a set of KNOWN. Building the largest takes about 50 ms."""
    leads, trails = _SHAPES.get(charset, ([], []))
    lead = np.ones(256, np.uint8)
    trail = np.zeros(256, np.uint8)
    for first, last in trails:
        trail[first : last + 1] = 1
    codec = _CODECS[charset]
    single = np.array([_point(bytes([b]), codec) for b in range(256)], np.uint32)
    for byte, char in _SINGLES.get(charset, {}).items():
        single[byte] = ord(char) if char else UNMAPPED
    pair = np.full(1, UNMAPPED, np.uint32)
    triple = np.full(1, UNMAPPED, np.uint32)
    if leads:
        pair = np.full(65536, UNMAPPED, np.uint32)
        lead[0x80:] = single[0x80:] != UNMAPPED
        for first, last in leads:
            lead[first : last + 1] = 2
            for a in range(first, last + 1):
                for b in np.flatnonzero(trail):
                    pair[a << 8 | b] = _pair(charset, a, int(b))
    if charset in ("ujis", "eucjpms"):
        lead[0x8F] = 3
        triple = np.full(65536, UNMAPPED, np.uint32)
        for second in range(0xA1, 0xFF):
            for third in range(0xA1, 0xFF):
                triple[second << 8 | third] = _triple(charset, second, third)
    return Table(lead, trail, single, pair, triple, bool((single[:0x80] == np.arange(0x80)).all()))


def _point(raw: bytes, codec: str) -> int:
    try:
        char = raw.decode(codec)
    except UnicodeDecodeError:
        return UNMAPPED
    return ord(char) if len(char) == 1 else UNMAPPED


def _pair(charset: str, a: int, b: int) -> int:
    override = _PAIRS.get(charset, {}).get(a << 8 | b)
    if override is not None:
        return ord(override)
    if charset in ("ujis", "eucjpms") and a >= 0xF5:  # user-defined
        return 0xE000 + (a - 0xF5) * 94 + b - 0xA1
    if charset == "eucjpms" and a != 0x8E:  # the rows of cp932 under EUC's numbers
        row, cell = a - 0xA1, b - 0xA1
        lead = row // 2 + (0x81 if row < 62 else 0xC1)
        trail = cell + 0x40 + (cell >= 63) if row % 2 == 0 else cell + 0x9F
        return _point(bytes((lead, trail)), "cp932")
    return _point(bytes((a, b)), _CODECS[charset])


def _triple(charset: str, a: int, b: int) -> int:
    if a >= 0xF5:  # user-defined
        return 0xE3AC + (a - 0xF5) * 94 + b - 0xA1
    if charset == "eucjpms":
        ibm = (a - 0xF3) * 94 + b - 0xF3
        if 0 <= ibm < len(_IBM):
            return ord(_IBM[ibm])
        if (a, b) in ((0xA2, 0xB7), (0xA2, 0xC3)):
            return ord("～￤"[(a, b) == (0xA2, 0xC3)])
    return _point(bytes((0x8F, a, b)), "euc_jp")
