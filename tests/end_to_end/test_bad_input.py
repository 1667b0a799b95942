"""Bad input: a message that says what, where and how to mend it, the contract's exit code, nothing half written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers.running import Database

from lakeward.cli import main
from lakeward.embedded.replicator import EVERY_SCHEMA, ensure_replicator


@pytest.fixture
def lakeward(pipeline: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command in the pipeline's folder: (exit code, stderr)."""
    monkeypatch.chdir(pipeline.folder)

    def run(*arguments: str) -> tuple[int, str]:
        code = main(arguments)
        return code, capsys.readouterr().err

    return run


def assert_nothing_written(folder: Path) -> None:
    left = [p for p in (folder / "lake").rglob("*") if p.is_file() and p.name != "lock"]
    assert not left


def test_a_wrong_password_names_the_user_and_not_the_password(pipeline: Any, lakeward: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("SOURCE_PASSWORD", "not-the-secret")
    code, err = lakeward("bronze")
    assert code == 1
    assert "replicator" in err
    assert "not-the-secret" not in err
    assert_nothing_written(pipeline.folder)


def test_a_wrong_host_names_it(pipeline: Any, lakeward: Any) -> None:
    pipeline.write_config({"url": "mysql://replicator@127.0.0.1:1"})
    code, err = lakeward("bronze")
    assert code == 1
    assert "127.0.0.1:1" in err


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ('exclud = ["a.b"]', "'exclude'"),
        ('password = "hunter2"', "env:NAME"),
        ('url = "nowhere"', "mysql://user@host:port"),
        ("server_id = 0", "above zero"),
        ('tls = { mode = "maybe" }', "verify_identity"),
    ],
)
def test_a_wrong_configuration_is_refused_with_what_is_meant(
    pipeline: Any, lakeward: Any, line: str, wanted: str
) -> None:
    (pipeline.folder / "lakeward.toml").write_text(f"[source]\n{line}\n", encoding="utf-8")
    code, err = lakeward("bronze")
    assert code == 2
    assert wanted in err
    assert "hunter2" not in err


def test_a_missing_configuration_says_how_to_write_one(pipeline: Any, lakeward: Any) -> None:
    code, err = lakeward("-c", "nowhere.toml", "status")
    assert code == 2
    assert "lakeward init" in err


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"skip-log-bin": ""}, "log_bin"),
        ({"binlog_format": "STATEMENT"}, "binlog_format"),
        ({"binlog_row_image": "MINIMAL"}, "binlog_row_image"),
        ({"binlog_row_metadata": "MINIMAL"}, "binlog_row_metadata"),
    ],
)
def test_a_server_that_logs_too_little_is_refused_with_the_setting(
    pipeline: Any, lakeward: Any, own_server: Any, monkeypatch: Any, settings: dict[str, str], wanted: str
) -> None:
    server = own_server("mariadb", settings=settings)
    monkeypatch.setenv("SOURCE_PASSWORD", ensure_replicator(server, [EVERY_SCHEMA]))
    pipeline.write_config({"url": f"mysql://replicator@127.0.0.1:{server.port}", "include": ["*.*"]})
    code, err = lakeward("bronze")
    assert code == 1
    assert wanted in err
    assert_nothing_written(pipeline.folder)


def test_missing_grants_are_named_with_the_statement_that_gives_them(
    pipeline: Any, lakeward: Any, monkeypatch: Any
) -> None:
    with pipeline.database.root.cursor() as cursor:
        cursor.execute("DROP USER IF EXISTS bare@'127.0.0.1'")
        cursor.execute("CREATE USER bare@'127.0.0.1' IDENTIFIED BY 'x'")
    monkeypatch.setenv("SOURCE_PASSWORD", "x")
    pipeline.write_config({"url": f"mysql://bare@127.0.0.1:{pipeline.database.server.port}"})
    code, err = lakeward("bronze")
    assert code == 1
    assert "GRANT REPLICATION SLAVE" in err


def test_a_restored_server_with_another_history_is_refused(pipeline: Any, own_server: Any, monkeypatch: Any) -> None:
    server = own_server("mariadb")
    monkeypatch.setenv("SOURCE_PASSWORD", ensure_replicator(server, [EVERY_SCHEMA]))
    with Database.create(server, "shop") as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        pipeline.write_config({"url": f"mysql://replicator@127.0.0.1:{server.port}", "include": ["shop.*"]})
        pipeline.bronze()
        db.execute("RESET MASTER")
        for i in range(20):
            db.execute("INSERT INTO t VALUES (%s)", (i,))
        with pytest.raises(Exception, match=r"reset|history"):
            pipeline.bronze()


def test_a_purged_log_is_refused_with_the_gap(pipeline: Any, own_server: Any, monkeypatch: Any) -> None:
    server = own_server("mysql")
    monkeypatch.setenv("SOURCE_PASSWORD", ensure_replicator(server, [EVERY_SCHEMA]))
    with Database.create(server, "shop") as db:
        db.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        pipeline.write_config({"url": f"mysql://replicator@127.0.0.1:{server.port}", "include": ["shop.*"]})
        pipeline.bronze()
        db.execute("INSERT INTO t VALUES (1)")
        db.execute("FLUSH BINARY LOGS")
        latest = db.query("SHOW BINARY LOGS")[-1][0]
        db.execute(f"PURGE BINARY LOGS TO '{latest}'")
        with pytest.raises(Exception, match="purged"):
            pipeline.bronze()
