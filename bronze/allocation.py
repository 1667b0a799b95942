"""Memory that a task frees stays with its process, for its next batch of rows.

A task fills arrays of a few megabytes, hands them on and frees them, over and over. glibc gives such arrays back to the
system at once, and the system clears each page anew before it is filled again: an eighth of the time of decoding a wide
table. The peak is no higher, since what is freed is what the next batch fills, and Spark ends a Python worker that has
been idle for a minute. `python -m bench.binlog` measures both.
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
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    return all([libc.mallopt(parameter, value) for parameter, value in _SETTINGS])
