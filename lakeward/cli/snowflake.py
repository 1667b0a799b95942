"""`lakeward snowflake plan | sink`."""

from __future__ import annotations

import argparse

from lakeward.cli.app import App
from snowflake.lakehouse.plan import render
from snowflake.lakehouse.sink import run as run_sink


def plan(app: App, options: argparse.Namespace) -> int:
    print(render(app.lake, app.config))
    return 0


def sink(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("snowflake sink"):
        report = run_sink(app.spark(), app.lake, app.config, options.tables)
    print(f"sink    {report.changes:,} changes MERGEd into {report.tables} tables of {app.config.snowflake.database}")
    return 0
