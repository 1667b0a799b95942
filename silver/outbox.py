"""The outbox pattern: each row that is inserted into an outbox table becomes an event in a table of its type.

`<root>/silver/<schema>/<outbox>__<type>` (the type written as names are in paths; `-null-` for none) is append-only and
has one row an inserted outbox row, once: deletes and updates of outbox rows, the usual clean-up, change nothing in it.
Its columns are those of `META`, then the payload's top-level fields by name. A field is BOOLEAN, BIGINT, DOUBLE or
STRING as all its values so far are; where they differ it is STRING, and the values before it are cast. Objects and
lists are JSON text. The payload itself is always kept: one that is no JSON object has its fault in `__error`. So the
columns do not depend on how events fell into batches.

Each append bears the run's number, so a run that is killed and finished adds nothing twice. The rows of a snapshot are
events too; those that are there already, by their id, are not added again when the outbox is read anew.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakeward import crash
from lakeward.config import Outbox
from lakeward.delta import exists, version
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.names import encode_path, sql_literal
from lakeward.names import spark_identifier as quoted
from lakeward.schema import TableSchema
from silver import delta
from silver.events import PLACE, position

APP_ID: Final = "lakeward-silver-outbox"
TYPES_MAX: Final = 1000
FIELDS_MAX: Final = 500
META: Final = (
    ("__id", "STRING"),
    ("__type", "STRING"),
    ("__key", "STRING"),
    ("__aggregate", "STRING"),
    ("__payload", "STRING"),
    ("__error", "STRING"),  # why the payload has no fields; NULL where it has
    ("__ts_ms", "BIGINT"),  # the source's commit time; of a snapshot's row, when the snapshot began
    ("__transaction_id", "STRING"),
    ("__transaction_order", "BIGINT"),
    ("__snapshot", "BOOLEAN"),
    ("__position", "STRING"),  # orders the events as the source did (`silver.events.position`)
)
_NAMES = [name for name, _ in META]
log = logging.getLogger(__name__)


def suffix(kind: str | None) -> str:
    """What the name of a type's table ends in."""
    return "__" + ("-null-" if kind is None else encode_path(kind))


def write_events(
    session: SparkSession,
    lake: Lake,
    outbox: Outbox,
    events: DataFrame,
    schema: TableSchema,
    *,
    run: int,
    app: str = APP_ID,
    again: bool = False,
) -> dict[str, int]:
    """Append the outbox rows that `events` (bronze's envelopes) insert to the tables of their types, once for
    (`app`, `run`). The versions of those tables, by their suffix.

    Rows that were read from the table rather than from the log may be there from before, and with `again` all may;
    those are looked up by their id. Raises TerminalError for more than TYPES_MAX types, and for a table in the place of
    an event table.
    """
    rows = _inserted(events, outbox, schema).localCheckpoint()
    found = _fields(rows)
    if len(found) > TYPES_MAX:
        raise TerminalError(
            f"{schema.name} has more than {TYPES_MAX} values of {outbox.type!r}, each of which would be a table",
            hint=f'[tables."{schema.name}"] outbox = {{ type = … }} has to name the column of the event\'s type',
        )
    versions = {}
    for kind, fields in sorted(found.items(), key=lambda item: str(item[0])):
        location = lake.table("silver", schema.name, suffix(kind))
        if delta.done(session, location, app) >= run:
            versions[suffix(kind)] = version(session, location)
            continue
        chosen = rows.where(f"__type <=> {_text(kind)}")
        maybe = "true" if again else "__snapshot"
        if exists(session, location) and not chosen.where(maybe).isEmpty():
            known = session.read.format("delta").load(location).select("__id")
            chosen = chosen.where(f"NOT ({maybe})").unionByName(chosen.where(maybe).join(known, "__id", "left_anti"))
        _append(session, location, chosen, fields, run=run, app=app)
        versions[suffix(kind)] = version(session, location)
        crash.point("silver.between_events")
    return versions


def _text(kind: str | None) -> str:
    return "NULL" if kind is None else sql_literal(kind)


def _inserted(events: DataFrame, outbox: Outbox, schema: TableSchema) -> DataFrame:
    """The columns of META but `__error`; each inserted row once."""
    present = {c.name.lower(): c for c in schema.columns}
    identities = (outbox.id, outbox.key)  # of bytes: a UUID as BINARY(16), in most cases

    def text(name: str) -> str:
        column = present.get(name.lower())
        if column is None:
            return "CAST(NULL AS STRING)"
        value = f"after.{quoted(column.name)}"
        cast = f"CAST({value} AS STRING)"
        if column.spark != "BINARY":
            return cast
        # Bytes may be text or not.
        return f"lower(hex({value}))" if name in identities else f"IF(is_valid_utf8({cast}), {cast}, hex({value}))"

    inserted = events.where("op IN ('c', 'r')").withColumn("at", F.expr(PLACE.format(half="1")))
    made = inserted.selectExpr(
        f"{text(outbox.id)} AS __id",
        f"{text(outbox.type)} AS __type",
        f"{text(outbox.key)} AS __key",
        f"{text(outbox.aggregate)} AS __aggregate",
        f"{text(outbox.payload)} AS __payload",
        "ts_ms AS __ts_ms",
        "transaction.id AS __transaction_id",
        "transaction.total_order AS __transaction_order",
        "op = 'r' AS __snapshot",
        f"{position('at')} AS __position",
    )
    stream, snapshot = made.where("NOT __snapshot"), made.where("__snapshot")
    # A chunk that was read after an insert has its row too.
    return stream.unionByName(snapshot.join(stream.select("__id"), "__id", "left_anti"))


