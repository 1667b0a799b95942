"""What must hold of the repository itself, and that no compiler says."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import snowflake.connector

import snowflake.lakehouse

ROOT = Path(__file__).resolve().parents[1]
LINES_MAX = 400
# Spelled in parts, so that this file does not name what it looks for.
REGISTRY_HOSTS = re.compile(
    "|".join(
        [
            r"pypi\.(?:org|python)",
            r"files\." + "pythonhosted",
            r"repo1?\." + r"maven\.(?:org|apache)",
            r"maven-central\." + "storage",
            r"(?:deb|snapshot|archive)\." + r"(?:debian|ubuntu)\.(?:org|com)",
            r"registry\." + "npmjs",
        ]
    )
)


@pytest.fixture(scope="module")
def files() -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    found = [ROOT / name for name in listing.stdout.split("\0") if name]
    assert found, "git lists no file: this test would prove nothing"
    return [path for path in found if path.is_file()]


def test_snowflake_stays_a_namespace_that_the_connector_shares():
    assert snowflake.__file__ is None
    assert not (ROOT / "snowflake" / "__init__.py").exists()
    assert snowflake.lakehouse.__file__ == str(ROOT / "snowflake" / "lakehouse" / "__init__.py")


def test_the_tests_are_no_package():
    assert [str(path) for path in (ROOT / "tests").rglob("__init__.py")] == []


def test_no_file_names_a_package_registry(files):
    named = {}
    for path in files:
        text = path.read_bytes().decode("utf-8", "ignore")
        if hosts := set(REGISTRY_HOSTS.findall(text)):
            named[str(path.relative_to(ROOT))] = hosts
    assert named == {}


def test_the_registry_pattern_finds_a_host():
    assert REGISTRY_HOSTS.search("https://" + "pypi" + ".org/simple")


def test_no_python_file_is_a_giant(files):
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files if path.suffix == ".py"
    }
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_every_package_is_in_the_wheel():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert set(project["tool"]["importlinter"]["root_packages"]) == {
        name.replace("/", ".") for name in included if name != "snowflake/sql"
    }
