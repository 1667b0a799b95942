"""`lakeward snowflake plan | apply | check | refresh | sink | land`, and what `lakeward run` does of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lakeward.cli.app import App
from lakeward.errors import ConfigError
from snowflake.lakehouse import apply as application
from snowflake.lakehouse.conformance.run import check as run_check
from snowflake.lakehouse.conformance.run import gate
from snowflake.lakehouse.connection import connect
from snowflake.lakehouse.follow import move
from snowflake.lakehouse.landing import LandingReport
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
    if not config.snowflake.has_login:
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
    """Land bronze's new events and say how many, also where a table fails: the others' are landed."""
    report = LandingReport()
    try:
        run_landing(app.spark, app.lake, app.config, patient=patient, report=report)
    finally:
        print(f"landing {report.events:>9,} events in {report.files} files")
        if report.held:
            place = f"{app.config.landing.prefix}-errors"
            print(f"        {report.held:>9,} that cannot be written are named under {place}")
