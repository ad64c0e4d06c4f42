"""Rules for measured numbers: no model may be worse than in the baseline beyond noise, as in
Compare.

Without stored repeats, the tolerance is used. Changes are ignored if there are fewer than three
measurements, or if eager mode explains them.

Sources: pytorch benchmarks/dynamo/check_perf_csv.py at 1983b53, check_memory_compression_ratio.py
at 20e7b45
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from compileboard.app.checks.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    Finding,
    Rule,
    RuleInput,
    RuleOptions,
    Side,
    describe_missing_columns,
    is_empty,
    read_number,
    require_columns,
    show,
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

WORDS = {"single": "FEW_SAMPLES", "eager": "EAGER_MOVED", "wrong": "WRONG_ANSWER"}


def _judge_row(
    row: RuleInput, other: RuleInput, thresholds: dict[str, float] | None = None
) -> dict[str, Verdict[ComparedMetric]]:
    return judge_sides(COMPARED, other.side, row.side, thresholds)


def _describe_basis(verdict: Verdict[ComparedMetric]) -> str:
    # If nothing is judged, the samples appear in both.
    reason = verdict.reason.partition("; ")[2] if verdict.word == "single" else verdict.reason
    return f"{verdict.basis}; {reason}" if reason else verdict.basis


@dataclass(frozen=True)
class _Comparison:
    column: str  # upstream's
    format: str
    words: tuple[str, str]  # worse, better
    threshold: float
    scale: float
    tells_missing: bool

    @property
    def _metric(self) -> str:
        return STORE_NAMES[self.column]

    def __call__(self, actual: Side, expected: Side, options: RuleOptions) -> Iterator[Finding]:
        known = {row.name: row for row in expected.rows}
        for row in actual.rows:
            other = known.get(row.name)
            value, before = self._read(row), self._read(other) if other else None
            if other is not None and value is not None and before is not None:
                tolerance = options.tolerance if self._metric == "speedup" else self.threshold
                yield row.name, *self._compare(row, other, value / before - 1, tolerance)
            elif self.tells_missing and before is not None:
                status, reason = row.cells.get("status"), row.cells.get("reason")
                yield (
                    row.name,
                    "SKIPPED" if status in ("skipped", "not_run") else "FAIL",
                    f"{self.column}={self.format.format(before * self.scale)} before; now "
                    f"{status or 'not measured'}{f': {reason}' if reason else ''}",
                )
            elif self.tells_missing and value is not None:
                yield row.name, "MISSING", f"{self.column}={self._show(row)}, no expected one"

    def _read(self, row: RuleInput) -> float | None:
        value = read_number(row.cells.get(self.column))
        # 0 is upstream's padding: it was not measured.
        return value if value and value > 0 else None

    def _compare(
        self, row: RuleInput, other: RuleInput, change: float, tolerance: float
    ) -> tuple[str, str]:
        detail = f"{self.column}={self._show(row)}, expected={self._show(other)}, {change:+.1%}"
        batch, expected_batch = (side.series.get("batch_size") for side in (row, other))
        if batch and expected_batch and batch != expected_batch:
            return "OTHER_BATCH_SIZE", f"{detail}; batch size {batch}, expected {expected_batch}"
        verdict = _judge_row(row, other, {self._metric: tolerance})[self._metric]
        if abs(change) <= tolerance and verdict.word != "wrong":
            return "PASS", detail
        words = WORDS | dict(zip(("worse", "better"), self.words))
        return words.get(verdict.word, "NOISE"), f"{detail}; {_describe_basis(verdict)}"

    def _show(self, row: RuleInput) -> str:
        interval = row.side.interval if self._metric == "speedup" else None
        text = self.format.format((self._read(row) or 0) * self.scale)
        return text + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


def _make_rule(
    name: str,
    about: str,
    column: str,
    format_text: str,
    *,
    words: tuple[str, str] = ("SLOWER", "FASTER"),
    threshold: float = COMPILE_THRESHOLD,
    scale: float = 1,
    is_optional: bool = True,
    tells_missing: bool = False,
) -> Rule:
    worse, better = words
    missing = {"MISSING": NOTE, "SKIPPED": NOTE, "FAIL": FAIL} if tells_missing else {}
    unclear = dict.fromkeys(("OTHER_BATCH_SIZE", *WORDS.values()), NOTE)
    return Rule(
        name=name,
        about=about,
        source="CompileBoard",
        words={"PASS": PASS, better: PASS, "NOISE": PASS, **unclear, worse: FAIL, **missing},
        find=_Comparison(column, format_text, words, threshold, scale, tells_missing),
        applies=require_columns(column, both=True),
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
SHARE = 0.95
RATIO = "compression_ratio"


def _find_ratios(actual: Side, expected: Side, _options: RuleOptions) -> Iterator[Finding]:
    known = {row.name: row for row in expected.rows}
    for row in actual.rows:
        cells = actual.get(row.name, RATIO), expected.get(row.name, RATIO)
        numbers = [read_number(cell) for cell in cells]
        shown = [
            show(cell) if number is None else f"{number:.2f}"
            for cell, number in zip(cells, numbers)
        ]
        detail = f"{RATIO}={shown[0]}, expected={shown[1]}"
        ratio, expected_ratio = numbers
        if cells[1] is None:
            yield row.name, "MISSING", f"{RATIO}={shown[0]}, no expected one"
        elif ratio is None or expected_ratio is None:
            yield row.name, "FAIL", detail
        elif ratio >= expected_ratio * SHARE:
            yield row.name, "PASS", detail
        elif not (row.repeats and known[row.name].repeats):  # upstream's files
            yield row.name, "FAIL", detail
        else:
            verdict = _judge_row(row, known[row.name])[RATIO]
            word = (WORDS | {"worse": "FAIL"}).get(verdict.word, "NOISE")
            yield row.name, word, f"{detail}; {_describe_basis(verdict)}"


MEMORY = Rule(
    name="memory",
    about="every compression ratio is at least 0.95 of the expected one",
    source="check_memory_compression_ratio.py",
    words={
        "PASS": PASS,
        "NOISE": PASS,
        "MISSING": NOTE,
        "FEW_SAMPLES": NOTE,
        "WRONG_ANSWER": NOTE,
        "FAIL": FAIL,
    },
    find=_find_ratios,
    applies=require_columns(RATIO, both=True),
    is_default=True,
    columns=(RATIO,),
    is_performance=True,
)
METRICS = {"speedup": "{:.3f}x", "abs_latency": "{:.1f} ms/iter"}


def _find_beyond_threshold(
    actual: Side, _expected: Side, options: RuleOptions
) -> Iterator[Finding]:
    threshold, metric = options.threshold or 0.0, options.metric
    worst, best = threshold * options.threshold_scale, threshold / options.threshold_scale
    sign, worse, better = 1, "<", ">"
    if metric != "speedup":
        sign, worse, better = -1, ">", "<"
    if metric != "speedup" or options.fail_on_improvement:
        worst, best = sorted((worst, best), reverse=sign < 0)
    for row in actual.rows:
        cell, reason = row.cells.get(metric), row.cells.get("reason")
        value = math.inf if str(cell) in ("inf", "Infinity") else read_number(cell)
        if value is None:
            problem = f": {reason}" if reason else ""
            problem = problem if is_empty(cell) else f": {cell!r} is not a number"
            yield row.name, "MISSING", f"no {metric}{problem}"
            continue
        shown, least, most = (METRICS[metric].format(number) for number in (value, worst, best))
        if value * sign < worst * sign:
            yield row.name, "REGRESSED", f"{metric}={shown} ({worse} {least})"
        elif options.fail_on_improvement and value * sign > best * sign:
            yield row.name, "IMPROVED", f"{metric}={shown} ({better} {most})"
        else:
            yield row.name, "PASS", f"{metric}={shown}"


def _applies_threshold(actual: Side, _expected: Side, options: RuleOptions) -> str:
    if options.metric not in METRICS:
        return f"the metric is {options.metric!r}, expected {' or '.join(METRICS)}"
    if options.threshold is None:
        return "it compares with a number, and no threshold was given"
    if options.threshold_scale <= 0:
        return f"the threshold's scale is {options.threshold_scale:g}, expected a number above 0"
    return "" if actual.has(options.metric) else describe_missing_columns(actual, (options.metric,))


PERFORMANCE = Rule(
    name="performance",
    about="speedup or abs_latency of every model within the threshold; needs no baseline",
    source="check_perf_csv.py",
    words={"PASS": PASS, "IMPROVED": IMPROVED, "REGRESSED": FAIL, "MISSING": FAIL},
    find=_find_beyond_threshold,
    applies=_applies_threshold,
    needs_baseline=False,
)
