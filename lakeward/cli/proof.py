"""`lakeward verify`: brings the lake to one exactly known position of the source, compares every table there, and mends
what differs where it is asked to."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pymysql

import bronze.run
import silver.run
from bronze.source.connection import connect
from bronze.source.server import exact_read
from lakeward.cli.app import App
from lakeward.cli.stages import silver_behind
from lakeward.errors import TerminalError, TransientError
from lakeward.position import Checkpoint
from lakeward.state import BronzeTable, load_bronze, load_silver
from silver.proof.repair import mend_rows, mend_whole
from silver.verify import Finding, Proof, named, to_proof
from silver.verify import prove as compare

TRIES = 5  # a table that is altered in the meantime is read again and so passes the position


def verify(app: App, options: argparse.Namespace) -> int:
    with app.lake.lock("verify"), contextlib.redirect_stdout(sys.stderr):
        proof = prove(app, options.tables, repair=options.repair)
    if options.json:
        print(json.dumps(proof.to_json(), indent=2))
    else:
        _print(proof)
    return 0 if proof.equal else 3


def prove(app: App, tables: Sequence[str], *, repair: bool = False) -> Proof:
    """Compare at one position; with `repair` mend what differs and compare again.

    Raises TransientError when the source never stands still long enough to know a position.
    """
    with _standing(app) as (connection, at):
        findings = _compare(app, connection, tables)
        broken = [f for f in findings if not f.proof.equal]
        if not repair or not broken:
            return to_proof(findings, at.at)
        whole = [f for f in broken if not f.by_rows]
        if by_rows := [f for f in broken if f.by_rows]:
            mend_rows(app.spark(), app.lake, at, by_rows)
            silver.run.run(app.spark(), app.lake, app.config)
        if whole:
            mend_whole(app.spark(), app.lake, whole)
        else:  # the others are proved, and these are proved again at the same position
            mended = {f.proof.name: f.proof.mended for f in by_rows}
            again = {f.proof.name: f for f in _compare(app, connection, list(mended))}
            return _noted(to_proof([again.get(f.proof.name, f) for f in findings], at.at), mended)
    with _standing(app) as (connection, at):
        mended = {f.proof.name: f.proof.mended for f in broken}
        return _noted(to_proof(_compare(app, connection, tables), at.at), mended)


@contextlib.contextmanager
def _standing(app: App) -> Iterator[tuple[pymysql.Connection, Checkpoint]]:
    """A connection with an open transaction that sees one position, and the lake brought there."""
    config, password = app.source
    for _ in range(TRIES):
        with contextlib.closing(connect(config.source, password)) as connection:
            epoch = load_bronze(app.lake).epoch
            at = exact_read(connection, epoch)
            bronze.run.run(app.spark, app.lake, config, password, until=at)
            if silver_behind(app):
                silver.run.run(app.spark(), app.lake, app.config)
            cut = load_silver(app.lake).cut
            if cut is not None and cut.at.place == at.at.place and load_bronze(app.lake).epoch == epoch:
                yield connection, at
                return
    raise TransientError(
        "tables kept being altered while they were to be verified", hint="run again when it is quieter"
    )


def _compare(app: App, connection: pymysql.Connection, tables: Sequence[str]) -> list[Finding]:
    followed: list[BronzeTable] = [t for t in load_bronze(app.lake).tables.values() if t.status != "stopped"]
    chosen = named(tables, followed)
    if not chosen:  # a proof of nothing is none
        raise TerminalError("no table is followed", hint="check [source] include and the user's grants")
    return compare(app.spark(), app.lake, app.config, connection, chosen)


def _noted(proof: Proof, mended: dict[str, Any]) -> Proof:
    for table in proof.tables:
        table.mended = mended.get(table.name)
    return proof


def _print(proof: Proof) -> None:
    for table in proof.tables:
        held = f", {table.held:,} in quarantine" if table.held else ""
        print(
            f"{'equal  ' if table.equal else 'DIFFERS'} {table.name}  {table.rows:,} rows  {table.checksum[:16]}{held}"
        )
        if table.mended:
            print(f"        mended: {_mended(table.mended)}")
        for difference in table.differences:
            print(f"        {_line(difference)}")
        if table.differing > len(table.differences):
            print(f"        and {table.differing - len(table.differences):,} more rows")
        if table.chunks_left:
            print(f"        and {table.chunks_left:,} of {table.chunks:,} chunks that differ, not compared row by row")
        for difference in table.quarantined:
            print(f"        in quarantine: {_line(difference)}")
    print(f"{'silver equals the source' if proof.equal else 'silver differs from the source'} at {proof.position}")


def _mended(mended: dict[str, int]) -> str:
    if "generation" in mended:
        return f"the whole table was read afresh (generation {mended['generation']})"
    return f"{mended['read']:,} rows read again, {mended['deleted']:,} that the source lacks deleted"


def _line(difference: dict[str, Any]) -> str:
    key = ", ".join(f"{k}={v}" for k, v in difference["key"].items())
    counts = ""
    if "in_silver" in difference:
        counts = f" ({difference['at_source']} at the source, {difference['in_silver']} in silver)"
    values = difference.get("values", {}).items()
    said = "; ".join(f"{c}: source {v['source']}, silver {v['silver']}" for c, v in values)
    return f"{key}  {difference['what']}{counts}{': ' + said if said else ''}"
