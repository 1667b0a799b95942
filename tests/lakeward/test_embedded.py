"""The embedded server, on both flavours."""

from __future__ import annotations


def test_a_database_answers(database):
    database.execute("CREATE TABLE t (a INT)")
    assert database.query("SELECT COUNT(*) FROM t") == [(0,)]