def _append(
    session: SparkSession, location: str, rows: DataFrame, found: dict[str, str], *, run: int, app: str
) -> None:
    there = exists(session, location)
    present = dict(delta.actual_fields(session, location)) if there else {}
    if there and not set(_NAMES) <= set(present):
        raise TerminalError(
            f"{location} is no table of an outbox's events, and has the place of one",
            hint="leave the source table of that name out, or name another `type` column for the outbox",
        )
    fields = {name: kind for name, kind in present.items() if name not in _NAMES}
    wanted, widened = _merged(fields, found)
    if len(wanted) == FIELDS_MAX:
        log.warning("%s has %d columns of payload fields; further ones are in __payload alone", location, FIELDS_MAX)
    parsed = _parsed(rows, wanted).sortWithinPartitions("__position")
    columns = [*META, *wanted.items()]
    if widened:
        old = session.read.format("delta").load(location)
        cast = [
            f"{f'CAST({quoted(n)} AS {k})' if n in present else f'CAST(NULL AS {k})'} AS {quoted(n)}"
            for n, k in columns
        ]
        delta.overwrite(old.selectExpr(*cast).unionByName(parsed), location, app=app, run=run)
        return
    if not delta.ensure(session, location, columns, followed=False):
        raise TerminalError(f"another program has changed the columns of {location}", hint="move that table away")
    delta.append(parsed, location, app=app, run=run)


def _merged(present: dict[str, str], found: dict[str, str]) -> tuple[dict[str, str], bool]:
    """The table's fields with those of new payloads, and whether one that is there has to become STRING."""
    names = {name.lower(): name for name in present}
    wanted, widened = dict(present), False
    for name, kind in found.items():
        old = names.get(name.lower())
        if old is None:
            if len(wanted) < FIELDS_MAX:
                wanted[name] = kind
        elif wanted[old] not in (kind, "string"):
            wanted[old], widened = "string", True
    return wanted, widened


def _fields(rows: DataFrame) -> dict[str | None, dict[str, str]]:
    """Of each type the payloads' fields, in the order of their names, and the kind that holds all their values."""

    def seen(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        kinds: dict[tuple[str | None, str | None], str] = {}
        for batch in batches:
            for of, payload in zip(batch["__type"].to_pylist(), batch["__payload"].to_pylist(), strict=True):
                kinds[of, None] = ""
                for name, value in _read(payload)[0].items():
                    kind = _kind(value)
                    if kind is not None:
                        kinds[of, name] = kind if kinds.get((of, name), kind) == kind else "string"
        columns = {"type": [t for t, _ in kinds], "name": [n for _, n in kinds], "kind": list(kinds.values())}
        yield pa.RecordBatch.from_pydict(columns, schema=pa.schema([(n, pa.string()) for n in columns]))

    answers = rows.select("__type", "__payload").mapInArrow(seen, "type STRING, name STRING, kind STRING").collect()
    return fields_of_types((r[0], r[1], r[2]) for r in answers)


def fields_of_types(answers: Iterable[tuple[str | None, str | None, str]]) -> dict[str | None, dict[str, str]]:
    """(type, field, kind), in any order, as the fields of each type; names are told apart without case."""
    found: dict[str | None, dict[str, tuple[str, str]]] = {}
    for of, name, kind in sorted(answers, key=lambda a: (str(a[1]), a[2])):
        fields = found.setdefault(of, {})
        if name is not None:
            first, other = fields.get(name.lower(), (name, kind))
            fields[name.lower()] = (first, kind if other == kind else "string")
    return {of: dict(fields.values()) for of, fields in found.items()}


def _parsed(rows: DataFrame, fields: dict[str, str]) -> DataFrame:
    """`rows` with `__error` and the fields, in the table's order."""
    numbered = {name.lower(): (i, kind) for i, (name, kind) in enumerate(fields.items())}
    arrow = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64(), "boolean": pa.bool_()}
    plain = [n for n in _NAMES if n != "__error"]

    def parse(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            columns: list[list[Any]] = [[None] * batch.num_rows for _ in fields]
            errors: list[str | None] = []
            for n, payload in enumerate(batch["__payload"].to_pylist()):
                values, error = _read(payload)
                errors.append(error)
                for name, value in values.items():
                    i, kind = numbered.get(name.lower(), (-1, ""))
                    if i >= 0 and value is not None:
                        columns[i][n] = _shown(value) if kind == "string" else value
            arrays = [batch[n] for n in plain] + [pa.array(errors, pa.string())]
            arrays += [pa.array(c, arrow[k]) for c, k in zip(columns, fields.values(), strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=[*plain, "__error", *(f"f{i}" for i in range(len(fields)))])

    kinds = dict(META)
    ddl = ", ".join(
        [*(f"{n} {kinds[n]}" for n in (*plain, "__error")), *(f"f{i} {k}" for i, k in enumerate(fields.values()))]
    )
    made = rows.select(*plain).mapInArrow(parse, ddl)
    return made.select(*_NAMES, *(F.col(f"f{i}").alias(name) for i, name in enumerate(fields)))


def _read(payload: str | None) -> tuple[dict[str, Any], str | None]:
    """A payload's fields, and why it has none."""
    if payload is None:
        return {}, None
    try:
        doc = json.loads(payload)
    except ValueError:
        return {}, "the payload is not JSON"
    if not isinstance(doc, dict):
        return {}, "the payload is not a JSON object"
    reserved = {name.lower() for name in _NAMES}
    return {name: value for name, value in doc.items() if name and name.lower() not in reserved}, None


def _kind(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -(2**63) <= value < 2**63 else "string"
    return "double" if isinstance(value, float) else "string"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
