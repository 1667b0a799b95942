"""How many rows each rule speaks about and how many fail it: one query for all of a batch's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lakeward.quality.derived import PLACE
from lakeward.quality.frame import Batch
from lakeward.quality.predicates import Predicate, both, duplicated
from lakeward.quality.rules import Rule

AGGREGATES_MAX = 120  # in one query; past it generated code outgrows what the JVM compiles


@dataclass(frozen=True)
class Judged:
    """A row-level rule, how it tells rows apart, and what it counted."""

    rule: Rule
    predicate: Predicate
    within: Column | None  # None: every row
    conditions: dict[str, Column] = field(repr=False)  # what is counted of it; rules of one scope share some
    counts: Counts
    place: Column | None = field(
        default=None, repr=False
    )  # of uniqueness over an event's place: it, NULL where not counted
    rows: int = 0  # of the rule's scope and row_condition
    considered: int = 0  # of them, those its ignore_row_if leaves
    nulls: int = 0  # of those, without a value in the one column it is about
    failed: int = 0

    def fails(self) -> Column:
        """Whether a row of the flat frame fails. Never NULL. A window where the rule is about uniqueness."""
        if self.predicate.fails is None:
            return duplicated(self.predicate, self.within)
        return both(self.within, self.predicate.applies, self.predicate.fails)


@dataclass(frozen=True)
class Counts:
    """What a rule's counts are called among those of its batch."""

    rows: str
    considered: str
    nulls: str | None
    failed: str


def judge(rule: Rule, predicate: Predicate, within: Column | None) -> Judged:
    """A rule that has counted nothing yet."""
    whole = not rule.kwargs.get("row_condition")  # then rules of one scope share their counts
    domain = within if whole else both(within, predicate.domain)
    shared = f"in {rule.scope}" if whole else f"of {rule.name}"
    rows = considered = f"rows {shared}"
    nulls, failed = None, f"failed {rule.name}"
    wanted = {rows: both(domain)}
    if column := rule.kwargs.get("column"):
        nulls = f"nulls {shared} {column}"
        wanted[nulls] = both(domain, F.col(column).isNull())
    else:
        considered = f"considered {rule.name}"
        wanted[considered] = both(within, predicate.applies)
    if predicate.fails is not None:
        wanted[failed] = both(within, predicate.applies, predicate.fails)
    named = {name: condition.alias(name) for name, condition in wanted.items()}
    place = None
    if predicate.fails is None and set(predicate.grouped) <= set(PLACE):  # whole numbers: equal to Spark and to Python
        place = F.when(both(within, predicate.applies), F.struct(*predicate.grouped))
    return Judged(rule, predicate, within, named, Counts(rows, considered, nulls, failed), place)


def count(batch: Batch, judged: Sequence[Judged]) -> list[Judged]:
    """The rules with their counts."""
    wanted: dict[str, Column] = {}
    for j in judged:
        wanted |= j.conditions
    unique = [j for j in judged if j.predicate.fails is None]
    found = (_by_rows if batch.few else _by_query)(batch, wanted, unique)
    return [
        replace(
            j,
            rows=found[j.counts.rows],
            considered=found[j.counts.considered],
            nulls=found[j.counts.nulls] if j.counts.nulls else 0,
            failed=found[j.counts.failed],
        )
        for j in judged
    ]


def _by_query(batch: Batch, wanted: dict[str, Column], unique: Sequence[Judged]) -> dict[str, int]:
    """By aggregation, in one action."""
    counts = [F.count_if(condition).alias(name) for name, condition in wanted.items()]
    parts = [counts[i : i + AGGREGATES_MAX] for i in range(0, len(counts), AGGREGATES_MAX)]
    queries = [batch.flat.agg(*part) for part in parts] + [_duplicates(batch, j) for j in unique]
    if not queries:
        return {}
    row = reduce(lambda a, b: a.crossJoin(b), queries).collect()[0]
    return {name: int(value) for name, value in row.asDict().items()}


def _by_rows(batch: Batch, wanted: dict[str, Column], unique: Sequence[Judged]) -> dict[str, int]:
    """By what each row says. Spark evaluates that without a job where the driver holds the rows, and without a shuffle
    where it does not; what follows costs many times more than to look at a few rows here."""
    placed = [j for j in unique if j.place is not None]
    places = [j.place for j in placed if j.place is not None]
    rows = batch.flat.select(*wanted.values(), *places).collect() if wanted else []
    columns = list(zip(*rows, strict=True)) or [()] * (len(wanted) + len(places))
    found = {name: sum(values) for name, values in zip(wanted, columns[: len(wanted)], strict=True)}
    for j, values in zip(placed, columns[len(wanted) :], strict=True):
        peers = Counter(value for value in values if value is not None)
        found[j.counts.failed] = sum(n for n in peers.values() if n > 1)
    return found | _by_query(batch, {}, [j for j in unique if j.place is None])


def _duplicates(batch: Batch, j: Judged) -> DataFrame:
    """How many rows share their values with another: by grouping, which sorts nothing and carries only those
    columns."""
    rows = batch.flat.where(both(j.within, j.predicate.applies, j.predicate.among))
    groups = rows.groupBy(*[F.col(c) for c in j.predicate.grouped]).agg(F.count(F.lit(1)).alias("peers"))
    failed = F.coalesce(F.sum(F.when(F.col("peers") > 1, F.col("peers"))), F.lit(0))
    return groups.agg(failed.alias(j.counts.failed))
