"""`lakeward status`: where each table stands, from the state documents alone: no Spark, no source."""

from __future__ import annotations

import argparse
import datetime
import json
import time
from typing import Any

from gold.schedule import load_maintenance
from gold.state import load_gold
from lakeward.cli.app import App
from lakeward.lake import Lake
from lakeward.state import BronzeState, BronzeTable, load_bronze, load_silver


def status(app: App, options: argparse.Namespace) -> int:
    doc = document(app.lake)
    if options.json:
        print(json.dumps(doc, indent=2))
        return 0
    lag = "never caught up" if doc["lag_ms"] is None else f"caught up {doc['lag_ms'] / 1000:,.0f} s ago"
    print(f"cut {doc['cut'] or 'none yet'}, {lag}")
    if doc["gold"]["cut"]:
        print(f"gold stands at cut {doc['gold']['cut']}, published at {doc['gold']['published_at']}")
    width = max([len(t["name"]) for t in doc["tables"]], default=0)
    for t in doc["tables"]:
        print(f"  {t['name']:<{width}}  {t['state']:<20}  {t['rows']:>12,} rows  {t['reason'] or ''}".rstrip())
    for t in doc["tables"]:
        if t["started_at"]:
            at = t["started_at"]
            print(f"{t['name']} started at {at['position']} (--from {at['asked']}), without a snapshot")
    for gap in doc["gaps"]:
        print(f"gap from {gap['from']} to {gap['to']}, accepted {gap['accepted_at']} by {gap['accepted_by']}")
        print(f"  missing: {gap['missing']}")
        print(f"  in: {', '.join(gap['tables'])}; `lakeward resnapshot` of a table mends it there")
    kept = doc["maintenance"]
    if kept["failed_at"]:
        print(f"maintenance failed at {kept['failed_at']} (last done: {kept['done_at'] or 'never'}): {kept['reason']}")
    return 0


def document(lake: Lake) -> dict[str, Any]:
    """`status --json`.

    `lag_ms` is the time since silver was known to hold everything that the source had committed: null where it never
    did. `rows` counts silver's rows; while a table's snapshot runs, the rows read so far.
    """
    bronze, silver = load_bronze(lake), load_silver(lake)
    now = int(time.time() * 1000)
    cut = silver.cut
    current = None
    if cut is not None and bronze.checkpoint is not None:
        current = bronze.current_ms if cut.at == bronze.checkpoint.at else cut.ts_ms
    tables = []
    for name, table in sorted(bronze.tables.items()):
        merged = silver.tables.get(name)
        chunks = len(table.chunks) or 1
        tables.append(
            {
                "name": name,
                "state": table.status,
                "rows": merged.rows if merged else table.snapshot_rows,
                "reason": table.reason,
                "position": str(bronze.checkpoint.at) if bronze.checkpoint else None,
                "cut": str(merged.cut) if merged else None,
                "events": table.rows,
                "snapshot": {"generation": table.generation, "done": len(table.chunks_done), "chunks": chunks},
                "keys": list(table.schema.keys),
                "started_at": _started_at(table),
            }
        )
    return {
        "cut": str(cut.at) if cut else None,
        "lag_ms": max(0, now - current) if current else None,
        "position": str(bronze.checkpoint.at) if bronze.checkpoint else None,
        "gtid": bronze.checkpoint.gtid if bronze.checkpoint else None,
        "server": {k: bronze.server.get(k) for k in ("flavour", "version", "uuid")} if bronze.server else None,
        "servers": [{**{k: s[k] for k in ("uuid", "epoch")}, "since": _iso(s["since_ms"])} for s in bronze.servers],
        "gaps": _gaps(bronze),
        "gold": _gold(lake),
        "maintenance": _maintenance(lake),
        "zero_dates": bronze.zero_dates,
        "tables": tables,
    }


def _gold(lake: Lake) -> dict[str, str | None]:
    """The cut that gold published last, and when: behind silver's where it waits, or has failed."""
    state = load_gold(lake)
    published = max((t.published_ms for t in state.tables.values()), default=None)  # the freshness table's
    return {
        "cut": str(state.cut.at) if state.cut else None,
        "published_at": _iso(published) if published is not None else None,
    }


def _maintenance(lake: Lake) -> dict[str, str | None]:
    """When every table was last maintained, and what it has failed with since."""
    state = load_maintenance(lake)
    if state is None:
        return {"done_at": None, "failed_at": None, "reason": None}
    failed_at = _iso(state.failed_ms) if state.failed_ms is not None else None
    return {"done_at": _iso(state.since_ms) if state.done else None, "failed_at": failed_at, "reason": state.reason}


def _started_at(table: BronzeTable) -> dict[str, str] | None:
    """Where a table began without a snapshot, so that rows which have not changed since are not in it."""
    if table.begun is None or table.begun["generation"] != table.generation:
        return None
    return {"asked": table.begun["asked"], "position": str(table.start)}


def _gaps(bronze: BronzeState) -> list[dict[str, Any]]:
    """The gaps that were accepted, each with the tables that have not been read afresh since."""
    shown = []
    for gap in bronze.gaps:
        tables = [n for n, generation in gap["tables"].items() if not _read_afresh(bronze.tables.get(n), generation)]
        if tables:
            kept = {k: gap[k] for k in ("from", "to", "missing", "why", "accepted_by")}
            shown.append({**kept, "accepted_at": _iso(gap["accepted_ms"]), "tables": tables})
    return shown


def _read_afresh(table: BronzeTable | None, generation: int) -> bool:
    return table is None or (table.generation > generation and table.status == "streaming")


def _iso(ms: int) -> str:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC).isoformat(timespec="seconds")
