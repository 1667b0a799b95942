"""What the figures were measured on, and how much memory a tree of processes takes."""

from __future__ import annotations

import os
import platform
import threading
from pathlib import Path
from types import TracebackType

_POLL_S = 0.25


def shape() -> str:
    """Cores, memory, load and system in a line."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return (
        f"{len(os.sched_getaffinity(0))} cores, {pages / (1 << 30):.0f} GiB, load {load} (1, 5, 15 min), "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


class Peak:
    """While it is entered: the largest sum of the resident memory of this process and all below it, in bytes, and
    the largest of each kind, which need not be at the same time: this process ("driver"), "JVM", "workers".

    A page that several processes share counts once for each (a forked worker begins as a copy of its parent), so the
    sum is an upper bound.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.kinds = {"driver": 0, "JVM": 0, "workers": 0}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.is_set():
            now = dict.fromkeys(self.kinds, 0)
            for pid in tree(os.getpid()):
                now["driver" if pid == os.getpid() else "JVM" if _is_java(pid) else "workers"] += _resident(pid)
            self.bytes = max(self.bytes, sum(now.values()))
            self.kinds = {kind: max(size, now[kind]) for kind, size in self.kinds.items()}
            self._over.wait(_POLL_S)


def tree(root: int) -> list[int]:
    """`root` and the processes below it, but for servers of the benchmark's own (they are in sessions of their own)."""
    children: dict[int, list[int]] = {}
    session = os.getsid(root)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[3]) == session:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, ahead = [], [root]
    while ahead:
        pid = ahead.pop()
        found.append(pid)
        ahead += children.get(pid, [])
    return found


def processor_seconds(root: int) -> float:
    """User and system time of `root` and the processes below it, those that have ended and been waited for included."""
    ticks = 0
    for pid in tree(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(x) for x in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0
