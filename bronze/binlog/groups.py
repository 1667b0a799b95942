"""The rows of a transaction that is not over yet: held, since it may still be undone in part or whole.

Both servers write rows that never took effect. MariaDB logs a rolled-back transaction whole, with ROLLBACK at its end,
when a temporary table was made in it, and logs `ROLLBACK TO` a savepoint when another table of it cannot be rolled
back (the rows of such a table stand in a transaction of their own). An XA transaction is logged when it is prepared
and takes effect when it is committed, any time later. So rows are let go only at the commit. A transaction too large
to be held is let go as it is read; should it turn out to be undone after that, the run stops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from bronze.binlog.bodies import Gtid, MariadbGtid
from bronze.binlog.events import Place
from bronze.binlog.items import RowsEvent, Statement, Transaction
from lakeward.errors import FailClosedError

HELD_BYTES_MAX: Final = 16 << 20  # of one transaction's row images
PREPARED_BYTES_MAX: Final = 64 << 20  # of all prepared XA transactions
XA_WAIT_S: Final = 300  # that nothing resumes after a prepare, since its commit is on its way as a rule

Item = RowsEvent | Statement


class Group:
    """A transaction from its GTID or BEGIN to its end."""

    def __init__(self, transaction: Transaction, begin: Place, *, begun: bool) -> None:
        self.transaction = transaction
        self.begin = begin
        self.begun = begun  # rows may follow until a commit; else the next statement is all there is
        self.xa = False  # takes effect at a later commit
        self.gtid: Gtid | MariadbGtid | None = None
        self.effective = True  # False for the halves of a two-phase ALTER that change nothing
        self.held: list[Item] = []
        self.held_bytes = 0
        self.let_go = False
        self.savepoints: dict[str, int] = {}

    def hold(self, item: Item) -> Iterable[Item]:
        """Take an item; gives back what may go out now, which is nothing unless the transaction is a large one."""
        if self.let_go:
            return (item,)
        self.held.append(item)
        if isinstance(item, RowsEvent):
            self.held_bytes += len(item.images)
        if self.held_bytes <= HELD_BYTES_MAX:
            return ()
        if self.xa:
            if self.held_bytes > PREPARED_BYTES_MAX:
                raise _too_large(self.begin)
            return ()
        self.let_go = True
        items, self.held = self.held, []
        return items

    def savepoint(self, name: str) -> None:
        self.savepoints[name] = len(self.held)

    def rollback_to(self, name: str, place: Place) -> None:
        """Drop what came after the savepoint. Raises FailClosedError where that is not known, or already out."""
        if self.let_go or name not in self.savepoints:
            raise self._undone(place)
        kept = self.savepoints[name]
        del self.held[kept:]
        self.savepoints = {n: at for n, at in self.savepoints.items() if at <= kept}

    def roll_back(self, place: Place) -> None:
        """Drop everything. Raises FailClosedError where some of it is already out."""
        if self.let_go:
            raise self._undone(place)
        self.held.clear()

    def _undone(self, place: Place) -> FailClosedError:
        return place.error(
            "a transaction was rolled back after so much of it was read that it could not be held",
            hint="`lakeward resnapshot` the tables it touched",
            transaction=self.transaction.id,
        )


class Prepared:
    """XA transactions that are prepared and neither committed nor rolled back.

    One may stay so for ever, when the program that prepared it died. So after XA_WAIT_S it is still held, but a read
    may resume behind it. If it is committed after that, its rows are not known, and all tables are read again.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[Item]] = {}
        self._since: dict[str, int] = {}  # when each was prepared, in seconds since 1970 UTC
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def awaited(self, now: float) -> bool:
        """Whether the end of one may still be on its way."""
        return any(now - since <= XA_WAIT_S for since in self._since.values())

    def put(self, xid: str, group: Group, seconds: int) -> None:
        """Raises FailClosedError when all that is prepared is more than may be held."""
        self._held[xid], self._since[xid] = group.held, seconds
        self._bytes += group.held_bytes
        if self._bytes > PREPARED_BYTES_MAX:
            raise _too_large(group.begin)

    def take(self, xid: str, place: Place, transaction: Transaction) -> list[Item] | None:
        """The items of a transaction now committed, standing at the commit; None where its prepare was not read.

        They stand at the commit because that is when they took effect: a snapshot between the two did not see them.
        """
        held = self._held.pop(xid, None)
        self._since.pop(xid, None)
        if held is None:
            return None
        self._bytes -= sum(len(item.images) for item in held if isinstance(item, RowsEvent))
        return [_at(item, place, transaction) for item in held]


def _at(item: Item, place: Place, transaction: Transaction) -> Item:
    if isinstance(item, RowsEvent):
        return replace(item, file=place.file, pos=place.pos, in_payload=True, transaction=transaction)
    return replace(item, file=place.file, pos=place.pos, transaction=transaction)


def _too_large(begin: Place) -> FailClosedError:
    return begin.error(
        f"a prepared XA transaction has more than {PREPARED_BYTES_MAX >> 20} MiB of rows, too much to hold",
        hint="commit large changes without XA; `lakeward resnapshot` the tables it touched",
    )
