"""MySQL's packets off a connection that only listens, many at a time.

A driver reads a packet with several calls, which for small events takes longer than everything that is done with
them. Here a block is filled with whatever has arrived and cut up by compiled code. Order is checked by the packets'
sequence numbers.

Source: MySQL, "MySQL Packets" in the client/server protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numba import njit

from bronze.binlog.blocks import BLOCK_BYTES, Block

_HEAD: Final = 4
_LONGEST: Final = 0xFFFFFF  # a packet of this length goes on in the next one
_MORE, _OTHER, _DISORDER = range(3)


class Packets:
    """Iterating gives Blocks of the packets that begin with 0x00, without that byte, and any other packet as bytes.

    `read_into` fills a part of a buffer and says how much, 0 at the end; `ready` says whether it would not have to
    wait: what is there is given out before a wait, and a block has `size` bytes otherwise. `sequence` is the first
    packet's number. Raises EOFError where the connection ends, and ConnectionError for packets out of order.
    """

    def __init__(
        self, read_into: Callable[[memoryview], int], ready: Callable[[], bool], sequence: int, size: int = BLOCK_BYTES
    ) -> None:
        self._size = size
        self._read_into = read_into
        self._ready = ready
        self._sequence = sequence
        self._data = np.empty(size, np.uint8)
        self._at = 0  # where the next packet begins
        self._fill = 0

    def __iter__(self) -> Iterator[Block | bytes]:
        while True:
            room = self._data.size // (_HEAD + 1) + 1
            starts, ends = np.empty(room, np.int64), np.empty(room, np.int64)
            count = 0
            while True:
                found, self._at, self._sequence, code = _packets(
                    self._data, self._at, self._fill, self._sequence, starts, ends, count
                )
                count = int(found)
                if code == _DISORDER:
                    raise ConnectionError("packets of the binlog dump came out of order")
                if code == _OTHER or self._fill == self._data.size or (count and not self._ready()):
                    break
                if not self._read():
                    if count:
                        break
                    raise EOFError("the server closed the connection")
            if count:
                yield Block(self._data, starts[:count], ends[:count])
            self._renew()
            if code == _OTHER:
                yield self._whole()

    def _read(self) -> int:
        got = self._read_into(self._data.data[self._fill :])
        self._fill += got
        return got

    def _renew(self, room: int = 0) -> None:
        """A new buffer, for what was given out is not written to again; it begins with what is left over."""
        left = self._data[self._at : self._fill]
        if left.size >= _HEAD:
            room = max(room, _HEAD + _length(left) + 1)
        self._data = np.empty(max(self._size, room, left.size + 1), np.uint8)
        self._data[: left.size] = left
        self._at, self._fill = 0, left.size

    def _whole(self) -> bytes:
        """The packet that comes next, and those that it goes on in."""
        parts = []
        length = _LONGEST
        while length == _LONGEST:
            self._need(_HEAD)
            if self._data[self._at + 3] != self._sequence:
                raise ConnectionError("packets of the binlog dump came out of order")
            self._sequence = (self._sequence + 1) & 0xFF
            length = _length(self._data[self._at :])
            self._need(_HEAD + length)
            parts.append(self._data[self._at + _HEAD : self._at + _HEAD + length].tobytes())
            self._at += _HEAD + length
        return b"".join(parts)

    def _need(self, size: int) -> None:
        if self._at + size > self._data.size:
            self._renew(size)
        while self._fill - self._at < size:
            if not self._read():
                raise EOFError("the server closed the connection inside a packet")


def _length(packet: np.ndarray) -> int:
    return int.from_bytes(packet[:3].tobytes(), "little")


@njit(cache=True, nogil=True)
def _packets(data, at, fill, sequence, starts, ends, count):  # type: ignore[no-untyped-def]
    while at + _HEAD <= fill:
        length = np.int64(data[at]) | np.int64(data[at + 1]) << 8 | np.int64(data[at + 2]) << 16
        if length == _LONGEST or length == 0:
            return count, at, sequence, _OTHER
        if at + _HEAD + 1 > fill:
            break
        if data[at + _HEAD] != 0:
            return count, at, sequence, _OTHER
        if at + _HEAD + length > fill:
            break
        if data[at + 3] != sequence:
            return count, at, sequence, _DISORDER
        sequence = (sequence + 1) & 0xFF
        starts[count] = at + _HEAD + 1
        at += _HEAD + length
        ends[count] = at
        count += 1
    return count, at, sequence, _MORE
