"""A comparison as plain values: the API's answer, the JSON and CSV reports."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
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
from compileboard.app.queries.fleet.comparison import FunctionSum

SERIES = (*MODEL_FIELDS, *MACHINE_FIELDS)
_NUMBERS = ("base", "new", "change", "verdict", "method", "detail", "p_value", "ratio_low", "ratio_high")
COLUMNS = (*SERIES, "outcome", "reason", "base_run_id", "new_run_id", "metric", "unit", *_NUMBERS)


def comparison_row(found: Comparison) -> dict[str, Any]:
    """Write everything that a comparison found."""
    return {
        "base": _side(found.base),
        "new": _side(found.new),
        "anyway": found.anyway,
        "refused": list(found.refused),
        "warnings": list(found.warnings),
        "common_count": len(found.pairs),
        "metrics": [_sum(it) for it in found.sums],
        "models": [_pair(it) for it in found.pairs],
        "only_base": [_entry(it) for it in found.only_base],
        "only_new": [_entry(it) for it in found.only_new],
        "excluded": [_excluded(it) for it in found.excluded],
        "graph_breaks": _diff(found.breaks),
        "recompile_causes": _diff(found.causes),
        "totals": {it.metric.name: _delta(it) for it in found.totals},
        "functions": [_functions(*it) for it in found.functions],
        "environment": [asdict(it) for it in found.environment],
        "settings": [asdict(it) | {"differs": it.differs} for it in found.settings],
    }


def list_lines(found: Comparison) -> Iterator[dict[str, Any]]:
    """Yield a line a model and metric, then the models that are left out, each with the reason."""
    for pair in found.pairs:
        head = _line(pair.new, "compared", pair.warning, pair.base.run_id, pair.new.run_id)
        for delta in pair.deltas.values():
            yield head | {"metric": delta.metric.name, "unit": delta.metric.unit} | _delta(delta)
        if pair.accuracy:
            words = {"base": pair.base.accuracy, "new": pair.new.accuracy}
            verdict = "worse" if pair.accuracy == "broke" else "better"
            yield head | {"metric": "accuracy", "verdict": verdict} | words
    for it in found.excluded:
        yield _line(it.new, "excluded", it.reason, it.base.run_id, it.new.run_id)
    for outcome, entries in (("only_base", found.only_base), ("only_new", found.only_new)):
        for entry in entries:
            sides = (entry.run_id, None) if outcome == "only_base" else (None, entry.run_id)
            yield _line(entry, outcome, "", *sides)


def _line(entry: ModelResult, outcome: str, reason: str, base_run: str | None, new_run: str | None) -> dict[str, Any]:
    return _series(entry) | {
        "outcome": outcome,
        "reason": reason or None,
        "base_run_id": base_run,
        "new_run_id": new_run,
    }


def _series(entry: ModelResult) -> dict[str, Any]:
    return {name: entry.series.get(name) for name in SERIES}


def _side(it: CompareSide) -> dict[str, Any]:
    return {"asked": it.asked, "title": it.title, "runs": [asdict(run) for run in it.runs]}


def _sum(it: MetricSum) -> dict[str, Any]:
    return {
        "metric": it.metric.name,
        "label": it.metric.label,
        "unit": it.metric.unit,
        "direction": it.metric.direction,
        "mean": "sum" if it.metric.kind == "count" else "geometric mean",
        "count": it.count,
        "base": it.base,
        "new": it.new,
        "change": it.change,
        "verdict": it.overall and it.overall.word,
        "basis": it.overall and it.overall.reason,
        "verdicts": dict(it.verdicts),
        "methods": dict(it.methods),
    }


def _delta(it: MetricDelta) -> dict[str, Any]:
    low, high = it.ratio_interval or (None, None)
    numbers = (it.base, it.new, it.change, it.word, it.method, it.reason, it.p_value, low, high)
    return dict(zip(_NUMBERS, numbers)) | {"basis": it.basis}


def _pair(it: ModelPair) -> dict[str, Any]:
    return _series(it.new) | {
        "base_run_id": it.base.run_id,
        "new_run_id": it.new.run_id,
        "base_accuracy": it.base.accuracy,
        "new_accuracy": it.new.accuracy,
        "accuracy_change": it.accuracy or None,
        "warning": it.warning or None,
        "metrics": {name: _delta(delta) for name, delta in it.deltas.items()},
    }


def _entry(it: ModelResult) -> dict[str, Any]:
    return _series(it) | {"run_id": it.run_id, "status": it.status, "reason": it.reason}


def _excluded(it: Excluded) -> dict[str, Any]:
    return _series(it.new) | {"base_run_id": it.base.run_id, "new_run_id": it.new.run_id, "reason": it.reason}


def _diff(it: DistinctDiff) -> dict[str, Any]:
    names = ("fingerprint", "kind", "reason", "function", "file", "line")
    changes = [
        {name: getattr(one.what, name) for name in names}
        | {"model": one.model, "word": one.word, "base_count": one.base_count, "new_count": one.new_count}
        for one in it.changes
    ]
    return {"not_compared": it.lacks or None, "left_out_count": it.left_out, "changes": changes}


def _functions(base: FunctionSum | None, new: FunctionSum | None) -> dict[str, Any]:
    named = new or base
    assert named is not None  # a pair has at least one
    sides = {name: None if it is None else _spent(it) for name, it in (("base", base), ("new", new))}
    return {"file": named.file, "function": named.name} | sides


def _spent(it: FunctionSum) -> dict[str, int | None]:
    return {
        "compile_count": it.compile_count,
        "graph_break_count": it.graph_break_count,
        "recompile_count": it.recompile_count,
        "compile_us": it.compile_us,
    }
