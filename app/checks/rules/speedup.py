"""`speedup`: no model slower than in the baseline by more than noise.

A change above the tolerance is judged as Compare judges it: by the 95 % intervals, or by the samples; where a side has
neither (upstream's CSVs), the tolerance alone decides. Fewer than three repeats decide nothing.
"""

from __future__ import annotations

from compileboard.app.analysis.metrics import BY_NAME
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
from compileboard.collectors.contract.verdicts import decide

WORDS = {"worse": "SLOWER", "better": "FASTER", "single": "FEW_SAMPLES"}


def check(actual: Side, expected: Side, options: RuleOptions) -> list[RuleVerdict]:
    """Compare the speedups of the models that both sides measured."""
    known = {row.name: row for row in expected.rows}
    verdicts = []
    for row in actual.rows:
        found, other = _speedup(row), known.get(row.name)
        wanted = _speedup(other) if other else None
        if other is None or wanted is None:
            if found is not None:
                verdicts.append(RULE.make(row.name, "MISSING", f"speedup={found:.3f}x, no expected one"))
        elif found is None:
            verdicts.append(RULE.make(row.name, *_format_missing(row, wanted)))
        else:
            verdicts.append(RULE.make(row.name, *_compare(row, other, found, wanted, options.tolerance)))
    return verdicts


def _speedup(row: RuleInput) -> float | None:
    value = read_number(row.cells.get("speedup"))
    return value if value else None  # 0 is upstream's padding: it was not measured


def _format_missing(row: RuleInput, wanted: float) -> tuple[str, str]:
    status, reason = row.cells.get("status"), row.cells.get("reason")
    said = f"speedup={wanted:.3f}x before; now {status or 'not measured'}" + (f": {reason}" if reason else "")
    return ("SKIPPED" if status in ("skipped", "not_run") else "FAIL"), said


def _compare(row: RuleInput, other: RuleInput, found: float, wanted: float, tolerance: float) -> tuple[str, str]:
    change = found / wanted - 1
    detail = f"speedup={_show(row, found)}, expected={_show(other, wanted)}, {change:+.1%}"
    batches = [it.series.get("batch_size") or None for it in (row, other)]
    if None not in batches and batches[0] != batches[1]:
        return "OTHER_BATCH_SIZE", f"{detail}; batch size {batches[0]}, expected {batches[1]}"
    if abs(change) <= tolerance:
        return "PASS", detail
    before = other.measure("speedup", wanted, _interval(other))
    after = row.measure("speedup", found, _interval(row))
    delta = decide(BY_NAME["speedup"], before, after, tolerance)
    word = WORDS.get(delta.word, "NOISE")
    return word, detail if word in ("SLOWER", "FASTER") else f"{detail}; {delta.reason}"


def _interval(row: RuleInput) -> tuple[float, float] | None:
    low, high = read_number(row.cells.get("speedup_low")), read_number(row.cells.get("speedup_high"))
    return None if low is None or high is None else (low, high)


def _show(row: RuleInput, value: float) -> str:
    interval = _interval(row)
    return f"{value:.3f}x" + (f" [{interval[0]:.3f}, {interval[1]:.3f}]" if interval else "")


RULE = Rule(
    name="speedup",
    said="no model slower than in the baseline: intervals apart and a change above the tolerance",
    source="CompileBoard",
    words={
        "PASS": PASS,
        "FASTER": PASS,
        "NOISE": PASS,
        "MISSING": NOTE,
        "SKIPPED": NOTE,
        "OTHER_BATCH_SIZE": NOTE,
        "FEW_SAMPLES": NOTE,
        "SLOWER": FAIL,
        "FAIL": FAIL,
    },
    check=check,
    applies=need_columns("speedup", both=True),
    is_default=True,
    is_performance=True,
)
