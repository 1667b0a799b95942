"""A folder of artifacts is whole or not there, whatever interrupted its making."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest

from lakeward import artifacts, java
from lakeward.errors import TerminalError, TransientError

COORDINATE = "org.example:thing:1.0"

FAKE_JAVA = """#!/bin/sh
case "$*" in
  *-XshowSettings*) echo "    java.home = {home}"; echo "    java.specification.version = 17"; exit 0;;
esac
echo run >> {home}/runs
for argument do last=$argument; done
folder=$(dirname "$last")
{ivy}
"""
FETCHES = 'printf whole > "$folder/thing-1.0.jar"'
DIES_HALFWAY = 'printf wh > "$folder/thing-1.0.jar"; kill -9 $$'
OFFLINE = "echo '  Server access error at url x (java.net.UnknownHostException: x)'; exit 1"
NOT_FOUND = "echo '    :: org.example#thing;1.0: not found'; exit 1"
NOTHING = "true"


class FakeIvy:
    """A `java` that plays Ivy: `will` sets what its next runs do, `runs` counts them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "bin").mkdir(parents=True)
        self.will(FETCHES)

    def will(self, behaviour: str) -> None:
        program = self.home / "bin" / "java"
        program.write_text(FAKE_JAVA.format(home=self.home, ivy=behaviour))
        program.chmod(0o755)

    def runs(self) -> int:
        log = self.home / "runs"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def ivy(monkeypatch, tmp_path):
    fake = FakeIvy(tmp_path / "java")
    monkeypatch.setenv("JAVA_HOME", str(fake.home))
    monkeypatch.setenv("LAKEWARD_CACHE", str(tmp_path / "cache"))
    java.java_home.cache_clear()
    yield fake
    java.java_home.cache_clear()


def contents(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.rglob("*") if path.is_file())


def test_what_is_there_is_not_fetched_again(ivy):
    first = artifacts.resolve([COORDINATE], name="x")
    assert [path.read_text() for path in first] == ["whole"]
    assert artifacts.resolve([COORDINATE], name="x") == first
    assert ivy.runs() == 1


def test_a_killed_download_leaves_nothing_and_the_next_run_fetches(ivy, tmp_path):
    ivy.will(DIES_HALFWAY)
    with pytest.raises(TransientError):
        artifacts.resolve([COORDINATE], name="x")
    assert contents(tmp_path / "cache") == []
    ivy.will(FETCHES)
    assert [path.read_text() for path in artifacts.resolve([COORDINATE], name="x")] == ["whole"]


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("wh")], ids=["lost", "cut short"])
def test_a_folder_damaged_later_is_fetched_again(ivy, damage):
    (jar,) = artifacts.resolve([COORDINATE], name="x")
    damage(jar)
    assert [path.read_text() for path in artifacts.resolve([COORDINATE], name="x")] == ["whole"]
    assert ivy.runs() == 2


def test_a_folder_without_its_listing_is_not_taken_for_whole(ivy):
    (jar,) = artifacts.resolve([COORDINATE], name="x")
    (jar.parent / "artifacts.json").unlink()
    jar.write_text("wh")
    assert [path.read_text() for path in artifacts.resolve([COORDINATE], name="x")] == ["whole"]


def test_offline_says_so_and_how_to_go_on(ivy, tmp_path):
    ivy.will(OFFLINE)
    with pytest.raises(TransientError, match="could not be downloaded") as refused:
        artifacts.resolve([COORDINATE], name="x")
    assert "LAKEWARD_IVY_SETTINGS" in str(refused.value)
    assert "UnknownHostException" in str(refused.value)
    assert contents(tmp_path / "cache") == []


def test_an_unknown_artifact_is_named(ivy):
    ivy.will(NOT_FOUND)
    with pytest.raises(TerminalError, match=r"org\.example#thing;1\.0: not found"):
        artifacts.resolve([COORDINATE], name="x")


def test_an_ivy_that_succeeds_with_nothing_is_not_believed(ivy):
    ivy.will(NOTHING)
    with pytest.raises(TerminalError, match="0 of the 1 artifacts"):
        artifacts.resolve([COORDINATE], name="x")


def test_other_coordinates_get_another_folder(ivy):
    (one,) = artifacts.resolve([COORDINATE], name="x")
    (two,) = artifacts.resolve([COORDINATE], name="x", transitive=False)
    assert one.parent != two.parent


def test_the_cache_is_where_the_user_says_then_xdg_then_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LAKEWARD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert artifacts.cache_dir() == tmp_path / "home" / ".cache" / "lakeward"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert artifacts.cache_dir() == tmp_path / "xdg" / "lakeward"
    monkeypatch.setenv("LAKEWARD_CACHE", str(tmp_path / "asked"))
    assert artifacts.cache_dir() == tmp_path / "asked"


def test_a_home_that_cannot_be_written_gives_way_to_the_working_folder(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("LAKEWARD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.chdir(tmp_path)
    assert artifacts.cache_dir() == Path(os.getcwd()) / ".cache" / "lakeward"


def test_a_cache_that_was_asked_for_and_cannot_be_written_is_refused(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAKEWARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(TerminalError, match="cannot be written"):
        artifacts.cache_dir()


def test_a_classifier_is_asked_for_beside_the_artifact_itself(ivy):
    ivy.will(f'cp "$folder/../ivy.xml" {ivy.home}; for file in a b c; do printf whole > "$folder/$file.jar"; done')
    wanted = [COORDINATE, f"{COORDINATE}:tests", "org.example:other:2.0"]
    artifacts.resolve(wanted, name="x", transitive=False)
    asked = ElementTree.parse(ivy.home / "ivy.xml").getroot().findall("dependencies/dependency")
    classifier = "{http://ant.apache.org/ivy/maven}classifier"
    files = {d.get("name"): [(a.get("name"), a.get(classifier)) for a in d] for d in asked}
    assert files == {"thing": [("thing", None), ("thing", "tests")], "other": []}
