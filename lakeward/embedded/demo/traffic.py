"""Bursts of changes on the demo database: what its users would do in a busy minute.

Promise: a burst is a function of its seed and of the rows it finds. It takes no clock and no generated key from the
server, so the same seed on two equal databases leaves two equal databases. Each of its transactions is one that an
application would make; a reservation writes the reservation, the thing's state, the outbox and the log, or nothing.
"""

from __future__ import annotations

import datetime
import json
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymysql.connections import Connection

from lakeward.embedded.demo.load import BEGIN, person, point, some_tags, trip_details


@dataclass(frozen=True)
class TrafficReport:
    """What a burst did, in transactions and rows."""

    seed: int
    transactions: int
    inserted: int
    updated: int
    deleted: int

    def __str__(self) -> str:
        return (
            f"{self.transactions} transactions (seed {self.seed}): {self.inserted} rows inserted, "
            f"{self.updated} updated, {self.deleted} deleted"
        )


def burst(connection: Connection, *, seed: int, transactions: int = 200) -> TrafficReport:
    """Makes `transactions` transactions in the connection's default database. Raises what the server says; the
    transaction at fault is rolled back, those before it stay."""
    with connection.cursor() as cursor:
        # The burst's values are UTC, and affected rows are the changed ones.
        cursor.execute("SET time_zone = '+00:00'")
        traffic = _Burst(cursor, random.Random(seed))
        actions, weights = zip(*_ACTIONS.items(), strict=True)
        for action in traffic.rng.choices(actions, weights, k=transactions):
            connection.begin()
            try:
                action(traffic)
                connection.commit()
            except BaseException:
                connection.rollback()
                raise
    return TrafficReport(seed, transactions, **traffic.rows)


class _Burst:
    """One burst: its dice, its clock, its count."""

    def __init__(self, cursor: Any, rng: random.Random) -> None:
        self.cursor = cursor
        self.rng = rng
        self.rows = {"inserted": 0, "updated": 0, "deleted": 0}
        self._clock = BEGIN
        newest = [
            self.value("SELECT MAX(requested_at) FROM trips"),
            self.value("SELECT MAX(happened_at) FROM audit_log"),
        ]
        self._clock = max([BEGIN, *(at for at in newest if at)])

    def now(self) -> datetime.datetime:
        """A moment later than every one before it, to the microsecond."""
        self._clock += datetime.timedelta(seconds=self.rng.randint(1, 40), microseconds=self.rng.randint(0, 999_999))
        return self._clock

    def write(self, sql: str, *args: Any) -> None:
        kind = {"INSERT": "inserted", "UPDATE": "updated", "DELETE": "deleted"}[sql.split(maxsplit=1)[0]]
        self.rows[kind] += self.cursor.execute(sql, args)

    def value(self, sql: str, *args: Any) -> Any:
        self.cursor.execute(sql, args or None)
        row = self.cursor.fetchone()
        return row[0] if row else None

    def pick(self, columns: str, rest: str) -> tuple[Any, ...] | None:
        """One of the rows of `SELECT columns FROM rest`, which is ordered by a key; None when there is none."""
        count = self.value(f"SELECT COUNT(*) FROM {rest}")
        if not count:
            return None
        self.cursor.execute(f"SELECT {columns} FROM {rest} LIMIT 1 OFFSET {self.rng.randrange(count)}")
        row: tuple[Any, ...] = self.cursor.fetchone()
        return row

    def next_id(self, table: str) -> int:
        """Given, not generated: an interrupted transaction would leave a gap in the server's own numbers."""
        return int(self.value(f"SELECT COALESCE(MAX(id), 0) + 1 FROM {table}"))

    def log(self, actor: str, action: str, line: str) -> None:
        at = self._clock.replace(microsecond=0)
        self.write("INSERT INTO audit_log VALUES (%s, %s, %s, %s)", at, actor, action, line)

    def tell(self, kind: str, key: str, event: str, **payload: Any) -> None:
        row = (self.next_id("cdc_outbox"), kind, key, event, json.dumps(payload), self._clock)
        self.write("INSERT INTO cdc_outbox VALUES (%s, %s, %s, %s, %s, %s)", *row)


