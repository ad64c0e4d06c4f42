"""Rules that compare a run with a baseline. Each is a pure function listed in RULES.

Those named after an upstream checker give that checker's verdicts and its exit code.
"""

from __future__ import annotations

from collections.abc import Iterable

from compileboard.app.checks.model import CannotCompare, Rule
from compileboard.app.checks.rules import counts, measured, model_results

RULES: tuple[Rule, ...] = (
    model_results.ACCURACY,
    counts.GRAPH_BREAKS,
    counts.GRAPH_BREAKS_EXACT,
    measured.PERFORMANCE,
    measured.MEMORY,
    counts.PR_TIME,
    model_results.CSV,
    model_results.VANISHED,
    model_results.MISSING_BASELINE,
    counts.NEW_BREAKS,
    counts.NEW_RECOMPILES,
    counts.NEW_RERECORDINGS,
    *measured.RULES,
    model_results.INCIDENTS,
)
DEFAULT = "default"


def find_rules(names: Iterable[str]) -> list[Rule]:
    """Return the named rules; `default` is all default rules. Raises CannotCompare for an unknown
    rule.
    """
    known = {rule.name: rule for rule in RULES}
    chosen = list(names) or [DEFAULT]
    for name in chosen:
        if name not in known and name != DEFAULT:
            raise CannotCompare(
                f"there is no rule {name[:80]!r}; the rules are {', '.join([DEFAULT, *known])}"
            )
    return [
        rule for rule in RULES if rule.name in chosen or (rule.is_default and DEFAULT in chosen)
    ]
