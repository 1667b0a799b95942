"""Tables with a key: the last event of each key, in the source's order, and a change feed that says so."""

from __future__ import annotations

from collections import Counter


def test_silver_holds_the_last_event_of_each_key(ledger, make_schema):
    users = ledger.follow(make_schema("users", {"id": "int", "name": "varchar(9)"}, ("id",)), [{"id": 1, "name": "a"}])
    ledger.insert(users, {"id": 2, "name": "b"})
    ledger.insert(users, {"id": 3, "name": "c"})
    ledger.update(users, {"id": 1, "name": "a"}, {"id": 1, "name": "A"})
    report = ledger.silver()
    assert ledger.content(users) == Counter([(1, "A"), (2, "b"), (3, "c")])
    assert report.tables["shop.users"].rows == 3
    ledger.delete(users, {"id": 2, "name": "b"})
    ledger.update(users, {"id": 1, "name": "A"}, {"id": 1, "name": None})
    ledger.insert(users, {"id": 4, "name": "d"})
    report = ledger.silver()
    assert ledger.content(users) == Counter([(1, None), (3, "c"), (4, "d")])
    done = report.tables["shop.users"]
    assert (done.inserted, done.updated, done.deleted, done.rows) == (1, 1, 1, 3)
    ledger.assert_told_truly(users)


def test_a_run_without_new_events_touches_no_table(ledger, make_schema):
    users = ledger.follow(make_schema("users", {"id": "int"}, ("id",)), [{"id": 1}])
    ledger.silver()
    version = ledger.version(users)
    assert ledger.rerun().run == 0
    assert ledger.silver().run == 2  # bronze's checkpoint moved on: the cut follows, the table does not
    assert ledger.version(users) == version
