"""`lakeward verify`: brings the lake to one exactly known position of the source and compares every table there."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys

import bronze.resnapshot
import bronze.run
import silver.run
from bronze.source.connection import connect
from bronze.source.server import exact_read
from lakeward.cli.app import App
from lakeward.cli.stages import silver_behind
from lakeward.errors import TerminalError, TransientError
from lakeward.state import load_bronze, load_silver
from silver.verify import Proof, compare, named

TRIES = 5  # a table that is altered in the meantime is read again and so passes the position


def verify(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("verify"), contextlib.redirect_stdout(sys.stderr):
        proof = prove(app, options.tables)
        if options.repair and not proof.equal:
            broken = [t.name for t in proof.tables if not t.equal]
            bronze.resnapshot.mark(app.spark, app.lake, broken)
            print(f"reading afresh: {', '.join(broken)}")
            proof = prove(app, options.tables)
    if options.json:
        print(json.dumps(proof.to_json(), indent=2))
    else:
        _print(proof)
    return 0 if proof.equal else 3


def prove(app: App, tables: list[str]) -> Proof:
    """Compare at one position. Raises TransientError when the source never stands still long enough to know one."""
    config, password = app.source
    for _ in range(TRIES):
        with contextlib.closing(connect(config.source, password)) as connection:
            epoch = load_bronze(app.lake).epoch
            at = exact_read(connection, epoch)
            bronze.run.run(app.spark, app.lake, config, password, until=at)
            if silver_behind(app):
                silver.run.run(app.spark(), app.lake, app.config)
            state, cut = load_bronze(app.lake), load_silver(app.lake).cut
            if cut is not None and cut.at == at.at and state.epoch == epoch:
                followed = [t for t in state.tables.values() if t.status != "stopped"]
                chosen = named(tables, followed)
                if not chosen:  # a proof of nothing is none
                    raise TerminalError("no table is followed", hint="check [source] include and the user's grants")
                return compare(app.spark(), app.lake, app.config, connection, at.at, chosen)
    raise TransientError(
        "tables kept being altered while they were to be verified", hint="run again when it is quieter"
    )


def _print(proof: Proof) -> None:
    for table in proof.tables:
        held = f", {len(table.quarantined)} in quarantine" if table.quarantined else ""
        print(
            f"{'equal  ' if table.equal else 'DIFFERS'} {table.name}  {table.rows:,} rows  {table.checksum[:16]}{held}"
        )
        for difference in table.differences:
            key = ", ".join(f"{k}={v}" for k, v in difference["key"].items())
            columns = f": {', '.join(difference['columns'])}" if "columns" in difference else ""
            print(f"        {key}  {difference['what']}{columns}")
    print(f"{'silver equals the source' if proof.equal else 'silver differs from the source'} at {proof.position}")
