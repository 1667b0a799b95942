"""Small tables, held by the driver: Spark says which rows change, Arrow writes them (`silver.files`).

A MERGE of Delta plans four queries over a table, of ten rows or of millions. Where the driver can hold the table, one
query is enough: the table's rows and the batch's, joined, by the expressions that every merge of silver uses. What
comes of it is one data file in the place of those that were there, and one with the change feed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from lakeward.lake import Lake
from lakeward.schema import TableSchema
from silver import files
from silver.columns import DELETED, META
from silver.local import local, read
from silver.rewrite import decided
from silver.rows import SHORT, Written

BYTES_MAX = 4 << 20  # of its data files, compressed; and as many rows as a batch may have
_NUMBER = "n"  # a row's, in `SmallTable.rows`


@dataclass(frozen=True)
class SmallTable:
    """A table's rows."""

    files: files.Files
    rows: pa.Table

    @property
    def empty(self) -> bool:
        return not self.files.listing.files

    def frame(self) -> DataFrame:
        """The table, as reading it gives it."""
        return local(self.files.session, self.rows, self.files.listing.columns)

    def merge(self, rows: DataFrame, schema: TableSchema, *, run: int, soft: bool) -> Written:
        """What `silver.merge.merge` does without an ending, in one commit, once for `run`."""
        changed = self._changed(rows, schema, soft=soft)
        actions = changed["action"].to_pylist()
        after = self.rows
        if actions:
            after, feed = self._contents(changed, schema, soft=soft)
            with self.files.writer() as writer:  # of what comes into an empty table, the rows are the change feed
                writer.write(after, feed.slice(0, 0) if self.empty else feed)
            self.files.commit(self.files.listing.files, [writer], run=run)
        left = after.filter(pc.invert(after[DELETED])) if soft else after
        inserted, updated, deleted = (actions.count(action) for action in ("insert", "update", "delete"))
        return Written(inserted, updated, deleted, left.num_rows)

    def _names(self, schema: TableSchema, *, soft: bool) -> dict[str, str]:
        """The table's columns, and what a merge calls them; those alone that it writes."""
        called = {c.name.lower(): f"c{i}" for i, c in enumerate(schema.columns)}
        called |= {name: short for (name, _), short in zip(META, SHORT, strict=True)}
        called |= {DELETED: "gone"} if soft else {}
        return {f.name: called[f.name.lower()] for f in self.files.listing.columns if f.name.lower() in called}

    def _changed(self, rows: DataFrame, schema: TableSchema, *, soft: bool) -> pa.Table:
        """action, n (the row's number in `self.rows`, NULL of a new one), c0, …, ts_ms, tx_id, tx_order, gone."""
        names = self._names(schema, soft=soft)
        held = self.rows.select(list(names)).rename_columns(list(names.values()))
        held = held.append_column(_NUMBER, pa.array(range(held.num_rows), pa.int64()))
        fields = [StructField(new, self.files.listing.columns[old].dataType) for old, new in names.items()]
        present = local(self.files.session, held, StructType([*fields, StructField(_NUMBER, LongType())]))
        if not soft:
            present = present.selectExpr("*", "false AS gone")
        chosen = decided(present, rows, schema, soft=soft, how="right_outer", ends=False)
        return chosen.where("action NOT IN ('keep', 'none')").select("action", f"t.{_NUMBER}", "s.*").toArrow()

    def _contents(self, changed: pa.Table, schema: TableSchema, *, soft: bool) -> tuple[pa.Table, pa.Table]:
        """The table's rows after the merge, and its change feed."""
        wanted, names = self.files.schema, self._names(schema, soft=soft)
        old = self.rows.cast(wanted)
        found = changed[_NUMBER].combine_chunks()
        # A column that the source has dropped, and silver keeps, stays as it is; a new row has none.
        columns = [changed[names[f.name]].cast(f.type) if f.name in names else old[f.name].take(found) for f in wanted]
        new = pa.table(columns, schema=wanted)
        action = changed["action"].combine_chunks()
        stays = pc.invert(pc.is_in(pa.array(range(old.num_rows), pa.int64()), found))
        rows = pa.concat_tables([old.filter(stays), new.filter(pc.not_equal(action, "delete"))])
        feed = files.told(
            wanted,
            inserted=new.filter(pc.equal(action, "insert")),
            before=old.take(found.filter(pc.equal(action, "update"))),
            after=new.filter(pc.equal(action, "update")),
            deleted=old.take(found.filter(pc.equal(action, "delete"))),
        )
        return rows, feed


def take(session: SparkSession, lake: Lake, location: str) -> SmallTable | None:
    """The table that is there, where the driver can hold it and knows all that a writer has to know of it."""
    held = files.take(session, lake, location, bytes_max=BYTES_MAX)
    if held is None or held.listing.vectors:
        return None
    rows = held.schema.empty_table()
    if held.listing.files:
        found = read(lake, location, held.listing)
        if found is None:
            return None
        rows = found
    return SmallTable(held, rows)
