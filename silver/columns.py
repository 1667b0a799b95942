"""How silver names and compares columns in SQL, whatever the source calls them and whatever they hold.

Inside a run a table's columns are called `c0`, `c1` …: a source name may hold a dot, a backtick or a space, and a
name made here needs no care. Source names appear only where bronze is read and silver is written.

Two values are the same only if no reader could tell them apart. Spark's `=` and `<=>` hold 0.0 and -0.0 to be equal, so
a float is compared by its shortest decimal form, which is another for every other value (Java, `Double.toString`).
"""

from __future__ import annotations

from lakeward.errors import TerminalError
from lakeward.names import spark_identifier as quoted
from lakeward.schema import Column, TableSchema

META = (("__ts_ms", "BIGINT"), ("__transaction_id", "STRING"), ("__transaction_order", "BIGINT"))
DELETED = "__deleted"
VERSION = (
    *(("__valid_from", "TIMESTAMP"), ("__valid_to", "TIMESTAMP"), ("__is_current", "BOOLEAN")),
    *(("__valid_from_position", "STRING"), ("__valid_to_position", "STRING")),
)
_CHANGE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
RESERVED = frozenset((*(name for name, _ in META), DELETED, *(name for name, _ in VERSION), *_CHANGE_FEED))


def refuse_collisions(schema: TableSchema) -> None:
    """Raises TerminalError for a source column that bears a name silver needs for itself."""
    taken = [c.name for c in schema.columns if c.name.lower() in RESERVED]
    if taken:
        raise TerminalError(
            f"{schema.name} has the column {taken[0]!r}, a name that Lakeward gives to a column of its own",
            hint=f"add {taken[0]!r} to exclude_columns of the table, or rename it at the source",
        )


def exact(column: Column, expression: str) -> str:
    """An expression that is equal, and groups together, for identical values alone."""
    if column.kind in ("float", "double", "vector"):
        return f"CAST({expression} AS STRING)"
    return expression


def same(column: Column, left: str, right: str) -> str:
    """Whether two values are identical; NULL is identical to NULL."""
    return f"{exact(column, left)} <=> {exact(column, right)}"


def image(schema: TableSchema, struct: str) -> str:
    """The columns of an envelope's image as STRUCT<c0, c1, …>."""
    fields = ", ".join(f"'c{i}', {struct}.{quoted(c.name)}" for i, c in enumerate(schema.columns))
    return f"named_struct({fields})"


def key_numbers(schema: TableSchema) -> list[int]:
    """Where the key's columns stand among the table's."""
    places = {c.name: i for i, c in enumerate(schema.columns)}
    return [places[k] for k in schema.keys]


def of_image(schema: TableSchema, struct: str) -> list[str]:
    """The columns as they are called in a frame of changes: `<struct>.c0` …"""
    return [f"{struct}.c{i}" for i in range(len(schema.columns))]


def of_table(schema: TableSchema, alias: str) -> list[str]:
    """The columns as a silver table calls them."""
    return [f"{alias}.{quoted(c.name)}" for c in schema.columns]


def keyless(schema: TableSchema, columns: list[str]) -> str:
    """Whether a row has no whole key, so that the row itself is all that names it. Never NULL."""
    if not schema.keys:
        return "true"
    if not schema.counted:
        return "false"
    return "(" + " OR ".join(f"{columns[i]} IS NULL" for i in key_numbers(schema)) + ")"


def identity(schema: TableSchema, columns: list[str]) -> str:
    """A STRUCT that is equal for two rows if, and only if, they are the same row: the key, or without one all columns.

    Never NULL; NULL fields inside it compare equal, as Spark orders structs.
    """
    keys = key_numbers(schema)
    without = keyless(schema, columns)
    fields = []
    for i, column in enumerate(schema.columns):
        value = exact(column, columns[i])
        if i in keys or without == "true":
            fields.append(f"'c{i}', {value}")
        elif without != "false":
            fields.append(f"'c{i}', IF({without}, {value}, NULL)")
    return f"named_struct({', '.join(fields)})"
