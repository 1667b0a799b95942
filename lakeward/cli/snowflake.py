"""`lakeward snowflake plan | apply | check | refresh | sink | land`."""

from __future__ import annotations

import argparse
from pathlib import Path

from lakeward.cli.app import App
from lakeward.errors import ConfigError
from snowflake.lakehouse import apply as application
from snowflake.lakehouse.connection import connect, has_credentials
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
            made = application.changes(lake, config, session)
            count = application.apply(session, config, made, print)
        finally:
            session.close()
    print(f"{count} changes; Snowflake is as the plan says" if count else "nothing to change")
    return 0


def sink(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("snowflake sink"):
        report = run_sink(app.spark(), app.lake, app.config, options.tables)
    print(f"sink    {report.changes:,} changes MERGEd into {report.tables} tables of {app.config.snowflake.database}")
    return 0
