"""Which strings a foreign key holds to be equal: a child's 'a ' refers to the parent 'A' where the collation says so.

A collation's own weights are in the server. Here Unicode stands for them where the two agree: letters without their
case, and without their accents where the collation drops these for every language alike. In doubt two strings are two,
since a cascade that is missed is found by `verify` as one, and a row that was deleted wrongly is gone from history.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import partial

from lakeward.schema import STRINGS, Column

Fold = Callable[[str], str]


def fold(column: Column) -> Fold | None:
    """A function to strings that are equal where the column's values are; None where only identical ones are.

    It can be pickled.
    """
    if column.masked or column.kind not in STRINGS or not column.collation:
        return None
    name = column.collation.lower()
    pads = "_0900_" not in name and "nopad" not in name and name != "binary"
    cases = name.endswith("_ci")
    accents = cases and "_as_" not in name and ("_ai_" in name or _plain(name))
    if not (pads or cases):
        return None
    return partial(_folded, pads=pads, cases=cases, accents=accents, swedish=name == "latin1_swedish_ci")


def _plain(name: str) -> bool:
    """Whether it is no language's own collation: those give some accented letters a place of their own."""
    unicode = name.startswith(("utf8", "ucs2", "utf16", "utf32"))
    return name == "latin1_swedish_ci" or (unicode and name.endswith(("_general_ci", "_unicode_ci", "_unicode_520_ci")))


def _folded(text: str, *, pads: bool, cases: bool, accents: bool, swedish: bool) -> str:
    if pads:
        text = text.rstrip(" ")
    if not cases or text.isascii():
        return text.lower() if cases else text
    text = text.lower()
    if not accents:
        return text
    return "".join(c if swedish and c in "åäöü" else _without_accent(c) for c in text)


def _without_accent(letter: str) -> str:
    parts = unicodedata.normalize("NFD", letter)
    return parts[0] if all(unicodedata.combining(m) for m in parts[1:]) else letter
