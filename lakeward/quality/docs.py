"""Data Docs: what each gate of the last runs found, as static pages that a browser opens from the disk.

The pages are rendered by Great Expectations' own renderers. Its site builder is not used: it renders every
page of every kept run again at each build, where here a run writes its own pages and the index. They hold
counts, rules and up to three examples a rule, and nothing of a masked column: `evaluate.py` never puts one
into a result.
"""

from __future__ import annotations

import datetime
import functools
import json
import shutil
import threading
import urllib.parse
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from great_expectations.core import ExpectationSuiteValidationResult, RunIdentifier
from great_expectations.core.expectation_validation_result import ExpectationSuiteValidationResultMeta
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.renderer.site_index_page_renderer import SiteIndexPageRenderer
from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView

from lakeward.config import Config
from lakeward.lake import STATE_FOLDER, Lake, lake_error
from lakeward.names import encode_path
from lakeward.quality.rules import GateLayer, RuleResult

RUNS_MAX = 20  # whose pages are kept
_INDEX = "index.json"
_PUBLISHING = threading.Lock()  # tables are gated in parallel, and two may stop at once


def docs_folder(config: Config, lake: Lake) -> Path | None:
    """Where the pages are; None for a lake on an object store without `[quality] data_docs`, which has no
    folder."""
    if config.quality.data_docs is not None:
        return config.path(config.quality.data_docs)
    return Path(lake.root) / STATE_FOLDER / "data_docs" if lake.local else None


def publish_docs(results: Sequence[RuleResult], config: Config, lake: Lake, run: int | None = None) -> Path | None:
    """Write the pages of a run's results and the index; once a stage run, since it costs about 50 ms a table.

    Returns the index, or None where there is nowhere to write or nothing to say. Called again for the same
    run, it replaces the pages of the same tables and keeps the others. Raises TerminalError when the disk is
    full.
    """
    folder = docs_folder(config, lake)
    if folder is None or not results:
        return None
    at = datetime.datetime.now(datetime.UTC)
    name = f"run {run}" if run is not None else f"{at:%Y-%m-%d %H-%M-%S}"
    try:
        with _PUBLISHING:
            return _publish(results, folder, name, at)
    except OSError as error:
        raise lake_error(error, str(folder)) from error


def _publish(results: Sequence[RuleResult], folder: Path, name: str, at: datetime.datetime) -> Path:
    grouped: dict[tuple[str, GateLayer], list[RuleResult]] = {}
    for result in results:
        grouped.setdefault((str(result.table), result.rule.layer), []).append(result)
    entries = _kept(folder)
    for (table, layer), found in grouped.items():
        identity = RunIdentifier(run_name=name, run_time=at)
        page = _page(found, f"{table} → {layer}", identity)
        slug = "".join(c if c.isalnum() else "-" for c in name)
        source = found[0].table
        relative = f"runs/{slug}-{layer}/{encode_path(source.schema)}.{encode_path(source.table)}.html"
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")
        entry = {"run": name, "at": at.isoformat(), "table": table, "layer": layer, "page": relative}
        entries[relative] = {**entry, "success": all(r.success for r in found)}
    entries = _forget(folder, entries)
    index = folder / "index.html"
    index.write_text(_index(list(entries.values())), encoding="utf-8")
    (folder / _INDEX).write_text(json.dumps(list(entries.values()), indent=1), encoding="utf-8")
    return index


def _page(found: Sequence[RuleResult], title: str, identity: RunIdentifier) -> str:
    results = []
    for result in found:
        validation = result.validation
        assert validation is not None
        assert validation.expectation_config is not None
        rule = result.rule
        config = validation.expectation_config
        config.meta = {"severity": rule.severity}
        kwargs = json.dumps(config.kwargs, ensure_ascii=False, default=str)
        config.description = f"{rule.name} [{rule.severity}]: {config.type} {kwargs}".replace("$", "$$")
        results.append(validation)
    passed = sum(r.success for r in found)
    suite = ExpectationSuiteValidationResult(
        success=passed == len(found),
        results=results,
        suite_name=title,
        statistics={
            "evaluated_expectations": len(found),
            "successful_expectations": passed,
            "unsuccessful_expectations": len(found) - passed,
            "success_percent": passed / len(found) * 100,
        },
        meta=ExpectationSuiteValidationResultMeta(
            expectation_suite_name=title, run_id=identity, validation_time=None, batch_spec=None
        ),  # type: ignore[typeddict-item]
    )
    document = ValidationResultsPageRenderer(run_info_at_end=True).render(suite)
    return str(_page_view().render(document, show_how_to_buttons=False))  # type: ignore[no-untyped-call]


@functools.cache
def _page_view() -> DefaultJinjaPageView:
    """One for all pages: each view compiles its sixteen templates anew, an eighth of a second."""
    return DefaultJinjaPageView()


def _index(entries: Sequence[dict[str, Any]]) -> str:
    links = []
    for entry in sorted(entries, key=lambda e: e["at"], reverse=True):
        at = datetime.datetime.fromisoformat(entry["at"])
        links.append(
            {
                "expectation_suite_name": f"{entry['table']} → {entry['layer']}",
                "filepath": urllib.parse.quote(entry["page"]),
                "run_id": RunIdentifier(run_name=entry["run"], run_time=at),
                "batch_identifier": entry["table"],
                "validation_success": entry["success"],
                "run_time": at,
                "run_name": entry["run"],
                "asset_name": entry["table"],
                "batch_kwargs": {},
                "batch_spec": {},
                "expectation_suite_filepath": urllib.parse.quote(entry["page"]),
            }
        )
    site = OrderedDict(site_name="Lakeward", validations_links=links)
    document = SiteIndexPageRenderer.render(site)  # type: ignore[no-untyped-call]
    view = DefaultJinjaIndexPageView()
    return str(view.render(document, show_how_to_buttons=False))  # type: ignore[no-untyped-call]


def _kept(folder: Path) -> dict[str, dict[str, Any]]:
    try:
        entries = json.loads((folder / _INDEX).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a page that is lost is only a page
        return {}
    return {e["page"]: e for e in entries}


def _forget(folder: Path, entries: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Drop all but the newest RUNS_MAX runs of each layer."""
    newest: dict[str, dict[str, str]] = {}
    for entry in entries.values():
        runs = newest.setdefault(entry["layer"], {})
        run = Path(entry["page"]).parent.name
        runs[run] = max(runs.get(run, ""), entry["at"])
    kept: set[str] = set()
    for runs in newest.values():
        kept.update(sorted(runs, key=lambda run: runs[run], reverse=True)[:RUNS_MAX])
    for folder_of_run in (folder / "runs").iterdir():
        if folder_of_run.name not in kept:
            shutil.rmtree(folder_of_run, ignore_errors=True)
    return {page: e for page, e in entries.items() if Path(page).parent.name in kept}
