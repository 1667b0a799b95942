"""Memory that a task frees stays with its process until the task ends.

A task fills arrays of a few megabytes, hands them on and frees them, over and over. glibc gives such arrays back to the
system at once, and the system clears each page anew before it is filled again: an eighth of the time of decoding a wide
table. What is freed is what the next batch fills, so the peak is no higher; and at the task's end it goes back, since
Spark gives the next task to another of its Python workers. `python -m bench.binlog` measures both.
"""

from __future__ import annotations

import ctypes
import functools
import platform
from typing import Final

_SETTINGS: Final = (  # of malloc.h
    (-3, 32 << 20),  # M_MMAP_THRESHOLD: the most that glibc takes; larger arrays are the system's as ever
    (-1, 512 << 20),  # M_TRIM_THRESHOLD
    (-2, 64 << 20),  # M_TOP_PAD
)


@functools.cache
def keep_freed_memory() -> bool:
    """From now on this process keeps what it frees; False where the C library is not glibc, or refuses."""
    libc = _glibc()
    return libc is not None and all(libc.mallopt(parameter, value) for parameter, value in _SETTINGS)


def give_back_freed_memory() -> None:
    """Give the system what was kept."""
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None
