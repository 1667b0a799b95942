"""Many raw events in one buffer, so that what is the same for each of them is done by compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]

BLOCK_BYTES: Final = 4 << 20
_HEADER_SIZE: Final = 19


@dataclass(frozen=True, slots=True)
class Block:
    """Whole raw events: the i-th is `data[starts[i] : ends[i]]`, header, body and checksum. None of it changes."""

    data: Bytes
    starts: Int64s
    ends: Int64s

    def __len__(self) -> int:
        return self.starts.size

    def __iter__(self) -> Iterator[memoryview]:
        whole = self.data.data
        for start, end in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            yield whole[start:end]

    def event(self, i: int) -> memoryview:
        return self.data.data[int(self.starts[i]) : int(self.ends[i])]

    @property
    def size(self) -> int:
        """Bytes of its events."""
        return int((self.ends - self.starts).sum())

    def after(self, i: int) -> Block:
        """The events from the i-th on, over the same buffer."""
        return Block(self.data, self.starts[i:], self.ends[i:])

    def followed_by(self, other: Block) -> Block:
        """The events of both, in a new buffer."""
        if not len(self):
            return other
        begin, end = int(self.starts[0]), int(self.ends[-1])
        shift = end - begin
        return Block(
            np.concatenate([self.data[begin:end], other.data]),
            np.concatenate([self.starts - begin, other.starts + shift]),
            np.concatenate([self.ends - begin, other.ends + shift]),
        )

    @classmethod
    def of(cls, events: Sequence[bytes | bytearray | memoryview]) -> Block:
        ends = np.cumsum(np.fromiter(map(len, events), np.int64, len(events)), dtype=np.int64)
        data = np.frombuffer(b"".join(events), np.uint8)
        return cls(data, np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(events)], ends)


def split(data: Bytes) -> tuple[Block, int]:
    """The events that follow one another in `data` as in a file, and where the first one begins that is not whole.

    An event shorter than its own header ends the block like one that is cut off: the caller sees what is there of it.
    """
    starts = np.empty(data.size // _HEADER_SIZE + 1, np.int64)
    ends = np.empty_like(starts)
    count, at = _split(data, starts, ends)
    return Block(data, starts[:count], ends[:count]), int(at)


@njit(cache=True, nogil=True)
def _split(data, starts, ends):  # type: ignore[no-untyped-def]
    at = np.int64(0)
    count = 0
    while at + _HEADER_SIZE <= data.size:
        size = np.int64(0)
        for k in range(12, 8, -1):
            size = size << 8 | np.int64(data[at + k])
        if size < _HEADER_SIZE or at + size > data.size:
            break
        starts[count] = at
        at += size
        ends[count] = at
        count += 1
    return count, at
