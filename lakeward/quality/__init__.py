"""Quality gates: Great Expectations between the layers, quarantine for rows that fail, Data Docs of what was
found.

Importing this package imports Great Expectations, which takes seconds of a cold start: only the stages that
gate do.
"""

from __future__ import annotations

from lakeward.quality.derived import derive
from lakeward.quality.docs import docs_folder, publish_docs
from lakeward.quality.gates import GateResult, gate, rules_of
from lakeward.quality.predicates import predicate
from lakeward.quality.quarantine import held_positions, mark_replayed, pending, quarantine_list
from lakeward.quality.replay import replay
from lakeward.quality.rules import Rule, RuleResult
from lakeward.quality.suites import check_suites, load_suite

__all__ = [
    "GateResult",
    "Rule",
    "RuleResult",
    "check_suites",
    "derive",
    "docs_folder",
    "gate",
    "held_positions",
    "load_suite",
    "mark_replayed",
    "pending",
    "predicate",
    "publish_docs",
    "quarantine_list",
    "replay",
    "rules_of",
]
