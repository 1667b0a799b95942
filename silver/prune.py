"""Which rows of a table a small batch can touch, said in values, so that a MERGE need not look at the others.

Delta skips the files whose statistics lie outside the ranges. What the list leaves out is not shuffled: a MERGE that
also inserts joins its target as the outer side, which Spark cannot do by broadcasting the batch. Only integers are
said: a MERGE's condition stands in Delta's log, where a text that names a person has no business.
"""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lakeward.schema import INTEGERS, TableSchema
from silver.columns import key_numbers, of_table

RANGES_MAX = 16
LISTED_BYTES_MIN = 32 << 20  # of the table: the list is written to its log with each MERGE


def touched(schema: TableSchema, rows: pa.Table, table_bytes: int) -> list[str]:
    """Conditions that each row of the table `t` with a key of `rows` (its columns c0, c1 …) fulfils."""
    if schema.counted or not rows.num_rows:
        return []
    conditions, names = [], of_table(schema, "t")
    for i in key_numbers(schema):
        column = schema.columns[i]
        if column.kind not in INTEGERS or column.boolean or column.masked or column.nullable:
            continue
        values = sorted(int(v) for v in pc.unique(rows[f"c{i}"]).to_pylist())
        spans = (f"{names[i]} BETWEEN {low} AND {high}" for low, high in ranges(values))
        conditions.append(f"({' OR '.join(spans)})")
        if table_bytes >= LISTED_BYTES_MIN:
            conditions.append(f"{names[i]} IN ({', '.join(map(str, values))})")
    return conditions


def ranges(values: list[int]) -> list[tuple[int, int]]:
    """At most RANGES_MAX ranges that cover the ascending `values`, with the widest gaps between them."""
    gaps = sorted(range(1, len(values)), key=lambda i: values[i] - values[i - 1], reverse=True)[: RANGES_MAX - 1]
    cuts = [0, *sorted(gaps), len(values)]
    return [(values[a], values[b - 1]) for a, b in pairwise(cuts)]
