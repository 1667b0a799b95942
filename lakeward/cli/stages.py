"""`lakeward bronze | silver | gold | run | resnapshot`: the stages, one lock around each command."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import bronze.resnapshot
import bronze.run
import gold.run
import silver.run
from bronze.begin import Begin
from gold.basis import basis
from gold.state import load_gold
from lakeward.cli.app import App
from lakeward.cli.demo import burst_if_embedded
from lakeward.cli.failures import Failures
from lakeward.cli.hints import next_queries
from lakeward.cli.maintain import maintain_in_run, maintenance_due
from lakeward.cli.pace import Pace
from lakeward.cli.serving import Serving, follow
from lakeward.errors import LakewardError, UsageError
from lakeward.state import load_bronze, load_silver


def bronze_stage(app: App, **options: Any) -> bool:
    """Catch bronze up, with `options` of `bronze.run.run`; whether anything is new."""
    config, password = app.source
    report = bronze.run.run(app.spark, app.lake, config, password, **options)
    events = sum(report.events.values())
    where = report.checkpoint.at if report.checkpoint else "no position yet"
    print(f"bronze  {events:>9,} events in {len(report.events)} tables, at {where}  ({report.seconds:.1f} s)")
    for name, count in sorted(report.events.items()):
        print(f"        {count:>9,} {name}")
    if report.zero_dates:
        print(f"        {report.zero_dates:>9,} zero or partial dates became NULL")
    if report.replaced:
        print(f"        {report.replaced:>9,} texts held bytes that are no text, and were changed")
    return bool(events)


def silver_stage(app: App) -> int:
    """Bring silver to bronze's position; how many changes were merged."""
    if not silver_behind(app):
        print("silver          0 changes: it stands at bronze's position")
        return 0
    began = time.monotonic()
    report = silver.run.run(app.spark(), app.lake, app.config)
    merged = report.tables.values()
    changes = sum(t.inserted + t.updated + t.deleted for t in merged)
    cut = report.cut.at if report.cut else "none yet"
    print(f"silver  {changes:>9,} changes in {len(merged)} tables, cut {cut}  ({time.monotonic() - began:.1f} s)")
    held = sum(t.held for t in merged)
    if held:
        print(f"        {held:>9,} events held back: `lakeward quarantine list` says why")
    return changes


def gold_stage(app: App, *, rebuild: Sequence[str] = ()) -> bool:
    """Publish silver's cut, and make the tables of `rebuild` anew; whether there was anything to do."""
    if not rebuild and not gold_behind(app):
        print("gold            0 tables: silver's cut is published")
        return False
    report = gold.run.run(app.spark(), app.lake, app.config, rebuild)
    print(f"gold    {report.published:>9,} tables published at cut {report.cut}  ({report.seconds:.1f} s)")
    for name, reason in report.skipped.items():
        print(f"        skipped {name}: {reason}")
    return True


def silver_behind(app: App) -> bool:
    """Whether bronze has moved since silver's cut, or a silver run was left half done."""
    bronze_state, silver_state = load_bronze(app.lake), load_silver(app.lake)
    moved = bronze_state.checkpoint is not None and bronze_state.checkpoint != silver_state.cut
    news = any(
        t.status == "streaming" and (n not in silver_state.tables or silver_state.tables[n].batch < t.batch)
        for n, t in bronze_state.tables.items()
    )
    return moved or news or silver_state.intent is not None


def gold_behind(app: App) -> bool:
    """Whether what gold follows from has changed since it published, or a gold run was left half done."""
    gold_state, silver_state = load_gold(app.lake), load_silver(app.lake)
    if silver_state.cut is None:
        return False
    now = basis(app.config, load_bronze(app.lake), silver_state)
    return gold_state.intent is not None or gold_state.basis != now


def bronze_command(app: App, options: argparse.Namespace) -> int:
    if options.tables and options.point is None:
        raise UsageError("--table goes with --from", hint="choose the tables to copy by [source] include")
    begin_at = Begin(options.point, tuple(options.tables)) if options.point is not None else None
    with app.lake.lock("bronze"):
        if app.config.source.embedded and begin_at is None:
            if not bronze.run.begun(app.lake):  # the first snapshot, so that the burst comes through the stream
                bronze_stage(app)
            burst_if_embedded(app)
        anyway = options.snapshot_anyway
        bronze_stage(app, accept_gap=options.accept_gap, begin_at=begin_at, snapshot_anyway=anyway)
    return 0


def silver_command(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("silver"):
        silver_stage(app)
    return 0


def gold_command(app: App, options: argparse.Namespace) -> int:
    failures = Failures()
    with app.lake.lock("gold"):
        with failures.kept():
            gold_stage(app, rebuild=getattr(options, "rebuild", ()))
        with failures.kept():
            follow(app)
        failures.end_round()
    next_queries(app)
    return 0


def run_command(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("run"):
        accept_gap = options.accept_gap
        serving, failures = Serving(app, continuous=options.continuous), Failures(continuous=options.continuous)
        pace = Pace(app.config.gold.every if options.continuous else 0.0)
        while True:
            try:
                bronze_stage(app, accept_gap=accept_gap, snapshot_anyway=options.snapshot_anyway)
                accept_gap = False  # what is missing now was accepted, not what will be
                with failures.kept():
                    serving.after_bronze()
                changes = silver_stage(app)
            except LakewardError:
                if pace.held:  # the next run may end here, too: it publishes nothing while the source is away
                    with failures.kept():
                        gold_at_pace(app, pace, held=True)
                    with failures.kept():
                        follow(app)
                    failures.end_round()
                raise
            with failures.kept():
                serving.after_silver(changes)
            with failures.kept():
                gold_at_pace(app, pace)
            with failures.kept():
                follow(app)
            if maintenance_due(app):
                if pace.held:  # nothing would be removed of a table that gold has yet to read
                    with failures.kept():
                        gold_at_pace(app, pace, held=True)
                maintain_in_run(app)
                with failures.kept():
                    follow(app)  # the metadata files are others now
            failures.end_round()
            if not options.continuous:
                return 0
            sys.stdout.flush()
            time.sleep(options.every)


def gold_at_pace(app: App, pace: Pace, *, held: bool = False) -> None:
    """Publish, unless it is too soon after the last time; `held`: also then."""
    left = 0.0 if held else pace.left()
    if left and gold_behind(app):
        pace.held = True
        print(f"gold            waits {left:.0f} s: [gold] every = {pace.every:g}")
    else:
        pace.publish(lambda: gold_stage(app))


def resnapshot_command(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("resnapshot"):
        marked = bronze.resnapshot.mark(app.spark, app.lake, options.tables, everything=options.all)
    print(f"{', '.join(marked)}: read afresh at the next `lakeward bronze`")
    return 0
