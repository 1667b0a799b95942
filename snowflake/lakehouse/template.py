"""Fills in the SQL files of snowflake/sql/: every value goes through the one function that makes its kind safe.

Promise: a value cannot leave the place that a placeholder gives it. A placeholder names its kind, and there is no kind
that inserts text as it is:

    {{identifier:x}}        one identifier, in double quotes                  "ORDER ITEMS"
    {{name:x}}              an identifier of several parts                    "LAKE"."SHOP"."TRIPS"
    {{literal:x}}           a string                                          'it''s'
    {{url:x}}               a string that is a storage URL ending in /         's3://bucket/lake/'
    {{path:x}}              a string that is a path in the lake: relative, without a leading / and without ..
    {{literals:x}}          a list of strings                                  ('a', 'b')
    {{stage_path:x}}        (stage, folder/) or (stage, file) as a location    @"LAKE"."LAKEWARD"."S"/shop/trips/
    {{literal_name:x}}      a name of several parts, as a string               '"LAKE"."LAKEWARD"."F"'
    {{secret:x}}            a place for a secret of the configuration, which is put there only when the statement is run
    {{external_columns:x}}  (name, type, field) each as a column of an external table
    {{landed_…:x}}          the columns of a landed table, each (name, type, fields: what it is and was called), and the
                            (type, fields) of its key, in the parts of the queries over its events
    {{number:x}}            an integer
    {{comment:x}}           text within a comment, on one line

Whole lines are repeated or left out by comments, so that a file stays readable as SQL:

    -- @each tables   the lines up to its @end once for each member of `tables`; its values come before the outer ones
    -- @when s3       the lines up to its @end where the value `s3` is neither missing, empty nor false
"""

from __future__ import annotations

import json
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lakeward.names import snowflake_identifier, sql_literal

Values = Mapping[str, Any]
Landed = Sequence[tuple[str, str, Sequence[str]]]  # name, type, fields
Keys = Sequence[tuple[str, Sequence[str]]]

_PLACEHOLDER = re.compile(r"\{\{(\w+):(\w+)\}\}")
_DIRECTIVE = re.compile(r"-- @(each|when|end)(?: (\w+))?$")
_URL = re.compile(r"(s3|s3gov|s3china|s3compat|gcs|azure)://[^\x00-\x20]+/")
_STAGE_PATH = re.compile(r"([A-Za-z0-9_=.-]+/)+[A-Za-z0-9_=.-]*")
_KEYWORD = re.compile(r"[A-Z]+([ _][A-Z]+)*")
_TYPE = re.compile(r"[A-Z_]+(\(\d+(,\d+)?\))?")


def fill(template: str, values: Values) -> str:
    """`template` with `values` in it. Raises ValueError for a placeholder or value that is not as said above."""
    lines = iter(template.splitlines())
    return "\n".join(_block(lines, ChainMap(dict(values)), inner=False)) + "\n"


def _block(lines: Iterator[str], values: ChainMap[str, Any], *, inner: bool) -> list[str]:
    done: list[str] = []
    for line in lines:
        directive = _DIRECTIVE.match(line)
        if directive is None:
            done.append(_PLACEHOLDER.sub(lambda match: _value(match, values), line))
            if "{{" in _PLACEHOLDER.sub("", line):
                raise ValueError(f"a placeholder that cannot be read: {line!r}")
            continue
        word, name = directive.groups()
        if word == "end":
            if not inner:
                raise ValueError("an @end without its beginning")
            return done
        body = _body(lines)
        members: Sequence[Values] = [{}] if word == "when" else values[name]
        if word == "when" and not values.get(name):
            members = []
        for member in members:
            done += _block(iter(body), values.new_child(dict(member)), inner=True)
    return done


def _body(lines: Iterator[str]) -> list[str]:
    """The lines up to the @end of the block that has just begun, without it."""
    found: list[str] = []
    depth = 1
    for line in lines:
        directive = _DIRECTIVE.match(line)
        if directive is not None:
            depth += -1 if directive.group(1) == "end" else 1
            if depth == 0:
                return found
        found.append(line)
    raise ValueError("a block without its @end")


