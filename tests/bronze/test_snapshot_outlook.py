"""A snapshot that would outlast the source's binlog is refused before it begins; how far one is, is said."""

from __future__ import annotations

from unittest import mock

import pytest
from servers.sparkless import Sparkless

from bronze.snapshot.outlook import Outlook, require_fit
from bronze.snapshot.progress import SnapshotProgress
from bronze.source.retention import kept_by
from lakeward.embedded.replicator import replicator_url as url_of
from lakeward.errors import TerminalError

ROWS = 2000


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"binlog_expire_logs_seconds": "2592000", "expire_logs_days": "0"}, 2_592_000),
        ({"expire_logs_days": "0.500000"}, 43_200),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000"}, 0),
        ({}, 0),
    ],
)
def test_how_long_the_binlog_is_kept(settings, kept) -> None:
    assert kept_by(settings) == kept


def test_what_cannot_fit_is_refused_with_both_spans_and_both_ways_on() -> None:
    require_fit(Outlook(10_000_000, 1_000.0, 10_000))
    require_fit(Outlook(10_000_000, 1_000.0, 0))  # kept until it is purged by hand
    require_fit(Outlook(10_000_000, None, 1))  # too small to measure
    with pytest.raises(TerminalError, match=r"10,000,000 rows would take about 2.8 h.*binlog for 117 min") as told:
        require_fit(Outlook(10_000_000, 1_000.0, 7_000))
    assert "binlog_expire_logs_seconds = 40000" in str(told.value)
    assert "--snapshot-anyway" in str(told.value)


def test_a_snapshot_that_would_outlast_the_binlog_is_begun_only_when_it_is_asked_for(
    database, replicator_password, tmp_path
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, n) for n in range(ROWS)])
    database.execute("ANALYZE TABLE t")
    lake = Sparkless(tmp_path, replicator_password, [f"{database.name}.*"])
    slow = mock.patch.multiple("bronze.snapshot.outlook", kept_s=lambda _: 1, SLOWEST=1, WRITING=1e-6)
    with slow, mock.patch("bronze.snapshot.text.BATCH_ROWS", 100):
        with pytest.raises(TerminalError, match=r"rows would take about .* keeps its binlog for 1 s"):
            lake.run(url_of(database.server))
        assert lake.events(f"{database.name}.t") == []
        lake.run(url_of(database.server), snapshot_anyway=True)
    assert len(lake.events(f"{database.name}.t")) == ROWS


def test_a_log_is_told_rows_share_speed_and_time_left(capsys) -> None:
    with mock.patch("bronze.snapshot.progress.LINE_EVERY_S", 0.0), SnapshotProgress(4_000, 2) as progress:
        progress._began -= 10
        progress.landed(1_000)
    told = capsys.readouterr().err
    assert "snapshot of 2 tables: 1,000 of about 4,000 rows (25 %), 100 rows/s, about 30 s left" in told
