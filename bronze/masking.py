"""Masks columns at capture: a keyed hash takes the value's place before anything is written.

HMAC-SHA256 (RFC 2104) in hex over the value's UTF-8 text, its bytes, or Python's text of any other type; both paths
into bronze and `verify` give equal values equal masks, so masked columns can still be joined, counted and compared.
NULL stays NULL. Without the key a value cannot be found out by hashing guesses.
"""

from __future__ import annotations

import hashlib
import hmac

import pyarrow as pa

from lakeward.config import Config
from lakeward.schema import TableSchema


def mask_key(config: Config) -> bytes | None:
    """The key, None where no table masks anything. Raises ConfigError when it is wanted and not there."""
    if not any(table.mask for table in config.tables.values()):
        return None
    return config.lake.mask_key.reveal().encode()


def masked(rows: pa.StructArray, schema: TableSchema, key: bytes | None) -> pa.StructArray:
    """`rows`, decoded by `schema.clear()`, with the masked columns hashed. Columns match by name, without case."""
    secret = {c.name.lower() for c in schema.columns if c.masked}
    if not secret:
        return rows
    assert key is not None
    fields, arrays = [], []
    for i, field in enumerate(rows.type):
        array = rows.field(i)
        if field.name.lower() in secret:
            array, field = _hashed(array, key), pa.field(field.name, pa.string())
        arrays.append(array)
        fields.append(field)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=rows.is_null() if rows.null_count else None)


def _hashed(array: pa.Array, key: bytes) -> pa.Array:
    known: dict[bytes, str] = {}

    def one(value: object) -> str | None:
        if value is None:
            return None
        raw = value if isinstance(value, bytes) else str(value).encode()
        if raw not in known:
            known[raw] = hmac.new(key, raw, hashlib.sha256).hexdigest()
        return known[raw]

    return pa.array([one(v) for v in array.to_pylist()], type=pa.string())
