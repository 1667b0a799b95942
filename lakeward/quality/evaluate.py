"""Every rule over one batch in one Spark action, judged by Great Expectations.

Great Expectations' own `validate()` runs a Spark job for each kind of domain and about 20 ms of metric graph
for each metric: 0.5 to 0.9 s for four rules over 1,000 rows, where a MERGE of such a batch takes about one.
Here its conditions (`predicates.py`) are counted together in one aggregation, and the counts are handed to
the expectation's own `_validate`, which knows `mostly` and writes the result that Data Docs render. A test
holds the two ways equal.

An expectation about the batch as a whole (a mean, a row count) goes through `validate()` itself.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Collection, Sequence
from functools import reduce
from typing import Any

import great_expectations as gx
from great_expectations.core import ExpectationValidationResult
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakeward.errors import ConfigError
from lakeward.quality.count import Judged, count, judge
from lakeward.quality.frame import EVENT, Batch
from lakeward.quality.predicates import ROW_LEVEL, both, predicate
from lakeward.quality.rules import Rule, RuleResult

EXAMPLES_MAX = 3
EXAMPLE_RULES_MAX = 20  # failing rules of one batch that get examples
_VALIDATING = threading.Lock()  # Great Expectations' context is one a process
_BASIC = {"result_format": {"result_format": "BASIC", "partial_unexpected_count": EXAMPLES_MAX}}


def evaluate(
    batch: Batch, rules: Sequence[Rule], masked: Collection[str] = ()
) -> tuple[list[RuleResult], list[Judged]]:
    """The result of each rule, in order, and the row-level ones with their predicates.

    `masked` columns appear in no example. Raises ConfigError for a rule that cannot be evaluated on this
    table.
    """
    by_row = [prepare(batch, rule) for rule in rules if rule.kind in ROW_LEVEL]
    try:
        counted = {j.rule.name: j for j in count(batch, by_row)}
    except PySparkException:
        _blame(batch, by_row)
        raise
    failing = [j for j in counted.values() if j.failed]
    examples = _examples(batch, failing, masked) if failing else {}
    results = []
    for rule in rules:
        judged = counted.get(rule.name)
        if judged is None:
            results.append(_whole(batch, rule, masked))
            continue
        verdict = _verdict(judged, [value for _, value in examples.get(rule.name, [])])
        success = bool(verdict.success)
        sentences = tuple(text for text, _ in examples.get(rule.name, []))
        considered = judged.considered
        results.append(RuleResult(batch.schema.name, rule, success, considered, judged.failed, sentences, verdict))
    return results, list(counted.values())


def prepare(batch: Batch, rule: Rule) -> Judged:
    """A row-level rule with its predicate over this batch. Raises ConfigError for one that Spark cannot
    analyse."""
    # What follows from the table's schema does so in every batch, and a Column belongs to no frame.
    there = batch.flat.sparkSession._jvm
    kept: Judged | None = rule.prepared.get(there)
    if kept is not None:
        return kept
    try:
        found = predicate(rule.expectation, batch.flat)
    except PySparkException as error:
        raise _wrong(batch, rule, error) from error
    judged = judge(rule, found, batch.within(rule.scope))
    if rule.origin is None:
        rule.prepared[there] = judged
    return judged


def _blame(batch: Batch, judged: Sequence[Judged]) -> None:
    """Raise ConfigError for the user's rule that Spark refuses; return when each is well by itself."""
    for j in judged:
        if j.rule.origin is None:
            continue
        try:
            batch.flat.where(j.fails()).limit(1).count()
        except PySparkException as error:
            raise _wrong(batch, j.rule, error) from error


def _wrong(batch: Batch, rule: Rule, error: PySparkException) -> ConfigError:
    return ConfigError(
        f"rule {rule.name!r} of {batch.schema.name} cannot be evaluated: {error.getMessage()}",
        hint=f"mend its kwargs in {rule.origin}",
    )


def _verdict(judged: Judged, values: list[Any]) -> ExpectationValidationResult:
    expectation = judged.rule.expectation
    metric = expectation.map_metric  # type: ignore[attr-defined]
    metrics = {
        "column_values.nonnull.unexpected_count": judged.nulls,
        "table.row_count": judged.rows,
        f"{metric}.filtered_row_count": judged.considered,
        f"{metric}.unexpected_count": judged.failed,
        f"{metric}.unexpected_values": values,
    }
    found = expectation._validate(metrics=metrics, runtime_configuration=_BASIC)
    doc: dict[str, Any] = dict(found) if isinstance(found, dict) else dict(found.to_json_dict())
    return ExpectationValidationResult(
        success=bool(doc["success"]),
        expectation_config=expectation.configuration,
        result=doc.get("result", {}),
        meta={},
        exception_info={"raised_exception": False, "exception_traceback": None, "exception_message": None},
    )


