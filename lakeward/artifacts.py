"""Fetches what Lakeward runs on from Maven Central once, and keeps it.

Promise: a folder of artifacts is either whole or not there. Ivy (its jar comes with pyspark, so there is
nothing to install) downloads into a draft folder, checks the checksums, and the finished folder is renamed
into place with a list of its files and sizes. A killed download leaves only a draft, and a folder that lost a
file later is fetched again. When the folder is whole, neither the network nor Java is touched.

Ivy's default settings name the repository, so that nothing here does; a mirror or a proxy with credentials is
given as an Ivy settings file in LAKEWARD_IVY_SETTINGS.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import quoteattr

from lakeward.errors import TerminalError, TransientError
from lakeward.java import java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import IO

_LISTING = "artifacts.json"
_PATTERN = "[artifact]-[revision](-[classifier]).[ext]"
_DETAIL_LINES_MAX = 3
_DOTS_A_DOT = 640


def cache_dir() -> Path:
    """Lakeward's cache folder, absolute and created; everything in it can be fetched or made again.

    LAKEWARD_CACHE, else `lakeward` under XDG_CACHE_HOME, else `~/.cache/lakeward`; `./.cache/lakeward` where
    that cannot be written (a HOME that is read-only, or none). A LAKEWARD_CACHE that cannot be written raises
    TerminalError: it was asked for.
    """
    if asked := os.environ.get("LAKEWARD_CACHE"):
        if not _writable(Path(asked)):
            raise TerminalError(
                f"The cache folder {asked} cannot be written.",
                hint="set LAKEWARD_CACHE to a folder that this user may write, or unset it",
            )
        return Path(asked).absolute()
    under = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    home = Path(under) / "lakeward"
    if home.is_absolute() and _writable(home):
        return home
    here = Path.cwd() / ".cache" / "lakeward"
    here.mkdir(parents=True, exist_ok=True)
    return here


def resolve(coordinates: Sequence[str], *, name: str, transitive: bool = True) -> list[Path]:
    """Local files of the Maven artifacts `group:artifact:version`, fetched at the first call and kept.

    A fourth part is a classifier: `group:artifact:version:tests`. With `transitive` their run-time dependencies come
    too. The files lie in `cache_dir()/jars/<name>-<hash of what was asked>/`; they come back sorted by name. Progress
    goes to stderr.

    Raises TransientError when the repository cannot be reached or the disk is full, TerminalError when it
    does not have an artifact; nothing is left in place then.
    """
    asked = json.dumps([sorted(coordinates), transitive])
    folder = cache_dir() / "jars" / f"{name}-{hashlib.sha256(asked.encode()).hexdigest()[:12]}"
    whole = _listed(folder)
    if whole is None:
        _fetch(coordinates, folder, name, transitive)
        whole = _listed(folder)
    if not whole:
        raise TerminalError(f"The artifacts of {name} are incomplete right after their download.", folder=folder)
    return whole


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _listed(folder: Path) -> list[Path] | None:
    """The folder's artifacts, or None unless every one is there in its full size."""
    try:
        sizes: dict[str, int] = json.loads((folder / _LISTING).read_text())
        if any((folder / file).stat().st_size != size for file, size in sizes.items()):
            return None
    except (OSError, ValueError):
        return None
    return [folder / file for file in sorted(sizes)]


def _fetch(coordinates: Sequence[str], folder: Path, name: str, transitive: bool) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as scratch:
        draft = Path(scratch) / "files"
        draft.mkdir()
        _run_ivy(coordinates, Path(scratch), draft, name, transitive)
        sizes = {file.name: file.stat().st_size for file in draft.iterdir()}
        if len(sizes) < len(coordinates):
            raise TerminalError(
                f"Ivy fetched {len(sizes)} of the {len(coordinates)} artifacts of {name}.",
                coordinates=coordinates,
            )
        (draft / _LISTING).write_text(json.dumps(sizes, indent=1, sort_keys=True))
        _put_in_place(draft, folder, Path(scratch) / "replaced")


def _put_in_place(draft: Path, folder: Path, replaced: Path) -> None:
    """Rename `draft` to `folder`; a damaged folder moves to `replaced`, a whole one made meanwhile by others
    stays.
    """
    if folder.exists() and _listed(folder) is None:
        folder.rename(replaced)
    try:
        draft.rename(folder)
    except OSError:
        if _listed(folder) is None:
            raise


