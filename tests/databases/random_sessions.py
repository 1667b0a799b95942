"""Random traffic as the programs of a real source write it: sessions whose settings shape their binlog, each in turn.

Beside the rows of `random_database`: XA transactions, savepoints and rollbacks, TRUNCATE, DDL of all sorts, new binlog
files. Sessions follow one another, so that everything follows from the seed; only an XA transaction stays prepared
while others go on.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pymysql
from databases.random_database import Kind, RandomTable, change, insert, kinds, quoted, random_tables
from pymysql.connections import Connection
from pymysql.constants import ER
from servers.running import Database

from lakeward.names import mysql_identifier as q

# What a server refuses of random values and shapes is no matter; these would be faults of this file.
_FAULTS = (ER.PARSE_ERROR, ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK, ER.NO_SUCH_TABLE, ER.BAD_FIELD_ERROR)
_PATHS = ('$."k0é"', '$."k1é"', "$.a", "$.new", "$[0]", "$[1]", "$[9]", '$."k0é"[0]', '$."k1é".x', "$.a[1]", "$.a.b")
_VALUES = ("1", "1.5", "NULL", "'ab'", "'ü'", "JSON_ARRAY(1, JSON_OBJECT())")


def _document(r: random.Random) -> str:
    """A JSON document with something in it for _PATHS to meet."""
    value = ("1", '"text of some length"', "null", '[1, "two", 3.5]', '{"b": 1, "xx": [true]}', str(r.getrandbits(50)))
    if r.random() < 0.3:
        document = f"[{', '.join(r.choices(value, k=r.randint(0, 4)))}]"
    else:
        names = r.sample(["k0é", "k1é", "a", "z", "longer"], r.randint(0, 5))
        document = "{" + ", ".join(f'"{name}": {r.choice(value)}' for name in names) + "}"
    return f"'{document}'"


DOCUMENT = Kind("JSON", _document)


@dataclass(frozen=True)
class _Prepared:
    """An XA transaction that waits for its end, and the tables whose rows it locks."""

    session: Connection
    name: str
    tables: tuple[RandomTable, ...]


class Traffic:
    """Changes of a database's tables. `tables` is what they are now."""

    def __init__(self, seed: int, database: Database, tables: Sequence[RandomTable], *, definitions: int = 3) -> None:
        self.random = random.Random(f"{seed} {database.flavour} sessions")
        self.seed = seed
        self.definitions = definitions  # of a hundred transactions, about
        self.database = database
        self.tables = list(tables)
        for table in self.tables:
            if self.random.random() < 0.3:
                table.columns.append(("doc", DOCUMENT))
        self.numbers = itertools.count(1)
        self.gone: list[str] = []  # names that columns had
        self.idle: list[Connection] = []
        self.refused: Counter[int] = Counter()
        self.left: _Prepared | None = None  # until the next burst
        self.open: set[str] = set()  # XA transactions that are prepared
        self.kinds = kinds(database.flavour)

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *_: object) -> None:
        """What is prepared would keep the schema from being dropped."""
        self._end_left()  # by its own session: one that is closed lets go of it when the server gets round to that
        with self._session() as session:
            for name in list(self.open):
                self._run(session, f"XA ROLLBACK {name}")
        for session in self.idle:
            session.close()

    def create(self) -> None:
        with self._session() as session:
            for table in self.tables:
                self._run(session, table.create())

    def burst(self, spells: int) -> None:
        """What some sessions do, one after the other."""
        self._end_left()
        for _ in range(spells):
            with self._session() as session:
                for _ in range(self.random.randint(1, 10)):
                    self._transaction(session, self.tables)

    def leave_prepared(self) -> None:
        """An XA transaction that the next burst ends."""
        self.left = self._prepare(self.database.connection(), self.tables)

    def _end_left(self) -> None:
        if self.left is not None:
            self._end(self.left)
            self.left.session.close()
            self.left = None

    @contextlib.contextmanager
    def _session(self) -> Iterator[Connection]:
        """A session with settings drawn anew."""
        session = self.idle.pop() if self.idle else self.database.connection()
        for name, value in {"sql_mode": "", **_settings(self.random, self.database.flavour)}.items():
            self._run(session, f"SET SESSION {name} = '{value}'")
        yield session
        self.idle.append(session)

    def _run(self, session: Connection, sql: str) -> bool:
        """Whether the server took the statement."""
        with session.cursor() as cursor:
            try:
                cursor.execute(sql)
            except pymysql.MySQLError as error:
                if error.args[0] in _FAULTS or isinstance(error, pymysql.InterfaceError):
                    raise AssertionError(f"seed {self.seed}: {error}\n{sql[:2000]}") from error
                self.refused[error.args[0]] += 1
                return False
        return True

    # Transactions.

    def _transaction(self, session: Connection, tables: Sequence[RandomTable], *, deep: bool = True) -> None:
        """One transaction, or what stands between transactions, over some of `tables`."""
        r = self.random
        weights = [60, 20, 6 if deep else 0, 2, self.definitions, 2]
        what = r.choices(["rows", "alone", "xa", "truncate", "ddl", "flush"], weights)[0]
        if what == "rows":
            self._rows(session, tables)
        elif what == "alone":
            self._run(session, self._statement(r.choice(tables)))
        elif what == "xa":
            self._xa(session, tables)
        elif what == "truncate":
            self._run(session, f"TRUNCATE TABLE {q(r.choice(tables).name)}")
        elif what == "ddl":
            self._define(session, r.choice(tables))
        else:
            self._run(session, "FLUSH BINARY LOGS")

    def _rows(self, session: Connection, tables: Sequence[RandomTable]) -> None:
        r = self.random
        self._run(session, "BEGIN")
        savepoints: list[str] = []
        for _ in range(r.choice([1, 2, 6])):
            if r.random() < 0.15:
                savepoints.append(f"s{len(savepoints)}")
                self._run(session, f"SAVEPOINT {savepoints[-1]}")
            self._run(session, self._statement(r.choice(tables)))
            if savepoints and r.random() < 0.3:
                del savepoints[r.randrange(len(savepoints)) + 1 :]
                self._run(session, f"ROLLBACK TO {savepoints[-1]}")
        self._run(session, "ROLLBACK" if r.random() < 0.1 else "COMMIT")

    def _xa(self, session: Connection, tables: Sequence[RandomTable]) -> None:
        """An XA transaction, which may stay prepared while another session changes other tables."""
        left = self._prepare(session, tables, one_phase=self.random.random() < 0.2)
        if left is None:
            return
        others = [t for t in tables if t not in left.tables]
        if others:
            with self._session() as other:
                for _ in range(self.random.randint(0, 3)):
                    self._transaction(other, others, deep=False)
        self._end(left)

    def _prepare(
        self, session: Connection, tables: Sequence[RandomTable], *, one_phase: bool = False
    ) -> _Prepared | None:
        r = self.random
        name = f"'{self.database.name} {next(self.numbers)}', 'b', {r.randint(0, 9)}"
        touched = r.sample(list(tables), min(len(tables), r.choice([1, 1, 2])))
        self._run(session, f"XA START {name}")
        for _ in range(r.choice([1, 3])):
            self._run(session, self._statement(r.choice(touched)))
        self._run(session, f"XA END {name}")
        if one_phase:
            self._run(session, f"XA COMMIT {name} ONE PHASE")
            return None
        self._run(session, f"XA PREPARE {name}")
        self.open.add(name)
        return _Prepared(session, name, tuple(touched))

    def _end(self, left: _Prepared) -> None:
        self._run(left.session, f"XA {self.random.choice(['COMMIT', 'COMMIT', 'ROLLBACK'])} {left.name}")
        self.open.discard(left.name)

    # Rows.

    def _statement(self, table: RandomTable) -> str:
        r = self.random
        json = [name for name, kind in table.columns if kind.ddl == "JSON"]
        if json and r.random() < 0.3:
            return self._json(table, r.choice(json))
        make = r.choice([*[insert] * 4, *[change] * 4, _several, _upsert, _some_columns, _copy, _thin])
        made: str = make(r, table)
        return made

    def _json(self, table: RandomTable, column: str) -> str:
        """Changes inside of documents, which PARTIAL_JSON logs as such."""
        r = self.random
        made = q(column)
        for path in r.choices(_PATHS, k=r.choice([1, 3, 6])):
            value = r.choice(
                ["1", "1.5", "NULL", "'ab'", "'ü'", str(r.getrandbits(40)), "JSON_ARRAY(1, JSON_OBJECT())"]
            )
            call = r.choice(["JSON_SET({}, {}, {})"] * 2 + ["JSON_REPLACE({}, {}, {})", "JSON_REMOVE({}, {})"])
            made = call.format(made, quoted(path), value)
        some = r.choice(["", _some_rows(r)])
        return f"UPDATE IGNORE {q(table.name)} SET {q(column)} = {made} {some}"

    # Definitions.

    def _define(self, session: Connection, table: RandomTable) -> None:
        r = self.random
        whats = [
            "add",
            "add",
            "add",
            "default",
            "drop",
            "rename column",
            "modify",
            "widen",
            "reorder",
            "index",
            "swap",
            "rename",
            "recreate",
        ]
        what = r.choice(whats)
        others = [i for i, (name, _) in enumerate(table.columns) if name not in table.keys]
        if what in ("add", "default"):
            self._add(session, table, plain=what == "add")
        elif what == "comment":
            self._run(session, f"ALTER TABLE {q(table.name)} COMMENT 'c{next(self.numbers)}'")
        elif what == "swap":
            self._swap(session, table)
        elif what == "rename":
            new = f"{table.name.rstrip('0123456789')}{next(self.numbers)}"
            if self._run(session, f"RENAME TABLE {q(table.name)} TO {q(new)}"):
                table.name = new
        elif what == "recreate":
            self._recreate(session, table)
        elif len(others) > 1:
            self._change_column(session, table, r.choice(others), what)

    def _add(self, session: Connection, table: RandomTable, *, plain: bool) -> None:
        r = self.random
        kind = r.choice(self.kinds) if plain else Kind("INT NOT NULL DEFAULT 5", lambda r: str(r.randint(0, 99)))
        place = r.randint(0, len(table.columns))
        name = f"{r.choice(['added ', 'x.z '])}{next(self.numbers)}"
        if self.gone and r.random() < 0.3:  # refused where the table has it
            name = r.choice(self.gone)
        where = "FIRST" if place == 0 else f"AFTER {q(table.columns[place - 1][0])}"
        if self._run(session, f"ALTER TABLE {q(table.name)} ADD COLUMN {q(name)} {kind.ddl} {where}"):
            table.columns.insert(place, (name, kind))

    def _change_column(self, session: Connection, table: RandomTable, place: int, what: str) -> None:
        name, kind = table.columns[place]
        alter = f"ALTER TABLE {q(table.name)}"
        if what == "drop" and self._run(session, f"{alter} DROP COLUMN {q(name)}"):
            del table.columns[place]
            self.gone.append(name)
        elif what == "rename column":
            self.gone.append(name)
            new = f"named {next(self.numbers)}"
            if self._run(session, f"{alter} RENAME COLUMN {q(name)} TO {q(new)}"):
                table.columns[place] = (new, kind)
        elif what in ("modify", "widen"):
            kind = (
                self.random.choice(self.kinds) if what == "modify" else Kind(_wider(kind.ddl), kind.literal, kind.key)
            )
            if self._run(session, f"{alter} MODIFY {q(name)} {kind.ddl}"):
                table.columns[place] = (name, kind)
        elif what == "reorder":
            new = f"moved {next(self.numbers)}"
            if self._run(session, f"{alter} CHANGE {q(name)} {q(new)} {kind.ddl} FIRST"):
                del table.columns[place]
                table.columns.insert(0, (new, kind))

    def _swap(self, session: Connection, table: RandomTable) -> None:
        """As online schema change tools do it: a copy takes the table's place."""
        name, copy, old = q(table.name), q(f"_{table.name}_new"), q(f"_{table.name}_old")
        self._run(session, f"CREATE TABLE {copy} LIKE {name}")
        self._run(session, f"INSERT INTO {copy} SELECT * FROM {name}")
        self._run(session, f"RENAME TABLE {name} TO {old}, {copy} TO {name}")
        self._run(session, f"DROP TABLE {old}")

    def _recreate(self, session: Connection, table: RandomTable) -> None:
        (made,) = random_tables(self.random.getrandbits(30), self.database.flavour, 1)
        made.name = table.name
        self._run(session, f"DROP TABLE {q(table.name)}")
        self._run(session, made.create())
        table.columns, table.keys = made.columns, made.keys


