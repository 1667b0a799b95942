"""A real MySQL 9 for the tests, without Docker and without root.

Where apt is, Debian's own packages of its unstable suite are downloaded once, through an apt whose state is private to
the cache folder, and unpacked, never installed. The mirror is the one this machine's apt is set up with. The
programs are newer than this system's libraries, so they run through the loader and the libraries that came along.
Elsewhere a `mysqld` 9 on PATH is taken, and without one the tests for MySQL fail with what to install.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from lakeward.artifacts import cache_dir
from lakeward.embedded.binaries import ServerBinary, probe, publish, server_on_path

SUITE = "unstable"
PACKAGES = ("mysql-server-core", "mysql-client-core")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
NEWEST_LTS = (8, 4, 0)
MISSING = "install MySQL 9 so that mysqld is on PATH (macOS: brew install mysql), or set LAKEWARD_TEST_SERVERS=mariadb"
_TIMEOUT_S = 900

_WRAPPER = """\
#!/bin/sh
# Written by tests/servers/mysql_binaries.py, which says why.
exec {loader} --library-path {libraries} {program} "$@"
"""


def mysql_binary() -> ServerBinary:
    """MySQL's server program, 8.4 or newer from PATH, else from Debian's packages. Fails with what to install."""
    found = server_on_path("mysql")
    if found is not None and found.version >= NEWEST_LTS:
        return found
    home = unpacked()
    return probe(
        home / "bin" / "mysqld", basedir=home / "usr", arguments=(f"--lc-messages-dir={home}/usr/share/mysql",)
    )


def mysqlbinlog() -> Path:
    """The program that prints a binlog, of the same version as `mysql_binary`."""
    found = server_on_path("mysql")
    if found is not None and found.version >= NEWEST_LTS and (on_path := shutil.which("mysqlbinlog")):
        return Path(on_path)
    return unpacked() / "bin" / "mysqlbinlog"


def unpacked() -> Path:
    """The folder that holds the unpacked packages and `bin/` with their wrappers; made once, whole or not at all."""
    home = cache_dir() / "servers" / f"mysql-{SUITE}"
    if home.is_dir():
        return home
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise RuntimeError(f"there is no MySQL server: {MISSING}")
    home.parent.mkdir(parents=True, exist_ok=True)
    with open(home.parent / f"{home.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.is_dir():
            print("lakeward tests: fetching MySQL's packages (about 60 MB, once)", flush=True)
            _make(home)
    return home


def _make(home: Path) -> None:
    draft = Path(tempfile.mkdtemp(prefix=f".{home.name}.", dir=home.parent))
    try:
        for package in _download(draft / "apt"):
            _run(["dpkg-deb", "-x", str(package), str(draft / "root")])
        root = draft / "root"
        (root / "bin").mkdir(exist_ok=True)
        loader = next(iter(sorted(root.glob("usr/lib*/ld-linux*.so*")) + sorted(root.glob("lib*/ld-linux*.so*"))))
        libraries = [str(home / p.relative_to(root)) for p in sorted(root.glob("usr/lib/*-linux-gnu*")) if p.is_dir()]
        for program in (root / "usr/sbin/mysqld", root / "usr/bin/mysqlbinlog", root / "usr/bin/mysql"):
            wrapper = root / "bin" / program.name
            text = _WRAPPER.format(
                loader=home / loader.relative_to(root),
                libraries=":".join(libraries),
                program=home / program.relative_to(root),
            )
            wrapper.write_text(text)
            wrapper.chmod(0o755)
        publish(root, home)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _download(folder: Path) -> list[Path]:
    """The packages and everything they depend on, as .deb files."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (folder / "sources.list").write_text(f"deb {signed}{_mirror()} {SUITE} main\n")
    configuration = folder / "apt.conf"
    configuration.write_text(_configuration(folder))
    environment = {**os.environ, "APT_CONFIG": str(configuration), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    _run(["apt-get", "--quiet", "--error-on=any", "update"], environment)
    _run(
        ["apt-get", "--quiet", "--yes", "--download-only", "--no-install-recommends", "install", *PACKAGES], environment
    )
    packages = sorted((folder / "cache" / "archives").glob("*.deb"))
    if not packages:
        raise RuntimeError(f"apt downloaded nothing: {MISSING}")
    return packages


def _configuration(folder: Path) -> str:
    """apt's own settings for the network (a proxy, a certificate), and nothing else of this machine's apt: it
    knows of no installed package, runs no hook and writes to `folder` alone."""
    settings = _run(["apt-config", "dump"]).splitlines()
    network = [line for line in settings if line.startswith(("Acquire::", "APT::Architecture"))]
    return "\n".join(
        [
            *network,
            'Dir::Etc::Main "/dev/null";',
            'Dir::Etc::Parts "/dev/null";',
            f'Dir::Etc::SourceList "{folder}/sources.list";',
            'Dir::Etc::SourceParts "/dev/null";',
            'Dir::Etc::Preferences "/dev/null";',
            'Dir::Etc::PreferencesParts "/dev/null";',
            f'Dir::State "{folder}/state";',
            f'Dir::State::status "{folder}/status";',
            f'Dir::Cache "{folder}/cache";',
            f'Dir::Log "{folder}";',
            'Debug::NoLocking "true";',
            'APT::Sandbox::User "";',
            'Acquire::Languages "none";',
            'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";',
            'Acquire::Retries "3";',
            "",
        ]
    )


def _mirror() -> str:
    """The address of Debian's archive that this machine's apt uses, whichever format its sources have."""
    said = _run(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
    pairs = [line.split() for line in said.splitlines()]
    mirrors = [pair[0] for pair in pairs if len(pair) == 2 and "security" not in pair[1] and "/debian" in pair[0]]
    if not mirrors:
        raise RuntimeError(f"this machine's apt has no Debian archive among its sources: {MISSING}")
    return mirrors[0]


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-5:]
        raise RuntimeError(f"{' '.join(command[:3])} failed: {' / '.join(said)}; {MISSING}")
    return done.stdout
