"""Whether an ALTER can be followed without reading its table again, and what the table is after it.

It can where every old value is known to be what it was: columns that go, get another name, or a type that holds all
that the old one held. Pure. Whatever is not surely so is a reason to read again.

A name belongs to one column as long as a table is not read afresh: one that a column has had, and has no more, is not
given to another. So what an event calls a column by says which one it is, whenever the event was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from bronze.binlog.effects import Alter, Definition, DropColumn, ModifyColumn, RenameColumn
from lakeward.errors import TerminalError
from lakeward.schema import INTEGERS, STRINGS, Column, TableSchema, column_from_catalog

_ROOM = {"bytes": ("varbinary", "blob"), "text": ("varchar", "text")}
_SIZED = ("text", "blob")  # of which a Column does not say how long they are


@dataclass(frozen=True)
class Reshaped:
    """A table after an ALTER. `renamed` are (old, new) in turn; `left` the names that are taken by what was."""

    schema: TableSchema
    renamed: tuple[tuple[str, str], ...] = ()
    left: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema.to_json(),
            "renamed": [list(pair) for pair in self.renamed],
            "left": list(self.left),
        }


class _CannotFollowError(Exception):
    """Why an ALTER has its table read again."""


def reshape(schema: TableSchema, effect: Alter, *, excluded: Sequence[str], left: Sequence[str]) -> Reshaped | str:
    """`schema` after `effect`, which is harmless but for its changes; or why the table has to be read again."""
    try:
        return _reshape(schema, effect, {n.lower() for n in excluded}, {n.lower() for n in left})
    except _CannotFollowError as error:
        return str(error)


def _reshape(schema: TableSchema, effect: Alter, excluded: set[str], left: set[str]) -> Reshaped:
    before = {c.name.lower(): c for c in schema.columns}
    taken = {*before, *excluded, *left}
    after: dict[str, Column | None] = dict(before)
    names: dict[str, str] = {}
    for change in effect.changes:
        old = change.old if isinstance(change, RenameColumn) else change.name
        if old.lower() in excluded:
            if isinstance(change, RenameColumn):
                raise _CannotFollowError(f"its column {old}, which exclude_columns leaves out, has another name")
            continue
        column = before.get(old.lower())
        if column is None:
            if change.if_exists:
                continue
            raise _CannotFollowError(f"its column {old} was not known")
        if isinstance(change, RenameColumn):
            if change.new.lower() in taken:
                raise _CannotFollowError(f"the name {change.new} goes from one column to another")
            taken.add(change.new.lower())
            names[column.name] = change.new
        elif isinstance(change, DropColumn):
            if column.name in schema.keys:
                raise _CannotFollowError(f"its key lost the column {column.name}")
            after[old.lower()] = None
        else:
            after[old.lower()] = _modified(schema, column, change)
    columns = tuple(replace(c, name=names.get(c.name, c.name)) for c in after.values() if c is not None)
    auto = None if schema.auto is None else names.get(schema.auto, schema.auto)
    gone = [c.name for c in schema.columns if after[c.name.lower()] is None]
    for name in effect.adds:
        if name.lower() in {*left, *(n.lower() for n in (*gone, *names))}:
            raise _CannotFollowError(f"a column before its new {name} had that name")
    return Reshaped(
        replace(
            schema,
            columns=columns,
            keys=tuple(names.get(k, k) for k in schema.keys),
            charset=None if effect.recharsets else schema.charset,
            auto=None if auto in gone else auto,
        ),
        tuple(names.items()),
        (*gone, *names),
    )


def _modified(schema: TableSchema, old: Column, change: ModifyColumn) -> Column:
    to = change.to
    try:
        new = column_from_catalog(
            old.name,
            to.type,
            nullable=to.nullable and old.name not in schema.keys,
            charset=(to.charset or schema.charset) if old.charset is not None else None,
            collation=old.collation,
            tinyint1="boolean" if old.boolean else "int",
        )
    except TerminalError as error:
        raise _CannotFollowError(error.message) from error
    why = _altering(schema, old, new, to)
    if why is not None:
        raise _CannotFollowError(f"its column {old.name} {why}")
    return replace(new, masked=old.masked)


def _altering(schema: TableSchema, old: Column, new: Column, to: Definition) -> str | None:
    """Why the column's old values may be others now."""
    if old.nullable and not new.nullable:
        return "is NOT NULL now"
    if to.nullable and old.name in schema.keys and schema.key_kind == "unique":
        return "is in its key, and may be NULL now"
    if to.auto and schema.auto != old.name:
        return "numbers itself now"
    if old.charset != new.charset:
        return "has another character set, or one that is not known"
    if old.masked and (old.kind, old.unsigned, old.scale, old.fsp) != (new.kind, new.unsigned, new.scale, new.fsp):
        return "is masked, and has another type"
    return None if _holds(old, new, to.type.partition("(")[0].partition(" ")[0]) else "has another type"


def _holds(old: Column, new: Column, word: str) -> bool:
    """Whether each value of `old` is the same value in `new` and in the lake; `word` is the new type's first word."""
    if replace(old, nullable=new.nullable, collation=new.collation) == new:
        return old.kind not in _SIZED or word.startswith("long")
    if old.boolean or new.boolean:
        return False
    if old.kind in INTEGERS and new.kind in INTEGERS:
        return old.unsigned == new.unsigned and INTEGERS.index(old.kind) <= INTEGERS.index(new.kind)
    if old.kind == new.kind == "decimal":
        whole = new.precision - new.scale >= old.precision - old.scale
        return whole and new.scale >= old.scale and old.unsigned == new.unsigned and new.precision <= 38
    if old.kind in ("float", "double") and new.kind in ("float", "double"):
        return old.unsigned == new.unsigned and not (old.kind == "double" and new.kind == "float")
    if old.kind == new.kind and old.kind in ("datetime", "timestamp"):
        return old.fsp <= new.fsp
    if old.kind == new.kind == "bit":
        return 1 < (old.length or 1) <= (new.length or 1) < 64
    if old.kind == new.kind and old.kind in ("enum", "set"):
        return new.labels[: len(old.labels)] == old.labels
    return _has_room(old, new, word)


def _has_room(old: Column, new: Column, word: str) -> bool:
    if old.kind == new.kind == "char" or (old.kind == new.kind and old.kind in ("varchar", "varbinary")):
        return (old.length or 0) <= (new.length or 0)
    family = "text" if old.kind in STRINGS else "bytes"
    grows = old.kind == _ROOM[family][0] and new.kind == _ROOM[family][1]
    return grows and not word.startswith("tiny")
