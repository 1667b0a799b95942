"""`lakeward maintain`: one run of maintenance under the lake's lock; and the same between rounds of `lakeward run`."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Collection

import gold.maintenance
from gold import schedule
from lakeward.cli.app import App
from lakeward.cli.serving import follow
from lakeward.errors import LakewardError
from lakeward.lake import disk_full
from snowflake.lakehouse import landing


def maintain(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("maintain"):
        maintain_tables(app, options.tables)
    follow(app)
    return 0


def maintain_tables(app: App, tables: Collection[str] = ()) -> None:
    """Maintain `tables`, or every table, and say what was done. The caller holds the lake's lock."""
    unlanded = landing.unread(app.lake, app.config)
    report = gold.maintenance.run(app.spark(), app.lake, app.config, tables, unlanded=unlanded)
    if not tables:
        schedule.note_done(app.lake)
    print(f"maintain {report.tables:>8,} tables, {report.compacted:,} compacted  ({report.seconds:.1f} s)")
    print(f"        {report.expired:>9,} snapshots expired, {report.orphans:,} orphaned files removed from gold")
    if report.forgotten:
        print(f"        {report.forgotten:>9,} events of earlier snapshots removed from bronze")
    for location, reason in sorted(report.kept.items()):
        print(f"        nothing was removed from {location}: {reason}")


def maintenance_due(app: App) -> bool:
    """Whether `[lake] maintain_every` hours have passed since every table was maintained."""
    return schedule.due(app.lake, app.config.lake.maintain_every)


def maintain_in_run(app: App) -> None:
    """What `lakeward maintain` does, in a run, which holds the lake's lock.

    Maintenance that fails is no reason to stop following the source: what it failed with is said on stderr and by
    `lakeward status`, and it is tried again within the hour.
    """
    try:
        maintain_tables(app)
    except Exception as error:  # noqa: BLE001 - whatever it is, the source is followed
        if os.environ.get("LAKEWARD_DEBUG"):
            traceback.print_exc()
        reason = _reason(error)
        print(f"maintenance failed, the run goes on: {reason}", file=sys.stderr, flush=True)
        schedule.note_failed(app.lake, reason)


def _reason(error: Exception) -> str:
    found = disk_full(error) or error
    if isinstance(found, LakewardError):
        return str(found)
    first = str(found).strip().splitlines()[:1]
    return f"{type(found).__name__}: {first[0] if first else ''}"
