"""Mends what a proof found, through bronze: what silver holds must always follow from what bronze holds.

Where rows are replaced by key, the rows that differ are read again from the chunks that differ, inside the transaction
that the proof was made in, and appended to bronze: op r for what the source holds, d for what it lacks. They stand at
the proof's position. No event of the log does: one begins before it or behind it, since it is a transaction's end. So
any later event of a row wins over them and they win over all earlier ones, which is exact, as the transaction sees that
position. They are numbered on from whatever an earlier repair added there, bronze's checkpoint moves behind them, and
silver merges them as it merges any other event. Being one batch, they are in bronze all or not at all.

A table whose rows are counted, not replaced (see `TableSchema.counted`), that has too many differing chunks, or that
silver lacks, is read afresh whole, in a new generation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from bronze import resnapshot
from bronze.batch import land
from bronze.commit import physical_names
from bronze.stamp import Origin, repair_envelopes
from bronze.work import Manifest
from bronze.writer import EnvelopeWriter, Target
from lakeward.errors import LakewardError
from lakeward.lake import Lake
from lakeward.position import Checkpoint
from lakeward.state import load_bronze
from silver.proof.sides import first_of
from silver.verify import Finding

EXTRA_AT_ONCE = 20_000  # rows of silver that the source lacks, held by the driver at a time


def mend_rows(spark: SparkSession, lake: Lake, at: Checkpoint, findings: Sequence[Finding]) -> None:
    """Append to bronze what mends `findings` (each `by_rows`), and note in their proofs what that is. `at` is the
    position of the transaction that is still open on their connection, and of bronze."""
    state = load_bronze(lake)
    assert state.checkpoint is not None
    if state.checkpoint.at.place != at.at.place:
        raise LakewardError(f"bronze is at {state.checkpoint.at}, and the proof was made at {at.at}")
    origin = Origin(str(state.server.get("uuid", "")), at.at.epoch)
    row = state.checkpoint.at.row
    names = [f.proof.name for f in findings]
    targets = {n: _target(spark, lake, f) for n, f in zip(names, findings, strict=True)}
    with EnvelopeWriter(lake, targets) as writer:
        for finding in findings:
            mended = {"read": 0, "deleted": 0}
            for what, batches in (("read", _at_source(finding)), ("deleted", _in_silver_alone(finding))):
                for rows in batches:
                    gone = what == "deleted"
                    events = repair_envelopes(
                        rows, gone=gone, at=at.at, first_row=row, ts_ms=state.checkpoint.ts_ms, gtid="", origin=origin
                    )
                    writer.write(finding.proof.name, events)
                    row += len(rows)
                    mended[what] += len(rows)
            finding.proof.mended = mended
        files = writer.close()
    end = state.checkpoint._replace(at=state.checkpoint.at._replace(row=row))
    manifest = Manifest(
        files={t: [f.to_json() for f in fs] for t, fs in files.items()},
        rows={t: sum(f.rows for f in fs) for t, fs in files.items()},
        last={t: at.at.to_json() for t in files},
        repaired=names,
    )
    land(spark, lake, state, [manifest], end=end.to_json())


def mend_whole(spark: SparkSession, lake: Lake, findings: Sequence[Finding]) -> None:
    """Mark the tables to be read afresh by the next bronze run, and note in their proofs the generation that gives."""
    resnapshot.mark(lambda: spark, lake, [f.proof.name for f in findings], repair=True)
    tables = load_bronze(lake).tables
    for finding in findings:
        finding.proof.mended = {"generation": tables[finding.proof.name].generation + 1}


def _target(spark: SparkSession, lake: Lake, finding: Finding) -> Target:
    name = finding.source.schema.name
    return Target(f"bronze/{name.folder}", physical_names(spark, lake.table("bronze", name)))


def _at_source(finding: Finding) -> Iterator[pa.StructArray]:
    if not len(finding.at_source):
        return
    for rows in finding.source.batches(finding.chunks):
        wanted = np.isin(finding.source.chunking.key_hashes(rows), finding.at_source)
        if wanted.any():
            yield rows.filter(pa.array(wanted))


def _in_silver_alone(finding: Finding) -> Iterator[pa.StructArray]:
    """Once each, also where silver has them twice."""
    alone = np.setdiff1d(finding.keys, finding.at_source)
    chunking = finding.lake.chunking
    for first in range(0, len(alone), EXTRA_AT_ONCE):
        some = alone[first : first + EXTRA_AT_ONCE]

        def chosen(rows: pa.StructArray, some: np.ndarray = some) -> np.ndarray:
            return first_of(chunking.key_hashes(rows), some)

        left = some
        for rows in finding.lake.rows(chosen):
            keys = chunking.key_hashes(rows)
            yield rows.filter(pa.array(first_of(keys, left)))
            left = np.setdiff1d(left, keys)
