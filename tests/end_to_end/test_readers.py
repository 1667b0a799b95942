"""Readers that share no code with Lakeward read from gold what the source holds, of every type of docs/types.md.

What a value has to be, the golden files say; that it is what the source's SELECT gives, `mirror_faults` says too.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect
from collections.abc import Sequence
from typing import Any

import pytest
from golden.loader import GoldenCase, cases
from servers.readers import Row, faults, mirror_faults, read_mirrors

pytestmark = pytest.mark.timeout(1200)
# The two lines of a TINYINT(1): one table has it as the number that it is, the other as `tinyint1 = "boolean"` says.
TABLES = {"keyed": "int", "keyless": "boolean"}
ADDED = "2026-01-02 03:04:05.000006"


class Matrix:
    """A table with a column of each type, and what it has to hold. Its row `n` has the nth value of each column."""

    def __init__(self, db: Any, name: str) -> None:
        self.db, self.name, self.key = db, name, name == "keyed"
        self.cases = dict(zip((f"c{i}" for i in itertools.count()), chosen(db.flavour, TABLES[name]), strict=False))
        self.values = {
            c: list(zip(case.inserts(db.flavour), case.expected(db.flavour), strict=True))
            for c, case in self.cases.items()
        }
        self.rows: list[Row] = []
        self.count = max(map(len, self.values.values()))
        declared = ", ".join(f"{c} {case.column_ddl}" for c, case in self.cases.items())
        db.execute(f"CREATE TABLE {name} (id INT {'PRIMARY KEY' if self.key else 'NOT NULL'}, {declared})")

    @property
    def columns(self) -> list[str]:
        return ["id", *self.cases, *(["added"] if any("added" in row for row in self.rows) else [])]

    def insert(self, *ids: int) -> None:
        for n in ids:
            literals = ", ".join(self._of(c, n)[0] for c in self.cases)
            self.db.execute(f"INSERT INTO {self.name} (id, {', '.join(self.cases)}) VALUES ({n}, {literals})")
            added = {"added": "NULL"} if "added" in self.columns else {}
            self.rows.append({**added, **self._row(n, n)})

    def update(self, *ids: int, by: int = 1) -> None:
        """Every column takes another of its values, in every row of these ids."""
        for n in ids:
            values = ", ".join(f"{c} = {self._of(c, n + by)[0]}" for c in self.cases)
            self.db.execute(f"UPDATE {self.name} SET {values} WHERE id = {n}")
            self.rows = [{**row, **self._row(n, n + by)} if row["id"] == str(n) else row for row in self.rows]

    def delete(self, *ids: int) -> None:
        """One row of each id, though the table without a key may hold more that are equal."""
        for n in ids:
            self.db.execute(f"DELETE FROM {self.name} WHERE id = {n} LIMIT 1")
            self.rows.remove(next(row for row in self.rows if row["id"] == str(n)))

    def add_column(self) -> None:
        self.db.execute(f"ALTER TABLE {self.name} ADD COLUMN added DATETIME(6) AFTER id")
        self.rows = [{**row, "added": "NULL"} for row in self.rows]

    def fill_added(self, *ids: int) -> None:
        for n in ids:
            self.db.execute(f"UPDATE {self.name} SET added = '{ADDED}' WHERE id = {n}")
            self.rows = [{**row, "added": ADDED} if row["id"] == str(n) else row for row in self.rows]

    def drop_column(self, column: str) -> None:
        self.db.execute(f"ALTER TABLE {self.name} DROP COLUMN {column}")
        del self.cases[column]

    def _of(self, column: str, n: int) -> tuple[str, str]:
        values = self.values[column]
        return values[n % len(values)]

    def _row(self, n: int, values: int) -> Row:
        return {"id": str(n), **{c: self._of(c, values)[1] for c in self.cases}}


def chosen(flavour: str, tinyint1: str) -> list[GoldenCase]:
    """Of each golden file the richest case of each type, of what it becomes, without and with the most fractions."""
    found: dict[tuple[str, ...], GoldenCase] = {}
    for case in cases(flavour):
        ddl = case.column_ddl.upper()
        digits = re.search(r"^(?:TIME|DATETIME|TIMESTAMP)\((\d)\)", ddl)
        if case.settings or (ddl == "TINYINT(1)" and case.tinyint1 != tinyint1) or (digits and digits[1] != "6"):
            continue
        file, word = case.name.rpartition("-")[0], re.split(r"[\s(]", ddl)[0]
        kind = (file, word, _width(case.lake), *re.findall(r"UNSIGNED|^TINYINT\(1\)|^T.*\(6\)|^DATETIME\(6\)", ddl))
        if file == "json":
            kind = (case.name,)
        if kind not in found or len(case.inserts(flavour)) > len(found[kind].inserts(flavour)):
            found[kind] = case
    return list(found.values())


def _width(lake: str) -> str:
    """A DECIMAL is stored as an INT32, an INT64 or bytes; here with and without digits behind the point."""
    match = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", lake)
    return lake if match is None else f"DECIMAL {bisect([9, 18, 37], int(match[1]) - 1)} {match[2] == '0'}"


def differing(pipeline: Any, matrices: Sequence[Matrix]) -> list[str]:
    """Where a reader's rows are not the golden ones, or not the source's."""
    names = {f"{pipeline.database.name}.{matrix.name}": matrix for matrix in matrices}
    found = [
        fault
        for reader, of in read_mirrors(pipeline.app.lake, names).items()
        for name, matrix in names.items()
        for fault in faults(reader, name, matrix.columns, matrix.rows, of[name])
    ]
    at_source = mirror_faults(pipeline.app)
    assert at_source.keys() == names.keys()
    return found + [fault for of_table in at_source.values() for fault in of_table]


def test_pyiceberg_and_duckdb_read_each_type_as_the_source_has_it_through_every_change(pipeline) -> None:
    db = pipeline.database
    pipeline.write_config(rest=f'[tables."{db.name}.keyless"]\ntinyint1 = "boolean"\n')
    # Whatever a golden case inserts; the DATE that is none needs it.
    db.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
    _, keyless = matrices = [Matrix(db, name) for name in TABLES]
    for matrix in matrices:
        matrix.insert(*range(0, matrix.count, 2))
    keyless.insert(2, 2, 4)
    pipeline.run()
    assert not (found := differing(pipeline, matrices)), "\n".join(found)

    for matrix in matrices:
        matrix.insert(*range(1, matrix.count, 2))
        matrix.update(0, 3, 6)
        matrix.delete(2, 5)
        matrix.add_column()
        matrix.insert(matrix.count)
        matrix.fill_added(0, 7, matrix.count)
    keyless.insert(8, 8)
    keyless.update(4)
    keyless.delete(8)
    pipeline.run()
    assert {t["snapshot"]["generation"] for t in pipeline.status().values()} == {1}  # merged, and not made anew
    assert not (found := differing(pipeline, matrices)), "\n".join(found)

    for matrix in matrices:
        matrix.update(0, 7, by=2)
        matrix.drop_column("c3")
        matrix.update(1, by=3)
        matrix.delete(0)
        matrix.insert(matrix.count + 1)
    pipeline.run()
    assert not (found := differing(pipeline, matrices)), "\n".join(found)


@pytest.mark.parametrize(
    ("columns", "held", "said"),
    [
        (["id", "v", "__ts_ms"], [("1", "0.5"), ("1", "0.5"), ("2", "NULL")], []),
        (["id", "v"], [("1", "0.5"), ("2", "NULL")], ["R does not read 1 rows of t: id=1; v=0.5"]),
        (
            ["id", "v"],
            [("1", "0.5"), ("1", "-0.5"), ("2", "NULL")],
            ["R does not read 1 rows of t: v=0.5", "R reads, and nothing holds, 1 rows of t: v=-0.5"],
        ),
        (
            ["id", "v"],
            [("1", "0.5"), ("1", "0.5"), ("2", "NULL"), ("2", "NULL")],
            ["R reads, and nothing holds, 1 rows of t: id=2; v=NULL"],
        ),
        (["id", "v", "gone"], [], ["R reads the columns ['gone', 'id', 'v'] of t, not ['id', 'v']"]),
    ],
    ids=["equal", "lost", "altered", "doubled", "left over"],
)
def test_a_row_that_is_lost_altered_or_doubled_and_a_column_that_is_left_over_are_told(columns, held, said) -> None:
    rows = [{"id": i, "v": v} for i, v in (("1", "0.5"), ("1", "0.5"), ("2", "NULL"))]
    read = [dict(zip(columns, (*row, "0"), strict=False)) for row in held]
    assert faults("R", "t", ["id", "v"], rows, (columns, read)) == said
