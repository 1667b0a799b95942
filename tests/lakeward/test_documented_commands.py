"""Each command that the documentation or an error's remedy names is one that can be typed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeward.cli import parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCKER = [ROOT / "docker" / "compose.yaml", ROOT / "docker" / "Dockerfile"]
PACKAGES = ("lakeward", "bronze", "silver", "gold", "snowflake/lakehouse")
# In a block of code the rest of the line, in the text what stands between backticks.
BLOCK = re.compile(r"^(?:    |#   ).*?(?:^|[ /])lakeward ((?!/app)[a-z-].*?)(?: +#.*)?$")
INLINE = re.compile(r"`(?:\.venv/bin/)?lakeward ([^`]+)`")


def documented(files: list[Path], *patterns: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """(place, arguments of `lakeward`) of each command that is named."""
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            for pattern in patterns:
                for found in pattern.finditer(line):
                    yield f"{file.relative_to(ROOT)}:{number}", found[1].removeprefix("lakeward ")


def refused(commands: Iterator[tuple[str, str]], capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """How many commands there are; and those that the command line does not take, with what it says."""
    count, wrong = 0, {}
    for place, text in commands:
        count += 1
        arguments = shlex.split(re.sub(r"[\[\]…]", " ", text))
        try:
            parser().parse_args(arguments)
        except SystemExit:
            wrong[f"{place}: lakeward {text}"] = capsys.readouterr().err.splitlines()[-1]
    return count, wrong


def test_each_command_of_the_documentation_is_taken_as_written(capsys):
    count, wrong = refused(documented(PAGES, BLOCK, INLINE), capsys)
    assert wrong == {}
    assert count > 60


def test_each_command_of_the_docker_files_is_taken_as_written(capsys):
    found = [text for _, text in documented(DOCKER, BLOCK)]
    assert "status" in found
    assert refused(documented(DOCKER, BLOCK), capsys)[1] == {}


def test_each_command_that_an_error_advises_is_taken_as_written(capsys):
    sources = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    plain = ((place, text) for place, text in documented(sources, INLINE) if "{" not in text and "|" not in text)
    count, wrong = refused(plain, capsys)
    assert wrong == {}
    assert count > 20


def test_a_command_that_is_not_there_would_be_found(tmp_path, capsys):
    commands = iter([("here", "verify --mend"), ("there", "bronze --from POINT [--table TABLE]…")])
    assert set(refused(commands, capsys)[1]) == {"here: lakeward verify --mend"}


def test_each_make_target_and_module_of_the_documentation_is_there():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for names in re.findall(r"(?:^    |`)make ((?:[a-z]+ ?)+)", text, re.MULTILINE):
            missing += [f"{page.name}: make {name}" for name in names.split() if name not in targets]
        for module in re.findall(r"(?:^    |`)(?:\S*/)?python -m ([\w.]+)", text, re.MULTILINE):
            place = ROOT / module.replace(".", "/")
            if module != "pytest" and not place.with_suffix(".py").exists() and not (place / "__main__.py").exists():
                missing.append(f"{page.name}: python -m {module}")
    assert missing == []
