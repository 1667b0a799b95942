"""The gate counts and splits rows by Great Expectations' own conditions, so it agrees with its own validate()."""

from __future__ import annotations

import datetime
import itertools
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import great_expectations as gx
import pytest
from great_expectations.expectations.registry import get_expectation_impl

from lakeward.names import TableName
from lakeward.quality.evaluate import evaluate, split
from lakeward.quality.frame import of_rows
from lakeward.quality.predicates import ROW_LEVEL
from lakeward.quality.rules import Rule
from lakeward.schema import TableSchema, column_from_catalog

SCHEMA = TableSchema(
    TableName("shop", "odd"),
    (
        column_from_catalog("n", "int", nullable=True),
        column_from_catalog("m", "bigint", nullable=True),
        column_from_catalog("d", "decimal(8,2)", nullable=True),
        column_from_catalog("order items", "varchar(20)", nullable=True),
        column_from_catalog("s", "text", nullable=True),
        column_from_catalog("day", "date", nullable=True),
    ),
    ("n",),
    "primary",
)
DDL = "n INT, m BIGINT, d DECIMAL(8,2), `order items` STRING, s STRING, day DATE"
TEXTS = [None, "", "a", "ab", "\N{GRINNING FACE}", "line\nbreak", '{"a": 1}', "2024-01-01"]


def rows() -> list[tuple[Any, ...]]:
    """Every pair of odd values of neighbouring columns."""
    draw = random.Random(3)
    numbers = [None, -1, 0, 1, 2**31 - 1]
    decimals = [None, Decimal("-0.01"), Decimal("0.00"), Decimal("999999.99")]
    days = [None, datetime.date(1970, 1, 1), datetime.date(2024, 2, 29)]
    found = [
        (n, m, draw.choice(decimals), a, b, draw.choice(days))
        for (n, m), (a, b) in itertools.product(
            itertools.product(numbers, numbers), zip(TEXTS, TEXTS[::-1], strict=True)
        )
    ]
    return [*found, (None,) * 6, (None,) * 6]


def candidates() -> list[tuple[str, dict[str, Any]]]:
    single: list[tuple[str, dict[str, Any]]] = [
        ("not_be_null", {}),
        ("be_null", {}),
        ("be_unique", {}),
    ]
    found = [
        (f"expect_column_values_to_{k}", {"column": c, **v}) for k, v in single for c in ("n", "order items", "day")
    ]
    for column, low, high in [("n", 0, 1), ("m", -1, None), ("d", None, 0), ("day", "1971-01-01", None)]:
        for strict in (False, True):
            kwargs = {"column": column, "min_value": low, "max_value": high, "strict_min": strict, "strict_max": strict}
            found.append(("expect_column_values_to_be_between", kwargs))
    for column, values in [("n", [0, 1]), ("s", ["", "ab"]), ("order items", ["a"])]:
        for kind in ("be_in_set", "not_be_in_set"):
            found += [(f"expect_column_values_to_{kind}", {"column": column, "value_set": values})]
    for regex in ("^a", "", "^$", r"\S"):
        for kind in ("match_regex", "not_match_regex"):
            found += [(f"expect_column_values_to_{kind}", {"column": "s", "regex": regex})]
    lists = {"column": "s", "regex_list": ["^a", "b$"]}
    found.append(("expect_column_values_to_match_regex_list", {**lists, "match_on": "any"}))
    found.append(("expect_column_values_to_match_regex_list", {**lists, "match_on": "all"}))
    found.append(("expect_column_values_to_not_match_regex_list", lists))
    found.append(
        ("expect_column_value_lengths_to_be_between", {"column": "order items", "min_value": 1, "max_value": 2})
    )
    found.append(("expect_column_value_lengths_to_equal", {"column": "s", "value": 1}))
    found.append(("expect_column_values_to_be_json_parseable", {"column": "s"}))
    found.append(("expect_column_values_to_match_strftime_format", {"column": "s", "strftime_format": "%Y-%m-%d"}))
    for ignore in ("neither", "both_values_are_missing", "either_value_is_missing"):
        pair = {"column_A": "n", "column_B": "m", "ignore_row_if": ignore}
        found.append(("expect_column_pair_values_to_be_equal", pair))
        found += [("expect_column_pair_values_a_to_be_greater_than_b", {**pair, "or_equal": e}) for e in (True, False)]
        found.append(("expect_column_pair_values_to_be_in_set", {**pair, "value_pairs_set": [[0, 1], [1, 0]]}))
    for ignore in ("never", "all_values_are_missing", "any_value_is_missing"):
        several = {"column_list": ["n", "m"], "ignore_row_if": ignore}
        found.append(("expect_multicolumn_sum_to_equal", {**several, "sum_total": 1}))
        found.append(("expect_multicolumn_values_to_be_equal", several))
        found.append(("expect_select_column_values_to_be_unique_within_record", several))
        found.append(("expect_compound_columns_to_be_unique", several))
    return found


