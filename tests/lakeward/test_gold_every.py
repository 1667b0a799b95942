"""A run that goes on publishes gold at most every `[gold] every` seconds, and follows the source in each round."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gold.state import GoldState, GoldTable, save_gold
from lakeward.cli import pace, stages
from lakeward.cli.app import App
from lakeward.cli.status import document, status
from lakeward.config import parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.position import Checkpoint, Position

ROUND_S = 5


class EnoughError(Exception):
    """Ends a run that would go on."""


class Running:
    """`lakeward run` with a clock of its own. Silver moves in each round in which `news` says so; gold takes a second,
    and does what `gold` says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, every: float) -> None:
        self.file = folder / "lakeward.toml"
        self.file.write_text(f'[lake]\nroot = "lake"\n[gold]\nevery = {every}\n')
        self.now, self.round, self.unpublished = 1000.0, 0, 0
        self.published: list[int] = []  # the rounds
        self.did: list[str] = []  # in the last round
        self.bronze: Callable[[int], Any] = lambda _: None
        self.silver: Callable[[int], Any] = lambda _: None
        self.gold: Callable[[int], Any] = lambda _: None
        self.news: Callable[[int], bool] = lambda _: True
        self.due: Callable[[int], bool] = lambda _: False  # whether maintenance is
        monkeypatch.setattr(pace, "_now", lambda: self.now)
        monkeypatch.setattr("time.sleep", self._sleep)
        monkeypatch.setattr(stages, "bronze_stage", lambda *_, **__: self.bronze(self.round))
        monkeypatch.setattr(stages, "silver_stage", self._silver)
        monkeypatch.setattr(stages, "gold_behind", lambda _: bool(self.unpublished))
        monkeypatch.setattr(stages, "gold_stage", self._gold)
        monkeypatch.setattr(stages, "follow", lambda _: self.did.append("follow"))
        monkeypatch.setattr(stages, "maintenance_due", lambda _: self.due(self.round))
        monkeypatch.setattr(stages, "maintain_in_run", lambda _: self.did.append("maintain"))

    def _silver(self, _: Any) -> int:
        self.did = ["silver"]
        self.silver(self.round)
        self.unpublished += self.news(self.round)
        return self.unpublished

    def _gold(self, _: Any, **__: Any) -> bool:
        self.did.append("gold")
        if not self.unpublished:
            return False
        self.now += 1
        self.gold(self.round)
        self.published.append(self.round)
        self.unpublished = 0
        return True

    def _sleep(self, seconds: float) -> None:
        self.now += seconds
        self.round += 1
        if self.round == self.rounds:
            raise EnoughError

    def start(self, rounds: int = 0) -> list[int]:
        """The rounds in which a run of so many published; 0: a scheduled run, which ends by itself."""
        self.published, self.round, self.rounds = [], 0, rounds
        options = argparse.Namespace(
            accept_gap=False, snapshot_anyway=False, continuous=bool(rounds), every=float(ROUND_S)
        )
        if rounds:
            with pytest.raises(EnoughError):
                stages.run_command(App(str(self.file)), options)
        else:
            assert stages.run_command(App(str(self.file)), options) == 0
        return self.published


def test_gold_is_published_at_most_so_often_and_silver_in_each_round(tmp_path, monkeypatch, capsys):
    running = Running(tmp_path, monkeypatch, every=30)
    assert running.start(24) == [0, 6, 12, 18]
    said = capsys.readouterr().out
    assert said.count("gold            waits ") == 20
    assert "gold            waits 24 s: [gold] every = 30\n" in said  # from begin to begin; gold took a second
    assert running.did == ["silver", "follow"]  # a refresh that failed is tried again, too


def test_each_round_publishes_where_nothing_else_is_said(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch, every=0)
    assert running.start(5) == [0, 1, 2, 3, 4]


def test_what_comes_after_a_quiet_time_is_published_at_once(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch, every=30)
    running.news = lambda at: at in (0, 3, 12, 13, 14)
    assert running.start(24) == [0, 6, 12, 18]
    running.news = lambda at: at in (2, 3)  # a round without anything to publish is no publication
    assert running.start(24) == [2, 8]


