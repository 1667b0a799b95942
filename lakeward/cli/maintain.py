"""`lakeward maintain`: one run of maintenance under the lake's lock."""

from __future__ import annotations

import argparse

import gold.maintenance
from lakeward.cli.app import App
from lakeward.cli.serving import follow
from snowflake.lakehouse import landing


def maintain(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("maintain"):
        unlanded = landing.unread(app.lake, app.config)
        report = gold.maintenance.run(app.spark(), app.lake, app.config, options.tables, unlanded=unlanded)
    print(f"maintain {report.tables:>8,} tables, {report.compacted:,} compacted  ({report.seconds:.1f} s)")
    print(f"        {report.expired:>9,} snapshots expired, {report.orphans:,} orphaned files removed from gold")
    if report.forgotten:
        print(f"        {report.forgotten:>9,} events of earlier snapshots removed from bronze")
    for location, reason in sorted(report.kept.items()):
        print(f"        nothing was removed from {location}: {reason}")
    follow(app)
    return 0
