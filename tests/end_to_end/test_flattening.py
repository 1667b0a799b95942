"""From a real server to marts: ids become what they meant when it happened, and an outbox's rows become events."""

from __future__ import annotations

import json
from typing import Any

from gold.published import published
from lakeward.state import load_silver

FLAT = """
-- keys: id, position
SELECT t.id, t.note, t.__valid_from_position AS position, r.name AS region
FROM {schema}.trips__history AS t
LEFT JOIN {schema}.regions__history AS r ON r.id = t.region
    AND r.__valid_from_position <= t.__valid_from_position
    AND (r.__valid_to_position IS NULL OR t.__valid_from_position < r.__valid_to_position)
"""
EVENTS = """
-- keys: id
SELECT p.__id AS id, p.n, p.__key AS of, m.__key AS made_as
FROM {schema}.`events__paid-2f-late` AS p LEFT JOIN {schema}.events__made AS m
    ON m.n = p.n AND m.__position < p.__position
"""


def test_ids_become_what_they_meant_at_the_time_and_outbox_rows_become_events(pipeline: Any) -> None:
    database = pipeline.database
    schema = database.name
    models = pipeline.folder / "models"
    models.mkdir()
    (models / "flat.sql").write_text(FLAT.format(schema=schema))
    (models / "events.sql").write_text(EVENTS.format(schema=schema))
    histories = "".join(f'[tables."{schema}.{t}"]\nhistory = "scd2"\n' for t in ("regions", "trips"))
    outbox = f'[tables."{schema}.events"]\noutbox = {{ key = "about", aggregate = "kind" }}\n'
    gold = '[gold]\nmodels = "models"\n'

    def mart(name: str, *columns: str) -> list[tuple[Any, ...]]:
        location = next(t.location for t in published(pipeline.app.lake) if (t.kind, t.table) == ("mart", name))
        return [tuple(r) for r in pipeline.spark.read.format("iceberg").load(location).select(*columns).collect()]

    def tell(number: int, kind: str, payload: str) -> str:
        return f"INSERT INTO events VALUES (UNHEX('{number:032x}'), 'order', 'o{number}', '{kind}', '{payload}')"

    def write(*statements: str) -> None:
        for statement in statements:
            database.execute(statement)

    write(
        "CREATE TABLE trips (id INT PRIMARY KEY, region INT, note VARCHAR(9))",
        "CREATE TABLE regions (id INT PRIMARY KEY, name VARCHAR(9))",
        "CREATE TABLE events (id BINARY(16) PRIMARY KEY, kind VARCHAR(9), about VARCHAR(9), type VARCHAR(9),"
        " payload JSON)",
        "INSERT INTO trips VALUES (1, 7, 'a')",
        "INSERT INTO regions VALUES (7, 'before')",
        tell(1, "made", '{"n": 1}'),
    )
    # The events have a history at first: what is beside a table is not yet an outbox's.
    pipeline.write_config(rest=histories + f'[tables."{schema}.events"]\nhistory = "scd2"\n' + gold)
    pipeline.run()
    assert mart("flat", "note", "region") == [("a", "before")]
    # As fast as the server takes them: several transactions of one second, and then of one transaction.
    write("UPDATE trips SET note = 'b'", "UPDATE regions SET name = 'after'", "UPDATE trips SET note = 'c'")
    write(
        "BEGIN",
        "UPDATE regions SET name = 'within'",
        "UPDATE trips SET note = 'd'",
        "UPDATE regions SET name = 'last'",
        "COMMIT",
        "DELETE FROM regions",
        "UPDATE trips SET note = 'e'",
        tell(2, "made", '{"n": 2}'),
        "DELETE FROM events",  # as an outbox is cleaned
    )
    pipeline.run()
    wanted = [("a", "before"), ("b", "before"), ("c", "after"), ("d", "last"), ("e", None)]
    assert sorted(mart("flat", "note", "region")) == wanted

    # An outbox from now on: what bronze holds of it are events too. Then a new type, and a mart over both.
    pipeline.write_config(rest=histories + outbox + gold)
    write(tell(3, "paid/late", '{"n": 2}'), tell(4, "made", "[]"), tell(5, "paid/late", '{"n": 1}'))
    pipeline.run()
    assert "__history" not in load_silver(pipeline.app.lake).tables[f"{schema}.events"].beside
    made = pipeline.table("silver", "events", "__made")
    found = sorted((r["__id"][-2:], r["n"], r["__payload"], r["__error"] is None) for r in made.collect())
    assert [(i, n, json.loads(p), fine) for i, n, p, fine in found] == [
        ("01", 1, {"n": 1}, True),
        ("02", 2, {"n": 2}, True),
        ("04", None, [], False),
    ]
    told = [(f"{3:032x}", 2, "o3", "o2"), (f"{5:032x}", 1, "o5", "o1")]
    assert sorted(mart("events", "id", "n", "of", "made_as")) == told
    assert pipeline.verify().equal
