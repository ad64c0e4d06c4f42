"""No model worse than the baseline beyond noise: a rule for each measured number.

Without stored repeats the tolerance decides. Fewer than three measurements decide nothing, nor does
a change from eager mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from compileboard.collectors.contract.result_columns import STORE_NAMES
from compileboard.collectors.contract.verdicts import (
    COMPARED,
    COMPILE_THRESHOLD,
    THRESHOLD,
    ComparedMetric,
    Verdict,
    judge_sides,
)

WORDS = {
    "single": "FEW_SAMPLES",
    "eager": "EAGER_MOVED",
    "wrong": "WRONG_ANSWER",
}
OUTCOMES = {
    "NOISE": PASS,
    "OTHER_BATCH_SIZE": NOTE,
    "FEW_SAMPLES": NOTE,
    "EAGER_MOVED": NOTE,
    "WRONG_ANSWER": NOTE,
}


@dataclass(frozen=True)
class MeasuredCheck:
    rule: str
    column: str  # upstream's
    metric: str  # of COMPARED
    format: str
    threshold: float = COMPILE_THRESHOLD
    scale: float = 1
    words: tuple[str, str] = ("SLOWER", "FASTER")  # worse, better
    tells_missing: bool = False

    def __call__(self, actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
        known = {row.name: row for row in expected.rows}
        verdicts = (self._check(row, known.get(row.name), options) for row in actual.rows)
        rule = next(rule for rule in RULES if rule.name == self.rule)
        return [
            rule.make(row.name, *verdict)
            for row, verdict in zip(actual.rows, verdicts)
            if verdict is not None
        ]

    def _check(
        self, row: RuleInput, other: RuleInput | None, options: RuleOptions
    ) -> tuple[str, str] | None:
        value = self._read(row)
        before = self._read(other) if other else None
        if other is not None and value is not None and before is not None:
            tolerance = options.tolerance if self.metric == "speedup" else self.threshold
            return self._compare(row, other, value / before - 1, tolerance)
        if not self.tells_missing or value is before is None:
            return None
        if before is None:
            return "MISSING", f"{self.column}={self._show(row)}, no expected one"
        status, reason = row.cells.get("status"), row.cells.get("reason")
        detail = (
            f"{self.column}={self.format.format(before * self.scale)} before; now "
            f"{status or 'not measured'}"
        )
        return ("SKIPPED" if status in ("skipped", "not_run") else "FAIL"), detail + (
            f": {reason}" if reason else ""
        )

    def _read(self, row: RuleInput) -> float | None:
        value = read_number(row.cells.get(self.column))
        return (
            value if value and value > 0 else None
        )  # 0 is upstream's padding: it was not measured

    def _compare(
        self, row: RuleInput, other: RuleInput, change: float, tolerance: float
    ) -> tuple[str, str]:
        detail = f"{self.column}={self._show(row)}, expected={self._show(other)}, {change:+.1%}"
        batches = [side.series.get("batch_size") or None for side in (row, other)]
        if None not in batches and batches[0] != batches[1]:
            return "OTHER_BATCH_SIZE", f"{detail}; batch size {batches[0]}, expected {batches[1]}"
        verdict = judge_row(row, other, {self.metric: tolerance})[self.metric]
        if abs(change) <= tolerance and verdict.word != "wrong":
            return "PASS", detail
        words = WORDS | dict(zip(("worse", "better"), self.words))
        return words.get(verdict.word, "NOISE"), f"{detail}; {describe_basis(verdict)}"

    def _show(self, row: RuleInput) -> str:
        interval = row.side.interval if self.metric == "speedup" else None
        text = self.format.format((self._read(row) or 0) * self.scale)
        return text + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def judge_row(
    row: RuleInput, other: RuleInput, thresholds: dict[str, float] | None = None
) -> dict[str, Verdict[ComparedMetric]]:
    return judge_sides(COMPARED, other.side, row.side, thresholds)


def describe_basis(verdict: Verdict[ComparedMetric]) -> str:
    # What is not judged has the samples in both.
    reason = verdict.reason.partition("; ")[2] if verdict.word == "single" else verdict.reason
    return f"{verdict.basis}; {reason}" if reason else verdict.basis


def _make_rule(
    name: str, about: str, column: str, format_text: str, is_optional: bool = True, **check: Any
) -> Rule:
    words = check.setdefault("words", ("SLOWER", "FASTER"))
    worse, better = words
    tells_missing = (
        {"MISSING": NOTE, "SKIPPED": NOTE, "FAIL": FAIL} if check.get("tells_missing") else {}
    )
    return Rule(
        name=name,
        about=about,
        source="CompileBoard",
        words={"PASS": PASS, better: PASS, **OUTCOMES, worse: FAIL, **tells_missing},
        check=MeasuredCheck(name, column, STORE_NAMES[column], format_text, **check),
        applies=need_columns(column, both=True),
        is_default=True,
        is_performance=True,
        is_optional=is_optional,
        columns=() if tells_missing else (column,),
    )


_BEYOND = f"beyond noise, and by more than {COMPILE_THRESHOLD:.0%}"
RULES = (
    _make_rule(
        "speedup",
        "no model slower than in the baseline: beyond noise, and a change above the tolerance",
        "speedup",
        "{:.3f}x",
        is_optional=False,
        tells_missing=True,
    ),
    _make_rule(
        "compile-time",
        f"no model compiled slower than in the baseline: {_BEYOND}",
        "compilation_latency",
        "{:.3f} s",
        is_optional=False,
    ),
    _make_rule(
        "export-time",
        f"nothing exports slower than in the baseline: {_BEYOND}",
        "export_latency",
        "{:.3f} s",
    ),
    _make_rule(
        "load-time",
        f"nothing loads slower than in the baseline: {_BEYOND}",
        "load_latency",
        "{:.4f} s",
    ),
    _make_rule(
        "package-size",
        f"no package larger than in the baseline by more than {THRESHOLD:.0%}",
        "package_bytes",
        "{:,.0f}",
        threshold=THRESHOLD,
        words=("LARGER", "SMALLER"),
    ),
    _make_rule(
        "scaling-efficiency",
        f"no efficiency of several ranks lower than in the baseline by more than {THRESHOLD:.0%}",
        "scaling_efficiency",
        "{:.1f}%",
        scale=100,
        threshold=THRESHOLD,
        words=("LOWER", "HIGHER"),
    ),
    _make_rule(
        "quantized-error",
        (
            "no quantized model further from float32 than in the baseline by more than "
            f"{THRESHOLD:.0%}"
        ),
        "quantized_error",
        "{:.4g}%",
        scale=100,
        threshold=THRESHOLD,
        words=("LARGER", "SMALLER"),
    ),
)
