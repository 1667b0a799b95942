"""Marts by their keys: what is refused, and that what is accepted says the same as the whole computation."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from gold.changes import CHANGE
from gold.incremental import rows_of
from gold.marts import Model, parse_model
from lakeward.errors import ConfigError
from lakeward.names import TableName
from lakeward.spark import evaluate_for

FILE = Path("m.sql")
TRIPS = "-- changed: s.t: r"
ORDERS = "-- changed: s.o: id\n-- changed: s.i: order_id"


def incremental(sql: str, changed: str = TRIPS, keys: str = "r") -> Model:
    return parse_model(f"-- materialized: incremental\n-- keys: {keys}\n{changed}\n{sql}", FILE)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT r, sum(n) / (SELECT sum(a.n) FROM s.t AS a) AS x FROM s.t AS t GROUP BY r", "stands in it 2 times"),
        ("SELECT t.r, u.n FROM s.t AS t JOIN s.t AS u ON u.id = t.above", "stands in it 2 times"),
        ("SELECT id AS r FROM s.u AS u WHERE id IN (SELECT t.r FROM s.t AS t)", "not stand in the outermost FROM"),
        ("SELECT id AS r FROM s.u AS u WHERE EXISTS (SELECT 1 FROM s.t AS t)", "not stand in the outermost FROM"),
        ("SELECT id AS r, (SELECT max(t.n) FROM s.t AS t) AS n FROM s.u AS u", "not stand in the outermost FROM"),
        (
            "WITH x AS (SELECT avg(n) AS n FROM s.t AS t) SELECT u.id AS r, x.n FROM s.u u, x",
            "not stand in the outermost",
        ),
        ("SELECT x.r FROM (SELECT t.r FROM s.t AS t LIMIT 3) AS x", "not stand in the outermost FROM: "),
        ("SELECT t.r FROM s.t AS t UNION SELECT id FROM s.u", "UNION or another set operation"),
        ("SELECT u.id AS r FROM s.u AS u LEFT ANTI JOIN s.t AS t ON t.r = u.id", "decides on rows of other tables"),
        ("SELECT u.id AS r FROM s.u AS u LEFT SEMI JOIN s.t AS t ON t.r = u.id", "decides on rows of other tables"),
        (
            "SELECT r, n, rank() OVER (ORDER BY n) AS x FROM s.t AS t",
            r"a window without PARTITION BY r .*: RANK\(\) OVER",
        ),
        ("SELECT r, n, rank() OVER (PARTITION BY n ORDER BY id) AS x FROM s.t AS t", "a window without PARTITION BY r"),
        ("SELECT r, n FROM s.t AS t QUALIFY row_number() OVER (ORDER BY n) < 3", "a window without PARTITION BY r"),
        ("SELECT r, sum(n) OVER w AS x FROM s.t AS t WINDOW w AS (ORDER BY n)", "a window without PARTITION BY r"),
        ("SELECT r FROM s.t AS t LIMIT 3", "cut off after so many rows"),
        ("SELECT r FROM s.t AS t ORDER BY r OFFSET 3", "cut off after so many rows"),
        ("SELECT t.r FROM s.t TABLESAMPLE (5 PERCENT) AS t", "a sample"),
        ("SELECT r, count(*) AS n FROM s.t AS t GROUP BY r WITH ROLLUP", "totals are over several keys"),
        ("SELECT r, d, count(*) AS n FROM s.t AS t GROUP BY GROUPING SETS ((r), (d))", "totals are over several keys"),
        ("SELECT r, rand() AS x FROM s.t AS t", r"rows that were computed at other times .*: RAND\(\)"),
        ("SELECT r, now() AS x FROM s.t AS t", "rows that were computed at other times"),
        ("SELECT r FROM s.t AS t WHERE day < current_date", "rows that were computed at other times"),
        ("SELECT r, a FROM s.t AS t PIVOT (sum(n) FOR d IN (1 AS a, 2 AS b))", "a pivot groups the rows of several"),
        ("SELECT DISTINCT ON (d) r, d FROM s.t AS t ORDER BY d, id", "one row is chosen among those of several keys"),
        ("SELECT t.r FROM s.t AS t RIGHT JOIN s.u AS u ON u.id = t.r", "would lose its partners"),
        ("SELECT t.r FROM s.u AS u FULL JOIN s.t AS t ON u.id = t.r", "would lose its partners"),
        # A row of u whose trips are of keys that were not touched would pass for one that has none.
        ("SELECT t.r, u.id FROM s.u AS u LEFT JOIN s.t AS t ON u.id = t.u", "may have no row for the tables before it"),
        ("SELECT u.id AS r FROM s.u AS u LEFT JOIN s.t AS t ON u.id = t.u", "may have no row for the tables before it"),
        ("SELECT u.id AS r FROM s.u AS u LEFT JOIN s.t AS t ON u.x = t.x WHERE u.id = t.r", "may have no row"),
    ],
)
def test_a_mart_whose_rows_depend_on_rows_of_other_keys_is_refused_with_the_remedy(sql, said):
    with pytest.raises(ConfigError, match=said) as error:
        incremental(sql)
    assert str(error.value).startswith("m.sql: ")
    assert "-- materialized: table" in str(error.value)
    assert parse_model(sql, FILE).materialized == "table"


def test_a_clock_in_a_key_is_refused():
    with pytest.raises(ConfigError, match="computed at other times"):
        incremental("SELECT r FROM s.t AS t", "-- changed: s.t: datediff(now(), day)")


@pytest.mark.parametrize(
    ("sql", "changed"),
    [
        ("SELECT t.r + 1 AS r FROM s.t AS t", TRIPS),
        ("SELECT max(t.r) AS r FROM s.t AS t", TRIPS),
        ("SELECT u.id AS r FROM s.t AS t LEFT JOIN s.u AS u ON u.id = t.r", TRIPS),  # NULL where u has none
        ("SELECT t.r FROM s.t AS t JOIN s.u AS u ON u.id = t.u", f"{TRIPS}\n-- changed: s.u: id"),
        ("SELECT (SELECT max(u.id) FROM s.u AS u) AS r FROM s.t AS t", TRIPS),
    ],
)
def test_a_key_that_is_not_seen_to_be_the_declared_one_is_no_error_and_has_the_mart_computed_as_a_whole(sql, changed):
    assert "as `-- changed:` says" in str(incremental(sql, changed).whole)


ACCEPTED = [
    ("SELECT r, count(*) AS c, sum(n) AS n FROM s.t AS t GROUP BY r HAVING count(*) > 1", TRIPS),
    ("SELECT T.R, d, max(n) AS n FROM s.t AS t GROUP BY ALL", TRIPS),
    ("SELECT *, rank() OVER (PARTITION BY r, d ORDER BY n, id) AS x FROM s.t AS t", TRIPS),
    ("SELECT t.*, sum(n) OVER w AS x FROM s.t AS t WINDOW w AS (PARTITION BY t.r ORDER BY id)", TRIPS),
    ("SELECT DISTINCT (t.r) AS r, u.name FROM s.t AS t LEFT JOIN s.u AS u ON u.id = t.r WHERE t.n > 1", TRIPS),
    ("SELECT u.id AS r, sum(t.n) AS n FROM s.u AS u JOIN s.t AS t ON u.id = t.r GROUP BY u.id", TRIPS),
    ("SELECT u.id AS r, t.n FROM s.u AS u, s.t AS t WHERE u.id = t.r AND t.n > 0", TRIPS),
    ("SELECT t.r, (SELECT max(u.name) FROM s.u AS u WHERE u.id < t.n) AS x FROM s.t AS t", TRIPS),
    ("SELECT t.r, e.y FROM s.t AS t LATERAL VIEW explode(sequence(0, n)) e AS y", TRIPS),
    (
        "WITH top AS (SELECT id, row_number() OVER (ORDER BY name DESC) AS place FROM s.u LIMIT 5) "
        "SELECT t.r, min(top.place) AS p FROM s.t AS t LEFT JOIN top ON top.id = t.r GROUP BY t.r",
        TRIPS,
    ),
    (
        "SELECT o.id AS r, count(i.id) AS items, sum(i.n) AS n FROM s.o AS o LEFT JOIN s.i AS i ON i.order_id = o.id "
        "AND i.n > 1 LEFT JOIN s.u AS u ON u.id = o.id GROUP BY o.id",
        ORDERS,
    ),
]


@pytest.fixture(scope="module")
def session(spark):
    return evaluate_for(spark.newSession(), 1)


def inline(session, columns, rows):
    """A frame of integers that no Python worker has to be started for."""
    values = ", ".join("(" + ", ".join("NULL" if v is None else str(v) for v in row) + ")" for row in rows)
    chosen = ", ".join(f"CAST({c} AS INT) AS {c}" for c in columns.split())
    return session.sql(f"SELECT {chosen} FROM VALUES {values} AS v({', '.join(columns.split())})")


@pytest.mark.parametrize(("sql", "changed"), ACCEPTED)
def test_what_is_computed_by_keys_says_the_same_as_the_whole(session, sql, changed):
    model = incremental(sql, changed)
    assert model.whole is None
    chance = random.Random(sql)
    columns = {"t": "id r d n", "u": "id name", "o": "id x", "i": "id order_id n"}
    few = lambda: chance.choice([None, 0, 1, 2, 3, 4])  # noqa: E731

    def rows(table, ids):
        return {i: (i, *(few() for _ in columns[table].split()[1:])) for i in ids}

    def placed(state, at):
        names = {}
        for table, held in state.items():
            names[TableName("s", table)] = f"{table}_{at}"
            inline(session, columns[table], held.values()).createOrReplaceTempView(f"{table}_{at}")
        return names

    before = {table: rows(table, range(9)) for table in columns}
    old = placed(before, "old")
    after = {table: dict(held) for table, held in before.items()}
    touched = set()
    for table, (expression,) in model.changed.items():
        name = table.table
        at = columns[name].split().index(expression.strip("`"))
        for i in chance.sample(range(9), 2):
            touched.add(after[name].pop(i)[at])
        after[name] |= rows(name, [3, 10, 11])
        touched |= {rows_[i][at] for rows_ in (before[name], after[name]) for i in (3, 10, 11) if i in rows_}
    new = placed(after, "new")
    keys = inline(session, "__lakeward_k0", [(k,) for k in touched])
    found = rows_of(session, model, new, keys)
    assert found is not None
    stood, whole = session.sql(model.rendered(old)), session.sql(model.rendered(new))
    key = [c.lower() for c in stood.columns].index("r")
    kept = [tuple(row) for row in stood.collect() if row[key] not in touched]
    merged = kept + [tuple(row)[:-1] for row in found.collect() if row[CHANGE] != "delete"]
    assert sorted(map(repr, merged)) == sorted(repr(tuple(row)) for row in whole.collect())


def test_keys_that_are_equal_in_sql_and_of_other_types_are_not_taken_for_one(session, caplog):
    model = incremental("SELECT o.id AS r, i.n FROM s.o AS o LEFT JOIN s.i AS i ON i.order_id = o.id", ORDERS)
    session.sql("SELECT 1 AS id").createOrReplaceTempView("orders")
    session.sql("SELECT '01' AS order_id, 7 AS n").createOrReplaceTempView("items")
    names = {TableName("s", "o"): "orders", TableName("s", "i"): "items"}
    assert rows_of(session, model, names, inline(session, "__lakeward_k0", [(1,)])) is None
    assert "r is of types int, string" in caplog.text
