"""A comparison as tables: the choice of metrics, the models and their order, and the text of a
cell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from compileboard.app.benchmarks.metrics import BY_NAME, Metric, format_value
from compileboard.app.comparison.model import (
    COMPARED,
    GROUPS,
    ComparedReasons,
    Comparison,
    MetricDelta,
    ModelPair,
    format_names,
    group_of,
)
from compileboard.app.core.format import format_count, format_number, format_plural
from compileboard.app.core.page import FilterError, check_order
from compileboard.collectors.contract.verdicts import CHANGED, count_models

DEFAULT_ORDER = "worst"
_RANK = {"worse": 0, "changed": 1, "better": 2}
_SIGN = {True: "+", False: ""}


@dataclass(frozen=True)
class TableSelection:
    group: str
    metrics: tuple[Metric, ...]
    rows: tuple[ModelPair, ...]


def choose(
    comparison: Comparison, metric: str | None, sort: str, only_changes: bool
) -> TableSelection:
    """Select and sort the shown models. Raises FilterError for an unknown metric or order."""
    group, metrics = pick_metrics(comparison, metric)
    rows = [pair for pair in comparison.pairs if not only_changes or has_changed(pair, metrics)]
    return TableSelection(group, metrics, tuple(_sort_pairs(rows, metrics, sort)))


def pick_metrics(comparison: Comparison, metric: str | None) -> tuple[str, tuple[Metric, ...]]:
    """Return the key and metrics of a group. Raises FilterError for an unknown metric or group."""
    known = {metric_sum.metric.name for metric_sum in comparison.sums}
    if metric and metric not in GROUPS and metric not in BY_NAME:
        names = (*GROUPS, *(compared.name for compared in COMPARED))
        raise FilterError(f"metric: {metric[:40]!r} is not one of {', '.join(names)}")
    if metric and metric not in GROUPS:
        if BY_NAME[metric] not in COMPARED:
            raise FilterError(
                f"metric: {metric} is not compared; "
                f"{', '.join(known.name for known in COMPARED)} are"
            )
        return group_of(metric), (BY_NAME[metric],)
    key = metric or next(
        (key for key, (_label, names) in GROUPS.items() if known & set(names)), "speed"
    )
    return key, tuple(BY_NAME[name] for name in GROUPS[key][1] if name in known)


def has_changed(pair: ModelPair, metrics: Sequence[Metric]) -> bool:
    return bool(pair.accuracy) or any(
        delta.word in CHANGED for metric in metrics if (delta := pair.deltas.get(metric.name))
    )


def list_verdicts(pairs: Sequence[ModelPair]) -> Mapping[str, int]:
    accuracy = {"broke": ["worse"], "fixed": ["better"]}
    return count_models(
        [*(delta.word for delta in pair.deltas.values()), *accuracy.get(pair.accuracy, ())]
        for pair in pairs
    )


def _sort_pairs(rows: list[ModelPair], metrics: Sequence[Metric], sort: str) -> list[ModelPair]:
    known = (DEFAULT_ORDER, "model", *(metric.name for metric in metrics))
    order, direction = check_order(sort, known)
    if order == DEFAULT_ORDER:
        return sorted(
            rows,
            key=lambda model_pair: _pair_severity(model_pair, metrics),
            reverse=direction == "asc",
        )
    if order == "model":
        return sorted(
            rows, key=lambda model_pair: model_pair.model.lower(), reverse=direction != "asc"
        )
    changes = [(row, _delta_size(row.deltas[order])) for row in rows if order in row.deltas]
    changes.sort(key=lambda pair: pair[1], reverse=direction != "asc")
    return [model_pair for model_pair, _change in changes] + [
        row for row in rows if order not in row.deltas
    ]


def _pair_severity(pair: ModelPair, metrics: Sequence[Metric]) -> tuple[int, float]:
    verdicts = [verdict for metric in metrics if (verdict := pair.deltas.get(metric.name))]
    ranks = [(_RANK.get(verdict.word, 3), -abs(_delta_size(verdict))) for verdict in verdicts]
    return min([(-1, 0.0)] if pair.accuracy == "broke" else ranks, default=(4, 0.0))


def _delta_size(delta: MetricDelta) -> float:
    return delta.change if delta.change is not None else 1e9 + delta.new - delta.base


def format_change(delta: MetricDelta) -> str:
    away = delta.new - delta.base
    if delta.metric.kind == "count":
        return f"{_SIGN[away > 0]}{format_count(away)}"
    return format_share(delta.change)


def format_share(change: float | None) -> str:
    """Format a relative change as a percentage: `+3.2%`, `−0.4%`, `0%`."""
    if change is None:
        return "no ratio"
    if change == 0:
        return "0%"
    percent = 100 * change
    text = f"{percent:+.1f}" if abs(percent) >= 0.05 else f"{percent:+.2g}"
    return f"{text}%".replace("-", "−")


def format_value_or_dash(metric: Metric, value: float | None) -> str:
    return "–" if value is None else format_value(metric, value)


def format_ratio_of(interval: tuple[float, float] | None) -> str | None:
    return (
        None if interval is None else f"{format_number(interval[0])}–{format_number(interval[1])}"
    )


# Of metrics over all models: name, label, meaning.
_MEANS = (
    ("speedup", "Geomean speedup", "over"),
    ("compilation_latency_s", "Compile time, cold", "geomean of"),
    ("dynamo_peak_mem_gb", "Peak memory", "compiled, geomean of"),
)


class ComparisonHeadline(NamedTuple):
    label: str
    value: str
    note: str
    anchor: str = ""
    metric: str = ""


def list_headlines(comparison: Comparison) -> list[ComparisonHeadline]:
    tiles = _list_model_headlines(comparison)
    for name, label, what in _MEANS:
        total = comparison.sum_of(name)
        if total is not None:
            values = (
                f"{format_value_or_dash(total.metric, total.base)} → "
                f"{format_value_or_dash(total.metric, total.new)}"
            )
            word = f": {total.overall.label}" if total.overall else ""
            note = f"{values}, {what} {format_plural(total.count, 'model')}{word}"
            tiles.append(
                ComparisonHeadline(label, format_share(total.change), note, "models", name)
            )
    if not comparison.pairs:
        tiles += [
            _total_headline(total)
            for total in comparison.totals
            if total.metric.name in ("compile_s", "compile_count")
        ]
    tiles.append(_distinct_headline("Graph breaks", "breaks", comparison.breaks))
    tiles.append(_distinct_headline("Recompile causes", "causes", comparison.causes))
    if comparison.has_rerecordings:
        diff = comparison.rerecordings
        tiles.append(_distinct_headline("CUDA graphs recorded again", "rerecordings", diff))
    return tiles


def _list_model_headlines(comparison: Comparison) -> list[ComparisonHeadline]:
    if not comparison.base.entries and not comparison.new.entries:
        return []
    only_base, only_new, excluded = map(
        len, (comparison.only_base, comparison.only_new, comparison.excluded)
    )
    note = f"only on base {only_base}, only in new {only_new}, excluded {excluded}"
    anchor = "left-out" if only_base or only_new or excluded else ""
    compared = ComparisonHeadline(
        "Models compared", format_count(len(comparison.pairs)), note, anchor
    )
    return [compared, *_list_failure_headlines(comparison)]


def _list_failure_headlines(comparison: Comparison) -> list[ComparisonHeadline]:
    failing = [exclusion.model for exclusion in comparison.excluded if exclusion.kind == "bad"]
    failing += [pair.model for pair in comparison.pairs if pair.accuracy == "broke"]
    back = sum(
        exclusion.kind == "good" and exclusion.base.status == "failed"
        for exclusion in comparison.excluded
    )
    back += sum(pair.accuracy == "fixed" for pair in comparison.pairs)
    if not failing and not back:
        return []
    named = format_names([model[:60] for model in failing])
    note = "; ".join(filter(None, (named, f"{back} no longer" if back else "")))
    anchor = "left-out" if comparison.excluded else "models"
    return [ComparisonHeadline("Newly failing", format_count(len(failing)), note, anchor)]


def _total_headline(verdict: MetricDelta) -> ComparisonHeadline:
    base, new = (
        format_value_or_dash(verdict.metric, value) for value in (verdict.base, verdict.new)
    )
    values = f"{base} → {new}, of whole runs"
    return ComparisonHeadline(verdict.metric.label, format_change(verdict), values, "totals")


def _distinct_headline(label: str, anchor: str, diff: ComparedReasons) -> ComparisonHeadline:
    if diff.not_compared:
        return ComparisonHeadline(label, "–", diff.not_compared, anchor)
    note = (
        f"{diff.count('resolved')} resolved, {diff.count('worse')} more often, "
        f"{diff.count('unchanged')} unchanged"
    )
    return ComparisonHeadline(label, f"{format_count(diff.count('new'))} new", note, anchor)
