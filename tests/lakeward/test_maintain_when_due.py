"""A run maintains the lake as often as it is told, and goes on whatever comes of that."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

import gold.maintenance
from gold import schedule
from lakeward.cli import maintain, stages
from lakeward.cli.app import App
from lakeward.cli.status import document
from lakeward.config import parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake

HOUR_S = 3600


class EnoughError(Exception):
    """Ends a run that would go on."""


class Running:
    """`lakeward run` in `folder` with a clock of its own, and with stages and maintenance that only say their names."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, every: float | None = None) -> None:
        said = "" if every is None else f"maintain_every = {every}\n"
        (folder / "lakeward.toml").write_text(f'[lake]\nroot = "lake"\n{said}')
        self.file, self.now, self.did, self.fails = folder / "lakeward.toml", 1_800_000_000.0, [], []
        for name in ("bronze_stage", "silver_stage", "gold_stage"):
            monkeypatch.setattr(stages, name, lambda *_, **__: 0)
        monkeypatch.setattr(stages, "follow", lambda _: self.did.append("follow"))
        monkeypatch.setattr(App, "spark", lambda _: None)
        monkeypatch.setattr(schedule, "_now", lambda: int(self.now * 1000))
        monkeypatch.setattr("time.sleep", self.sleep)
        monkeypatch.setattr(gold.maintenance, "run", self.maintenance)

    did: list[str]
    fails: list[Exception]

    def maintenance(self, *_: Any, **__: Any) -> gold.maintenance.MaintenanceReport:
        self.did.append("maintain")
        if self.fails:
            raise self.fails[-1]
        return gold.maintenance.MaintenanceReport(tables=3)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.rounds -= 1
        if not self.rounds:
            raise EnoughError

    def start(self, rounds: int = 0, every: float = HOUR_S) -> list[str]:
        """What a run of so many rounds did, `every` seconds apart; 0: a scheduled run, which ends by itself."""
        self.did.clear()
        self.rounds = rounds
        options = argparse.Namespace(accept_gap=False, snapshot_anyway=False, continuous=bool(rounds), every=every)
        if rounds:
            with pytest.raises(EnoughError):
                stages.run_command(App(str(self.file)), options)
        else:
            assert stages.run_command(App(str(self.file)), options) == 0
        return list(self.did)

    def maintenance_of_status(self) -> dict[str, Any]:
        found: dict[str, Any] = document(App(str(self.file)).lake)["maintenance"]
        return found


def test_a_run_that_goes_on_maintains_once_a_day_and_then_tells_snowflake(tmp_path, monkeypatch, capsys):
    running = Running(tmp_path, monkeypatch)
    assert running.start(24).count("maintain") == 0  # the count begins at the first round
    did = running.start(49)
    assert did[:3] == ["follow", "maintain", "follow"]
    assert did.count("maintain") == 3
    assert did.count("follow") == 49 + 3
    assert "3 tables" in capsys.readouterr().out
    assert running.maintenance_of_status()["done_at"] is not None


def test_scheduled_runs_count_together_and_a_restart_forgets_nothing(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch, every=0.5)
    did = []
    for _ in range(13):
        did += running.start()
        running.now += 600
    assert did.count("maintain") == 4  # at 30, 60, 90 and 120 minutes
    assert json.loads((tmp_path / "lake/_lakeward/maintenance.json").read_text())["done"]


def test_the_command_begins_the_count_anew_where_it_was_about_every_table(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch)
    monkeypatch.setattr(maintain, "follow", lambda _: None)
    running.start()
    for tables, expected in (["shop.trips"], 1), ([], 0):
        running.now += 23 * HOUR_S
        assert maintain.maintain(App(str(running.file)), argparse.Namespace(tables=tables)) == 0
        running.now += HOUR_S
        assert running.start().count("maintain") == expected


def test_maintenance_that_fails_is_said_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    running = Running(tmp_path, monkeypatch)
    running.start()
    running.now += 24 * HOUR_S
    failures = (TerminalError("a run of gold has not ended", hint="`lakeward gold`"), RuntimeError("of\nthe engine"))
    for failure in failures:
        running.fails.append(failure)
        # Tried in the first round and an hour later, not every ten minutes.
        assert running.start(8, every=600).count("maintain") == 2
        said = capsys.readouterr().err
        assert said.count("maintenance failed, the run goes on: ") == 2
        running.now += HOUR_S
    assert "RuntimeError: of\n" in said
    assert running.maintenance_of_status()["failed_at"] is not None
    assert running.maintenance_of_status()["reason"] == "RuntimeError: of"
    running.fails.clear()
    assert running.start(8, every=600).count("maintain") == 1
    assert running.maintenance_of_status()["reason"] is None


def test_one_that_failed_waits_no_longer_than_it_waits_when_all_is_well(tmp_path):
    lake, minute = Lake(str(tmp_path)), 60_000
    assert not schedule.due(lake, 0.25, 1)
    assert schedule.due(lake, 0.25, 15 * minute + 1)
    schedule.note_failed(lake, "full", 15 * minute + 1)
    assert not schedule.due(lake, 0.25, 29 * minute)
    assert schedule.due(lake, 0.25, 30 * minute + 1)


def test_never_is_never_and_nonsense_is_refused(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch, every=0)
    assert "maintain" not in running.start(100, every=24 * HOUR_S)
    assert not (tmp_path / "lake/_lakeward/maintenance.json").exists()
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"\[lake\] maintain_every"):
            parse({"lake": {"maintain_every": value}})
