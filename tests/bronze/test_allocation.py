"""What a task frees is not fetched from the system again, and goes back to it at the task's end."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is of glibc")

_FILL = """
import resource
import numpy as np
from bronze.allocation import give_back_freed_memory, keep_freed_memory
def filled():
    arrays = [np.full(2 << 20, n, np.uint8) for n in range(40)]
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    filled()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
"""


def _said(program: str) -> int:
    """The number that `program` prints, run behind _FILL in a process of its own."""
    command = [sys.executable, "-c", _FILL + program]
    return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)


def test_memory_that_is_freed_is_filled_again_without_the_system() -> None:
    pages = "filled(); print(sum(faults() for _ in range(10)))"
    assert _said("assert keep_freed_memory();" + pages) * 10 < _said(pages)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_was_kept_goes_back_at_the_end() -> None:
    returned = "keep_freed_memory(); filled(); held = resident(); give_back_freed_memory(); print(held - resident())"
    assert _said(returned) > 60 << 20
