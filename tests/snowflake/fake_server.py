"""fakesnow's server as a program: prints its port, and ends when its standard input does.

A process of its own, so that its warnings are not this project's errors, and nothing of it is in the connector that
is tested.
"""

from __future__ import annotations

import contextlib
import logging
import sys

import fakesnow
import fakesnow.info_schema

_noted = fakesnow.info_schema.insert_table_comment_sql


def _note(catalog: str, schema: str, table: str, comment: str) -> str:
    # The server plays MERGE by a temporary table of its own and notes that table's comment in another database of
    # DuckDB's, which no transaction may write besides the first: so MERGE would fail in every transaction.
    return "SELECT 1" if table.lower() == "merge_candidates" else str(_noted(catalog, schema, table, comment))


fakesnow.info_schema.insert_table_comment_sql = _note
# DuckDB has one type for an instant; Snowflake says of such a column what it was made as, and nothing here makes a _TZ.
fakesnow.info_schema.SQL_CREATE_GLOBAL_INFORMATION_SCHEMA_COLUMNS_VIEW = (
    fakesnow.info_schema.SQL_CREATE_GLOBAL_INFORMATION_SCHEMA_COLUMNS_VIEW.replace("'TIMESTAMP_TZ'", "'TIMESTAMP_LTZ'")
)

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    with contextlib.redirect_stdout(sys.stderr):
        served = fakesnow.server()
        settings = served.__enter__()
    print(settings["port"], flush=True)
    sys.stdin.read()
    served.__exit__(None, None, None)
