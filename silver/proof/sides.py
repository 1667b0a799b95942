"""The two sides of a proof: a table's rows at the source, inside one transaction, and in silver.

Both are read as Arrow and go through the same functions, in batches, so that neither is ever held whole. The source is
read by the snapshot's text protocol; masks are put on before anything is compared. Silver is read on the executors,
which send back checksums, hashes and the few rows that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pymysql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bronze.masking import masked
from bronze.snapshot.read import read_exact
from lakeward.delta import exists
from lakeward.lake import Lake
from lakeward.names import spark_identifier
from lakeward.schema import TableSchema
from silver.checksum import Sums, row_hashes
from silver.proof.chunks import Chunking


class Hashes(NamedTuple):
    """Of some rows, in no order: the hashes of their keys and of the rows themselves (uint64)."""

    keys: np.ndarray
    rows: np.ndarray


@dataclass(frozen=True)
class Source:
    """The source's side: what the open transaction on `connection` sees."""

    connection: pymysql.Connection
    schema: TableSchema
    chunking: Chunking
    mask_key: bytes | None = field(repr=False)
    condition: str = field(default="", repr=False)  # of the rows that the lake is to have; "" for all

    def batches(self, chunks: np.ndarray | None = None) -> Iterator[pa.StructArray]:
        """The rows of `chunks`, or all of them."""
        where = "" if chunks is None else self.chunking.where(chunks.tolist())
        for clear in read_exact(self.connection, self.schema.clear(), self.condition, where=where):
            rows = masked(clear, self.schema, self.mask_key)
            yield rows if chunks is None else _of_chunks(rows, self.chunking, chunks)

    def sums(self) -> Sums:
        found = Sums(self.chunking.count)
        for rows in self.batches():
            _add(found, rows, self.chunking)
        return found

    def hashes(self, chunks: np.ndarray) -> Hashes:
        return _joined(Hashes(self.chunking.key_hashes(rows), row_hashes(rows)) for rows in self.batches(chunks))

    def examples(self, chunks: np.ndarray, wanted: np.ndarray) -> dict[int, dict[str, Any]]:
        """One row for each row hash of `wanted`."""
        found: dict[int, dict[str, Any]] = {}
        for rows in self.batches(chunks):
            found |= _examples(rows, wanted, found)
        return found


