"""`lakeward demo up | traffic | down`: the embedded server and its demo database."""

from __future__ import annotations

import argparse

from lakeward.cli.app import App
from lakeward.embedded import demo_down, demo_traffic, demo_up


def up(app: App, options: argparse.Namespace) -> int:
    print(demo_up(app.config.embedded_folder))
    return 0


def traffic(app: App, options: argparse.Namespace) -> int:
    print(demo_traffic(app.config.embedded_folder, seed=options.seed, transactions=options.transactions))
    return 0


def down(app: App, options: argparse.Namespace) -> int:
    print(demo_down(app.config.embedded_folder))
    return 0


def burst_if_embedded(app: App) -> None:
    """A burst of changes, so that each `lakeward bronze` on the embedded server has something to show."""
    if app.config.source.embedded:
        print(f"demo    {demo_traffic(app.config.embedded_folder)}")
