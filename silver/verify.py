"""Proves that silver equals the source at one position, or says where it does not.

A transaction is opened on the source whose position is exactly known, bronze and silver are brought to that same
position, and every table is then read on both sides and compared by a checksum of the stored bits
(`silver/checksum.py`). A table whose checksums differ is compared row by row. Events held in quarantine are why a row
may rightly differ; such rows are counted apart, each named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze.masking import mask_key, masked
from bronze.snapshot.read import read_exact
from bronze.source.catalog import filter_condition
from lakeward.config import Config
from lakeward.delta import exists
from lakeward.lake import Lake
from lakeward.names import spark_identifier
from lakeward.position import Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeTable
from silver.checksum import row_hashes, total

NAMED_MAX = 100  # differences that are named for a table


@dataclass
class TableProof:
    """What was found of one table."""

    name: str
    equal: bool
    rows: int  # of the source at the position
    checksum: str
    differences: list[dict[str, Any]] = field(default_factory=list)
    quarantined: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Proof:
    """`verify --json`."""

    equal: bool
    position: str
    tables: list[TableProof]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    connection: pymysql.Connection,
    position: Position,
    tables: Sequence[BronzeTable],
) -> Proof:
    """Compare `tables` with what the open transaction on `connection` sees; silver stands at the same `position`."""
    proofs = []
    for table in tables:
        options = config.table(table.name)
        source = _Source(connection, table.schema, mask_key(config), filter_condition(connection, config, table.name))
        proofs.append(_table(spark, lake, source, soft=options.deletes == "soft"))
    return Proof(all(p.equal for p in proofs), str(position), proofs)


@dataclass(frozen=True)
class _Source:
    """A table at the source, as the lake is to have it: of what rows, and masked."""

    connection: pymysql.Connection
    schema: TableSchema
    key: bytes | None = field(repr=False)
    condition: str = field(repr=False)

    def rows(self) -> Iterator[pa.StructArray]:
        for rows in read_exact(self.connection, self.schema.clear(), self.condition):
            yield masked(rows, self.schema, self.key)

    def hashes(self) -> np.ndarray:
        parts = [row_hashes(rows) for rows in self.rows()]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)


def _table(spark: SparkSession, lake: Lake, source: _Source, *, soft: bool) -> TableProof:
    theirs, schema = source.hashes(), source.schema
    frame = _silver(spark, lake, schema, soft=soft)
    count, checksum = (0, 0) if frame is None else _silver_checksum(frame, schema)
    proof = TableProof(str(schema.name), True, len(theirs), f"{total(theirs):x}")
    if (count, checksum) == (len(theirs), total(theirs)):
        return proof
    ours = np.zeros(0, dtype=np.uint64) if frame is None else _silver_hashes(frame, schema)
    missing, extra = _only_in(theirs, ours), _only_in(ours, theirs)
    lost = _rows_of(source.rows(), schema, missing)
    found = [] if frame is None else _rows_of(_silver_batches(frame, schema, extra), schema, extra)
    differences = _differences(schema, lost, found)
    held = _held_keys(spark, lake, schema)
    proof.quarantined = [d for d in differences if _key(d) in held]
    proof.differences = [d for d in differences if _key(d) not in held]
    proof.equal = not proof.differences and len(missing) + len(extra) <= 2 * NAMED_MAX
    return proof


def _silver(spark: SparkSession, lake: Lake, schema: TableSchema, *, soft: bool) -> DataFrame | None:
    location = lake.table("silver", schema.name)
    if not exists(spark, location):
        return None
    frame = spark.read.format("delta").load(location)
    if soft:
        frame = frame.where("NOT __deleted")
    present = {c.lower() for c in frame.columns}
    if any(c.name.lower() not in present for c in schema.columns):
        return None
    # Numbered, since mapInArrow resolves names itself and stumbles over a dot in one.
    return frame.select(*(F.col(spark_identifier(c.name)).alias(f"c{i}") for i, c in enumerate(schema.columns)))


def _hashed(batch: pa.RecordBatch, image: pa.StructType) -> np.ndarray:
    arrays = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, image, strict=True)]
    return row_hashes(pa.StructArray.from_arrays(arrays, fields=list(image)))


def _silver_checksum(frame: DataFrame, schema: TableSchema) -> tuple[int, int]:
    image = schema.image()

    def sums(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        rows = checksum = 0
        for batch in batches:
            hashes = _hashed(batch, image)
            rows, checksum = rows + len(hashes), checksum + total(hashes)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "checksum": [str(checksum)]})

    found = frame.mapInArrow(sums, "rows BIGINT, checksum STRING").collect()
    return sum(r["rows"] for r in found), sum(int(r["checksum"]) for r in found)


def _silver_hashes(frame: DataFrame, schema: TableSchema) -> np.ndarray:
    image = schema.image()

    def each(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"hash": _hashed(batch, image).view(np.int64)})

    column = frame.mapInArrow(each, "hash BIGINT").toArrow()["hash"]
    return np.ascontiguousarray(column.to_numpy(), dtype=np.int64).view(np.uint64)


def _silver_batches(frame: DataFrame, schema: TableSchema, wanted: np.ndarray) -> Iterator[pa.StructArray]:
    image = schema.image()
    picked = np.sort(wanted[: 4 * NAMED_MAX])

    def pick(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield batch.filter(pa.array(np.isin(_hashed(batch, image), picked)))

    found = frame.mapInArrow(pick, frame.schema).toArrow()
    for batch in found.to_batches():
        arrays = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, image, strict=True)]
        yield pa.StructArray.from_arrays(arrays, fields=list(image))


def _only_in(these: np.ndarray, those: np.ndarray) -> np.ndarray:
    """Hashes that stand more often in `these` than in `those`, once each time."""
    values = np.unique(np.concatenate([these, those]))
    here, there = _counts(values, these), _counts(values, those)
    return np.asarray(np.repeat(values, np.maximum(here - there, 0)))


def _counts(values: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    found, counts = np.unique(hashes, return_counts=True)
    result = np.zeros(len(values), dtype=np.int64)
    result[np.searchsorted(values, found)] = counts
    return result


def _rows_of(batches: Iterable[pa.StructArray], schema: TableSchema, wanted: np.ndarray) -> list[dict[str, Any]]:
    """Up to NAMED_MAX rows whose hash is in `wanted`; each as often as it stands there."""
    values, counts = np.unique(wanted, return_counts=True)
    left = dict(zip(values.tolist(), counts.tolist(), strict=True))
    found: list[dict[str, Any]] = []
    for rows in batches:
        hashes = row_hashes(rows)
        for i in np.flatnonzero(np.isin(hashes, values)):
            h = int(hashes[i])
            if left.get(h, 0) > 0 and len(found) < NAMED_MAX:
                left[h] -= 1
                found.append(rows[int(i)].as_py())
    return found


def _differences(schema: TableSchema, lost: list[dict[str, Any]], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What differs, a row each: its key and what is wrong with it. Values other than keys are not repeated."""
    keys = schema.keys or tuple(c.name for c in schema.columns)

    def key(row: dict[str, Any]) -> tuple[str, ...]:
        return tuple(_shown(row[k]) for k in keys)

    extra = {key(r): r for r in found} if schema.keys else {}
    differences = []
    for row in lost:
        other = extra.pop(key(row), None) if schema.keys else None
        named = dict(zip(keys, key(row), strict=True))
        if other is None:
            differences.append({"key": named, "what": "missing in silver"})
        else:
            columns = [c for c in row if _shown(row[c]) != _shown(other[c])]
            differences.append({"key": named, "what": "differs", "columns": columns})
    remaining = list(extra.values()) if schema.keys else found
    differences += [{"key": dict(zip(keys, key(r), strict=True)), "what": "only in silver"} for r in remaining]
    return differences


def _held_keys(spark: SparkSession, lake: Lake, schema: TableSchema) -> set[tuple[tuple[str, str], ...]]:
    """Keys with an event in quarantine that has not been replayed."""
    from lakeward.quality import pending

    frame = pending(spark, lake, schema.name)
    if frame is None:
        return set()
    keys = schema.keys or tuple(c.name for c in schema.columns)
    held = set()
    for row in frame.select("before", "after").collect():
        for image in (row["before"], row["after"]):
            if image is not None:
                held.add(tuple((k, _shown(image[k])) for k in keys))
    return held


def _key(difference: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(difference["key"].items())


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, (bytes, bytearray)) else str(value)


def named(tables: Sequence[str], known: Sequence[BronzeTable]) -> list[BronzeTable]:
    """The tables asked for, all where none is. Raises TerminalError for one that is not followed."""
    from lakeward.errors import TerminalError

    by_name = {str(t.name): t for t in known}
    for name in tables:
        if name not in by_name:
            raise TerminalError(f"{name} is not followed", hint=f"followed are: {', '.join(sorted(by_name))}")
    return [by_name[n] for n in tables] if tables else list(known)