@dataclass(frozen=True)
class Silver:
    """The lake's side. `frame` has the schema's columns by number; None where silver has no such table, or one of
    another shape."""

    frame: DataFrame | None
    schema: TableSchema
    chunking: Chunking

    @classmethod
    def of(cls, spark: SparkSession, lake: Lake, schema: TableSchema, chunking: Chunking, *, soft: bool) -> Silver:
        location = lake.table("silver", schema.name)
        if not exists(spark, location):
            return cls(None, schema, chunking)
        frame = spark.read.format("delta").load(location)
        if soft:
            frame = frame.where("NOT __deleted")
        present = {c.lower() for c in frame.columns}
        if any(c.name.lower() not in present for c in schema.columns):
            return cls(None, schema, chunking)
        named = (F.col(spark_identifier(c.name)).alias(f"c{i}") for i, c in enumerate(schema.columns))
        return cls(frame.select(*named), schema, chunking)

    def sums(self) -> Sums:
        found, chunking, image = Sums(self.chunking.count), self.chunking, self.schema.image()
        if self.frame is None:
            return found

        def partial(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            mine = Sums(chunking.count)
            for batch in batches:
                _add(mine, rows_of(batch, image), chunking)
            some = np.flatnonzero(mine.rows)
            parts = {"rows": mine.rows[some], "low": mine.low[some], "high": mine.high[some]}
            yield pa.RecordBatch.from_pydict({"chunk": some, **parts})

        parts = self.frame.mapInArrow(partial, "chunk BIGINT, rows BIGINT, low BIGINT, high BIGINT")
        summed = parts.groupBy("chunk").agg(*(F.sum(c).alias(c) for c in ("rows", "low", "high"))).toArrow()
        chunks = summed["chunk"].to_numpy()
        found.rows[chunks], found.low[chunks], found.high[chunks] = (
            summed[c].to_numpy() for c in ("rows", "low", "high")
        )
        return found

    def hashes(self, chunks: np.ndarray) -> Hashes:
        chunking = self.chunking

        def each(rows: pa.StructArray) -> dict[str, Any]:
            mine = _of_chunks(rows, chunking, chunks)
            keys, hashes = chunking.key_hashes(mine), row_hashes(mine)
            return {"key": keys.view(np.int64), "row": hashes.view(np.int64)}

        return self._hashes(each)

    def examples(self, wanted: np.ndarray) -> dict[int, dict[str, Any]]:
        """One row for each row hash of `wanted`."""
        found: dict[int, dict[str, Any]] = {}
        for rows in self.rows(lambda rows: first_of(row_hashes(rows), wanted)):
            found |= _examples(rows, wanted, found)
        return found

    def rows(self, chosen: Callable[[pa.StructArray], np.ndarray]) -> Iterator[pa.StructArray]:
        """The rows for which `chosen` (a mask) says so. They come to the driver: ask for few."""
        if self.frame is None:
            return
        image = self.schema.image()

        def pick(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
            for batch in batches:
                yield batch.filter(pa.array(chosen(rows_of(batch, image))))

        for batch in self.frame.mapInArrow(pick, self.frame.schema).toArrow().to_batches():
            yield rows_of(batch, image)

    def _hashes(self, each: Callable[[pa.StructArray], dict[str, Any]]) -> Hashes:
        return Hashes(*hashed(self.frame, self.schema.image(), each))


def first_of(hashes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """A mask of those of `wanted`, each once: of a row that stands there a million times one is enough."""
    distinct, places = np.unique(hashes, return_index=True)
    found = np.zeros(len(hashes), np.bool_)
    found[places[np.isin(distinct, wanted)]] = True
    return found


def hashed(
    frame: DataFrame | None, image: pa.StructType, each: Callable[[pa.StructArray], dict[str, Any]]
) -> tuple[np.ndarray, np.ndarray]:
    """What `each` says of the rows of `frame`: `key` and `row`, as uint64."""
    if frame is None:
        return np.zeros(0, np.uint64), np.zeros(0, np.uint64)

    def every(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        for batch in batches:
            yield pa.RecordBatch.from_pydict(each(rows_of(batch, image)))

    found = frame.mapInArrow(every, "key BIGINT, row BIGINT").toArrow()
    keys, rows = (np.ascontiguousarray(found[c].to_numpy(), dtype=np.int64).view(np.uint64) for c in ("key", "row"))
    return keys, rows


def rows_of(batch: pa.RecordBatch, image: pa.StructType) -> pa.StructArray:
    """A batch of Spark's as a struct array of the type both paths into bronze give."""
    arrays = [c if c.type == f.type else c.cast(f.type) for c, f in zip(batch.columns, image, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(image))


def _add(sums: Sums, rows: pa.StructArray, chunking: Chunking) -> None:
    hashes = row_hashes(rows)
    by_hash = chunking.ends is None and chunking.count > 1 and chunking.keys != tuple(range(len(rows.type)))
    sums.add(chunking.of(rows, chunking.key_hashes(rows) if by_hash else hashes), hashes)


def _of_chunks(rows: pa.StructArray, chunking: Chunking, chunks: np.ndarray) -> pa.StructArray:
    mine = chunking.mask(chunks)[chunking.of(rows, chunking.key_hashes(rows))]
    return rows if mine.all() else rows.filter(pa.array(mine))


def _joined(parts: Iterable[Hashes]) -> Hashes:
    found = list(parts) or [Hashes(np.zeros(0, np.uint64), np.zeros(0, np.uint64))]
    return Hashes(np.concatenate([p.keys for p in found]), np.concatenate([p.rows for p in found]))


def _examples(rows: pa.StructArray, wanted: np.ndarray, known: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    hashes = row_hashes(rows)
    found: dict[int, dict[str, Any]] = {}
    for i in np.flatnonzero(np.isin(hashes, wanted)).tolist():
        if (name := int(hashes[i])) not in known and name not in found:
            found[name] = rows[i].as_py()
    return found
