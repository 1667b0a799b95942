"""What a statement can do to a table."""

from __future__ import annotations

from dataclasses import dataclass

from lakeward.names import TableName


@dataclass(frozen=True)
class Truncate:
    table: TableName


@dataclass(frozen=True)
class Drop:
    table: TableName


@dataclass(frozen=True)
class Rename:
    old: TableName
    new: TableName


@dataclass(frozen=True)
class Create:
    """A table that may be new; with IF NOT EXISTS it may have been there."""

    table: TableName


@dataclass(frozen=True)
class Alter:
    """`harmless`: the rows and columns are as before, but for columns in `adds`, which are NULL in every old row.

    `rekeys`: an index or a constraint went that may have been the unique key that names the table's rows.
    """

    table: TableName
    harmless: bool
    adds: tuple[str, ...] = ()
    rekeys: bool = False


@dataclass(frozen=True)
class DropSchema:
    schema: str


@dataclass(frozen=True)
class Unknown:
    """A statement that could not be read; `tables` that it may have changed, None where it could be any."""

    tables: tuple[TableName, ...] | None


Effect = Truncate | Drop | Rename | Alter | Create | DropSchema | Unknown