def _request_trips(b: _Burst) -> None:
    region = b.pick("id", "regions ORDER BY id")
    for _ in range(b.rng.choice([1, 1, 1, 3])):
        number, at = b.next_id("trips"), b.now()
        pickup = point(round(b.rng.uniform(-180, 180), 5), round(b.rng.uniform(-80, 80), 5))
        row = (number, region and region[0], person(b.rng), at, some_tags(b.rng), pickup, trip_details(b.rng))
        b.write(
            "INSERT INTO trips (id, region_id, rider, requested_at, tags, pickup, details) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s)",
            *row,
        )


def _start_trip(b: _Burst) -> None:
    trip = b.pick("id", "trips WHERE status = 'requested' ORDER BY id")
    driver = b.pick("id", "drivers WHERE state <> 'riding' ORDER BY id")
    if trip is None or driver is None:
        return
    at = b.now()
    b.write(
        "UPDATE trips SET status = 'riding', driver_id = %s, started_at = %s WHERE id = %s", driver[0], _ms(at), trip[0]
    )
    b.write("UPDATE drivers SET state = 'riding', seen_at = %s WHERE id = %s", at, driver[0])


def _finish_trip(b: _Burst) -> None:
    trip = b.pick("id, driver_id", "trips WHERE status = 'riding' ORDER BY id")
    if trip is None:
        return
    at = b.now()
    b.write(
        "UPDATE trips SET status = 'finished', finished_at = %s, fare = %s, distance_km = %s WHERE id = %s",
        _ms(at),
        f"{b.rng.uniform(3, 120):.2f}",
        b.rng.uniform(0.4, 60),
        trip[0],
    )
    b.write("UPDATE drivers SET state = 'waiting', seen_at = %s WHERE id = %s", at, trip[1])


def _rate_trip(b: _Burst) -> None:
    trip = b.pick("id", "trips WHERE status = 'finished' ORDER BY id")
    if trip is not None:
        b.write("UPDATE trips SET rating = %s WHERE id = %s", b.rng.choice([None, 1, 2, 3, 4, 5]), trip[0])


def _forget_trips(b: _Burst) -> None:
    for _ in range(b.rng.randint(1, 3)):
        trip = b.pick("id", "trips WHERE status IN ('cancelled', 'requested') ORDER BY id")
        if trip is not None:
            b.write("DELETE FROM trips WHERE id = %s", trip[0])


def _reserve(b: _Burst) -> None:
    thing = b.pick("id, day_price", "things WHERE state = 'free' ORDER BY id")
    user = b.pick("id", "users ORDER BY id")
    if thing is None or user is None:
        return
    at, days = b.now(), b.rng.randint(1, 14)
    day = at.date() + datetime.timedelta(days=b.rng.randint(0, 60))
    total = thing[1] * days
    key = (user[0], thing[0], day)
    if b.value("SELECT 1 FROM reservations WHERE user_id = %s AND thing_id = %s AND from_day = %s", *key):
        return
    b.write("INSERT INTO reservations VALUES (%s, %s, %s, %s, %s, 'active', %s)", *key, days, total, at)
    b.write("UPDATE things SET state = 'reserved', changed_at = %s WHERE id = %s", at, thing[0])
    event = {"user": user[0], "thing": thing[0], "from": str(day), "days": days, "total": str(total)}
    b.tell("reservation", "-".join(map(str, key)), "reserved", **event)
    b.log(f"user{user[0]}", "reserve", f"thing {thing[0]}")


