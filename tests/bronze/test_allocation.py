"""What a task frees is not fetched from the system again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

_FILLS = """
import resource
import numpy as np
from bronze.allocation import keep_freed_memory
if {kept}:
    assert keep_freed_memory()
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    arrays = [np.full(2 << 20, n, np.uint8) for n in range(40)]
    del arrays
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(sum(faults() for _ in range(10)))
"""


def _faults(kept: bool) -> int:
    """Pages that ten batches of 80 MiB each made the system clear, after a first one."""
    done = subprocess.run(
        [sys.executable, "-c", _FILLS.format(kept=kept)], capture_output=True, text=True, check=True, timeout=60
    )
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is of glibc")
def test_memory_that_is_freed_is_filled_again_without_the_system() -> None:
    assert _faults(kept=True) * 10 < _faults(kept=False)
