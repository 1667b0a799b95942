"""A bronze batch: files that executors wrote become events of bronze, all of them once, whatever is killed when.

The batch is written down whole as an intent before its first commit. Each table's commit bears the batch's number,
so a batch that is found half done is simply done again; only then does the checkpoint move.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from bronze import schema_changes
from bronze.commit import DataFile, add_columns, commit, image_fields, reshape_images
from bronze.work import Manifest
from lakeward import crash
from lakeward.lake import Lake
from lakeward.position import Checkpoint, Position
from lakeward.schema import Column, TableSchema
from lakeward.state import BronzeState, BronzeTable, save_bronze

COMMIT_THREADS = 4
_MARKS = ("partial", "truncated", "repaired")  # what a table's state remembers the last batch of


def land(spark: SparkSession, lake: Lake, state: BronzeState, manifests: Sequence[Manifest], **more: Any) -> None:
    """Make one batch of what tasks wrote, in their order. `more` is kept in the intent: `end` (a checkpoint) of a
    stream's batch, `earlier` (a checkpoint) of one before what bronze holds (see `bronze/begin.py`), `chunks`
    ({table: [numbers]}) and `start` ({table: checkpoint}) of a snapshot's."""
    tables: dict[str, dict[str, Any]] = {}
    intent: dict[str, Any] = {
        "batch": state.batch + 1,
        "tables": tables,
        "changes": [change for manifest in manifests for change in manifest.changes],
        "zero_dates": sum(manifest.zero_dates for manifest in manifests),
        "replaced": sum(manifest.replaced for manifest in manifests),
        **more,
    }
    for manifest in manifests:
        touched = (manifest.files, manifest.added, manifest.altered, manifest.dropped)
        for name in {n for tables_ in (*touched, manifest.reshaped, manifest.announced) for n in tables_}:
            entry = tables.setdefault(name, {"files": [], "rows": 0, "last": None, "added": []})
            entry["files"] += manifest.files.get(name, [])
            entry["rows"] += manifest.rows.get(name, 0)
            entry["last"] = manifest.last.get(name) or entry["last"]
            known = {c["name"] for c in entry["added"]}
            entry["added"] += [c for c in manifest.added.get(name, []) if c["name"] not in known]
            entry |= {mark: True for mark in _MARKS if name in getattr(manifest, mark)}
            entry.setdefault("announced", []).extend(manifest.announced.get(name, []))
            if name in manifest.reshaped:
                entry["reshaped"] = manifest.reshaped[name]
            if name in manifest.altered:
                entry.setdefault("unfinished", manifest.altered[name])
            for change, other in (("altered", "dropped"), ("dropped", "altered")):
                if name in getattr(manifest, change):
                    entry[change] = getattr(manifest, change)[name]
                    entry.pop(other, None)
    crash.point("bronze.before_intent")
    state.intent = intent
    save_bronze(lake, state)
    crash.point("bronze.after_intent")
    finish(spark, lake, state)


def finish(spark: SparkSession, lake: Lake, state: BronzeState) -> None:
    """Carry out the intent in `state`, from wherever it was left, and write it down as done."""
    intent = state.intent
    if intent is None:
        return
    batch = intent["batch"]

    def one(name: str) -> None:
        entry = intent["tables"][name]
        location = lake.table("bronze", state.tables[name].name)
        if entry["added"]:
            present = {n.lower() for n in image_fields(spark, location)}
            columns = [Column.from_json(c) for c in entry["added"]]
            add_columns(spark, location, [c for c in columns if c.name.lower() not in present])
        if entry["files"]:
            commit(spark, location, [DataFile(**f) for f in entry["files"]], batch=batch)
        if reshaped := entry.get("reshaped"):  # after the files, whose columns are called as they were
            reshape_images(spark, location, TableSchema.from_json(reshaped["schema"]), reshaped["renamed"])
        crash.point("bronze.between_commits")

    with ThreadPoolExecutor(COMMIT_THREADS) as pool:
        list(pool.map(one, intent["tables"]))
    if intent.get("changes"):
        schema_changes.land(spark, lake, intent["changes"], batch=batch)
    crash.point("bronze.after_commits")
    _note(state, intent)
    state.intent = None
    state.batch = batch
    save_bronze(lake, state)
    crash.point("bronze.after_state")


def _note_shape(table: BronzeTable, entry: dict[str, Any]) -> None:
    known = {c.name for c in table.schema.columns}
    added = tuple(c for c in map(Column.from_json, entry["added"]) if c.name not in known)
    table.schema = replace(table.schema, columns=(*table.schema.columns, *added))
    if reshaped := entry.get("reshaped"):
        after = TableSchema.from_json(reshaped["schema"])
        gone = {*reshaped["left"], *(c.name for c in after.columns)}
        # What another range of the batch took up is not in this one's schema.
        taken_up = tuple(c for c in table.schema.columns if c.name not in gone)
        table.schema = replace(after, columns=(*after.columns, *taken_up))
        table.renamed += reshaped["renamed"]
        table.left += reshaped["left"]
    known = {c.name for c in table.schema.columns}
    table.added = [n for n in (*table.added, *entry.get("announced", ())) if n not in known]


def _note(state: BronzeState, intent: dict[str, Any]) -> None:
    state.zero_dates += intent["zero_dates"]
    state.replaced += intent.get("replaced", 0)
    for name, entry in intent["tables"].items():
        table = state.tables[name]
        _note_shape(table, entry)
        shaped = entry["added"] or "reshaped" in entry
        if (entry["files"] and "earlier" not in intent) or shaped:  # silver has no use for what is earlier
            table.batch = intent["batch"]
        if "reshaped" in entry:
            table.reshaped = intent["batch"]
        table.rows += entry["rows"]
        for mark in _MARKS:
            if entry.get(mark):
                setattr(table, mark, intent["batch"])
        if entry["last"] and (table.last is None or Position.from_json(entry["last"]) > table.last):
            table.last = Position.from_json(entry["last"])
        table.unfinished = table.unfinished or entry.get("unfinished")
        if "altered" in entry:
            table.status, table.reason = "waiting for snapshot", entry["altered"]
        if "dropped" in entry:
            table.stop(entry["dropped"], dropped=True)
    for name, numbers in intent.get("chunks", {}).items():
        table = state.tables[name]
        table.chunks_done = sorted({*table.chunks_done, *numbers})
        table.snapshot_rows += intent["tables"].get(name, {}).get("rows", 0)
        table.start = Position.from_json(intent["start"][name])
        if table.generation == 1:
            table.since = table.start
    if "earlier" in intent and state.earlier is not None:
        state.earlier["at"] = intent["earlier"]
    if "end" in intent:
        end = Checkpoint.from_json(intent["end"])
        if state.checkpoint is not None and end.at.place == state.checkpoint.at.place:
            end = end._replace(at=max(end.at, state.checkpoint.at))  # what a repair added there stays before it
        state.checkpoint = end
        for table in state.tables.values():
            if table.status == "snapshot" and table.high is not None and state.checkpoint.at >= table.high:
                table.status, table.reason = "streaming", None
