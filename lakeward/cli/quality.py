"""`lakeward quarantine list | replay`."""

from __future__ import annotations

import argparse
import json

import lakeward.quality as gates
import silver.replay
from lakeward.cli.app import App
from lakeward.state import load_bronze
from silver.verify import named


def quarantine_list(app: App, options: argparse.Namespace) -> int:
    held = gates.quarantine_list(app.spark(), app.lake, app.config)
    if options.json:
        print(json.dumps(held, indent=2, default=str))
        return 0
    if not held:
        print("nothing is held back")
    for entry in held:
        rules = ", ".join(f"{rule} ({count})" for rule, count in entry["by_rule"].items())
        print(f"{entry['table']}  {entry['rows']:,} held before {entry['layer']} since {entry['oldest']}: {rules}")
        print(f"    for example {entry['example']}")
    return 0


def quarantine_replay(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("quarantine replay"):
        known = load_bronze(app.lake).tables
        tables = [t.name for t in named(options.tables, list(known.values()))]
        for result in gates.replay(app.spark(), app.lake, app.config, tables, silver.replay.recompute):
            print(f"{result['table']}  {result['released']:,} events released, {result['still_held']:,} stay")
    return 0
