"""Bronze's data files: what a full disk leaves, and what a task reads of one."""

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


def begun(folder: Path, rows: int) -> EnvelopeWriter:
    images = pa.array([{"id": n} for n in range(rows)], type=pa.struct([pa.field("id", pa.int32())]))
    at = Position(1, 1, 4)
    batch = snapshot_envelopes(images, at=at, generation=1, first_row=0, ts_ms=0, gtid="", origin=Origin("u", 1))
    writer = EnvelopeWriter(Lake(str(folder)), {"s.t": Target("bronze/s/t")})
    writer.write("s.t", batch)
    return writer


def test_a_file_of_many_events_can_be_read_by_several_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bronze.writer.GROUP_ROWS", 10)
    begun(tmp_path, rows=25).close()
    (file,) = tmp_path.rglob("*.parquet")
    groups = pq.ParquetFile(file).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [10, 10, 5]


def test_a_full_disk_is_named_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = begun(tmp_path, rows=1)

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with pytest.raises(TerminalError, match="disk is full"):
        writer.close()
    writer.abandon()
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
