"""`lakeward quarantine list | replay`."""

from __future__ import annotations

import argparse
import json

import lakeward.quality as gates
import silver.run
from lakeward.cli.app import App


def quarantine_list(app: App, options: argparse.Namespace) -> int:
    held = gates.quarantine_list(app.spark(), app.lake, app.config)
    if options.json:
        print(json.dumps(held, indent=2, default=str))
        return 0
    if not held:
        print("nothing is held back")
    for entry in held:
        rules = ", ".join(f"{rule} ({count})" for rule, count in entry["rules"].items())
        print(f"{entry['table']}  {entry['held']:,} events since {entry['oldest']}: {rules}")
    return 0


def quarantine_replay(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("quarantine replay"):
        for result in silver.run.replay_quarantine(app.spark(), app.lake, app.config, options.tables):
            print(f"{result['table']}  {result['replayed']:,} events passed, {result['held']:,} stay")
    return 0
