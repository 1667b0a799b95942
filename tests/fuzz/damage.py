"""Damages to binlog events, as they are told by a random number generator."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Sequence

from servers.handmade import payload

from bronze.binlog.compressed import MALFORMED, payload_events
from bronze.binlog.events import ARTIFICIAL, HEADER, HEADER_SIZE, ROWS, TABLE_MAP, TRANSACTION_PAYLOAD

WINDOW = 14  # events
_MISSTATED = b"!ms!"  # stands before an event; as the first bytes of one it would be a time in 1987
_BEGINS = (33, 34, 42, 162)
_MEATY = (TABLE_MAP, TRANSACTION_PAYLOAD, *ROWS)
_EXTREMES = (0, 1, 2, 3, 0x7F, 0x80, 0xFA, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF)


class Case:
    """Events of one log, to be damaged."""

    def __init__(self, rng: random.Random, logs: Sequence[list[bytes]]) -> None:
        self.rng = rng
        log = rng.choice(logs)
        self.log = log
        self.other = rng.choice(logs)
        size = rng.choice((5, 6, 8, WINDOW))
        begins = [n for n, raw in enumerate(log) if raw[4] in _BEGINS]
        for _ in range(4):  # windows with rows in them are more interesting
            start = rng.choice(begins)
            self.events = [raw[:-4] for raw in log[start : start + size]]
            if any(raw[4] in _MEATY for raw in self.events):
                break
        self.resealed = rng.random() < 0.97
        self.placed = rng.random() < 0.95

    def damage(self) -> None:
        for _ in range(self.rng.choice((1, 1, 1, 2, 3))):
            self.rng.choices(_DAMAGES, _WEIGHTS)[0](self)

    def pick(self) -> int:
        """An event's number; those with rows or a table's description are more interesting."""
        meaty = [n for n, raw in enumerate(self.events) if raw[4] in _MEATY]
        if meaty and self.rng.random() < 0.8:
            return self.rng.choice(meaty)
        return self.rng.randrange(len(self.events))

    def bytes_of(self, n: int) -> None:
        # Behind a row event's numbers come its images.
        start = self.rng.choice((0, 8, 13)) if self.events[n][4] in ROWS else 0
        self.events[n] = self.changed(self.events[n], HEADER_SIZE + start)

    def changed(self, event: bytes, start: int) -> bytes:
        """Some bytes from `start` on are others."""
        data = bytearray(event)
        for _ in range(self.rng.choice((1, 1, 2, 4, 8))):
            if len(data) <= start:
                break
            at = self.rng.randrange(start, len(data))
            kind = self.rng.random()
            if kind < 0.4:
                data[at] ^= 1 << self.rng.randrange(8)
            elif kind < 0.8:
                data[at] = self.rng.choice(_EXTREMES)
            else:
                width = self.rng.choice((2, 4, 8))
                value = self.rng.choice((0, 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1, len(data), 2**31))
                data[at : at + width] = (value % 2 ** (8 * width)).to_bytes(width, "little")[: len(data) - at]
        return bytes(data)

    def resized(self, event: bytes) -> bytes:
        """Bytes are missing, or there are more."""
        at = self.rng.randrange(HEADER_SIZE, len(event) + 1)
        size = self.rng.choice((1, 1, 2, 3, 4, 8, 50))
        kind = self.rng.random()
        if kind < 0.3:
            return event[:at]
        if kind < 0.6:
            return event[:at] + event[at + size :]
        if kind < 0.8:
            return event[:at] + self.rng.randbytes(size) + event[at:]
        return event[:at] + event[max(HEADER_SIZE, at - size) : at] + event[at:]

    # The damages.

    def change(self) -> None:
        self.bytes_of(self.pick())

    def resize(self) -> None:
        n = self.pick()
        self.events[n] = self.resized(self.events[n])

    def retype(self) -> None:
        n = self.pick()
        kinds = [raw[4] for raw in self.other] + [self.rng.randrange(256)]
        event = bytearray(self.events[n])
        event[4] = self.rng.choice(kinds)
        self.events[n] = bytes(event)

    def reflag(self) -> None:
        n = self.pick()
        event = bytearray(self.events[n])
        event[17 + self.rng.randrange(2)] ^= 1 << self.rng.randrange(8)
        self.events[n] = bytes(event)

    def drop(self) -> None:
        del self.events[self.pick()]
        self.events = self.events or [self.other[-1][:-4]]

    def double(self) -> None:
        n = self.pick()
        self.events.insert(self.rng.randrange(len(self.events) + 1), self.events[n])

    def reorder(self) -> None:
        self.rng.shuffle(self.events)

    def splice(self) -> None:
        self.events.insert(self.rng.randrange(len(self.events) + 1), self.rng.choice(self.other)[:-4])

    def graft(self) -> None:
        """The head of one event, the tail of another."""
        n, other = self.pick(), self.rng.choice(self.other)[:-4]
        a, b = (self.rng.randrange(HEADER_SIZE, len(e) + 1) for e in (self.events[n], other))
        self.events[n] = self.events[n][:a] + other[b:]

    def inside(self) -> None:
        """Damage within a compressed transaction or a compressed event, compressed anew."""
        packed = [n for n, e in enumerate(self.events) if e[4] == TRANSACTION_PAYLOAD or 165 <= e[4] <= 171]
        if not packed:
            self.change()
            return
        n = self.rng.choice(packed)
        try:
            self.events[n] = self.repacked(self.events[n])
        except MALFORMED:  # it was damaged before
            self.change()

    def repacked(self, event: bytes) -> bytes:
        head, body = event[:HEADER_SIZE], event[HEADER_SIZE:]
        if head[4] != TRANSACTION_PAYLOAD:
            at = body.index(b"\x78") - 2  # zlib's first byte, after the length's width and the length
            text = self.changed(zlib.decompress(body[at + 2 :]), 0)
            return head + body[:at] + b"\x04" + len(text).to_bytes(4, "big") + zlib.compress(text)
        inner = list(payload_events(body))
        m = self.rng.randrange(len(inner))
        changed = self.changed(inner[m], HEADER_SIZE) if self.rng.random() < 0.7 else self.resized(inner[m])
        inner[m] = changed[:9] + struct.pack("<I", len(changed)) + changed[13:]
        if self.rng.random() < 0.2:
            self.rng.shuffle(inner)
        repacked: bytes = head + payload(inner)
        return repacked

    def misstate(self) -> None:
        """The header says another length than the event has."""
        n = self.pick()
        size = self.rng.choice((0, 18, 19, 2**32 - 1, len(self.events[n]) + self.rng.randrange(-5, 6)))
        self.events[n] = _MISSTATED + self.events[n][:9] + struct.pack("<I", size % 2**32) + self.events[n][13:]

    def sealed(self) -> list[bytes]:
        return as_sent(self.log, self.events, placed=self.placed, resealed=self.resealed)


def as_sent(
    log: Sequence[bytes], events: Sequence[bytes], *, placed: bool = True, resealed: bool = True
) -> list[bytes]:
    """`events` (without checksums) as a server would send them from the start of a file on.

    Lengths are made right, but for events that `misstate` marked; positions and checksums unless told otherwise.
    """
    description = next(raw for raw in log if raw[4] == 15)
    pos = 4 + len(description)
    out = [_rotate(4), description]
    for event in events:
        body = event[len(_MISSTATED) :]
        if not event.startswith(_MISSTATED):
            where = struct.unpack_from("<I", event, 13)[0]
            # MariaDB writes no position into the events of a transaction.
            where = (pos + len(event) + 4) % 2**32 if placed and where else where
            body = event[:9] + struct.pack("<II", len(event) + 4, where) + event[17:]
        pos += len(body) + 4
        out.append(body + (zlib.crc32(body) ^ (not resealed)).to_bytes(4, "little"))
    return out


_DAMAGES = (
    Case.change, Case.resize, Case.retype, Case.reflag, Case.drop, Case.double, Case.reorder, Case.splice, Case.graft,
    Case.inside, Case.misstate,
)  # fmt: skip
_WEIGHTS = (40, 20, 4, 2, 3, 3, 2, 5, 6, 15, 2)


def _rotate(pos: int) -> bytes:
    body = struct.pack("<Q", pos) + b"binlog.000001"
    head = HEADER.pack(0, 4, 1, HEADER_SIZE + len(body) + 4, 0, ARTIFICIAL) + body
    return head + zlib.crc32(head).to_bytes(4, "little")
