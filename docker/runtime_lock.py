"""Prints requirements.lock without what only tests and lint need: what the image installs.

    python docker/runtime_lock.py requirements.in requirements.lock

One lock stays the only list of versions and hashes. It says of each package who asked for it; kept is what
requirements.in asks for above its line DEVELOPMENT, and what that needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

DEVELOPMENT = "# === development:"


def runtime_lock(asked: str, locked: str) -> str:
    """The entries of the lock `locked` that the part of `asked` above DEVELOPMENT leads to, as they stand."""
    above, line, _ = asked.partition(DEVELOPMENT)
    if not line:
        raise SystemExit(f"requirements.in has no line that begins with {DEVELOPMENT!r}")
    wanted = {_name(text) for text in above.splitlines() if text and not text.startswith("#")}
    # A package has several entries where its version depends on Python's.
    entries = [(_name(entry), entry) for entry in re.split(r"^(?=[a-z0-9])", locked, flags=re.MULTILINE)[1:]]
    if missing := wanted - {name for name, _ in entries}:
        raise SystemExit(f"requirements.lock lacks {', '.join(sorted(missing))}: run `make lock`")
    while more := {name for name, entry in entries if _askers(entry) & wanted} - wanted:
        wanted |= more
    return "".join(entry for name, entry in entries if name in wanted)


def _name(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None, requirement
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def _askers(entry: str) -> set[str]:
    """The packages in an entry's `# via`, on its line or on the lines that follow it."""
    _, _, via = entry.partition("# via")
    names = (line.strip().removeprefix("#").strip() for line in via.splitlines())
    return {_name(name) for name in names if name and not name.startswith("-r ")}


def main(files: Sequence[str]) -> None:
    asked, locked = (Path(file).read_text(encoding="utf-8") for file in files)
    print(runtime_lock(asked, locked), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
