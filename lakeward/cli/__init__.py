"""The command `lakeward`: reads the command line, runs one command, and ends with the contract's exit code.

0 done; 1 failed, with what, where and the remedy on stderr; 2 wrong usage or configuration; 3 `verify` found
differences or a gate stopped the run. With `--json` stdout holds one JSON document and nothing else.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence

from lakeward.cli import log
from lakeward.cli.app import App
from lakeward.errors import LakewardError
from lakeward.lake import disk_full

Command = Callable[[App, argparse.Namespace], int]
"""Named as `module.function` below lakeward.cli and imported when it is chosen: `status` needs no Spark, and Great
Expectations alone takes seconds to import."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    options = parser().parse_args(arguments)
    app = App(options.config)
    log.configure()
    try:
        for command in (options.command, *(f"stages.{stage}_command" for stage in options.then)):
            if code := _command(command)(app, options):
                return code
        return 0
    except LakewardError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("stopped; the next run goes on where this one was", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the last resort: a message and an exit code instead of a traceback
        return _unexpected(app, error)
    finally:
        app.close()


def parser() -> argparse.ArgumentParser:
    """The command line, whole; docs/operations.md and a test hold it to the contract."""
    top = argparse.ArgumentParser(
        prog="lakeward", description="A lakehouse copy of MySQL and MariaDB, equal and proven."
    )
    top.add_argument(
        "-c",
        "--config",
        default=os.environ.get("LAKEWARD_CONFIG") or "lakeward.toml",
        metavar="FILE",
        help="configuration (LAKEWARD_CONFIG, else lakeward.toml)",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(command=run, then=())
        return made

    command("init", "setup.init", "write a lakeward.toml to start from")
    command("doctor", "setup.doctor", "check the source's settings and grants, and say what mends them")
    bronze = command("bronze", "stages.bronze_command", "snapshot what waits and read the binlog up to now")
    silver = command("silver", "stages.silver_command", "bring the current-state tables to bronze's position")
    gold = command("gold", "stages.gold_command", "publish silver's cut as Iceberg tables, marts and exports")
    for stage in (bronze, silver, gold):
        stage.add_argument("then", nargs="*", type=_stage, metavar="STAGE", help="stages to go on with, in one process")
    gold.add_argument(
        "--rebuild",
        action="append",
        default=[],
        metavar="TABLE",
        help="make it anew from silver, in one commit",
    )
    maintained = command("maintain", "maintain.maintain", "compact tables and remove what no reader can need any more")
    maintained.add_argument("tables", nargs="*", metavar="TABLE", help="these tables of the source alone")
    run = command("run", "stages.run_command", "bronze, silver and gold")
    run.add_argument("--continuous", action="store_true", help="go on until stopped")
    run.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="pause between rounds (5)")
    bronze.add_argument(
        "--from", dest="point", metavar="POINT", help="begin at FILE:POS, a GTID set or an ISO time, without a snapshot"
    )
    bronze.add_argument(
        "--table", dest="tables", action="append", default=[], metavar="TABLE", help="of --from: these tables alone"
    )
    for reading in (bronze, run):
        reading.add_argument(
            "--accept-gap", action="store_true", help="go on where the source lacks transactions; status names them"
        )
        reading.add_argument(
            "--snapshot-anyway", action="store_true", help="begin a snapshot that may outlast the source's binlog"
        )
    shown = command("status", "status.status", "say where each table stands")
    shown.add_argument("--json", action="store_true")
    verified = command("verify", "proof.verify", "prove that silver equals the source, or say where it does not")
    verified.add_argument("tables", nargs="*", metavar="TABLE")
    verified.add_argument("--repair", action="store_true", help="read the differing tables anew")
    verified.add_argument("--json", action="store_true")
    again = command("resnapshot", "stages.resnapshot_command", "read tables afresh at the next bronze run")
    again.add_argument("tables", nargs="*", metavar="TABLE")
    again.add_argument("--all", action="store_true", help="every table: the way on after another server or a lost log")
    _quarantine(command("quarantine", "", "events that a gate held back"))
    _snowflake(command("snowflake", "", "expose the lake in Snowflake"))
    _demo(command("demo", "", "the embedded server and its demo database"))
    return top


def _quarantine(parent: argparse.ArgumentParser) -> None:
    which = parent.add_subparsers(required=True, metavar="ACTION")
    listed = which.add_parser("list", help="what is held back, and why")
    listed.add_argument("--json", action="store_true")
    listed.set_defaults(command="quality.quarantine_list")
    replayed = which.add_parser("replay", help="judge held events by the rules as they are now")
    replayed.add_argument("tables", nargs="*", metavar="TABLE")
    replayed.set_defaults(command="quality.quarantine_replay")


def _snowflake(parent: argparse.ArgumentParser) -> None:
    which = parent.add_subparsers(required=True, metavar="ACTION")
    plan = which.add_parser("plan", help="print the SQL that exposes this lake, or what of it Snowflake lacks")
    plan.add_argument("--full", action="store_true", help="all of it, without looking at what is there")
    plan.set_defaults(command="snowflake.plan")
    applied = which.add_parser("apply", help="bring Snowflake to the plan")
    applied.add_argument("--dry-run", action="store_true", help="write the SQL to a file instead, for a DBA to run")
    applied.add_argument("--output", default="lakeward-snowflake.sql", metavar="FILE", help="of --dry-run")
    applied.set_defaults(command="snowflake.apply")
    checked = which.add_parser("check", help="hold what gold published, and the SQL, to Snowflake's rules")
    checked.set_defaults(command="snowflake.check")
    refreshed = which.add_parser("refresh", help="move Snowflake to what gold has published")
    refreshed.set_defaults(command="snowflake.refresh")
    landed = which.add_parser("land", help="write bronze's new events as JSON files for Snowpipe")
    landed.set_defaults(command="snowflake.land")
    sink = which.add_parser("sink", help="MERGE changes straight into Snowflake tables")
    sink.add_argument("tables", nargs="*", metavar="TABLE")
    sink.set_defaults(command="snowflake.sink")


def _demo(parent: argparse.ArgumentParser) -> None:
    which = parent.add_subparsers(required=True, metavar="ACTION")
    which.add_parser("up", help="start the embedded server").set_defaults(command="demo.up")
    traffic = which.add_parser("traffic", help="make a burst of changes")
    traffic.add_argument("--seed", type=int, default=None)
    traffic.add_argument("--transactions", type=int, default=200)
    traffic.set_defaults(command="demo.traffic")
    which.add_parser("down", help="stop the embedded server").set_defaults(command="demo.down")


def _stage(name: str) -> str:
    if name not in ("bronze", "silver", "gold"):
        raise argparse.ArgumentTypeError(f"{name!r} is no stage: bronze, silver or gold")
    return name


def _command(name: str) -> Command:
    module, _, function = name.partition(".")
    found: Command = getattr(importlib.import_module(f"lakeward.cli.{module}"), function)
    return found


def _unexpected(app: App, error: Exception) -> int:
    full = disk_full(error)
    if full is not None:
        print(f"error: {full}", file=sys.stderr)
        return full.exit_code
    if os.environ.get("LAKEWARD_DEBUG"):
        traceback.print_exc()
    first = str(error).strip().splitlines()[:1]
    print(f"error: {type(error).__name__}: {first[0] if first else ''}", file=sys.stderr)
    print("  this is a fault of Lakeward's: run again with LAKEWARD_DEBUG=1 and report what it prints", file=sys.stderr)
    return 1