_WIDER = (
    ("TINYINT", "INT"),
    ("SMALLINT", "INT"),
    ("MEDIUMINT", "BIGINT"),
    ("INT", "BIGINT"),
    ("FLOAT", "DOUBLE"),
    ("DECIMAL(5,0)", "DECIMAL(9,2)"),
    ("DECIMAL(10,2)", "DECIMAL(20,6)"),
    ("VARCHAR(60)", "VARCHAR(70)"),
    ("VARBINARY(40)", "VARBINARY(50)"),
    ("CHAR(12)", "CHAR(14)"),
    ("DATETIME(0)", "DATETIME(4)"),
    ("BIT(7)", "BIT(33)"),
    ("'ü')", "'ü','new')"),
)


def _wider(ddl: str) -> str:
    """A type with room for every value of this one; the type itself where none is known."""
    for narrow, wide in _WIDER:
        if ddl.startswith(narrow) and ddl != "TINYINT(1)":
            return wide + ddl[len(narrow) :]
        if narrow[0] == "'":
            return ddl.replace(narrow, wide, 1)
    return ddl


def _settings(r: random.Random, flavour: str) -> dict[str, str]:
    """What a session may set for itself; other images than FULL seldom, since they have tables read again."""
    if flavour == "mariadb":
        return {"binlog_row_image": r.choices(["FULL", "MINIMAL", "NOBLOB", "FULL_NODUP"], [30, 1, 1, 1])[0]}
    return {
        "binlog_row_image": r.choices(["FULL", "MINIMAL", "NOBLOB"], [8, 1, 1])[0],
        "binlog_row_value_options": r.choice(["", "PARTIAL_JSON"]),
        "binlog_transaction_compression": r.choice(["OFF", "ON"]),
    }


