"""Marks tables to be read afresh. The next bronze run takes their snapshots while the others stream on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession

from bronze.batch import finish
from lakeward.errors import TerminalError, UsageError
from lakeward.lake import Lake
from lakeward.state import load_bronze, save_bronze


def mark(
    spark: Callable[[], SparkSession],
    lake: Lake,
    tables: Sequence[str],
    *,
    everything: bool = False,
    repair: bool = False,
) -> list[str]:
    """Mark `tables`, or all, and return their names. Raises TerminalError for a table that is not followed.

    With `everything` the checkpoint is given up too and a new epoch begins, so that bronze can go on from another
    server, or over a gap in the log: all that follows is ordered after all that was. A batch that was left half done is
    finished first, which needs no source; `spark` is called only for that. `repair` says that silver may hold rows of
    one key twice.
    """
    if everything == bool(tables):
        raise UsageError("name the tables to read afresh, or --all", hint="lakeward resnapshot shop.users")
    state = load_bronze(lake)
    chosen = sorted(state.tables) if everything else list(tables)
    unknown = [t for t in chosen if t not in state.tables]
    if unknown:
        raise TerminalError(
            f"{', '.join(unknown)} is not followed", hint=f"followed are: {', '.join(sorted(state.tables))}"
        )
    if state.intent is not None:
        finish(spark(), lake, state)
    for name in chosen:
        state.tables[name].status, state.tables[name].reason = "waiting for snapshot", "asked for"
        if repair:
            state.tables[name].repaired = state.batch + 1
    if everything:
        state.checkpoint, state.server, state.seen = None, {}, None
        state.epoch += 1
    save_bronze(lake, state)
    return chosen
