"""Rules that compare a run with a baseline: pure functions, one module each, all of them in RULES.

Those named after an upstream checker give that checker's verdicts and its exit code.
"""

from __future__ import annotations

from collections.abc import Iterable

from compileboard.app.checks.rules import (
    accuracy,
    distinct,
    graph_breaks,
    incidents,
    measured,
    memory,
    missing_model,
    performance,
    pr_time,
)
from compileboard.app.checks.rules.model import Rule

RULES: tuple[Rule, ...] = (
    accuracy.RULE,
    graph_breaks.RULE,
    graph_breaks.EXACT_RULE,
    performance.RULE,
    memory.RULE,
    pr_time.RULE,
    accuracy.CSV_RULE,
    missing_model.RULE,
    missing_model.MISSING_BASELINE_RULE,
    distinct.NEW_BREAKS_RULE,
    distinct.NEW_RECOMPILES_RULE,
    *measured.RULES,
    incidents.RULE,
)
DEFAULT = "default"


def find_rules(names: Iterable[str]) -> list[Rule]:
    """Return the named rules; `default` is all default rules. Raises ValueError for an unknown
    rule.
    """
    known = {rule.name: rule for rule in RULES}
    chosen = list(names) or [DEFAULT]
    for name in chosen:
        if name not in known and name != DEFAULT:
            raise ValueError(
                f"there is no rule {name[:80]!r}; the rules are {', '.join([DEFAULT, *known])}"
            )
    return [
        rule for rule in RULES if rule.name in chosen or (rule.is_default and DEFAULT in chosen)
    ]
