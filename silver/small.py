"""Small tables, held by the driver: Spark says which rows change, Arrow writes them, Delta's own transaction commits.

A MERGE of Delta plans four queries over a table, of ten rows or of millions. Where the driver can hold the table, one
query is enough: the table's rows and the batch's, joined, by the expressions that every merge of silver uses. What
comes of it is one data file in the place of those that were there, and one with the change feed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from lakeward import crash
from lakeward.delta import log_of
from lakeward.jvm import java_class
from lakeward.kernel import Listing, listing
from lakeward.lake import Lake, lake_error
from lakeward.schema import TableSchema
from silver.columns import DELETED, META
from silver.delta import APP_ID
from silver.local import FILES_MAX, local, read
from silver.rewrite import decided
from silver.rows import SHORT, Written

# What a writer has to know of a table that is written here: of these, all. What a user adds is left to Delta.
FEATURES: Final = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "invariants", "timestampNtz"})
BYTES_MAX = 4 << 20  # of its data files, compressed; and as many rows as a batch may have
_CHANGE = "_change_type"
_NUMBER = "n"  # a row's, in `SmallTable.rows`


@dataclass(frozen=True)
class SmallTable:
    """A table's rows at the version that `transaction` has read."""

    session: SparkSession
    lake: Lake
    location: str
    listing: Listing
    rows: pa.Table
    transaction: Any

    @property
    def empty(self) -> bool:
        return not self.listing.files

    def frame(self) -> DataFrame:
        """The table, as reading it gives it."""
        return local(self.session, self.rows, self.listing.columns)

    def merge(self, rows: DataFrame, schema: TableSchema, *, run: int, soft: bool) -> Written:
        """What `silver.merge.merge` does without an ending, in one commit, once for `run`."""
        changed = self._changed(rows, schema, soft=soft)
        actions = changed["action"].to_pylist()
        after = self.rows
        if actions:
            after, feed = self._contents(changed, schema, soft=soft)
            self._commit(after, feed, run=run)
        left = after.filter(pc.invert(after[DELETED])) if soft else after
        inserted, updated, deleted = (actions.count(action) for action in ("insert", "update", "delete"))
        return Written(inserted, updated, deleted, left.num_rows)

    def _names(self, schema: TableSchema, *, soft: bool) -> dict[str, str]:
        """The table's columns, and what a merge calls them; those alone that it writes."""
        called = {c.name.lower(): f"c{i}" for i, c in enumerate(schema.columns)}
        called |= {name: short for (name, _), short in zip(META, SHORT, strict=True)}
        called |= {DELETED: "gone"} if soft else {}
        return {f.name: called[f.name.lower()] for f in self.listing.columns if f.name.lower() in called}

    def _changed(self, rows: DataFrame, schema: TableSchema, *, soft: bool) -> pa.Table:
        """action, n (the row's number in `self.rows`, NULL of a new one), c0, …, ts_ms, tx_id, tx_order, gone."""
        names = self._names(schema, soft=soft)
        held = self.rows.select(list(names)).rename_columns(list(names.values()))
        held = held.append_column(_NUMBER, pa.array(range(held.num_rows), pa.int64()))
        fields = [StructField(new, self.listing.columns[old].dataType) for old, new in names.items()]
        present = local(self.session, held, StructType([*fields, StructField(_NUMBER, LongType())]))
        if not soft:
            present = present.selectExpr("*", "false AS gone")
        chosen = decided(present, rows, schema, soft=soft, how="right_outer", ends=False)
        return chosen.where("action NOT IN ('keep', 'none')").select("action", f"t.{_NUMBER}", "s.*").toArrow()

    def _contents(self, changed: pa.Table, schema: TableSchema, *, soft: bool) -> tuple[pa.Table, pa.Table]:
        """The table's rows after the merge, and its change feed."""
        wanted, names = to_arrow_schema(self.listing.columns), self._names(schema, soft=soft)
        old = self.rows.cast(wanted)
        found = changed[_NUMBER].combine_chunks()
        # A column that the source has dropped, and silver keeps, stays as it is; a new row has none.
        columns = [changed[names[f.name]].cast(f.type) if f.name in names else old[f.name].take(found) for f in wanted]
        new = pa.table(columns, schema=wanted)
        action = changed["action"].combine_chunks()
        stays = pc.invert(pc.is_in(pa.array(range(old.num_rows), pa.int64()), found))
        rows = pa.concat_tables([old.filter(stays), new.filter(pc.not_equal(action, "delete"))])
        before = old.take(found.filter(pc.equal(action, "update")))
        gone = old.take(found.filter(pc.equal(action, "delete")))
        feed = [
            _marked(new.filter(pc.equal(action, "insert")), "insert"),
            _marked(before, "update_preimage"),
            _marked(new.filter(pc.equal(action, "update")), "update_postimage"),
            _marked(gone, "delete"),
        ]
        return rows, pa.concat_tables(feed)

    def _commit(self, rows: pa.Table, feed: pa.Table, *, run: int) -> None:
        now = time.time_ns() // 1_000_000
        shared = {"partitionValues": {}, "dataChange": True}
        actions: list[dict[str, Any]] = [{"txn": {"appId": APP_ID, "version": run, "lastUpdated": now}}]
        for name, size in self.listing.files.items():
            removed = {"path": name, "size": size, "deletionTimestamp": now, "extendedFileMetadata": True}
            actions.append({"remove": removed | shared})
        if rows.num_rows:
            name, size = self._write("part", rows)
            added = {"path": name, "size": size, "modificationTime": now, "stats": json.dumps(_statistics(rows))}
            actions.append({"add": added | shared})
        if not self.empty:  # else the feed is what was added
            name, size = self._write("_change_data/cdc", feed)
            actions.append({"cdc": {"path": name, "size": size} | shared | {"dataChange": False}})
        crash.point("silver.before_commit")
        parse = getattr(java_class(self.session, "org.apache.spark.sql.delta.actions.Action$"), "MODULE$").fromJson
        none = java_class(self.session, "scala.Option").empty()
        mode = java_class(self.session, "org.apache.spark.sql.SaveMode").Overwrite
        write = java_class(self.session, "org.apache.spark.sql.delta.DeltaOperations$Write")
        operation = write(mode, *(none for _ in range(8)))
        self.transaction.commit(_scala(self.session, (parse(json.dumps(action)) for action in actions)), operation)

    def _write(self, kind: str, rows: pa.Table) -> tuple[str, int]:
        """A file's name in the table's folder, and its size. A run that is killed leaves it behind, and VACUUM finds
        it."""
        name = f"{kind}-00000-{uuid.uuid4()}-c000.snappy.parquet"
        filesystem, root = self.lake.filesystem()
        path = f"{root}{self.location.removeprefix(self.lake.root)}/{name}"
        try:
            if self.lake.local:
                filesystem.create_dir(path.rpartition("/")[0])
            with filesystem.open_output_stream(path) as stream:
                pq.write_table(rows, stream, version="2.6")
                size = int(stream.tell())
        except OSError as error:
            raise lake_error(error, path) from error
        return name, size


