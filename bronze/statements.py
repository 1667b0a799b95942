"""What statements in a range of the binlog mean for the followed tables, noted in the range's manifest.

A table whose change of shape can be followed (`bronze.reshape`) gets its new shape after the range, which therefore
ends at the statement: in a batch, a table has one shape. Any other change has that table alone read again.
"""

from __future__ import annotations

from bronze.binlog.effects import Alter, Create, Drop, DropSchema, Effect, Rename, Unknown
from bronze.reshape import Reshaped, reshape
from bronze.schema_changes import Done
from bronze.work import Manifest, Work
from lakeward.names import TableName
from lakeward.schema import TableSchema


class Statements:
    """Those of one range. `schemas` are the tables as they are at the place that is being read."""

    def __init__(self, work: Work, manifest: Manifest, schemas: dict[str, TableSchema]) -> None:
        self.work = work
        self.manifest = manifest
        self.schemas = schemas
        self.ends = False  # at the next boundary: what follows is the next range's

    def concerned(self, effect: Effect) -> list[str]:
        """The followed tables that a statement is about. Names compare without case: a server may fold them."""
        if isinstance(effect, DropSchema):
            return [n for n, t in self.work.tables.items() if t.schema.name.schema.lower() == effect.schema.lower()]
        if isinstance(effect, Rename):
            self.manifest.discover = True
            named: tuple[TableName, ...] | None = (effect.old, effect.new)
        elif isinstance(effect, Unknown):
            named = effect.tables
        else:
            named = (effect.table,)
        folded = None if named is None else {str(t).lower() for t in named}
        return [n for n in self.work.tables if folded is None or n.lower() in folded]

    def apply(self, effect: Effect, name: str, where: str) -> Done:
        """Take note of what a statement (but a TRUNCATE) does to the table `name`; what was done about it."""
        if not self.work.tables[name].counts:
            return "ignored"
        if isinstance(effect, (Drop, DropSchema)):
            self._drop(name, f"dropped at the source {where}")
            return "stopped"
        if isinstance(effect, Rename):
            if str(effect.old).lower() == name.lower():
                self._drop(name, f"renamed to {effect.new} {where}")
                return "stopped"
            return self._read_again(name, f"{effect.old} was renamed to it {where}")
        if isinstance(effect, Create):
            if name not in self.manifest.dropped:  # with IF NOT EXISTS, and it did
                return "ignored"
            return self._read_again(name, f"made anew {where}")
        if isinstance(effect, Alter):
            return self._altered(effect, name, where)
        if isinstance(effect, Unknown):
            return self._read_again(name, f"a statement that could not be read may have altered it {where}")
        return "followed"

    def _altered(self, effect: Alter, name: str, where: str) -> Done:
        followed = self.work.tables[name]
        schema = self.schemas[name]
        why: str | None = None
        if not effect.harmless or (effect.rekeys and schema.key_kind == "unique"):
            why = "altered"
        elif not effect.changes and not effect.adds and not effect.recharsets:
            return "followed"
        elif name in self.manifest.altered:
            why = self.manifest.altered[name]
        elif effect.changes and not followed.reshapes:
            why = "altered, while its snapshot was not yet overtaken,"
        elif effect.changes and str(effect.table) != name:  # another table, unless the server folds the case of names
            why = "altered, under another spelling of its name,"
        if why is None:
            after = reshape(schema, effect, excluded=followed.excluded, left=followed.left)
            if isinstance(after, Reshaped):
                self._reshape(name, effect, after)
                return "followed"
            why = f"altered, and {after},"
        return self._read_again(name, f"{why} {where}")

    def _reshape(self, name: str, effect: Alter, after: Reshaped) -> None:
        if effect.adds:
            self.manifest.announced.setdefault(name, []).extend(effect.adds)
        if effect.changes or effect.recharsets:
            self.manifest.reshaped[name] = after.to_json()
            self.ends = True

    def forgo_reshaping(self) -> None:
        """No boundary follows the statement, since an XA transaction is awaited: the table is read again."""
        for name in self.manifest.reshaped:
            self._read_again(name, "altered while an XA transaction was prepared")
            for change in self.manifest.changes:
                if f"{change['schema']}.{change['table']}" == name and change["change"] == "alter table":
                    change["done"] = "read again"
        self.manifest.reshaped.clear()

    def _drop(self, name: str, why: str) -> None:
        self.manifest.dropped[name] = why  # beside what was altered before, which silver may then not have
        self.manifest.discover = True

    def _read_again(self, name: str, why: str) -> Done:
        # The last word counts: an online schema change renames the table away and another one to its name.
        self.manifest.dropped.pop(name, None)
        self.manifest.altered[name] = why
        if self.work.tables[name].excluded or any(c.masked for c in self.schemas[name].columns):
            self.ends = True  # under another name a column could land that must not
        return "read again"
