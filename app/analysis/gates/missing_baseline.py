"""`missing-baseline`: every model of the run is in the baseline."""

from __future__ import annotations

from compileboard.app.analysis.gates.model import FAIL, PASS, Options, Rule, Side, Verdict


def check(actual: Side, expected: Side, _options: Options) -> list[Verdict]:
    """Look for every model of the run."""
    known = expected.names()
    detail = f"not in {expected.title}"
    return [
        RULE.make(name, "PASS") if name in known else RULE.make(name, "MISSING_BASELINE", detail)
        for name in dict.fromkeys(row.name for row in actual.rows)
    ]


def _applies(actual: Side, _expected: Side, _options: Options) -> str:
    return "" if actual.rows else f"{actual.title} has no results"


RULE = Rule(
    name="missing-baseline",
    said="every model of the run is in the baseline",
    source="CompileBoard",
    words={"PASS": PASS, "MISSING_BASELINE": FAIL},
    check=check,
    applies=_applies,
)
