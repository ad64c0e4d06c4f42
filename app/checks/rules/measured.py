"""`speedup`, `compile-time`: no model worse than in the baseline by more than noise, as Compare judges it.

Where the repeats of a speedup are not kept (upstream's CSVs), the tolerance alone decides. What was measured less than
three times decides nothing, nor does what moved because eager mode did.
"""

from __future__ import annotations

from dataclasses import dataclass

from compileboard.app.checks.rules.model import (
    FAIL,
    NOTE,
    PASS,
    Rule,
    RuleInput,
    RuleOptions,
    RuleVerdict,
    Side,
    need_columns,
    read_number,
)
from compileboard.collectors.contract.verdicts import (
    COMPARED,
    COMPILE_THRESHOLD,
    ComparedMetric,
    Verdict,
    judge_sides,
)

WORDS = {
    "worse": "SLOWER",
    "better": "FASTER",
    "single": "FEW_SAMPLES",
    "eager": "EAGER_MOVED",
    "wrong": "WRONG_ANSWER",
}
OUTCOMES = {
    "PASS": PASS,
    "FASTER": PASS,
    "NOISE": PASS,
    "OTHER_BATCH_SIZE": NOTE,
    "FEW_SAMPLES": NOTE,
    "EAGER_MOVED": NOTE,
    "WRONG_ANSWER": NOTE,
    "SLOWER": FAIL,
}


@dataclass(frozen=True)
class MeasuredCheck:
    """A measured metric of each model that both sides have; what one side lacks is told where `tells_missing`."""

    rule: str
    column: str  # upstream's
    metric: str  # of COMPARED
    format: str
    tells_missing: bool = False

    def __call__(self, actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
        """Compare the models that both sides measured."""
        known = {row.name: row for row in expected.rows}
        verdicts = (self._check(row, known.get(row.name), options) for row in actual.rows)
        rule = next(rule for rule in RULES if rule.name == self.rule)
        return [rule.make(row.name, *verdict) for row, verdict in zip(actual.rows, verdicts) if verdict is not None]

    def _check(self, row: RuleInput, other: RuleInput | None, options: RuleOptions) -> tuple[str, str] | None:
        value = self._read(row)
        before = self._read(other) if other else None
        if other is not None and value is not None and before is not None:
            tolerance = options.tolerance if self.metric == "speedup" else COMPILE_THRESHOLD
            return self._compare(row, other, value / before - 1, tolerance)
        if not self.tells_missing or value is before is None:
            return None
        if before is None:
            return "MISSING", f"{self.column}={self.format.format(value)}, no expected one"
        status, reason = row.cells.get("status"), row.cells.get("reason")
        detail = f"{self.column}={self.format.format(before)} before; now {status or 'not measured'}"
        return ("SKIPPED" if status in ("skipped", "not_run") else "FAIL"), detail + (f": {reason}" if reason else "")

    def _read(self, row: RuleInput) -> float | None:
        value = read_number(row.cells.get(self.column))
        return value if value and value > 0 else None  # 0 is upstream's padding: it was not measured

    def _compare(self, row: RuleInput, other: RuleInput, change: float, tolerance: float) -> tuple[str, str]:
        detail = f"{self.column}={self._show(row)}, expected={self._show(other)}, {change:+.1%}"
        batches = [side.series.get("batch_size") or None for side in (row, other)]
        if None not in batches and batches[0] != batches[1]:
            return "OTHER_BATCH_SIZE", f"{detail}; batch size {batches[0]}, expected {batches[1]}"
        verdict = judge_row(row, other, {self.metric: tolerance})[self.metric]
        if abs(change) <= tolerance and verdict.word != "wrong":
            return "PASS", detail
        return WORDS.get(verdict.word, "NOISE"), f"{detail}; {describe_basis(verdict)}"

    def _show(self, row: RuleInput) -> str:
        interval = row.side.interval if self.metric == "speedup" else None
        text = self.format.format(self._read(row))
        return text + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def judge_row(
    row: RuleInput, other: RuleInput, thresholds: dict[str, float] | None = None
) -> dict[str, Verdict[ComparedMetric]]:
    """Return Compare's verdicts on a model: other's numbers are what was."""
    return judge_sides(COMPARED, other.side, row.side, thresholds)


def describe_basis(verdict: Verdict[ComparedMetric]) -> str:
    """Return what a verdict rests on, and how that came out."""
    # What is not judged has the samples in both.
    reason = verdict.reason.partition("; ")[2] if verdict.word == "single" else verdict.reason
    return f"{verdict.basis}; {reason}" if reason else verdict.basis


RULE = Rule(
    name="speedup",
    about="no model slower than in the baseline: beyond noise, and a change above the tolerance",
    source="CompileBoard",
    words=OUTCOMES | {"MISSING": NOTE, "SKIPPED": NOTE, "FAIL": FAIL},
    check=MeasuredCheck("speedup", "speedup", "speedup", "{:.3f}x", tells_missing=True),
    applies=need_columns("speedup", both=True),
    is_default=True,
    is_performance=True,
)
COMPILE_TIME_RULE = Rule(
    name="compile-time",
    about=f"no model compiled slower than in the baseline: beyond noise, and by more than {COMPILE_THRESHOLD:.0%}",
    source="CompileBoard",
    words=OUTCOMES,
    check=MeasuredCheck("compile-time", "compilation_latency", "compilation_latency_s", "{:.3f} s"),
    applies=need_columns("compilation_latency", both=True),
    is_default=True,
    is_performance=True,
    columns=("compilation_latency",),
)
RULES = (RULE, COMPILE_TIME_RULE)
