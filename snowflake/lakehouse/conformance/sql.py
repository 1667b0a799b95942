"""The plan's statements by Snowflake's rules: nothing in them can write to the lake, or show it to anybody unasked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snowflake.lakehouse.conformance.rules import Finding
from snowflake.lakehouse.statements import Statement, bare, property_of

_PRIVILEGES = {"USAGE", "SELECT"}


def check_sql(plan: Iterable[Statement]) -> Iterator[Finding]:
    """What breaks a rule. An unknown statement is one: what is not understood is not run."""
    for statement in plan:
        for what in _broken(statement):
            yield Finding("sql", " ".join(statement.text.split()[:6]), what)


def _broken(of: Statement) -> Iterator[str]:
    words = f" {bare(of)} "
    if of.action == "other":
        yield "it is none of the statements that a plan is made of"
    if of.kind == "EXTERNAL VOLUME" and of.action == "create" and "ALLOW_WRITES = FALSE " not in words:
        yield "the volume lets Snowflake write: ALLOW_WRITES = FALSE is missing"
    if of.kind == "DATABASE" and "LINKED_CATALOG" in words and "ALLOWED_WRITE_OPERATIONS = NONE " not in words:
        yield "a DROP TABLE would delete data: ALLOWED_WRITE_OPERATIONS = NONE is missing"
    if of.kind == "ICEBERG TABLE" and of.action == "create":
        yield from _table(of)
    if of.kind == "ICEBERG TABLE" and of.path is not None and of.path.startswith("/"):
        yield "a path with a leading /"
    if of.kind == "EXTERNAL TABLE" and of.action != "grant" and "AUTO_REFRESH = FALSE " not in words:
        yield "it asks for the bucket's notifications: AUTO_REFRESH = FALSE is missing"
    if of.action == "grant" and of.privilege not in _PRIVILEGES:
        yield f"a reader does not need {of.privilege}"


def _table(of: Statement) -> Iterator[str]:
    if property_of(of, "CATALOG") is None:
        yield "a table without a catalog is Snowflake's own, and written by it"
    for name in ("METADATA_FILE_PATH", "BASE_LOCATION"):
        path = property_of(of, name)
        if path is not None and (path.startswith("/") or "://" in path or ".." in path.split("/")):
            yield f"{name} is not a path below the volume"