def _return(b: _Burst) -> None:
    key = b.pick("user_id, thing_id, from_day", f"reservations WHERE state = 'active' ORDER BY {_RESERVATION_KEY}")
    if key is None:
        return
    at, state = b.now(), b.rng.choice(["returned", "returned", "cancelled"])
    b.write("UPDATE reservations SET state = %s WHERE user_id = %s AND thing_id = %s AND from_day = %s", state, *key)
    b.write("UPDATE things SET state = 'free', changed_at = %s WHERE id = %s", at, key[1])
    b.tell("reservation", "-".join(map(str, key)), state, user=key[0], thing=key[1])


def _postpone(b: _Burst) -> None:
    """Changes a part of a primary key."""
    key = b.pick("user_id, thing_id, from_day", f"reservations ORDER BY {_RESERVATION_KEY}")
    if key is None:
        return
    later = key[2] + datetime.timedelta(days=b.rng.randint(1, 30))
    if b.value("SELECT 1 FROM reservations WHERE user_id = %s AND thing_id = %s AND from_day = %s", *key[:2], later):
        return
    sql = "UPDATE reservations SET from_day = %s WHERE user_id = %s AND thing_id = %s AND from_day = %s"
    b.write(sql, later, *key)


def _rename_prospect(b: _Burst) -> None:
    """Changes a primary key that is a string."""
    old = b.pick("code", "countries WHERE code NOT IN (SELECT country_code FROM regions) ORDER BY code")
    new = "".join(b.rng.choices(string.ascii_uppercase, k=2))
    if old is not None and not b.value("SELECT 1 FROM countries WHERE code = %s", new):
        b.write("UPDATE countries SET code = %s WHERE code = %s", new, old[0])


def _change_user(b: _Burst) -> None:
    if b.rng.random() < 0.5:
        number = b.next_id("users")
        row = (number, f"user{number}.{b.rng.getrandbits(32):08x}@example.com", f"$2b$12${b.rng.getrandbits(200):050x}")
        at = b.now().replace(microsecond=0)
        b.write(
            "INSERT INTO users (id, email, password, name, created_at) VALUES (%s, %s, %s, %s, %s)",
            *row,
            person(b.rng),
            at,
        )
        return
    user = b.pick("id", "users ORDER BY id")
    if user is not None:
        b.write("UPDATE users SET balance = balance + %s WHERE id = %s", f"{b.rng.uniform(-20, 90):.4f}", user[0])


def _remove_user(b: _Burst) -> None:
    user = b.pick("id", "users WHERE id NOT IN (SELECT user_id FROM reservations) ORDER BY id")
    if user is not None:
        b.write("DELETE FROM users WHERE id = %s", user[0])


def _rush_hour(b: _Burst) -> None:
    """One statement, many rows."""
    region = b.pick("id", "regions ORDER BY id")
    if region is not None:
        b.write("UPDATE regions SET surge = %s WHERE id = %s", round(b.rng.uniform(0.8, 2.5), 2), region[0])
        b.write(
            "UPDATE drivers SET state = 'waiting', seen_at = %s WHERE region_id = %s AND state = 'off'",
            b.now(),
            region[0],
        )


def _write_log(b: _Burst) -> None:
    """Equal rows of the table without a key, and the end of the oldest ones."""
    b.now()
    for _ in range(b.rng.randint(1, 2)):
        b.log("system", "tick", "a row like another")
    if b.rng.random() < 0.3:
        b.write("DELETE FROM audit_log WHERE happened_at = %s", b.value("SELECT MIN(happened_at) FROM audit_log"))


def _ms(at: datetime.datetime) -> datetime.datetime:
    """To the millisecond, so that the server has nothing to round."""
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


_RESERVATION_KEY = "user_id, thing_id, from_day"
_ACTIONS: dict[Callable[[_Burst], None], int] = {
    _request_trips: 20,
    _start_trip: 15,
    _finish_trip: 15,
    _rate_trip: 8,
    _forget_trips: 6,
    _reserve: 14,
    _return: 8,
    _postpone: 3,
    _rename_prospect: 2,
    _change_user: 6,
    _remove_user: 2,
    _rush_hour: 3,
    _write_log: 4,
}
