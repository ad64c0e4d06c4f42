"""`new-breaks`: no distinct graph break that the baseline has not; a moved line is the same break."""

from __future__ import annotations

from app.analysis.gates.distinct import compare
from app.analysis.gates.model import FAIL, NOTE, PASS, Options, Rule, Side, Verdict


def check(actual: Side, expected: Side, _options: Options) -> list[Verdict]:
    """Compare distinct graph breaks by fingerprint."""
    return compare(RULE, actual.breaks or (), expected.breaks or (), (actual, expected), ("NEW_BREAK", "RESOLVED"))


def _applies(actual: Side, expected: Side, _options: Options) -> str:
    for side in (actual, expected):
        if side.breaks is None:
            return f"{side.title} has no recorded graph breaks, only counts"
    return ""


RULE = Rule(
    name="new-breaks",
    said="no distinct graph break that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_BREAK": FAIL},
    check=check,
    applies=_applies,
    is_default=True,
)
