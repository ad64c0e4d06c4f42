"""`performance`: a metric against a threshold, as upstream's check_perf_csv.py; no baseline.

Source: pytorch benchmarks/dynamo/check_perf_csv.py at 1983b53
"""

from __future__ import annotations

import math

from compileboard.app.checks.rules.model import (
    FAIL,
    IMPROVED,
    PASS,
    Rule,
    RuleInput,
    RuleOptions,
    RuleVerdict,
    Side,
    describe_lack,
    is_empty,
    read_number,
)

METRICS = ("speedup", "abs_latency")
_UNITS = {"speedup": ".3f}x", "abs_latency": ".1f} ms/iter"}


def check(actual: Side, _expected: Side, options: RuleOptions) -> list[RuleVerdict]:
    threshold = 0.0 if options.threshold is None else options.threshold
    bounds = (threshold * options.threshold_scale, threshold / options.threshold_scale)
    low, high = min(bounds), max(bounds)
    if options.metric == "speedup":
        worst = low if options.fail_on_improvement else bounds[0]
        return [_check_row(row, options, worst, high, is_higher_better=True) for row in actual.rows]
    return [_check_row(row, options, high, low, is_higher_better=False) for row in actual.rows]


def _check_row(
    row: RuleInput, options: RuleOptions, worst: float, best: float, *, is_higher_better: bool
) -> RuleVerdict:
    cell = row.cells.get(options.metric)
    value = math.inf if str(cell) in ("inf", "Infinity") else read_number(cell)
    if value is None:
        problem = "" if is_empty(cell) else f": {cell!r} is no number"
        reason = row.cells.get("reason")
        return RULE.make(
            row.name,
            "MISSING",
            f"no {options.metric}{problem or (f': {reason}' if reason else '')}",
        )
    sign = 1 if is_higher_better else -1
    shown = f"{options.metric}={_show(options.metric, value)}"
    worse, better = ("<", ">") if is_higher_better else (">", "<")
    if value * sign < worst * sign:
        return RULE.make(row.name, "REGRESSED", f"{shown} ({worse} {_show(options.metric, worst)})")
    if options.fail_on_improvement and value * sign > best * sign:
        return RULE.make(row.name, "IMPROVED", f"{shown} ({better} {_show(options.metric, best)})")
    return RULE.make(row.name, "PASS", shown)


def _show(metric: str, value: float) -> str:
    return ("{:" + _UNITS[metric]).format(value)


def _applies(actual: Side, _expected: Side, options: RuleOptions) -> str:
    if options.metric not in METRICS:
        return f"the metric is {options.metric!r}, expected {' or '.join(METRICS)}"
    if options.threshold is None:
        return "it compares with a number, and no threshold was given"
    if options.threshold_scale <= 0:
        return f"the threshold's scale is {options.threshold_scale:g}, expected a number above 0"
    return "" if actual.has(options.metric) else describe_lack(actual, (options.metric,))


RULE = Rule(
    name="performance",
    about="speedup or abs_latency of every model within the threshold; needs no baseline",
    source="check_perf_csv.py",
    words={"PASS": PASS, "IMPROVED": IMPROVED, "REGRESSED": FAIL, "MISSING": FAIL},
    check=check,
    applies=_applies,
    needs_baseline=False,
)
