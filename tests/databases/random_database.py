"""Random databases: schemas over the whole type table, keys, charsets and row sizes, and statements on their rows.

Everything follows from a seed and the server's flavour, so a failing seed is a test case.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass

Literal = Callable[[random.Random], str]


@dataclass(frozen=True)
class Kind:
    """A column type and how its values are written in SQL."""

    ddl: str
    literal: Literal
    key: bool = False  # may be part of a primary key


@dataclass
class RandomTable:
    name: str
    columns: list[tuple[str, Kind]]
    keys: list[str]

    def create(self) -> str:
        parts = [f"`{name}` {kind.ddl}{' NOT NULL' if name in self.keys else ''}" for name, kind in self.columns]
        if self.keys:
            parts.append(f"PRIMARY KEY ({', '.join(f'`{k}`' for k in self.keys)})")
        return f"CREATE TABLE `{_q(self.name)}` ({', '.join(parts)}) ENGINE=InnoDB"


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _integer(bits: int, unsigned: bool) -> Literal:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return lambda r: str(r.choice([low, high, 0 if low == 0 else -1, r.randint(low, high), r.randint(0, 99)]))


def _decimal(precision: int, scale: int) -> Literal:
    def literal(r: random.Random) -> str:
        digits = "".join(r.choice("0123456789") for _ in range(r.randint(1, precision)))
        whole = digits[: max(0, len(digits) - scale)] or "0"
        return f"{r.choice(['', '-'])}{whole}{'.' + digits[-scale:] if scale else ''}"

    return literal


def _text(alphabet: str, longest: int) -> Literal:
    def literal(r: random.Random) -> str:
        length = r.choice([0, 1, longest, r.randint(0, longest)])
        return quoted("".join(r.choice(alphabet) for _ in range(length)))

    return literal


def _bytes(longest: int) -> Literal:
    return lambda r: f"X'{r.randbytes(r.choice([0, 1, longest, r.randint(0, longest)])).hex()}'"


def _moment(r: random.Random, low: int, high: int, digits: int) -> str:
    day = f"{r.randint(low, high):04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"
    fraction = f".{r.randint(0, 10**digits - 1):0{digits}d}" if digits else ""
    return quoted(f"{day} {r.randint(0, 23):02d}:{r.randint(0, 59):02d}:{r.randint(0, 59):02d}{fraction}")


def _moments(low: int, high: int, digits: int) -> Literal:
    return lambda r: "'0000-00-00'" if r.random() < 0.1 else _moment(r, low, high, digits)


def _bits(width: int) -> Literal:
    return lambda r: str(r.getrandbits(width))


def _uuid(r: random.Random) -> str:
    return quoted(str(uuid.UUID(int=r.getrandbits(128), version=r.choice([1, 4]))))


def _date(r: random.Random) -> str:
    return r.choice(
        ["'0001-01-01'", "'9999-12-31'", "'1582-10-10'", "'1970-01-01'", "'0000-00-00'", "'2020-02-00'"]
        + [quoted(f"{r.randint(1, 9999):04d}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}")] * 6
    )


def _time(digits: int) -> Literal:
    def literal(r: random.Random) -> str:
        fraction = f".{r.randint(0, 10**digits - 1):0{digits}d}" if digits else ""
        sign = r.choice(["", "-"])
        hours, rest = r.randint(0, 837), f"{r.randint(0, 59):02d}:{r.randint(0, 59):02d}{fraction}"
        return r.choice(["'838:59:59'", "'-838:59:59'", "'00:00:00'", *[quoted(f"{sign}{hours}:{rest}")] * 3])

    return literal


def _json(r: random.Random) -> str:
    def value(depth: int) -> str:
        kind = r.randint(0, 7 if depth < 3 else 5)
        if kind == 6:
            return "[" + ", ".join(value(depth + 1) for _ in range(r.randint(0, 4))) + "]"
        if kind == 7:
            return "{" + ", ".join(f'"k{i}é": {value(depth + 1)}' for i in range(r.randint(0, 4))) + "}"
        return [
            str(r.randint(-(2**63), 2**64 - 1)),
            repr(r.uniform(-1e6, 1e6)),
            '"line\\nbreak ☃ \\"q\\""',
            "true",
            "null",
            repr(r.choice([1e20, 1e-7, 0.1, 3.0])),
        ][kind]

    return quoted(value(0))


LATIN = "abcXYZ 0189_-.,ÄÖüß€"
ANY = LATIN + "日本語🎉\n\t\"'\\%"
_ENUM = ["a", "B c", "it''s", "ü"]


def kinds(flavour: str) -> list[Kind]:
    """Every line of the contract's type table that this flavour has."""
    found = []
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)):
        found += [Kind(name, _integer(bits, False), key=True), Kind(f"{name} UNSIGNED", _integer(bits, True), key=True)]
    found += [Kind("TINYINT(1)", _integer(8, False)), Kind("BIT(1)", lambda r: r.choice(["b'0'", "b'1'"]))]
    found += [Kind(f"BIT({n})", _bits(n)) for n in (7, 33, 64)]
    for p, s in ((5, 0), (10, 2), (20, 10), (38, 18), (65, 30)):
        found.append(Kind(f"DECIMAL({p},{s})", _decimal(p, s), key=p <= 10))
    found += [Kind("FLOAT", lambda r: r.choice(["16777217", "0.1", "-3.4e38", repr(r.uniform(-1e9, 1e9))]))]
    found += [Kind("DOUBLE", lambda r: r.choice(["0.1", "1.7e308", "-5e-324", repr(r.uniform(-1e9, 1e9))]))]
    found += [Kind("DATE", _date), Kind("YEAR", lambda r: str(r.choice([0, 1901, 2155, r.randint(1901, 2155)])))]
    for n in (0, 3, 6):
        found.append(Kind(f"DATETIME({n})", _moments(1, 9999, n)))
        found.append(Kind(f"TIMESTAMP({n}) NULL", _moments(1971, 2037, n)))
        found.append(Kind(f"TIME({n})", _time(n)))
    for charset, alphabet in (("utf8mb4", ANY), ("latin1", LATIN), ("utf8mb3", LATIN), ("cp1251", "abcжЯщ 1")):
        found.append(Kind(f"VARCHAR(60) CHARACTER SET {charset}", _text(alphabet, 40), key=charset != "utf8mb3"))
        found.append(Kind(f"CHAR(12) CHARACTER SET {charset}", _text(alphabet.replace("\n", "n"), 12)))
        found.append(Kind(f"MEDIUMTEXT CHARACTER SET {charset}", _text(alphabet, 3000)))
    found.append(Kind("VARCHAR(60) CHARACTER SET ucs2", _text(LATIN, 40)))
    found += [Kind("BINARY(10)", _bytes(10)), Kind("VARBINARY(40)", _bytes(40), key=True)]
    found += [Kind("BLOB", _bytes(2000)), Kind("TINYTEXT", _text(ANY, 60)), Kind("LONGBLOB", _bytes(90_000))]
    labels = ",".join(f"'{label}'" for label in _ENUM)
    found.append(Kind(f"ENUM({labels}) CHARACTER SET utf8mb4", lambda r: str(r.randint(1, 4))))
    found.append(Kind(f"SET({labels}) CHARACTER SET utf8mb4", lambda r: str(r.randint(0, 15))))
    found.append(Kind("JSON", _json))
    found.append(Kind("POINT", lambda r: f"ST_GeomFromText('POINT({r.randint(-180, 180)} {r.randint(-90, 90)})')"))
    found.append(Kind("GEOMETRY", lambda r: f"ST_GeomFromText('LINESTRING(0 0, 1 {r.randint(1, 9)})')"))
    if flavour == "mysql":
        found.append(Kind("VECTOR(3)", lambda r: f"STRING_TO_VECTOR('[{r.random()},{r.random()},-1]')"))
    else:
        found.append(Kind("UUID", _uuid, key=True))
        found.append(Kind("INET4", lambda r: quoted(".".join(str(r.randint(0, 255)) for _ in range(4))), key=True))
        found.append(
            Kind("INET6", lambda r: quoted(r.choice(["::1", "::ffff:1.2.3.4", f"2001:db8::{r.randint(0, 9999)}"])))
        )
    return found


