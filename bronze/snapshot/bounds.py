"""Cutting a table into chunks by key, without a lock and without holding a row.

The chunks cover every value a key can take, not only those there are now: the first has no lower bound, the last no
upper one, and each begins where the one before ends. So a row that is inserted while the chunks are being read falls
into exactly one of them, whatever its key. Their sizes are estimates and carry no promise.

A table whose key is one integer is cut by arithmetic: its range is divided evenly and each piece is weighed with the
optimiser's index dive (EXPLAIN), which reads a few pages; heavy pieces are divided again, light neighbours joined. Any
other key is walked along its index, one bound every `chunk_rows` entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pymysql

from bronze.snapshot.select import (
    Bound,
    beyond,
    bound,
    bound_expression,
    can_bound,
    compared,
    from_json,
    source_table,
    up_to,
    within,
)
from bronze.source.catalog import unique_indexes
from bronze.source.server import flavour_and_version, rows
from lakeward.names import mysql_identifier
from lakeward.schema import INTEGERS, Column, TableSchema

_MOST_CHUNKS = 20_000
_MOST_DIVES = 60_000


@dataclass(frozen=True)
class Chunk:
    """Rows whose key is above `lower` and not above `upper`; `keys` are the expressions that are compared."""

    number: int  # from 0
    keys: tuple[str, ...] = ()
    lower: tuple[Bound, ...] | None = None  # exclusive
    upper: tuple[Bound, ...] | None = None  # inclusive

    def where(self) -> str:
        """The WHERE clause with its leading space; empty for the whole table."""
        return within(self.keys, self.lower, self.upper)

    def to_json(self) -> list[Any]:
        """`[number, [keys, lower, upper]]`, as bronze.json holds it."""
        ends = [None if e is None else [list(b) for b in e] for e in (self.lower, self.upper)]
        return [self.number, [list(self.keys), *ends]]

    @classmethod
    def from_json(cls, doc: Sequence[Any]) -> Chunk:
        number, (keys, lower, upper) = doc
        return cls(int(number), tuple(keys), from_json(lower), from_json(upper))


def plan(conn: pymysql.Connection, schema: TableSchema, chunk_rows: int) -> list[Chunk]:
    """At least one chunk, in key order, of about `chunk_rows` rows each, that cover every row there is or will be.

    A table without a unique index that can be walked (and a configured key is not asked to be one) is one chunk.
    """
    by_name = {c.name: c for c in schema.columns}
    for index in unique_indexes(conn, schema.name):
        key = [by_name.get(name) for name in index.columns]
        columns = [c for c in key if c is not None and can_bound(c)]
        if len(columns) != len(key):
            continue
        ends = (
            _integer_ends(conn, schema, columns[0], chunk_rows)
            if len(columns) == 1 and columns[0].kind in INTEGERS
            else _walked_ends(conn, schema, columns, index.name, chunk_rows)
        )
        keys = tuple(compared(c) for c in columns)
        edges: list[tuple[Bound, ...] | None] = [None, *ends, None]
        return [Chunk(i, keys, lower, edges[i + 1]) for i, lower in enumerate(edges[:-1])]
    return [Chunk(0)]


def _integer_ends(
    conn: pymysql.Connection, schema: TableSchema, column: Column, chunk_rows: int
) -> list[tuple[Bound, ...]]:
    name = mysql_identifier(column.name)
    low, high = rows(conn, f"SELECT MIN({name}), MAX({name}) FROM {source_table(schema.name)}")[0]
    if low is None:
        return []
    explain = "EXPLAIN " if flavour_and_version(conn)[0] == "mariadb" else "EXPLAIN FORMAT=TRADITIONAL "
    table = source_table(schema.name)

    def weigh(above: int, to: int) -> int:
        if to - above <= chunk_rows:
            return to - above  # it cannot hold more
        found = rows(conn, f"{explain}SELECT {name} FROM {table} WHERE {name} > {above:d} AND {name} <= {to:d}")
        # The row count's place differs; it is the last whole number of the line on both servers.
        return max((int(v) for v in found[0][-3:] if str(v).isdigit()), default=0)

    pieces = _divide(int(low) - 1, int(high), chunk_rows, weigh)
    return [(Bound("number", str(end)),) for end in _joined(pieces, chunk_rows)[:-1]]


def _divide(above: int, to: int, chunk_rows: int, weigh: Any) -> list[tuple[int, int]]:
    """(inclusive end, estimated rows) of pieces of `(above, to]`, in order, none much heavier than a chunk."""
    done: list[tuple[int, int]] = []
    open_pieces = [(above, to)]
    dives = 0
    while open_pieces:
        start, end = open_pieces.pop()
        weight = weigh(start, end)
        dives += 1
        if weight <= 1.5 * chunk_rows or end - start <= 1 or dives + len(open_pieces) > _MOST_DIVES:
            done.append((end, weight))
            continue
        parts = min(max(2, round(weight / chunk_rows)), 256, end - start)
        edges = [start + (end - start) * i // parts for i in range(parts + 1)]
        # The last in, the first out: the lowest piece is weighed next, so `done` stays in order.
        open_pieces += reversed(list(pairwise(edges)))
    return done


def _joined(pieces: list[tuple[int, int]], chunk_rows: int) -> list[int]:
    """Ends of runs of neighbours that together are about one chunk."""
    ends: list[int] = []
    weight = 0
    for i, (end, rows_of_piece) in enumerate(pieces):
        weight += rows_of_piece
        following = pieces[i + 1][1] if i + 1 < len(pieces) else 0
        if i + 1 == len(pieces) or weight + following > 1.25 * chunk_rows:
            ends.append(end)
            weight = 0
    return ends


def _walked_ends(
    conn: pymysql.Connection, schema: TableSchema, columns: Sequence[Column], index: str, chunk_rows: int
) -> list[tuple[Bound, ...]]:
    table = f"{source_table(schema.name)} FORCE INDEX ({mysql_identifier(index)})"
    keys = [compared(c) for c in columns]
    names = [mysql_identifier(c.name) for c in columns]
    # CONCAT and not CAST(… AS BINARY), which gives a MariaDB UUID's or address's bytes instead of its text.
    wanted = ", ".join(f"CONCAT({bound_expression(c)})" for c in columns)

    def at(where: str, direction: str, offset: int) -> tuple[Bound, ...] | None:
        ordered = ", ".join(f"{n} {direction}" for n in names)
        found = rows(conn, f"SELECT {wanted} FROM {table}{where} ORDER BY {ordered} LIMIT 1 OFFSET {offset:d}")
        return tuple(bound(c, _bytes(v)) for c, v in zip(columns, found[0], strict=True)) if found else None

    last = at("", "DESC", 0)
    ends: list[tuple[Bound, ...]] = []
    if last is None:
        return ends
    lower: tuple[Bound, ...] | None = None
    while len(ends) < _MOST_CHUNKS:
        # Bounded by the key that was last at the start: a writer that appends faster than the walk would keep it going.
        where = f" WHERE {up_to(keys, last)}" + (f" AND {beyond(keys, lower)}" if lower is not None else "")
        end = at(where, "ASC", chunk_rows - 1)
        if end is None or end in (last, lower):
            break
        ends.append(end)
        lower = end
    return ends


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("ascii")
