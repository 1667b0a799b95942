"""What a gate checks, and what it found: the words that the rest of this package shares.

A rule is one expectation of Great Expectations with what Lakeward adds to it: what happens to a row that
fails it (`severity`), between which layers it stands (`layer`) and which of a batch's events it speaks about
(`scope`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.expectation import Expectation

from lakeward.names import TableName

Severity = Literal["warn", "quarantine", "stop"]
GateLayer = Literal["silver", "gold"]
Scope = Literal["event", "keyed", "row"]
"""event: each event of the batch; keyed: c, u, r and d, which name a row; row: c, u and r, which carry one."""

SEVERITIES: tuple[Severity, ...] = ("warn", "quarantine", "stop")
LAYERS: tuple[GateLayer, ...] = ("silver", "gold")


@dataclass(frozen=True)
class Rule:
    """One expectation and what Lakeward does about it."""

    name: str  # unique within a table; what quarantine, messages and Data Docs call it
    expectation: Expectation
    severity: Severity
    layer: GateLayer = "silver"  # between bronze and silver, or between silver and gold
    scope: Scope = "row"
    threshold: float | None = None  # share of the batch's rows it may hold back; None: [quality] threshold
    origin: str | None = None  # the suite's file; None where the rule is derived from the schema
    prepared: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)  # JVM → a derived rule, judged

    @cached_property
    def kwargs(self) -> dict[str, Any]:
        """The expectation's, which it would put together anew each time."""
        return self.expectation.configuration.kwargs

    @cached_property
    def kind(self) -> str:
        return self.expectation.configuration.type

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the expectation names, as the gate's flat frame calls them."""
        kwargs = self.kwargs
        single = [kwargs[k] for k in ("column", "column_A", "column_B") if kwargs.get(k) is not None]
        return tuple(single) + tuple(kwargs.get("column_list") or ())


@dataclass(frozen=True)
class RuleResult:
    """What one rule found in one batch of one table."""

    table: TableName
    rule: Rule
    success: bool  # the verdict of Great Expectations, `mostly` included
    considered: int  # rows or events the rule spoke about
    failed: int  # of them; 0 or 1 for a rule about the whole batch
    examples: tuple[str, ...] = ()  # up to three, `key: column = value`; nothing of a masked column
    validation: ExpectationValidationResult | None = field(default=None, repr=False, compare=False)

    def sentence(self) -> str:
        """`rule 'fare is positive' failed for 3 of 120 rows`."""
        what = "events" if self.rule.scope == "event" else "rows"
        return f"rule {self.rule.name!r} failed for {self.failed} of {self.considered} {what}"


def plain(name: str, taken: frozenset[str] = frozenset()) -> str:
    """A column's name as the gate's flat frame bears it.

    Great Expectations and Spark read a dot as a path into a struct and a backtick as a quote, so a column
    that has one takes the look-alike instead; every other name is itself.
    """
    shown = name.replace(".", "\N{ONE DOT LEADER}").replace("`", "\N{MODIFIER LETTER GRAVE ACCENT}")
    while shown != name and shown in taken:
        shown += "_"
    return shown


def plain_kwargs(kwargs: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """An expectation's kwargs with the source's column names as the flat frame bears them."""
    changed = dict(kwargs)
    for key in ("column", "column_A", "column_B"):
        if isinstance(changed.get(key), str):
            changed[key] = names.get(changed[key], changed[key])
    if isinstance(changed.get("column_list"), list):
        changed["column_list"] = [names.get(c, c) for c in changed["column_list"]]
    return changed
