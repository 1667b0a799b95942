"""A column as the binlog's table map describes it: the physical side of `lakeward.schema.Column`.

MySQL source: `libbinlogevents/include/rows_event.h`, class Table_map_event and its optional metadata fields.
"""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.schema import Column


@dataclass(frozen=True)
class WireColumn:
    """How one column's values stand in a row image, and the Column they become.

    `type_code` is the real type (enum_field_types): ENUM and SET, which a table map writes as MYSQL_TYPE_STRING, are
    resolved to 247 and 248. `meta` is normalised per type: the maximum length in bytes for CHAR, VARCHAR, BINARY and
    VARBINARY; the number of length bytes for BLOB, TEXT, JSON, GEOMETRY and VECTOR; precision << 8 | scale for
    DECIMAL; the fractional digits for TIME2, DATETIME2 and TIMESTAMP2; the number of bits for BIT; the number of
    bytes for ENUM and SET; 0 elsewhere.
    """

    type_code: int
    meta: int
    collation_id: int  # 63 is binary; 0 where the type has no charset
    column: Column