def _whole(batch: Batch, rule: Rule, masked: Collection[str]) -> RuleResult:
    """A rule about the batch as a whole, by `validate()`; what it observed is left out where a column is
    masked."""
    rows = batch.flat.where(both(batch.within("row"))).select(*[F.col(c) for c in batch.names.values()])
    with _VALIDATING:
        found = _validate(rows, rule, str(batch.schema.name))
    info = found.exception_info or {}
    raised = info if "raised_exception" in info else next(iter(info.values()), {})
    if raised.get("raised_exception"):
        raise ConfigError(
            f"rule {rule.name!r} of {batch.schema.name} cannot be evaluated: {raised['exception_message']}",
            hint=f"mend its kwargs in {rule.origin}",
        )
    secret = {batch.names.get(m, m) for m in masked}
    observed = found.result.get("observed_value")
    if secret.intersection(rule.columns):
        found.result = {}
        observed = "(masked)"
    examples = () if found.success else (f"observed {_text(observed)}",)
    return RuleResult(batch.schema.name, rule, bool(found.success), 1, 0 if found.success else 1, examples, found)


def _validate(rows: DataFrame, rule: Rule, name: str) -> ExpectationValidationResult:
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    asset = context.data_sources.add_spark("lake", persist=False).add_dataframe_asset(name)
    part = asset.add_batch_definition_whole_dataframe("batch").get_batch({"dataframe": rows})
    found: ExpectationValidationResult = part.validate(rule.expectation, result_format="BASIC")
    return found


def _examples(batch: Batch, failing: Sequence[Judged], masked: Collection[str]) -> dict[str, list[tuple[str, Any]]]:
    """Up to three rows a failing rule: a sentence with its key and the value, and the value for Data Docs;
    one action."""
    secret = {batch.names.get(m, m) for m in masked}
    keys = [batch.names[k] for k in batch.schema.keys]
    shown = sorted({*keys, *(c for j in failing for c in j.rule.columns)} - secret)
    row = F.struct(*[F.col(c) for c in shown]) if shown else F.struct(F.lit(0).alias("nothing"))
    failing = failing[:EXAMPLE_RULES_MAX]
    picks = []
    for n, judged in enumerate(failing):
        # Each rule's mark stands in its own branch, so that one rule's window is not another's cost.
        marked = batch.flat.select(F.lit(n).alias("n"), row.alias("row"), judged.fails().alias("fails"))
        picks.append(marked.where("fails").drop("fails").limit(EXAMPLES_MAX))
    found: dict[str, list[tuple[str, Any]]] = {j.rule.name: [] for j in failing}
    for line in reduce(DataFrame.unionAll, picks).collect():
        judged = failing[line["n"]]
        found[judged.rule.name].append(_example(batch, judged.rule, line["row"], secret))
    return found


def _example(batch: Batch, rule: Rule, row: Row, secret: Collection[str]) -> tuple[str, Any]:
    def value(column: str) -> str:
        return "(masked)" if column in secret else _text(row[column])

    key = ", ".join(f"{k} = {value(batch.names[k])}" for k in batch.schema.keys) or "a row"
    offending = [c for c in rule.columns if batch.shown(c) not in batch.schema.keys or not batch.schema.keys]
    what = ", ".join(f"{batch.shown(c)} = {value(c)}" for c in offending)
    values = tuple(value(c) for c in rule.columns)
    return f"{key}: {what}" if what else key, values[0] if len(values) == 1 else values


def _text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, (bytes, bytearray)):
        return f"0x{bytes(value[:20]).hex()}"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"


def split(batch: Batch, holding: Sequence[Judged]) -> tuple[DataFrame, DataFrame]:
    """(the events that pass, as they came; those that fail with `__failed`, the names of all rules they
    failed)."""
    marks = [F.when(j.fails(), F.lit(j.rule.name)) for j in holding]
    marked = batch.flat.select(F.col(EVENT), F.array_compact(F.array(*marks)).alias("__failed"))
    passed = batch.event(marked.where(F.size("__failed") == 0))
    return passed, marked.where(F.size("__failed") > 0)
