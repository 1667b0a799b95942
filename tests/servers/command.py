"""`lakeward` as a process of its own, with all it starts, that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

LAKEWARD = str(Path(sys.executable).with_name("lakeward"))


def run_lakeward(
    folder: Path, password: str, *arguments: str, kill_after_s: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """`lakeward …` in the lake's folder. Its returncode is -9 when it was killed, by itself or after `kill_after_s`.

    It runs in a process group of its own, and Java and Python workers with it: a kill takes them all, as pulling the
    plug would.
    """
    env = {**os.environ, "SOURCE_PASSWORD": password, "LAKEWARD_SPARK_MASTER": "local[2]", **environment}
    process = subprocess.Popen(
        [LAKEWARD, *arguments],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=kill_after_s or 1200)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