def _run_ivy(coordinates: Sequence[str], scratch: Path, draft: Path, name: str, transitive: bool) -> None:
    # Imported when something is downloaded: certificates take longer to load than a cached answer.
    from lakeward.trust import trust_options

    ivy_file = scratch / "ivy.xml"
    ivy_file.write_text(_ivy_file(coordinates, transitive))
    command = [
        str(java_home() / "bin" / "java"),
        *trust_options(scratch),
        f"-Divy.default.ivy.user.dir={scratch}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *(["-settings", settings] if (settings := os.environ.get("LAKEWARD_IVY_SETTINGS")) else []),
        *("-ivy", str(ivy_file)),
        *("-cache", str(scratch / "cache")),
        *("-types", "jar", "bundle"),
        *("-retrieve", f"{draft}/{_PATTERN}"),
    ]
    print(f"lakeward: fetching {name} ({len(coordinates)} artifacts)", file=sys.stderr, flush=True)
    problems: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        assert ivy.stdout is not None
        for line in _lines(ivy.stdout):
            _show(line)
            problems += _problem(line)
    if ivy.returncode != 0 or problems:
        _refuse(name, coordinates, list(dict.fromkeys(problems)))


def _ivy_file(coordinates: Sequence[str], transitive: bool) -> str:
    asked: dict[tuple[str, ...], list[str]] = {}  # Ivy takes a module once, with all that is wanted of it
    for coordinate in coordinates:
        organisation, module, revision, *classifier = coordinate.split(":")
        asked.setdefault((organisation, module, revision), []).append("".join(classifier))
    dependencies = []
    for (organisation, module, revision), classifiers in asked.items():
        named = (f" m:classifier={quoteattr(c)}" if c else "" for c in classifiers)
        files = "".join(f"<artifact name={quoteattr(module)}{name}/>" for name in named) if any(classifiers) else ""
        dependencies.append(
            f"<dependency org={quoteattr(organisation)} name={quoteattr(module)} rev={quoteattr(revision)} "
            f'conf="default-&gt;master,runtime" transitive="{str(transitive).lower()}">{files}</dependency>'
        )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="lakeward" module="artifacts"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(dependencies)}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    pyspark = find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise TerminalError("pyspark is not installed.", hint="run `make setup`")
    return next((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))


def _lines(stream: IO[str]) -> Iterator[str]:
    """The lines of Ivy's output, and meanwhile a dot on stderr for every 640 of the dots it prints, about 10
    MiB.
    """
    line = ""
    while character := stream.read(1):
        line += character
        if character == "\n":
            yield line
            line = ""
        elif len(line) % _DOTS_A_DOT == 0 and not line.strip("."):
            print(".", end="", file=sys.stderr, flush=True)
    yield line


def _show(line: str) -> None:
    """One line of progress for each artifact that Ivy starts, and its size when it has it."""
    text = line.strip()
    if text.startswith("downloading "):
        file = text.removeprefix("downloading ").removesuffix(" ...").rpartition("/")[2]
        print(f"  {file}", end="", file=sys.stderr, flush=True)
    elif text.startswith(".") and text.endswith("kB)") and not text.endswith("(0kB)"):
        print(f" {int(text.rpartition('(')[2].removesuffix('kB)')) / 1024:.1f} MiB", file=sys.stderr, flush=True)


def _problem(line: str) -> list[str]:
    text = line.strip()
    marks = ("Server access error", "[FAILED", "No space left", "Host ", "java.lang.", "Exception in thread")
    if text.startswith("::") and text.endswith(": not found"):
        return [text.strip(": ")]
    return [text] if text.startswith(marks) else []


def _refuse(name: str, coordinates: Sequence[str], problems: list[str]) -> None:
    shown = "; ".join(problems[:_DETAIL_LINES_MAX]) or "Ivy gave no reason"
    unreachable = [problem for problem in problems if not problem.endswith("not found")]
    if unreachable or not problems:
        raise TransientError(
            f"The artifacts of {name} could not be downloaded.",
            hint="run it again when this machine reaches Maven Central (a mirror: LAKEWARD_IVY_SETTINGS)",
            cause="; ".join(unreachable[:_DETAIL_LINES_MAX]) or shown,
        )
    raise TerminalError(f"Maven Central does not have all artifacts of {name}: {shown}", asked=", ".join(coordinates))