def _some_rows(r: random.Random) -> str:
    return f"ORDER BY RAND({r.randint(0, 999)}) LIMIT {r.choice([1, 3, 20])}"


def _several(r: random.Random, table: RandomTable) -> str:
    """An update of several columns of all rows."""
    chosen = [c for c in table.columns if c[0] not in table.keys]
    chosen = r.sample(chosen, min(len(chosen), r.randint(1, 3))) or table.columns[:1]
    values = ", ".join(f"{q(name)} = {kind.literal(r)}" for name, kind in chosen)
    return f"UPDATE IGNORE {q(table.name)} SET {values}"


def _thin(r: random.Random, table: RandomTable) -> str:
    return f"DELETE FROM {q(table.name)} WHERE RAND({r.randint(0, 999)}) < {r.choice([0.1, 0.5, 0.9])}"


def _upsert(r: random.Random, table: RandomTable) -> str:
    name, kind = r.choice(table.columns)
    made = insert(r, table).replace("REPLACE INTO", "INSERT IGNORE INTO", 1)
    return f"{made} ON DUPLICATE KEY UPDATE {q(name)} = {kind.literal(r)}"


def _some_columns(r: random.Random, table: RandomTable) -> str:
    """An insert that leaves the other columns to their defaults."""
    chosen = [c for c in table.columns if c[0] in table.keys or r.random() < 0.5] or table.columns[:1]
    names, values = ", ".join(q(name) for name, _ in chosen), ", ".join(kind.literal(r) for _, kind in chosen)
    return f"{r.choice(['INSERT IGNORE', 'REPLACE'])} INTO {q(table.name)} ({names}) VALUES ({values})"


def _copy(r: random.Random, table: RandomTable) -> str:
    """Rows again: equal ones where the table has no key."""
    return f"INSERT IGNORE INTO {q(table.name)} SELECT * FROM {q(table.name)} {_some_rows(r)}"
