"""docs/types.md and the golden files speak of the same types: a line, a variant or a charset without a case fails.

What the cases hold is proved on both paths by `test_decode_golden.py` and `test_snapshot_values.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from golden.loader import GoldenCase, cases

from lakeward.schema import _GEOMETRIES, KINDS, Column, column_from_catalog

TYPES_MD = Path(__file__).resolve().parents[2] / "docs" / "types.md"
CASES = cases()
SIZES = {"TEXT": ("TINYTEXT", "MEDIUMTEXT", "LONGTEXT"), "BLOB": ("TINYBLOB", "MEDIUMBLOB", "LONGBLOB")}


class Line(NamedTuple):
    """A line of the table: its types, what they become, the servers that have them, its golden files."""

    types: tuple[str, ...]
    lake: frozenset[str]
    flavours: tuple[str, ...]
    files: tuple[str, ...]


def lines() -> Iterator[Line]:
    rows = [line.split("|")[1:-1] for line in TYPES_MD.read_text("utf-8").splitlines() if line.startswith("| ")]
    for source, lake, _, files in rows[1:]:
        only = re.search(r"\((MySQL|MariaDB)\)", source)
        words = re.findall(r"\b[A-Z][A-Z0-9]+(?: UNSIGNED)?\b", re.sub(r"\([^)]*\)|below .*", "", source))
        if "the unsigned ones" in source:
            words += [f"{word} UNSIGNED" for word in ("TINYINT", "SMALLINT", "MEDIUMINT")]
        if "and kin" in source:
            words += [word.upper() for word in sorted(_GEOMETRIES - {"geomcollection"})]
        words += [more for word in words for more in SIZES.get(word, ())]
        flavours = (only[1].lower(),) if only else ("mysql", "mariadb")
        became = frozenset(re.findall(r"[A-Z][A-Z_]+", re.sub(r"<.*>", "", lake)))
        yield Line(tuple(dict.fromkeys(words)), became, flavours, tuple(f.strip() for f in files.split(",")))


def file_of(case: GoldenCase) -> str:
    return str(case.name).rpartition("-")[0]


def word_of(case: GoldenCase) -> str:
    """`INT UNSIGNED` of `INT(10) UNSIGNED ZEROFILL`."""
    ddl = case.column_ddl.upper()
    unsigned = " UNSIGNED" if re.search(r"UNSIGNED|ZEROFILL", ddl) and "INT" in ddl else ""
    return re.split(r"[\s(]", ddl)[0] + unsigned


def column_of(case: GoldenCase) -> Column:
    return column_from_catalog("v", case.column_ddl, nullable=True, tinyint1=case.tinyint1)


@pytest.mark.parametrize("line", list(lines()), ids=lambda line: "-".join(line.files + line.types)[:40])
def test_each_type_of_the_table_has_a_golden_case_on_each_server_that_knows_it(line: Line) -> None:
    assert line.types
    for flavour in line.flavours:
        mine = [c for c in CASES if file_of(c) in line.files and flavour in c.flavours]
        if line.types == ("VECTOR",) and flavour == "mariadb":  # before 11.7 it has none
            continue
        found = {word_of(c) for c in mine if set(re.findall(r"^[A-Z_]+", c.lake)) & line.lake}
        assert set(line.types) <= found, f"{flavour}: no case of {sorted(set(line.types) - found)} in {line.files}"
        assert line.lake <= {re.findall(r"^[A-Z_]+", c.lake)[0] for c in mine}


def test_each_type_that_is_taken_is_in_the_table_and_each_golden_file_too() -> None:
    kinds = {column_from_catalog("v", t, nullable=True).kind for line in lines() for t in line.types}
    assert kinds == set(KINDS)
    assert {file for line in lines() for file in line.files} == {file_of(c) for c in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_each_case_has_a_null(case: GoldenCase) -> None:
    for flavour in case.flavours:
        assert "NULL" in case.inserts(flavour)


def columns(*kinds: str) -> list[Column]:
    return [column for column in map(column_of, CASES) if column.kind in kinds]


def test_each_way_to_pack_a_decimal_has_a_case() -> None:
    """Nine digits take four bytes; what is left over, on either side of the point, takes fewer."""
    found = columns("decimal")
    for low, high in ((1, 18), (19, 38), (39, 65)):
        here = [c for c in found if low <= c.precision <= high]
        assert {(c.precision - c.scale) % 9 for c in here} == set(range(9))
        assert {c.scale % 9 for c in here} == set(range(9))
    assert {(c.precision - c.scale) // 9 for c in found} == set(range(8))
    assert {c.scale // 9 for c in found} == set(range(5))
    assert {(65, 30), (65, 0), (38, 0), (38, 30), (39, 0)} <= {(c.precision, c.scale) for c in found}


@pytest.mark.parametrize("kind", ["time", "datetime", "timestamp"])
def test_each_number_of_fractional_digits_has_a_case(kind: str) -> None:
    assert {c.fsp for c in columns(kind)} == set(range(7))


def test_each_packed_length_has_a_case() -> None:
    assert {((c.length or 1) + 7) // 8 for c in columns("bit")} == set(range(1, 9))
    assert {1, 2, 63, 64} <= {c.length for c in columns("bit")}
    assert {(len(c.labels) + 7) // 8 for c in columns("set")} >= {1, 2, 3, 4, 5, 8}  # 5 to 8 are stored in 8
    assert {len(c.labels) > 255 for c in columns("enum")} == {False, True}
    for kind in ("char", "varchar"):  # more than 255 bytes have a length of two
        fits = {(c.length or 0) * 4 > 255 for c in columns(kind) if c.length in (63, 64)}
        assert fits == {False, True}, kind
    assert {255, 256} <= {c.length for c in columns("varbinary")}


def test_each_charset_of_the_server_has_a_case(database) -> None:
    named = {
        found[1]
        for case in CASES
        if database.flavour in case.flavours and (found := re.search(r"CHARACTER SET (\w+)", case.column_ddl))
    }
    assert {charset for charset, *_ in database.query("SHOW CHARACTER SET")} <= named


@pytest.mark.parametrize(
    "charset", ["latin1", "cp1251", "gbk", "sjis", "ucs2", "utf16", "utf8mb3", "utf8mb4", "binary"]
)
def test_each_text_type_has_a_case_in_the_charsets_that_are_packed_differently(charset: str) -> None:
    found = {word_of(c) for c in CASES if f"CHARACTER SET {charset}" in c.column_ddl}
    assert {"CHAR", "VARCHAR", "TEXT", "ENUM", "SET"} <= found


EXTREMES = {
    "TINYINT": ("-128", "127"),
    "TINYINT UNSIGNED": ("0", "255"),
    "SMALLINT": ("-32768", "32767"),
    "SMALLINT UNSIGNED": ("0", "65535"),
    "MEDIUMINT": ("-8388608", "8388607"),
    "MEDIUMINT UNSIGNED": ("0", "16777215"),
    "INT": ("-2147483648", "2147483647"),
    "INT UNSIGNED": ("0", "4294967295"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "BIGINT UNSIGNED": ("0", "9223372036854775808", "18446744073709551615"),
    "BIT(64)": ("0", "0xFFFFFFFFFFFFFFFF"),
    "TIME(6)": ("'-838:59:59.000000'", "'838:59:59.000000'"),
    "DATE": ("'0001-01-01'", "'9999-12-31'", "'1582-10-10'", "'0000-00-00'", "'2020-00-00'", "'2020-01-00'"),
    "DATETIME(6)": ("'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "'1582-10-10 00:00:00.5'"),
    "TIMESTAMP(6) NULL": ("'1970-01-01 00:00:01.000001'", "'2038-01-19 03:14:07.999999'"),
    "YEAR": ("'0000'", "1901", "2155"),
}


@pytest.mark.parametrize("column", EXTREMES)
def test_the_least_and_the_greatest_value_of_a_type_have_a_line(column: str) -> None:
    known = {literal for c in CASES if column in (c.column_ddl, word_of(c)) for literal, *_ in c.rows}
    assert set(EXTREMES[column]) <= known


@pytest.mark.parametrize(
    "inside",
    [
        *("DECIMAL", "DATE'", "TIME'", "TIMESTAMP'", "YEAR", "BINARY", "x'", "b'", "Point", "POLYGON"),
        *("18446744073709551615", "-9223372036854775808", "5e-324"),
    ],
)
def test_each_kind_of_value_inside_of_json_has_a_line(inside: str) -> None:
    assert any(inside in literal for c in CASES if file_of(c) == "json" for literal, *_ in c.rows)


@pytest.mark.parametrize("kind", sorted(_GEOMETRIES - {"geometry", "geomcollection"}))
def test_each_kind_of_geometry_has_a_line_in_a_column_of_any(kind: str) -> None:
    known = [literal for c in CASES if c.column_ddl == "GEOMETRY" for literal, *_ in c.rows]
    assert any(re.search(rf"'{kind}\b", literal, re.IGNORECASE) for literal in known)
