"""What silver writes down of cascades, from bronze's events and silver's rows to envelopes; nothing is merged."""

from __future__ import annotations

from typing import Any

from lakeward.delta import version
from lakeward.foreign_keys import Action, ForeignKey
from lakeward.names import TableName
from lakeward.state import SilverState, SilverTable
from silver import delta
from silver.cascades.run import carry_out
from silver.events import read
from silver.plan import plan_run


def _refers(ledger: Any, child: str, column: str, parent: str, on_delete: Action, on_update: Action = "") -> None:
    key = ForeignKey("fk", (column,), TableName("shop", parent), ("id",), on_delete, on_update)
    table = ledger.state.tables[f"shop.{child}"]
    table.foreign_keys = [*(table.foreign_keys or []), key.to_json()]


def _put(ledger: Any, schema: Any, rows: list[tuple[Any, ...]]) -> None:
    """Silver's table as a run before would have left it."""
    delta.ensure(ledger.spark, ledger.location(schema), delta.current_fields(schema, soft=False))
    columns = delta.actual_fields(ledger.spark, ledger.location(schema))
    frame = ledger.spark.createDataFrame(
        [(*row, 0, None, None) for row in rows], ", ".join(f"`{n}` {k}" for n, k in columns)
    )
    frame.write.format("delta").mode("append").save(ledger.location(schema))


def test_cascades_are_stored_at_their_parents_place_for_tables_with_and_without_events(ledger, make_schema):
    a = ledger.follow(make_schema("a", {"id": "varchar(9)"}, ("id",)))
    b = ledger.follow(make_schema("b", {"id": "int", "a": "varchar(9)", "raw.x": "varbinary(9)"}, ("id",)))
    c = ledger.follow(make_schema("c", {"v": "double", "b": "int"}, ()))
    _refers(ledger, "b", "a", "a", "CASCADE", "CASCADE")
    _refers(ledger, "c", "b", "b", "SET NULL")
    ledger.flush()
    cut = ledger.state.checkpoint
    silver = SilverState(run=1, cut=cut)
    for schema in (a, b, c):
        silver.tables[str(schema.name)] = SilverTable(cut.at, 1, ledger.state.batch, 0, 1, list(schema.keys))
    _put(ledger, b, [(1, "x", b"\x00\xff"), (2, "y", None), (3, "z", b"")])
    _put(ledger, c, [(0.5, 1), (0.5, 1), (-0.0, 2), (1.5, 3)])
    with ledger.transaction():
        ledger.delete(a, {"id": "x"})
    with ledger.transaction():
        ledger.update(a, {"id": "y"}, {"id": "w"})
        ledger.update(b, {"id": 3, "a": "z", "raw.x": b""}, {"id": 3, "a": "w", "raw.x": b"!"})
        ledger.delete(a, {"id": "w"})
    ledger.flush()
    plan = plan_run(ledger.state, silver, lambda s: version(ledger.spark, ledger.lake.table("bronze", s.name)))
    assert plan is not None
    for _ in range(2):  # the second as after a run that was killed before it wrote its plan down
        done = carry_out(ledger.spark, ledger.lake, ledger.config, ledger.state, silver, plan)
    assert [(t.name, t.cascaded, t.cascades >= 0) for t in done.tables] == [
        ("shop.a", 0, False), ("shop.b", 4, True), ("shop.c", 4, True)
    ]  # fmt: skip
    assert done.idle == ()
    told = {t.name: read(ledger.spark, ledger.lake, t, done.cut.at).where("source.cascade > 0") for t in done.tables}
    rows = told["shop.b"].orderBy("source.cascade").select("op", "before", "after", "transaction.id").collect()
    assert [(r[0], _plain(r[1]), _plain(r[2])) for r in rows] == [
        ("d", (1, "x", b"\x00\xff"), None),
        ("u", (2, "y", None), (2, "w", None)),
        ("d", (2, "w", None), None),
        ("d", (3, "w", b"!"), None),
    ]
    assert len({r[3] for r in rows}) == 2
    rows = told["shop.c"].orderBy("source.cascade").select("op", "before", "after").collect()
    assert sorted((r[0], str(_plain(r[1])), str(_plain(r[2]))) for r in rows) == [
        ("u", "(-0.0, 2)", "(-0.0, None)"),
        ("u", "(0.5, 1)", "(0.5, None)"),
        ("u", "(0.5, 1)", "(0.5, None)"),
        ("u", "(1.5, 3)", "(1.5, None)"),
    ]


def _plain(row: Any) -> Any:
    return None if row is None else tuple(bytes(v) if isinstance(v, bytearray) else v for v in row)