def rules() -> list[Rule]:
    draw = random.Random(7)
    condition = {"type": "pass_through", "pass_through_filter": "m > 0 OR s = 'ab'"}
    built: list[Rule] = []
    for kind, kwargs in candidates():
        more: dict[str, Any] = draw.choice(
            [{}, {}, {"mostly": draw.choice([0.1, 0.5, 0.9])}, {"row_condition": condition}]
        )
        if kind == "expect_column_pair_values_to_be_in_set":
            more.pop(
                "row_condition", None
            )  # Great Expectations 1.24 forgets it there, and then fails on its own counts
        expectation = get_expectation_impl(kind)(**kwargs, **more, meta={"number": len(built)})
        built.append(Rule(f"{len(built)} {kind}", expectation, "quarantine", "gold", origin="a suite"))
    return built


@pytest.fixture(scope="module", params=[False, True], ids=["any", "few"])
def judged(spark, request):
    frame = spark.createDataFrame(rows(), DDL).repartition(2).cache()
    batch = replace(of_rows(frame, SCHEMA), few=request.param)
    own = rules()
    results, predicates = evaluate(batch, own)
    yield frame, batch, own, results, predicates
    frame.unpersist()


def test_every_row_level_expectation_is_among_the_candidates():
    assert {kind for kind, _ in candidates()} == set(ROW_LEVEL)


def test_counts_and_verdicts_are_those_of_great_expectations_own_validate(judged):
    frame, _, own, results, _ = judged
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    asset = context.data_sources.add_spark("reference", persist=False).add_dataframe_asset("odd")
    part = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    suite = gx.ExpectationSuite(name="odd", expectations=[r.expectation.copy() for r in own])
    reference = part.validate(suite, result_format={"result_format": "BASIC", "partial_unexpected_count": 0}).results
    differences = []
    # It answers in an order of its own.
    by_number = {(r.expectation_config.meta or {})["number"]: r for r in reference if r.expectation_config}
    for number, (rule, found) in enumerate(zip(own, results, strict=True)):
        expected = by_number[number]
        assert found.validation is not None
        assert expected.result, (rule, expected.exception_info)
        ours = {"success": found.success, **found.validation.result}
        theirs = {"success": expected.success, **expected.result}
        keys = ("success", "element_count", "unexpected_count", "missing_count", "unexpected_percent")
        kwargs = rule.expectation.configuration.kwargs
        differences += [
            f"{rule.name} {kwargs}: {k} {ours.get(k)} {theirs.get(k)}" for k in keys if ours.get(k) != theirs.get(k)
        ]
    assert differences == []
    assert {r.success for r in results} == {True, False}


def test_the_split_holds_exactly_the_rows_that_were_counted(judged):
    frame, batch, _, results, predicates = judged
    passed, held = split(batch, predicates)
    marked = held.collect()
    names = [name for row in marked for name in row["__failed"]]
    assert {r.rule.name: r.failed for r in results if r.failed} == {n: names.count(n) for n in set(names)}
    assert passed.count() + len(marked) == frame.count()
    one = next(p for p in predicates if p.rule.expectation.configuration.type == "expect_column_values_to_be_between")
    passed, held = split(batch, [one])
    assert {r["n"] for r in passed.collect()} == {None, 0, 1}
    assert {r["__event"]["n"] for r in held.collect()} == {-1, 2**31 - 1}
