"""The condition under which a row fails an expectation, as Great Expectations itself builds it for Spark.

A gate has to do two things with an expectation: count the rows that fail it, and split them off. If those two
were written apart they would drift apart (an inverted predicate, a NULL judged differently). So both use one
Column, and that Column comes out of Great Expectations' own metric `<metric>.condition`, called directly: its
metric graph would cost 20 ms a metric and a Spark job a domain. A NULL condition means that the row passes,
as it does there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any

from great_expectations.exceptions.exceptions import GreatExpectationsError
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.expectation import Expectation
from great_expectations.expectations.registry import get_metric_provider
from great_expectations.expectations.row_conditions import Condition, PassThroughCondition
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lakeward.errors import ConfigError

UNIQUE = ("expect_column_values_to_be_unique", "expect_compound_columns_to_be_unique")
ROW_LEVEL = (
    "expect_column_values_to_not_be_null",
    "expect_column_values_to_be_null",
    "expect_column_values_to_be_in_set",
    "expect_column_values_to_not_be_in_set",
    "expect_column_values_to_be_between",
    "expect_column_value_lengths_to_be_between",
    "expect_column_value_lengths_to_equal",
    "expect_column_values_to_match_regex",
    "expect_column_values_to_not_match_regex",
    "expect_column_values_to_match_regex_list",
    "expect_column_values_to_not_match_regex_list",
    "expect_column_pair_values_a_to_be_greater_than_b",
    "expect_column_pair_values_to_be_equal",
    "expect_column_pair_values_to_be_in_set",
    "expect_column_values_to_be_json_parseable",
    "expect_column_values_to_match_strftime_format",
    "expect_multicolumn_sum_to_equal",
    "expect_multicolumn_values_to_be_equal",
    "expect_select_column_values_to_be_unique_within_record",
    *UNIQUE,
)


@dataclass(frozen=True)
class Predicate:
    """When a row fails. No condition is ever NULL; None in place of `domain` or `applies` is each row.

    A Column costs a dozen calls into the JVM, so none is made that says nothing.
    """

    domain: Column | None  # the rows its row_condition leaves
    applies: Column | None  # of those, what its ignore_row_if leaves: the rows the expectation speaks about
    fails: Column | None  # of those; None for uniqueness, which no row shows alone
    grouped: tuple[str, ...] = ()  # uniqueness: the columns that no two rows may share
    among: Column | None = None  # uniqueness: the rows that are held against each other


def both(*conditions: Column | None) -> Column:
    """All of the conditions that there are; true where there is none."""
    given = [c for c in conditions if c is not None]
    return reduce(lambda a, b: a & b, given) if given else F.lit(True)


def _among(kind: str, grouped: tuple[str, ...]) -> Column | None:
    """Great Expectations leaves NULLs out where one column has to be unique: many rows may lack a value."""
    return F.col(grouped[0]).isNotNull() if kind == UNIQUE[0] else None


def true(condition: Column) -> Column:
    """NULL as false."""
    return F.coalesce(condition, F.lit(False))


def predicate(expectation: Expectation, frame: DataFrame) -> Predicate:
    """The predicate of a row-level expectation over `frame`. No Spark job runs.

    Raises ConfigError where Great Expectations refuses the expectation for this frame.
    """
    kwargs = expectation.configuration.kwargs
    condition, kept = _row_condition(expectation, frame), _not_ignored(kwargs)
    domain = None if condition is None else true(condition)
    applies = domain if kept is None else both(domain, kept)
    kind = expectation.configuration.type
    if kind in UNIQUE:
        grouped = tuple(kwargs.get("column_list") or [kwargs["column"]])
        return Predicate(domain, applies, None, grouped, among=_among(kind, grouped))
    return Predicate(domain, applies, true(_condition(expectation, frame)))


def duplicated(rule: Predicate, within: Column | None) -> Column:
    """The window form of a uniqueness predicate: whether a row shares its values with another of `within`."""
    counted = both(within, rule.applies, rule.among)
    peers = F.sum(F.when(counted, 1).otherwise(0)).over(Window.partitionBy(*[F.col(c) for c in rule.grouped]))
    return counted & (peers > 1)


def _condition(expectation: Expectation, frame: DataFrame) -> Column:
    engine = SparkDFExecutionEngine(spark=frame.sparkSession, persist=False)
    engine.load_batch_data("batch", frame)
    metric = f"{expectation.map_metric}.unexpected_count"  # type: ignore[attr-defined]
    runtime = {"result_format": {"result_format": "BASIC"}}
    needed = expectation.get_validation_dependencies(engine, runtime).metric_configurations[metric]
    domain = {
        k: v for k, v in needed.metric_domain_kwargs.items() if k in ("column", "column_A", "column_B", "column_list")
    }
    if "column_A" in domain:
        domain["ignore_row_if"] = "neither"
    if "column_list" in domain:
        domain["ignore_row_if"] = "never"
    metrics: dict[str, Any] = {
        "table.columns": frame.columns,
        "table.column_types": [{"name": f.name, "type": f.dataType} for f in frame.schema.fields],
    }
    try:
        if "value_length" in metric:
            mapped = "column_values.value_length.map"
            metrics[mapped] = _call(mapped, engine, domain, {}, metrics)
        name = metric.removesuffix("unexpected_count") + "condition"
        found = _call(name, engine, domain, dict(needed.metric_value_kwargs), metrics)
    except (GreatExpectationsError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{expectation.configuration.type}({', '.join(map(str, domain.values()))}) cannot be checked: {error}",
            hint="mend its kwargs in the suite",
        ) from error
    condition: Column = found[0]
    return condition


def _call(
    metric: str,
    engine: SparkDFExecutionEngine,
    domain: dict[str, Any],
    values: dict[str, Any],
    metrics: dict[str, Any],
) -> Any:
    provider, function = get_metric_provider(metric, engine)
    return function(
        cls=provider,
        execution_engine=engine,
        metric_domain_kwargs=domain,
        metric_value_kwargs=values,
        metrics=metrics,
        runtime_configuration={},
    )


def _row_condition(expectation: Expectation, frame: DataFrame) -> Column | None:
    condition: Condition | None = getattr(expectation, "row_condition", None)
    if not condition:
        return None
    if isinstance(condition, PassThroughCondition):
        return F.expr(condition.pass_through_filter)
    engine = SparkDFExecutionEngine(spark=frame.sparkSession, persist=False)
    return F.expr(engine.condition_to_filter_clause(condition))


def _not_ignored(kwargs: dict[str, Any]) -> Column | None:
    columns = kwargs.get("column_list") or [kwargs[k] for k in ("column_A", "column_B") if k in kwargs]
    if not columns:
        return None
    nulls = [F.col(c).isNull() for c in columns]
    default = "all_values_are_missing" if "column_list" in kwargs else "both_values_are_missing"
    how = str(kwargs.get("ignore_row_if") or default)
    if how in ("all_values_are_missing", "both_values_are_missing"):
        return ~reduce(lambda a, b: a & b, nulls)
    if how in ("any_value_is_missing", "either_value_is_missing"):
        return ~reduce(lambda a, b: a | b, nulls)
    return None
