"""A comparison as plain values, for the API and the JSON and CSV reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compileboard.app.analysis.comparison.model import (
    MACHINE_FIELDS,
    MODEL_FIELDS,
    CompareSide,
    Comparison,
    DistinctDiff,
    Excluded,
    MetricDelta,
    MetricSum,
    ModelPair,
    ModelResult,
)
from compileboard.app.analysis.comparison.summary import summarize
from compileboard.app.queries.fleet.comparison import FunctionCost

SERIES = (*MODEL_FIELDS, *MACHINE_FIELDS)
_NUMBERS = (
    "base",
    "new",
    "change",
    "verdict",
    "method",
    "detail",
    "p_value",
    "ratio_low",
    "ratio_high",
)
COLUMNS = (*SERIES, "outcome", "reason", "base_run_id", "new_run_id", "metric", "unit", *_NUMBERS)


def comparison_row(comparison: Comparison) -> dict[str, Any]:
    return {
        "base": _side(comparison.base),
        "new": _side(comparison.new),
        "anyway": comparison.anyway,
        "refused": list(comparison.refused),
        "warnings": list(comparison.warnings),
        "common_count": len(comparison.pairs),
        "metrics": [_sum(metric_sum) for metric_sum in comparison.sums],
        "models": [_pair(pair) for pair in comparison.pairs],
        "only_base": [_entry(result) for result in comparison.only_base],
        "only_new": [_entry(result) for result in comparison.only_new],
        "excluded": [_excluded(exclusion) for exclusion in comparison.excluded],
        "graph_breaks": _diff(comparison.breaks),
        "recompile_causes": _diff(comparison.causes),
        "totals": {total.metric.name: _delta(total) for total in comparison.totals},
        "functions": [_functions(*function) for function in comparison.functions],
        "environment": list(comparison.environment),
        "settings": list(comparison.settings),
        "summary": summarize(comparison),
    }


def list_lines(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for pair in comparison.pairs:
        head = _line(pair.new, "compared", pair.warning, pair.base.run_id, pair.new.run_id)
        for delta in pair.deltas.values():
            yield head | {"metric": delta.metric.name, "unit": delta.metric.unit} | _delta(delta)
        if pair.accuracy:
            words = {"base": pair.base.accuracy, "new": pair.new.accuracy}
            verdict = "worse" if pair.accuracy == "broke" else "better"
            yield head | {"metric": "accuracy", "verdict": verdict} | words
    for exclusion in comparison.excluded:
        yield _line(
            exclusion.new, "excluded", exclusion.reason, exclusion.base.run_id, exclusion.new.run_id
        )
    for outcome, entries in (
        ("only_base", comparison.only_base),
        ("only_new", comparison.only_new),
    ):
        for entry in entries:
            sides = (entry.run_id, None) if outcome == "only_base" else (None, entry.run_id)
            yield _line(entry, outcome, "", *sides)


def _line(
    entry: ModelResult, outcome: str, reason: str, base_run: str | None, new_run: str | None
) -> dict[str, Any]:
    return _series(entry) | {
        "outcome": outcome,
        "reason": reason or None,
        "base_run_id": base_run,
        "new_run_id": new_run,
    }


def _series(entry: ModelResult) -> dict[str, Any]:
    return {name: entry.series.get(name) for name in SERIES}


def _side(compiled: CompareSide) -> dict[str, Any]:
    return {"asked": compiled.asked, "title": compiled.title, "runs": list(compiled.runs)}


def _sum(compiled: MetricSum) -> dict[str, Any]:
    return {
        "metric": compiled.metric.name,
        "label": compiled.metric.label,
        "unit": compiled.metric.unit,
        "direction": compiled.metric.direction,
        "mean": "sum" if compiled.metric.kind == "count" else "geometric mean",
        "count": compiled.count,
        "base": compiled.base,
        "new": compiled.new,
        "change": compiled.change,
        "verdict": compiled.overall and compiled.overall.word,
        "basis": compiled.overall and compiled.overall.reason,
        "verdicts": dict(compiled.verdicts),
        "methods": dict(compiled.methods),
    }


def _delta(compiled: MetricDelta) -> dict[str, Any]:
    low, high = compiled.ratio_interval or (None, None)
    numbers = (
        compiled.base,
        compiled.new,
        compiled.change,
        compiled.word,
        compiled.method,
        compiled.reason,
        compiled.p_value,
        low,
        high,
    )
    return dict(zip(_NUMBERS, numbers)) | {"basis": compiled.basis}


def _pair(compiled: ModelPair) -> dict[str, Any]:
    return _series(compiled.new) | {
        "base_run_id": compiled.base.run_id,
        "new_run_id": compiled.new.run_id,
        "base_accuracy": compiled.base.accuracy,
        "new_accuracy": compiled.new.accuracy,
        "accuracy_change": compiled.accuracy or None,
        "warning": compiled.warning or None,
        "metrics": {name: _delta(delta) for name, delta in compiled.deltas.items()},
    }


def _entry(compiled: ModelResult) -> dict[str, Any]:
    return _series(compiled) | {
        "run_id": compiled.run_id,
        "status": compiled.status,
        "reason": compiled.reason,
    }


def _excluded(compiled: Excluded) -> dict[str, Any]:
    return _series(compiled.new) | {
        "base_run_id": compiled.base.run_id,
        "new_run_id": compiled.new.run_id,
        "reason": compiled.reason,
    }


def _diff(diff: DistinctDiff) -> dict[str, Any]:
    names = ("fingerprint", "kind", "reason", "function", "file", "line")
    changes = [
        {name: getattr(change.what, name) for name in names}
        | {
            "model": change.model,
            "word": change.word,
            "base_count": change.base_count,
            "new_count": change.new_count,
        }
        for change in diff.changes
    ]
    return {"not_compared": diff.lacks or None, "left_out_count": diff.left_out, "changes": changes}


def _functions(base: FunctionCost | None, new: FunctionCost | None) -> dict[str, Any]:
    named = new or base
    assert named is not None  # a pair has at least one
    return {"file": named.file, "function": named.name, "base": base, "new": new}