def take(session: SparkSession, lake: Lake, location: str) -> SmallTable | None:
    """The table that is there, where the driver can hold it and knows all that a writer has to know of it."""
    transaction = log_of(session, location).startTransaction()
    found = listing(session, location, int(transaction.readVersion()), None, most=FILES_MAX)
    if found is None or found.size > BYTES_MAX or not found.plain:
        return None
    if not found.features or not found.features <= FEATURES:  # a protocol without them says nothing of constraints
        return None
    if any(field.metadata or not field.nullable for field in found.columns.fields):  # such as a constraint
        return None
    rows = read(lake, location, found) if found.files else to_arrow_schema(found.columns).empty_table()
    if rows is None:
        return None
    transaction.readWholeTable()  # so that Delta refuses the commit where another program's came before it
    return SmallTable(session, lake, location, found, rows, transaction)


def _marked(rows: pa.Table, change: str) -> pa.Table:
    return rows.append_column(_CHANGE, pa.array([change] * rows.num_rows, pa.string()))


def _statistics(rows: pa.Table) -> dict[str, Any]:
    """Of the form of the Delta protocol's Per-file Statistics: bounds of whole numbers, by which files are skipped."""
    low, high, nulls = {}, {}, {}
    for field in rows.schema:
        whole = pa.types.is_integer(field.type) or (pa.types.is_decimal(field.type) and field.type.scale == 0)
        if whole:
            bounds = pc.min_max(rows[field.name])
            nulls[field.name] = rows[field.name].null_count
            if bounds["min"].is_valid:
                low[field.name], high[field.name] = int(bounds["min"].as_py()), int(bounds["max"].as_py())
    return {"numRecords": rows.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls, "tightBounds": True}


def _scala(session: SparkSession, each: Iterable[Any]) -> Any:
    listed = java_class(session, "java.util.ArrayList")()
    for one in each:
        listed.add(one)
    return java_class(session, "scala.jdk.javaapi.CollectionConverters").asScala(listed).toSeq()
