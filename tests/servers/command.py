"""`lakeward` as a process of its own, with all it starts, that can be killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

LAKEWARD = str(Path(sys.executable).with_name("lakeward"))


def run_lakeward(
    folder: Path,
    password: str,
    *arguments: str,
    kill_after_s: float | None = None,
    limit_s: float = 1200,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """`lakeward …` in the lake's folder. Its returncode is -9 when it was killed, by itself or after `kill_after_s`.

    It runs in a process group of its own, and Java and Python workers with it: a kill takes them all, as pulling the
    plug would. Raises TimeoutExpired where it was not to be killed and takes longer than `limit_s`.
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
        out, err = process.communicate(timeout=limit_s if kill_after_s is None else kill_after_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        if kill_after_s is None:
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)
