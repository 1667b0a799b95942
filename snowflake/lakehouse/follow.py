"""After gold: what is published is said in one small file, held to Snowflake's rules, and Snowflake is moved to it.

`<root>/export/lakeward/published.json` has a line a table: where gold stands. The freshness view reads it beside what
Snowflake shows, so an analyst sees that Snowflake is behind even when nobody could tell it so. A refresh that failed is
tried again by the next run, for `_lakeward/snowflake.json` says what Snowflake was last moved to.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from gold.state import GoldState, load_gold
from lakeward.config import Config
from lakeward.lake import Lake
from snowflake.lakehouse import rotation
from snowflake.lakehouse.apply import SHOWN, Connect, apply, changes, runnable
from snowflake.lakehouse.plan import EXPORT_FOLDER, PUBLISHED_FILE, build

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from snowflake.lakehouse.connection import Session  # its connector is slow to import


def follow_gold(lake: Lake, config: Config, connect: Connect) -> int:
    """What is to be done after a run of gold; nothing where all of it has been. How many changes Snowflake took.

    Raises GateStoppedError when what is published breaks a rule: Snowflake is not moved to it then. Where [snowflake]
    names no account that is a warning.
    """
    state = load_gold(lake)
    stands = _stands(state)
    known = lake.read(SHOWN) or {}
    if not stands:
        return 0
    if known.get("passed") != stands:
        from snowflake.lakehouse.conformance import run  # slow to import, and without news there is no need of it

        lake.replace(f"{EXPORT_FOLDER}/{PUBLISHED_FILE}", _lines(state))
        if config.snowflake.account is None and config.snowflake.refresh == "manual":
            # Nobody is shown this in Snowflake yet: told what would not go there, a run goes on.
            for finding in run.check(lake, config, values=False, sql=False).findings:
                log.warning("not for Snowflake: %s", finding)
        else:
            run.gate(lake, config)
        lake.write(SHOWN, {**known, "passed": stands})
    if config.snowflake.refresh == "manual" or known.get("shown") == stands:
        return 0
    runnable(lake, build(lake, config))
    session = connect()
    try:
        return move(session, lake, config, lambda line: None, tables_only=True)
    finally:
        session.close()


def move(session: Session, lake: Lake, config: Config, say: Callable[[str], None], *, tables_only: bool) -> int:
    """Bring Snowflake to the plan and write down where it stands; how many changes it took."""
    state = load_gold(lake)
    known = lake.read(SHOWN) or {}
    new = [] if tables_only else rotation.rotated(known, config.snowflake)
    made = changes(lake, config, session, tables_only=tables_only, rotated=new)
    count = apply(session, config, made, say)
    snapshots = {name: table.snapshot for name, table in state.tables.items()}
    # What waits for Snowflake is tried again by the next run, as what has failed is.
    shown = None if any(change.verb == "wait" for change in made) else _stands(state)
    known = {**known, "shown": shown, "snapshots": snapshots}
    lake.write(SHOWN, known if tables_only else rotation.given(known, config.snowflake))
    return count


def _stands(state: GoldState) -> dict[str, list[str | None]]:
    """What Snowflake would see: JSON, so that it compares with what was read."""
    return {n: [t.metadata_file, t.export_location, str(t.cut.at)] for n, t in state.tables.items()}


def _lines(state: GoldState) -> bytes:
    tables = [t for _, t in sorted(state.tables.items()) if t.kind != "freshness"]
    lines = [
        {
            "table_schema": t.schema,
            "table_name": t.table,
            "kind": t.kind,
            "cut": str(t.cut.at),
            "published_ms": t.published_ms,
            "metadata_file": t.metadata_file,
        }
        for t in tables
    ]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
