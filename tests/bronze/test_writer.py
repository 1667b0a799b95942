"""A full disk in the lake: an error that says so, and nothing left behind that counts."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bronze.stamp import Origin, snapshot_envelopes
from bronze.writer import EnvelopeWriter, Target
from lakeward.errors import TerminalError
from lakeward.lake import Lake
from lakeward.position import Position


def test_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.array([{"id": 1}], type=pa.struct([pa.field("id", pa.int32())]))
    at = Position(1, 1, 4)
    batch = snapshot_envelopes(rows, at=at, generation=1, first_row=0, ts_ms=0, gtid="", origin=Origin("u", 1))
    writer = EnvelopeWriter(Lake(str(tmp_path)), {"s.t": Target("bronze/s/t")})
    writer.write("s.t", batch)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(TerminalError, match="disk is full"):
        writer.close()
    writer.abandon()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
