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
class Definition:
    """What MODIFY and CHANGE say a column is now, as far as its values hang on it."""

    type: str  # as information_schema would spell it: "decimal(10,2) unsigned", "enum('a','b')"
    charset: str | None = None  # None where the statement names neither a character set nor a collation
    nullable: bool = True
    auto: bool = False  # AUTO_INCREMENT


@dataclass(frozen=True)
class DropColumn:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class RenameColumn:
    old: str
    new: str
    if_exists: bool = False


@dataclass(frozen=True)
class ModifyColumn:
    name: str  # as it is called before the statement
    to: Definition
    if_exists: bool = False


ColumnChange = DropColumn | RenameColumn | ModifyColumn


@dataclass(frozen=True)
class Alter:
    """`harmless`: the rows and columns are as before, but for what follows.

    `adds` are columns that are NULL in every old row. `changes` may be followed or not, which hangs on what the columns
    are. `rekeys`: an index or a constraint went that may have been the unique key that names the table's rows.
    `recharsets`: columns that name no character set later get another one than before.
    """

    table: TableName
    harmless: bool
    adds: tuple[str, ...] = ()
    rekeys: bool = False
    changes: tuple[ColumnChange, ...] = ()
    recharsets: bool = False


@dataclass(frozen=True)
class DropSchema:
    schema: str


@dataclass(frozen=True)
class Unknown:
    """A statement that could not be read; `tables` that it may have changed, None where it could be any."""

    tables: tuple[TableName, ...] | None


Effect = Truncate | Drop | Rename | Alter | Create | DropSchema | Unknown