def test_a_run_on_schedule_and_a_restart_always_publish(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch, every=1e9)
    assert [running.start() for _ in range(3)] == [[0], [0], [0]]
    assert [running.start(4) for _ in range(2)] == [[0], [0]]


def test_what_fails_is_tried_again_in_the_next_round(tmp_path, monkeypatch, capsys):
    running = Running(tmp_path, monkeypatch, every=30)

    def gold(at: int) -> None:
        if at in (0, 1, 8, 9):
            raise TerminalError("the mart fails")

    running.gold = gold
    assert running.start(20) == [2, 10, 16]
    assert capsys.readouterr().err.count("the mart fails") == 2


def test_gold_is_published_before_maintenance_which_removes_nothing_that_gold_has_yet_to_read(tmp_path, monkeypatch):
    running = Running(tmp_path, monkeypatch, every=30)
    done: list[list[str]] = []
    monkeypatch.setattr(stages, "maintain_in_run", lambda _: done.append([*running.did, "maintain"]))
    running.due = lambda at: at in (2, 9)
    assert running.start(12) == [0, 2, 8, 9]
    assert done == [["silver", "follow", "gold", "maintain"]] * 2

    def gold(at: int) -> None:
        if at == 2:
            raise TerminalError("the mart fails")

    running.gold = gold
    assert running.start(12) == [0, 3, 9]  # half of it may be published: it is not made to wait


@pytest.mark.parametrize("stage", ["bronze", "silver"])
def test_what_waits_is_published_when_the_run_ends_for_its_source(tmp_path, monkeypatch, capsys, stage):
    running = Running(tmp_path, monkeypatch, every=30)

    def lost(at: int) -> None:
        if at == 3:
            raise TerminalError("the source was lost")

    setattr(running, stage, lost)
    with pytest.raises(TerminalError, match="the source was lost"):
        running.start(20)
    assert running.published == [0, 3]
    assert running.did[-2:] == ["gold", "follow"]
    # Without anything that waits it ends as it did, and another failure does not hide why.
    running.news = lambda at: at == 0
    with pytest.raises(TerminalError, match="the source was lost"):
        running.start(20)
    assert running.published == [0]

    def gold(at: int) -> None:
        if at == 3:
            raise TerminalError("the mart fails")

    running.gold, running.news = gold, lambda _: True
    with pytest.raises(TerminalError, match="the source was lost"):
        running.start(20)
    assert "error: the mart fails" in capsys.readouterr().err


def test_nonsense_is_refused():
    assert parse({"gold": {"every": 300}}).gold.every == 300.0
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=r"\[gold\] every = .* is no number of seconds") as found:
            parse({"gold": {"every": value}})
        assert found.value.hint == "0 is for each round"
    with pytest.raises(ConfigError, match=r"\[gold\] every has to be of kind float"):
        parse({"gold": {"every": "5m"}})


def test_status_says_what_gold_has_published_and_when(tmp_path, capsys):
    (tmp_path / "lakeward.toml").write_text('[lake]\nroot = "lake"\n')
    app = App(str(tmp_path / "lakeward.toml"))
    assert document(app.lake)["gold"] == {"cut": None, "published_at": None}
    cut = Checkpoint(Position(1, 7, 100), "", 5)
    stands = GoldTable("shop", "trips", "mirror", "", "", "", 1, [], 0, cut, published_ms=1_800_000_000_000)
    freshness = replace(stands, kind="freshness", published_ms=1_800_000_600_000)
    tables = {"shop.trips": stands, "lakeward.freshness": freshness}
    save_gold(app.lake, GoldState(run=1, cut=cut, tables=tables))
    assert document(app.lake)["gold"] == {"cut": str(cut.at), "published_at": "2027-01-15T08:10:00+00:00"}
    assert status(app, argparse.Namespace(json=False)) == 0
    assert f"gold stands at cut {cut.at}, published at 2027-01-15T08:10:00+00:00\n" in capsys.readouterr().out
