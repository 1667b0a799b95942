"""Foreign keys whose actions the engine carries out by itself, so that the binlog does not say what they did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from lakeward.names import TableName
from lakeward.position import Position

Action = Literal["", "CASCADE", "SET NULL"]  # "": the server refuses what would break the reference
KEPT_MAX = 50  # of a table, with those that are gone


@dataclass(frozen=True)
class ForeignKey:
    """A child's reference: its `columns` name a row of `parent` by that table's `referenced`, in this order.

    It holds for the parent's events in [since, until); None is no bound.
    """

    name: str
    columns: tuple[str, ...]
    parent: TableName
    referenced: tuple[str, ...]
    on_delete: Action
    on_update: Action
    since: Position | None = None
    until: Position | None = None

    def holds(self, at: Position) -> bool:
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)

    def to_json(self) -> dict[str, Any]:
        places = {n: p.to_json() if p else None for n, p in (("since", self.since), ("until", self.until))}
        return {**asdict(self), "parent": list(self.parent), **places}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> ForeignKey:
        words = {n: tuple(doc[n]) for n in ("columns", "referenced")}
        places = {n: Position.from_json(doc[n]) if doc.get(n) else None for n in ("since", "until")}
        return cls(**{**doc, **words, **places, "parent": TableName(*doc["parent"])})


def followed(known: Sequence[ForeignKey] | None, found: Sequence[ForeignKey], at: Position) -> list[ForeignKey]:
    """`found` is what a table has, `known` what it had (None: nobody looked). What differs does so from `at` on."""
    if known is None:
        return list(found)
    plain = {replace(key, since=None): key for key in known if key.until is None}
    kept = [replace(k, until=at) if k.until is None and replace(k, since=None) not in found else k for k in known]
    return (kept + [replace(key, since=at) for key in found if key not in plain])[-KEPT_MAX:]
