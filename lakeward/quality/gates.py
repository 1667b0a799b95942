"""The gate between two layers: what passes, what is held back, and when nothing passes.

A gate decides on a whole batch of one table before anything of the batch is written. Its severities:

- `warn`: counted, said on stderr, shown in Data Docs.
- `quarantine`: the rows that fail are held back with the names of all the rules they failed. If a rule holds
  back more
  than its threshold's share of a batch of at least SHARE_ROWS_MIN rows, something is wrong with the batch
  rather than with the rows, and the gate stops. (In a smaller batch a share says nothing: one of two rows is
  50 %.)
- `stop`: one failure, and nothing of the batch passes.

Nothing is written here: `GateResult.hold()` appends to quarantine once every table's gate has passed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from pyspark.sql import DataFrame

from lakeward import state
from lakeward.config import Config
from lakeward.errors import GateStoppedError
from lakeward.lake import Lake
from lakeward.position import Position
from lakeward.quality import quarantine
from lakeward.quality.derived import derive
from lakeward.quality.docs import docs_folder, publish_docs
from lakeward.quality.evaluate import evaluate, split
from lakeward.quality.frame import VERSIONED, of_events, of_rows
from lakeward.quality.rules import GateLayer, Rule, RuleResult
from lakeward.quality.suites import load_suite
from lakeward.schema import TableSchema

SHARE_ROWS_MIN = 20
FEW_ROWS_MAX = 1_000
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GateResult:
    """A batch after its gate."""

    passed: DataFrame  # the columns that came in; the very frame that came in when nothing is held
    held: int  # rows
    warned: int  # rows and batches that failed a rule of severity warn, each counted once a rule
    results: list[RuleResult]
    _holding: quarantine.Holding | None = field(default=None, repr=False)

    def hold(self) -> None:
        """Append the held rows to the table's quarantine. The same run may do it again: they are there once."""
        if self._holding is not None:
            quarantine.hold(self._holding)


def rules_of(schema: TableSchema, layer: GateLayer, config: Config, versioned: tuple[str, ...] = ()) -> list[Rule]:
    """The derived rules and those of the user's suite that stand before `layer`. Raises ConfigError for a
    wrong suite."""
    masked = frozenset(config.table(schema.name).mask)
    return [
        *_derived(schema, layer, masked, versioned),
        *(r for r in load_suite(config, schema) if r.layer == layer),
    ]


@lru_cache(maxsize=1000)
def _derived(
    schema: TableSchema, layer: GateLayer, masked: frozenset[str], versioned: tuple[str, ...]
) -> tuple[Rule, ...]:
    return tuple(derive(schema, layer, masked=masked, versioned=versioned))


def gate(
    frame: DataFrame,
    *,
    schema: TableSchema,
    layer: GateLayer,
    config: Config,
    lake: Lake,
    run: int,
    begun: tuple[Position | None, int] | None = None,
    rows: int | None = None,
) -> GateResult:
    """Judge a batch on its way into `layer`.

    For `silver`, `frame` holds new events in bronze's envelope; for `gold`, changed silver rows (source
    columns, `__ts_ms` …, perhaps `_change_type` and `_commit_version`). It is read once, twice when rows
    fail. `begun` is where the table's newest snapshot stands, and its generation: looked up where it is not
    given, in a document of all tables. `rows` of the frame, where that is known.

    Raises GateStoppedError (exit code 3) when the gate stops; Data Docs of this table's results are written
    by then. Raises ConfigError for a suite that cannot be meant.
    """
    if layer == "silver":
        if begun is None:
            table = state.load_bronze(lake).tables.get(str(schema.name))
            begun = (table.start if table else None, table.generation if table else 0)
        batch = of_events(frame, schema, *begun, few=rows is not None and rows <= FEW_ROWS_MAX)
    else:
        batch = of_rows(frame, schema)
    versioned = tuple(c for c in VERSIONED if layer == "gold" and c in batch.flat.columns)
    settings = config.table(schema.name)
    secret = {*settings.mask, *settings.exclude_columns}
    results, judged = evaluate(batch, rules_of(schema, layer, config, versioned), secret)
    stopped = [r for r in results if not r.success and _stops(r, config)]
    if stopped:
        publish_docs(results, config, lake, run=run)
        raise _stop(stopped, layer, config, lake)
    warned = [r for r in results if not r.success and r.rule.severity == "warn"]
    for result in warned:
        log.warning("%s: %s%s", schema.name, result.sentence(), "".join(f"; {e}" for e in result.examples))
    failed = {r.rule.name for r in results if not r.success and r.rule.severity == "quarantine"}
    holding = [j for j in judged if j.rule.name in failed]
    seen = sum(r.failed for r in warned)
    if not holding:
        return GateResult(frame, 0, seen, results)
    passed, held = split(batch, holding)
    count = held.count()
    log.warning("%s: %d rows are held back in quarantine (%s)", schema.name, count, ", ".join(sorted(failed)))
    return GateResult(passed, count, seen, results, quarantine.Holding(held, schema, layer, lake, run))


def _stops(result: RuleResult, config: Config) -> bool:
    rule = result.rule
    if rule.severity == "stop":
        return True
    if rule.severity == "warn" or result.considered < SHARE_ROWS_MIN:
        return False
    return result.failed / result.considered > _threshold(rule, config)


def _threshold(rule: Rule, config: Config) -> float:
    return config.quality.threshold if rule.threshold is None else rule.threshold


def _stop(stopped: Sequence[RuleResult], layer: GateLayer, config: Config, lake: Lake) -> GateStoppedError:
    first = stopped[0]
    before = "bronze" if layer == "silver" else "silver"
    above = f", above its threshold of {_threshold(first.rule, config):.2%}" if first.rule.severity != "stop" else ""
    facts: dict[str, object] = {"table": str(first.table), "rule": first.rule.name, "failed": first.failed}
    facts["considered"] = first.considered
    if first.examples:
        facts["examples"] = "; ".join(first.examples)
    if len(stopped) > 1:
        facts["also_failed"] = "; ".join(r.sentence() for r in stopped[1:])
    folder = docs_folder(config, lake)
    if folder is not None:
        facts["data_docs"] = str(folder / "index.html")
    where = first.rule.origin
    remedy = f"mend the rows at the source, or the rule in {where}" if where else (
        "the rows contradict the source's own schema: run `lakeward doctor`, then `lakeward resnapshot "
        f"{first.table}` if the table was read wrongly"
    )  # fmt: skip
    return GateStoppedError(
        f"the gate between {before} and {layer} stopped at {first.table}: {first.sentence()}{above}; "
        "nothing of this batch passed",
        hint=f"{remedy}; then run the same command again",
        **facts,
    )
