"""`lakeward snowflake plan | apply | check | refresh | sink | land`."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from pathlib import Path

from lakeward.cli.app import App
from lakeward.errors import ConfigError
from snowflake.lakehouse import apply as application
from snowflake.lakehouse.batches import Waiting
from snowflake.lakehouse.conformance.run import check as run_check
from snowflake.lakehouse.conformance.run import gate
from snowflake.lakehouse.connection import connect, has_credentials
from snowflake.lakehouse.follow import follow_gold, move
from snowflake.lakehouse.landing import run as run_landing
from snowflake.lakehouse.plan import build, render
from snowflake.lakehouse.sink import run as run_sink


def plan(app: App, options: argparse.Namespace) -> int:
    """What would change where there is a login; everything else."""
    if options.full:
        print(render(app.lake, app.config))
    else:
        print(application.script(app.lake, app.config, lambda: connect(app.config.snowflake, purpose="plan"))[0])
    return 0


def apply(app: App, options: argparse.Namespace) -> int:
    config, lake = app.config, app.lake
    if options.dry_run:
        text, made = application.script(lake, config, lambda: connect(config.snowflake, purpose="plan"))
        Path(options.output).write_text(text, encoding="utf-8")
        what = f"the {len(made)} changes" if made is not None else "the whole plan"
        print(f"{options.output} holds {what}; nothing was run")
        return 0
    application.runnable(lake, build(lake, config))
    if not has_credentials(config.snowflake):
        raise ConfigError(
            "[snowflake] has no login (account, user, and private_key, oauth_token or password)",
            hint="set one, or let a DBA run what `lakeward snowflake apply --dry-run` writes",
        )
    with lake.lock("snowflake apply"):
        session = connect(config.snowflake, purpose="apply")
        try:
            gate(lake, config, values=True)
            count = move(session, lake, config, print, tables_only=False)
        finally:
            session.close()
    print(f"{count} changes; Snowflake is as the plan says" if count else "nothing to change")
    return 0


def check(app: App, options: argparse.Namespace) -> int:
    """Every rule, on every file; exit 3 where one is broken."""
    report = run_check(app.lake, app.config)
    for finding in report.findings:
        print(finding)
    print(f"{report.tables} tables, {report.files} files not checked before: {len(report.findings)} findings")
    return 3 if report.findings else 0


def refresh(app: App, options: argparse.Namespace) -> int:
    config, lake = app.config, app.lake
    application.runnable(lake, build(lake, config))
    with lake.lock("snowflake refresh"):
        gate(lake, config)
        session = connect(config.snowflake, purpose="refresh")
        try:
            count = move(session, lake, config, print, tables_only=True)
        finally:
            session.close()
    print(f"{count} changes; Snowflake shows what gold has published" if count else "Snowflake shows it already")
    return 0


def follow(app: App) -> None:
    """After gold: say what is published, check it, and refresh Snowflake where that is configured."""
    count = follow_gold(app.lake, app.config, functools.partial(connect, app.config.snowflake, purpose="refresh"))
    if count:
        print(f"snowflake {count:>7,} changes: it shows what gold has published")


class Serving:
    """What `lakeward run` does for Snowflake between its stages, where it is configured."""

    def __init__(self, app: App, *, continuous: bool) -> None:
        config = app.config.snowflake
        self._app, self._continuous = app, continuous
        self._waiting = Waiting(config.sink_batch_rows, config.sink_batch_seconds)

    def after_bronze(self) -> None:
        """Land bronze's new events."""
        if self._app.config.landing.tables:
            land_events(self._app, patient=self._continuous)

    def after_silver(self, changes: int) -> None:
        """Sink what silver has: at once, and in a run that goes on when it is enough or has waited long enough."""
        if self._app.config.snowflake.sink == "manual":
            return
        self._waiting.add(changes, time.monotonic())
        if not self._continuous or self._waiting.due(time.monotonic()):
            sink_tables(self._app, ())
            self._waiting.done()


def sink(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("snowflake sink"):
        sink_tables(app, options.tables)
    return 0


def sink_tables(app: App, tables: Sequence[str]) -> None:
    report = run_sink(app.spark(), app.lake, app.config, tables)
    print(f"sink    {report.changes:,} changes MERGEd into {report.tables} tables of {app.config.snowflake.database}")


def land(app: App, options: argparse.Namespace) -> int:
    if not app.config.landing.tables:
        raise ConfigError("[landing] tables is empty", hint='tables = ["shop.*"]')
    with app.lake.lock("snowflake land"):
        land_events(app)
    return 0


def land_events(app: App, *, patient: bool = False) -> None:
    report = run_landing(app.spark, app.lake, app.config, patient=patient)
    print(f"landing {report.events:>9,} events in {report.files} files")
    if report.held:
        print(f"        {report.held:>9,} that cannot be written are named under {app.config.landing.prefix}-errors")
