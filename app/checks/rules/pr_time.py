"""`pr-time`: counts of instructions within a margin, as upstream's check_results.py decides.

A win fails too: the expected number has to follow, or the next regression hides in it.
Source: pytorch benchmarks/dynamo/pr_time_benchmarks/check_results.py at 0140b62
"""

from __future__ import annotations

from collections.abc import Iterator

from compileboard.app.checks.rules.model import (
    FAIL,
    IMPROVED,
    NOTE,
    PASS,
    Rule,
    RuleOptions,
    RuleVerdict,
    Side,
    describe_lack,
    read_number,
)

COLUMNS = ("compile_time_instruction_count", "instruction_count")
KEPT_DIGITS = 4


def metric_margin(metric: str) -> str:
    return f"{metric}_noise_margin"


def list_counts(side: Side) -> dict[tuple[str, str], int]:
    counts = {}
    for row in side.rows:
        for column, cell in row.cells.items():
            value = read_number(cell)
            if value is not None and (column in COLUMNS or metric_margin(column) in row.cells):
                counts[row.name, column] = cell if isinstance(cell, int) else int(value)
    return counts


def check(actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
    actual_counts = list_counts(actual)
    expected_counts = list_counts(expected)
    verdicts = []
    for (name, metric), value in expected_counts.items():
        count = actual_counts.get((name, metric))
        if count is None:
            verdicts.append(
                RULE.make(name, "MISSING", f"{metric} is not in the run, expected {value}")
            )
            continue
        margin = _margin(expected, name, metric, options)
        ratio = _ratio(count, value)
        detail = f"{metric}={count} {ratio:+.2f}%, expected {value} ±{margin * 100:.2f}%"
        verdicts.append(RULE.make(name, _word(count, value, margin), detail))
    extra = (key for key in actual_counts if key not in expected_counts)
    return verdicts + [
        RULE.make(name, "MISSING_REGRESSION_TEST", f"{metric}={actual_counts[name, metric]}")
        for name, metric in extra
    ]


def propose(
    actual: Side, expected: Side, options: RuleOptions
) -> Iterator[tuple[str, str, int, float]]:
    actual_counts = list_counts(actual)
    for (name, metric), value in list_counts(expected).items():
        margin = _margin(expected, name, metric, options)
        count = actual_counts.get((name, metric), value)
        has_moved = abs(_ratio(count, value)) > margin * 100 / 3
        yield name, metric, round_down(count) if has_moved else value, margin


def round_down(number: int) -> int:
    dropped: int = 10 ** max(0, len(str(abs(number))) - KEPT_DIGITS)
    return (number // dropped) * dropped


def _margin(expected: Side, name: str, metric: str, options: RuleOptions) -> float:
    margin = read_number(expected.get(name, metric_margin(metric)))
    return options.noise_margin if margin is None else margin


def _ratio(count: int, value: int) -> float:
    if value == 0:
        return 0.0 if count == 0 else 100.0
    return float(count - value) * 100 / value


def _word(count: int, value: int, margin: float) -> str:
    if count > value + value * margin:
        return "REGRESSION"
    return "WIN" if count < value - value * margin else "PASS"


def _applies(actual: Side, expected: Side, _options: RuleOptions) -> str:
    for side in (actual, expected):
        if not list_counts(side):
            return describe_lack(side, COLUMNS)
    return ""


RULE = Rule(
    name="pr-time",
    about=(
        "every count of instructions within its margin; a win fails too, and a new baseline is "
        "proposed"
    ),
    source="pr_time_benchmarks/check_results.py",
    words={
        "PASS": PASS,
        "MISSING_REGRESSION_TEST": NOTE,
        "WIN": IMPROVED,
        "REGRESSION": FAIL,
        "MISSING": FAIL,
    },
    check=check,
    applies=_applies,
    is_default=True,
    is_performance=True,
)
