"""`new-recompiles`: no cause of recompiles that the baseline has not."""

from __future__ import annotations

from compileboard.app.analysis.gates.distinct import compare, need_recorded
from compileboard.app.analysis.gates.model import FAIL, NOTE, PASS, Options, Rule, Side, Verdict


def check(actual: Side, expected: Side, _options: Options) -> list[Verdict]:
    """Compare causes of recompiles by fingerprint."""
    words = ("NEW_RECOMPILE", "RESOLVED")
    return compare(RULE, actual.causes or (), expected.causes or (), (actual, expected), words)


RULE = Rule(
    name="new-recompiles",
    said="no cause of recompiles that the baseline has not",
    source="CompileBoard",
    words={"PASS": PASS, "RESOLVED": NOTE, "NEW_RECOMPILE": FAIL},
    check=check,
    applies=need_recorded("causes", "recompiles"),
    is_default=True,
)