def _value(match: re.Match[str], values: Mapping[str, Any]) -> str:
    kind, name = match.groups()
    if kind not in KINDS or name not in values:
        raise ValueError(f"nothing to put at {match.group()}")
    return KINDS[kind](values[name])


def qualified(parts: Sequence[str]) -> str:
    """`("LAKE", "SHOP", "TRIPS")` → `"LAKE"."SHOP"."TRIPS"`."""
    return ".".join(snowflake_identifier(part) for part in parts)


def literals(texts: Sequence[str]) -> str:
    return f"({', '.join(sql_literal(text) for text in texts)})"


def relative_path(path: str) -> str:
    """A path below the external volume's base URL, as a literal."""
    if not path or path.startswith("/") or "://" in path or ".." in path.split("/"):
        raise ValueError(f"not a path below the lake's root: {path!r}")
    return sql_literal(path)


def storage_url(url: str) -> str:
    if _URL.fullmatch(url) is None:
        raise ValueError(f"not a storage URL that ends in /: {url!r}")
    return sql_literal(url)


def stage_path(place: tuple[Sequence[str], str]) -> str:
    """A stage and a folder in it. The folder stands outside of any quotes, for CREATE EXTERNAL TABLE documents no other
    form, so only what needs none may be in it. `--` would begin a comment there: the table would silently be one on the
    whole stage. A folder with it goes into the URL of a stage of its own, in quotes (`plan`)."""
    stage, folder = place
    if not bare_path(folder):
        raise ValueError(f"not a place in the lake: {folder!r}")
    return f"@{qualified(stage)}/{folder}"


def bare_path(folder: str) -> bool:
    """Whether a folder of a stage can stand in a statement without quotes."""
    return _STAGE_PATH.fullmatch(folder) is not None and "--" not in folder and ".." not in folder.split("/")


def literal_name(parts: Sequence[str]) -> str:
    """A qualified name where Snowflake wants it as a string."""
    return sql_literal(qualified(parts))


def secret(setting: str) -> str:
    """What stands for the secret of [snowflake] `setting` in everything that is printed or logged."""
    return sql_literal(f"SECRET OF [snowflake] {setting}")


def external_columns(columns: Sequence[tuple[str, str, str]]) -> str:
    """`"ID" NUMBER(10,0) AS (VALUE['id']::NUMBER(10,0))`, one a line."""
    return ",\n  ".join(_external_column(*column) for column in columns)


def _external_column(name: str, kind: str, field: str) -> str:
    return f"{snowflake_identifier(name)} {sql_type(kind)} AS (VALUE[{sql_literal(field)}]::{sql_type(kind)})"


def landed_columns(columns: Landed) -> str:
    """The values that `landed_sent` found, each in its type under its column's name."""
    return ",\n  ".join(
        f"{_typed(kind, _value_of(i))} AS {snowflake_identifier(name)}" for i, (name, kind, _) in enumerate(columns)
    )


def _value_of(number: int) -> str:
    return f"v{number:d}['v']"


def landed_names(columns: Landed) -> str:
    return ", ".join(snowflake_identifier(name) for name, _, _ in columns)


def landed_sent(table: tuple[Landed, Keys]) -> str:
    """v0, v1 …: the last value of each column that an event of the row has sent. It is packed in an object, so
    that a NULL that was sent is not one that was not."""
    columns, keys = table
    so_far = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    over = f"OVER (PARTITION BY era, {landed_key_names(keys)} ORDER BY place {so_far})"
    return ",\n    ".join(
        f"LAST_VALUE(IFF(op = 'u' AND {_absent(fields)}, NULL, OBJECT_CONSTRUCT('v', {_field('image', fields)})))"
        f" IGNORE NULLS {over} AS v{i}"
        for i, (_, _, fields) in enumerate(columns)
    )


def landed_row(columns: Landed) -> str:
    """All of a row as one text, that differs where a value does. A column that was not there yet is NULL."""
    values = ", ".join(f"'v{i}', STRIP_NULL_VALUE({_value_of(i)})" for i in range(len(columns)))
    return f"TO_JSON(OBJECT_CONSTRUCT({values}))"


