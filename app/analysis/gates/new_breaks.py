"""`new-breaks`: no distinct graph break that the baseline has not; a moved line is the same break."""

from __future__ import annotations

from compileboard.app.analysis.gates.distinct import compare, need_recorded
from compileboard.app.analysis.gates.model import FAIL, NOTE, PASS, Options, Rule, Side, Verdict


def check(actual: Side, expected: Side, _options: Options) -> list[Verdict]:
    """Compare distinct graph breaks by fingerprint."""
    return compare(RULE, actual.breaks or (), expected.breaks or (), (actual, expected), ("NEW_BREAK", "RESOLVED"))


RULE = Rule(
    name="new-breaks",
    said="no distinct graph break that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_BREAK": FAIL},
    check=check,
    applies=need_recorded("breaks", "graph breaks"),
    is_default=True,
)
