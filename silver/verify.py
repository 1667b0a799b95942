"""Proves that silver equals the source at one position, or says where it does not.

A transaction is open on the source whose position is exactly known, and bronze and silver stand at that same position.
Each table is cut into chunks, and a chunk's checksum over the stored bits (`silver/checksum.py`) is made on both sides
at once. Only chunks that differ are compared row by row, by hashes, and only the rows that differ are read. So what is
held in memory does not grow with the table: sums of at most CHUNKS_MAX chunks, hashes of at most COMPARED_ROWS_MAX
rows, and NAMED_MAX rows to show.

A row may rightly differ by an event in quarantine; such rows are counted apart, each named.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pymysql
from pyspark import inheritable_thread_target
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from bronze.masking import mask_key
from bronze.source.catalog import filter_condition
from lakeward.config import Config
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.names import spark_identifier
from lakeward.position import Position
from lakeward.schema import TableSchema
from lakeward.state import BronzeTable, load_silver
from silver.checksum import Sums, row_hashes
from silver.proof.chunks import Chunking, cut
from silver.proof.differences import Held, describe
from silver.proof.differences import compare as compared
from silver.proof.sides import Hashes, Silver, Source, hashed

NAMED_MAX = 100  # differences that are named for a table
COMPARED_ROWS_MAX = 1_000_000  # of both sides, in the differing chunks of a table that are compared row by row
AT_ONCE = 2  # tables of silver that are summed while the source is read


@dataclass
class TableProof:
    """What was found of one table."""

    name: str
    equal: bool
    rows: int  # of the source at the position
    checksum: str
    differences: list[dict[str, Any]] = field(default_factory=list)  # at most NAMED_MAX of `differing`
    quarantined: list[dict[str, Any]] = field(default_factory=list)
    differing: int = 0  # keys
    held: int = 0  # keys that differ by what is in quarantine alone
    chunks: int = 1
    chunks_differing: int = 0
    chunks_left: int = 0  # of these not compared row by row, since there are too many
    mended: dict[str, int] | None = None  # by --repair: rows "read" and "deleted", or "generation" where all was


@dataclass
class Proof:
    """`verify --json`."""

    equal: bool
    position: str
    tables: list[TableProof]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Finding:
    """A table's proof, and what a repair needs to know: the differing chunks that were compared, the keys that differ,
    those of them that the source has."""

    proof: TableProof
    source: Source
    lake: Silver
    chunks: np.ndarray
    keys: np.ndarray
    at_source: np.ndarray

    @property
    def by_rows(self) -> bool:
        """Whether reading the differing rows mends the table. Rows that are counted, not replaced, cannot be mended so:
        what bronze holds of them would no longer add up."""
        schema = self.source.schema
        return self.lake.frame is not None and not schema.counted and not self.proof.chunks_left


def prove(
    spark: SparkSession,
    lake: Lake,
    config: Config,
    connection: pymysql.Connection,
    tables: Sequence[BronzeTable],
) -> list[Finding]:
    """Compare `tables` with what the open transaction on `connection` sees; silver stands at the same position."""
    known = load_silver(lake).tables
    sides = []
    for table in tables:
        schema, soft = table.schema, config.table(table.name).deletes == "soft"
        chunking = cut(connection, schema, known[str(table.name)].rows if str(table.name) in known else 0)
        condition = filter_condition(connection, config, table.name)
        source = Source(connection, schema, chunking, mask_key(config), condition)
        sides.append((source, Silver.of(spark, lake, schema, chunking, soft=soft)))
    with ThreadPoolExecutor(AT_ONCE, "verify") as pool:
        # The source is read here, a table after the other, since one connection is one transaction.
        summed = [pool.submit(inheritable_thread_target(spark)(silver.sums)) for _, silver in sides]
        found = []
        for (source, silver), ours in zip(sides, summed, strict=True):
            theirs = source.sums()
            found.append(_finding(spark, lake, source, silver, theirs, ours.result()))
    return found


def to_proof(findings: Sequence[Finding], position: Position) -> Proof:
    proofs = [f.proof for f in findings]
    return Proof(all(p.equal for p in proofs), str(position), proofs)


def _finding(spark: SparkSession, lake: Lake, source: Source, silver: Silver, theirs: Sums, ours: Sums) -> Finding:
    schema, chunking = source.schema, source.chunking
    proof = TableProof(str(schema.name), True, int(theirs.rows.sum()), f"{theirs.total():x}", chunks=chunking.count)
    none = np.zeros(0, np.uint64)
    differing = theirs.differing(ours)
    proof.chunks_differing = len(differing)
    if not len(differing):
        return Finding(proof, source, silver, differing, none, none)
    sizes = np.cumsum(theirs.rows[differing] + ours.rows[differing])
    chosen = differing[: max(1, int(np.searchsorted(sizes, COMPARED_ROWS_MAX, side="right")))]
    proof.chunks_left = len(differing) - len(chosen)
    at_source, in_lake = source.hashes(chosen), silver.hashes(chosen)
    held = _held(spark, lake, schema, chunking)
    found = compared(at_source, in_lake, held, keyed=bool(schema.keys))
    proof.differing, proof.held = len(found.keys), len(found.held)
    proof.differences = _described(source, silver, chosen, found.keys[:NAMED_MAX], at_source, in_lake)
    proof.quarantined = _described(source, silver, chosen, found.held[:NAMED_MAX], at_source, in_lake)
    proof.equal = not proof.differing and not proof.chunks_left
    there = np.asarray(found.keys[np.isin(found.keys, at_source.keys)])
    return Finding(proof, source, silver, chosen, found.keys, there)


def _described(
    source: Source, silver: Silver, chunks: np.ndarray, keys: np.ndarray, at_source: Hashes, in_lake: Hashes
) -> list[dict[str, Any]]:
    if not len(keys):
        return []
    wanted, wanted_of_lake = (np.unique(side.rows[np.isin(side.keys, keys)]) for side in (at_source, in_lake))
    theirs = source.examples(chunks, wanted) if len(wanted) else {}
    ours = silver.examples(wanted_of_lake) if len(wanted_of_lake) else {}
    return [describe(source.schema, int(k), at_source, in_lake, theirs, ours) for k in keys]


def _held(spark: SparkSession, lake: Lake, schema: TableSchema, chunking: Chunking) -> Held:
    """What the table's quarantine holds that has not been replayed."""
    # Great Expectations takes seconds to import, and a table that is equal does not need it.
    from lakeward.quality import pending

    none = np.zeros(0, np.uint64)
    held = pending(spark, lake, schema.name)
    if held is None:
        return Held(none, none)

    def each(rows: Any) -> dict[str, Any]:
        return {"key": chunking.key_hashes(rows).view(np.int64), "row": row_hashes(rows).view(np.int64)}

    def image(name: str) -> DataFrame:
        kinds = held.schema[name].dataType
        assert isinstance(kinds, StructType)
        there = {f.name.lower() for f in kinds}
        columns = []
        for i, c in enumerate(schema.columns):
            value = F.col(f"{name}.{spark_identifier(c.name)}") if c.name.lower() in there else F.lit(None)
            columns.append(value.cast(c.spark).alias(f"c{i}"))
        return held.where(f"{name} IS NOT NULL").select(*columns)

    (_, rows), (gone, _) = (hashed(image(name), schema.image(), each) for name in ("after", "before"))
    return Held(rows, gone)


def named(tables: Sequence[str], known: Sequence[BronzeTable]) -> list[BronzeTable]:
    """The tables asked for, all where none is. Raises TerminalError for one that is not followed."""
    by_name = {str(t.name): t for t in known}
    for name in tables:
        if name not in by_name:
            raise TerminalError(f"{name} is not followed", hint=f"followed are: {', '.join(sorted(by_name))}")
    return [by_name[n] for n in tables] if tables else list(known)