def landed_key(keys: Keys) -> str:
    """k0, k1 …: the key's values, by type: a decimal may come as a number or as a string."""
    return ",\n    ".join(f"{_key('image', *key)} AS k{i}" for i, key in enumerate(keys))


def landed_key_names(keys: Keys) -> str:
    return ", ".join(f"k{i}" for i in range(len(keys)))


def landed_same_key(keys: Keys) -> str:
    """Whether an update left the row under its key."""
    return " AND ".join(f"{_key('b', *key)} IS NOT DISTINCT FROM {_key('a', *key)}" for key in keys)


def _field(image: str, fields: Sequence[str]) -> str:
    """A field of an image, by its present name or one that it had. JSON's null is no NULL, so a field that is there
    is not passed over."""
    found = [f"{image}[{sql_literal(field)}]" for field in fields]
    return found[0] if len(found) == 1 else f"COALESCE({', '.join(found)})"


def _absent(fields: Sequence[str]) -> str:
    """Whether `absent`, a list of names as JSON text, has the field."""
    named = [f"CONTAINS(absent, {sql_literal(json.dumps(field, ensure_ascii=False))})" for field in fields]
    return named[0] if len(named) == 1 else f"({' OR '.join(named)})"


def _key(image: str, kind: str, fields: Sequence[str]) -> str:
    return _typed("VARCHAR" if kind == "BINARY" else kind, _field(image, fields))


def _typed(kind: str, value: str) -> str:
    """A value of JSON in its column's type, and JSON's null as NULL. What an earlier generation had under the name, and
    is of another type, is NULL."""
    match kind:
        case "JSON":  # it came as text; as the sink stores it
            return f"COALESCE(TRY_PARSE_JSON({value}::VARCHAR), TO_VARIANT({value}::VARCHAR))"
        case "GEOMETRY":
            wkb = f"HEX_ENCODE(TRY_TO_BINARY({value}['wkb']::VARCHAR, 'BASE64'))"
            made = f"TO_VARIANT(OBJECT_CONSTRUCT('srid', {value}['srid'], 'wkb', {wkb}))"
            return f"IFF({value}['wkb']::VARCHAR IS NULL, NULL, {made})"
        case "VARIANT":
            return f"STRIP_NULL_VALUE({value})"
        case "BINARY":  # JSON holds bytes in Base64
            return f"TRY_TO_BINARY({value}::VARCHAR, 'BASE64')"
        case "VARCHAR" | "FLOAT":  # a float as text would lose digits
            return f"{value}::{sql_type(kind)}"
    return f"TRY_CAST({value}::VARCHAR AS {sql_type(kind)})"


def number(value: int) -> str:
    return f"{value:d}"


def sql_type(kind: str) -> str:
    if _TYPE.fullmatch(kind) is None:
        raise ValueError(f"not a type of Snowflake: {kind!r}")
    return kind


def keyword(words: str) -> str:
    """A word of SQL's own that came from elsewhere: a privilege, a kind of object. Raises ValueError for another."""
    if _KEYWORD.fullmatch(words) is None:
        raise ValueError(f"no word of SQL: {words!r}")
    return words


def comment(text: str) -> str:
    """`text` on one line: what could end a line is written as its escape."""
    return text.encode("unicode_escape").decode("ascii") if not text.isprintable() else text


KINDS: Mapping[str, Callable[[Any], str]] = {
    "identifier": snowflake_identifier,
    "name": qualified,
    "literal": sql_literal,
    "literals": literals,
    "url": storage_url,
    "path": relative_path,
    "stage_path": stage_path,
    "literal_name": literal_name,
    "secret": secret,
    "external_columns": external_columns,
    "landed_columns": landed_columns,
    "landed_names": landed_names,
    "landed_sent": landed_sent,
    "landed_row": landed_row,
    "landed_key": landed_key,
    "landed_key_names": landed_key_names,
    "landed_same_key": landed_same_key,
    "number": number,
    "comment": comment,
}