def random_tables(seed: int, flavour: str, count: int = 3) -> list[RandomTable]:
    """The tables of the database of `seed`: one in five without a key, one in three with a composite one."""
    r = random.Random(f"{seed} {flavour} tables")
    every = kinds(flavour)
    names = ["t", "order items", "Ünïcode", "select", "a`b", "c.d"]
    tables = []
    for i in range(count):
        width = r.choice([2, 5, 9, 16])
        chosen = [r.choice(every) for _ in range(width)]
        columns = [(r.choice(["c", "col ", "Größe ", "x.y "]) + str(k), kind) for k, kind in enumerate(chosen)]
        possible = [name for name, kind in columns if kind.key]
        keys: list[str] = []
        if r.random() > 0.2:
            if possible and r.random() < 0.6:
                keys = r.sample(possible, min(len(possible), r.choice([1, 1, 2])))
            else:
                columns.insert(0, ("id", Kind("BIGINT AUTO_INCREMENT", _integer(20, True), key=True)))
                keys = ["id"]
        tables.append(RandomTable(f"{names[(seed + i) % len(names)]}_{i}", columns, keys))
    return tables


def insert(r: random.Random, table: RandomTable) -> str:
    rows = []
    for _ in range(r.choice([1, 1, 5, 30])):
        values = []
        for name, kind in table.columns:
            nullable = name not in table.keys
            values.append("NULL" if nullable and r.random() < 0.15 else kind.literal(r))
        rows.append(f"({', '.join(values)})")
    verb = "REPLACE" if table.keys and r.random() < 0.2 else "INSERT IGNORE"
    return f"{verb} INTO `{_q(table.name)}` VALUES {', '.join(rows)}"


def change(r: random.Random, table: RandomTable) -> str:
    """An update (of keys too) or a delete of a few rows."""
    name, kind = r.choice(table.columns)
    rows = f"ORDER BY RAND({r.randint(0, 999)}) LIMIT {r.choice([1, 3, 20])}"
    if r.random() < 0.35:
        return f"DELETE FROM `{_q(table.name)}` {rows}"
    return f"UPDATE IGNORE `{_q(table.name)}` SET `{name}` = {kind.literal(r)} {rows}"


def _q(name: str) -> str:
    return name.replace("`", "``")
