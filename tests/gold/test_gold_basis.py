"""What gold follows from: a run without news does nothing, and whatever may change a published table is news."""

from __future__ import annotations

import argparse
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gold.basis import basis, catalog_of
from gold.state import GoldState, save_gold
from lakeward.cli.failures import Failures
from lakeward.cli.stages import gold_behind
from lakeward.config import parse
from lakeward.errors import ConfigError, TerminalError
from lakeward.lake import Lake
from lakeward.names import TableName
from lakeward.position import Checkpoint, Position
from lakeward.schema import TableSchema, column_from_catalog
from lakeward.state import BronzeState, BronzeTable, SilverState, SilverTable, save_bronze, save_silver

CUT = Checkpoint(Position(1, 7, 100), "", 5)


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """One table, published with one mart."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "m.sql").write_text("SELECT count(*) AS c FROM shop.trips")
    doc = {"lake": {"root": "lake"}, "gold": {"models": "models"}, "source": {"include": ["shop.*"]}}
    config = parse(doc, folder=tmp_path)
    lake = Lake(config.root)
    columns = (column_from_catalog("id", "int", nullable=False),)
    schema = TableSchema(TableName("shop", "trips"), columns, ("id",), "primary")
    bronze = BronzeState(tables={"shop.trips": BronzeTable(schema, status="streaming", generation=1)})
    table = SilverTable(CUT.at, 1, 1, 5, 3, ["id"], beside={"__history": 2})
    silver = SilverState(run=1, cut=CUT, tables={"shop.trips": table})
    save_bronze(lake, bronze)
    save_silver(lake, silver)
    save_gold(lake, GoldState(run=1, cut=CUT, basis=basis(config, bronze, silver), catalog=catalog_of(config.gold)))
    return argparse.Namespace(config=config, lake=lake, bronze=bronze, silver=silver, folder=tmp_path)


def moved(app: Any, **changed: Any) -> None:
    silver = copy.deepcopy(app.silver)
    silver.tables["shop.trips"] = replace(silver.tables["shop.trips"], **changed)
    save_silver(app.lake, silver)


def test_without_news_gold_is_not_behind(app):
    assert not gold_behind(app)


@pytest.mark.parametrize(
    "changed",
    [
        *({"version": 4}, {"generation": 2}, {"beside": {"__history": 3}}, {"keys": ["id", "n"]}),
        {"cut": Position(1, 7, 50)},  # it stopped, and its rows are those of then
    ],
)
def test_silver_moves_without_its_cut(app, changed):
    """A table that was read anew at a quiet source, or held events that were replayed."""
    moved(app, **changed)
    assert gold_behind(app)


def test_a_cut_that_no_table_has_moved_to_and_a_table_that_bronze_knows_again_are_news(app):
    """As where each table has stopped, and after a resnapshot."""
    save_silver(app.lake, replace(app.silver, cut=Checkpoint(Position(1, 7, 200), "", 6)))
    assert gold_behind(app)
    save_silver(app.lake, app.silver)
    assert not gold_behind(app)
    save_bronze(app.lake, BronzeState())
    assert gold_behind(app)


@pytest.mark.parametrize("text", ["SELECT 1 AS c FROM shop.trips", None])
def test_an_edited_a_new_and_a_removed_mart_are_news(app, text):
    file = app.folder / "models" / "m.sql"
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    assert gold_behind(app)
    file.write_text("SELECT count(*) AS c FROM shop.trips")
    assert not gold_behind(app)
    (app.folder / "models" / "new.sql").write_text("SELECT 1 AS one FROM shop.trips")
    assert gold_behind(app)


@pytest.mark.parametrize(
    "settings",
    [
        {"mirror": ["other.*"]},
        {"export": []},
        {"catalog": "rest", "uri": "https://catalog.example.com"},
    ],
)
def test_settings_of_gold_are_news(app, settings):
    doc = {"lake": {"root": "lake"}, "gold": {"models": "models", **settings}}
    app.config = parse(doc, folder=app.folder)
    assert gold_behind(app)


def test_another_address_or_warehouse_is_another_catalog():
    said: list[dict[str, Any]] = [{}, {"uri": "https://b.example.com"}]
    said += [{"properties": {"warehouse": name}} for name in ("w", "v")]
    golds = [{"catalog": "rest", "uri": "https://a.example.com", **more} for more in said]
    assert len({catalog_of(parse({"gold": gold}).gold) for gold in golds}) == len(said)


def test_the_columns_that_an_export_is_spread_by_are_news(app):
    doc = {"lake": {"root": "lake"}, "gold": {"models": "models"}, "tables": {"shop.trips": {"export_by": ["id"]}}}
    app.config = parse(doc, folder=app.folder)
    assert gold_behind(app)


def test_a_run_of_gold_that_was_left_half_done_is_news(app):
    state = GoldState(run=1, cut=CUT, basis=basis(app.config, app.bronze, app.silver))
    save_gold(app.lake, replace(state, intent={"run": 2, "cut": CUT.to_json(), "tables": {}}))
    assert gold_behind(app)


def test_a_run_tries_every_stage_and_ends_with_the_first_failure(capsys):
    failures, tried = Failures(), []
    for number in (1, 2, 3):
        with failures.kept():
            tried.append(number)
            if number > 1:
                raise TerminalError(f"failure {number}", hint="mend it")
    with pytest.raises(TerminalError, match="failure 2"):
        failures.end_round()
    assert tried == [1, 2, 3]
    assert capsys.readouterr().err == "error: failure 3\n  to mend it: mend it\n"


def test_a_run_that_goes_on_says_a_failure_once_and_goes_on(capsys):
    failures = Failures(continuous=True)
    for texts, said in ((["a"], "a"), (["a"], ""), (["a", "b"], "b"), ([], ""), (["a"], "a")):
        for text in texts:
            with failures.kept():
                raise TerminalError(text)
        failures.end_round()
        assert capsys.readouterr().err == (f"error: {said}\n" if said else "")


def test_a_wrong_configuration_ends_a_run_that_goes_on_in_its_first_round_alone(capsys):
    for rounds in (1, 2):
        failures = Failures(continuous=True)
        if rounds == 2:
            failures.end_round()
        with failures.kept():
            raise ConfigError("wrong")
        if rounds == 1:
            with pytest.raises(ConfigError):
                failures.end_round()
        else:
            failures.end_round()
    assert capsys.readouterr().err == "error: wrong\n"


def test_what_is_no_failure_on_purpose_is_not_kept():
    failures = Failures(continuous=True)
    with pytest.raises(ZeroDivisionError), failures.kept():
        raise ZeroDivisionError
