"""A comparison as tables: which metrics, which models, in which order, and the words of a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.comparison_metrics import COMPARED, GROUPS, group_of
from compileboard.app.analysis.comparison_model import Comparison, Delta, Pair
from compileboard.app.analysis.comparison_verdicts import CHANGED
from compileboard.app.analysis.metrics import BY_NAME, Metric, format_value
from compileboard.app.format import format_count, format_number
from compileboard.app.queries.page import FilterError

DEFAULT_ORDER = "worst"
_RANK = {"worse": 0, "changed": 1, "better": 2}
_SIGN = {True: "+", False: ""}


@dataclass(frozen=True)
class Choice:
    """Say what of a comparison is shown: the metrics of a group or one of them, and which models."""

    group: str
    metrics: tuple[Metric, ...]
    rows: tuple[Pair, ...]


def choose(comparison: Comparison, metric: str | None, sort: str, only_changes: bool) -> Choice:
    """Pick and sort what is shown; without a metric, the first group that both sides measured.

    Raises: FilterError if there is no such metric or order.
    """
    group, metrics = pick_metrics(comparison, metric)
    rows = [it for it in comparison.pairs if not only_changes or has_changed(it, metrics)]
    return Choice(group, metrics, tuple(_sort(rows, metrics, sort)))


def pick_metrics(comparison: Comparison, metric: str | None) -> tuple[str, tuple[Metric, ...]]:
    """Return a group's key, and of it the metrics that both sides measured.

    Raises: FilterError if there is no such metric or group.
    """
    known = {it.metric.name for it in comparison.sums}
    if metric and metric not in GROUPS and metric not in BY_NAME:
        raise FilterError(
            f"metric: {metric[:40]!r} is not one of {', '.join((*GROUPS, *(it.name for it in COMPARED)))}"
        )
    if metric and metric not in GROUPS:
        if BY_NAME[metric] not in COMPARED:
            raise FilterError(f"metric: {metric} is not compared; {', '.join(it.name for it in COMPARED)} are")
        return group_of(metric), (BY_NAME[metric],)
    key = metric or next((key for key, (_label, names) in GROUPS.items() if known & set(names)), "speed")
    return key, tuple(BY_NAME[name] for name in GROUPS[key][1] if name in known)


def has_changed(pair: Pair, metrics: Sequence[Metric]) -> bool:
    """Tell whether a model changed in one of some metrics, or in whether its answers are right."""
    return bool(pair.accuracy) or any(
        it.verdict in CHANGED for metric in metrics if (it := pair.deltas.get(metric.name))
    )


def list_verdicts(pairs: Sequence[Pair]) -> Mapping[str, int]:
    """Count the models by the worst that happened to them, in any metric."""
    found = {"worse": 0, "better": 0, "both": 0, "neither": 0}
    for pair in pairs:
        words = {it.verdict for it in pair.deltas.values()}
        if pair.accuracy:
            words.add("worse" if pair.accuracy == "broke" else "better")
        both = {"worse", "better"} <= words
        found["both" if both else "worse" if "worse" in words else "better" if "better" in words else "neither"] += 1
    return found


def _sort(rows: list[Pair], metrics: Sequence[Metric], sort: str) -> list[Pair]:
    order, _dot, direction = sort.partition(".")
    known = (DEFAULT_ORDER, "model", *(it.name for it in metrics))
    if order not in known or direction not in ("", "asc", "desc"):
        raise FilterError(f"sort: {sort[:40]!r} is not one of {', '.join(known)}, each also with .asc")
    if order == DEFAULT_ORDER:
        return sorted(rows, key=lambda it: _badness(it, metrics), reverse=direction == "asc")
    if order == "model":
        return sorted(rows, key=lambda it: it.model.lower(), reverse=direction != "asc")
    changes = [(it, _size(it.deltas[order])) for it in rows if order in it.deltas]
    changes.sort(key=lambda pair: pair[1], reverse=direction != "asc")
    return [it for it, _change in changes] + [it for it in rows if order not in it.deltas]


def _badness(pair: Pair, metrics: Sequence[Metric]) -> tuple[int, float]:
    found = [it for metric in metrics if (it := pair.deltas.get(metric.name))]
    ranks = [(_RANK.get(it.verdict, 3), -abs(_size(it))) for it in found]
    return min([(-1, 0.0)] if pair.accuracy == "broke" else ranks, default=(4, 0.0))


def _size(delta: Delta) -> float:
    """Return a change to sort by; from 0 every rise is larger than any that has a ratio."""
    return delta.change if delta.change is not None else 1e9 + delta.new - delta.base


def show_change(delta: Delta) -> str:
    """Write a change: a count as a difference, anything else in percent of base."""
    away = delta.new - delta.base
    if delta.metric.kind == "count":
        return f"{_SIGN[away > 0]}{format_count(away)}"
    return show_share(delta.change)


def show_share(change: float | None) -> str:
    """Write a change relative to base in percent: +3.2 %, −0.4 %, 0 %."""
    if change is None:
        return "no ratio"
    if change == 0:
        return "0 %"
    percent = 100 * change
    text = f"{percent:+.1f}" if abs(percent) >= 0.05 else f"{percent:+.2g}"
    return f"{text} %".replace("-", "−")


def show_value(metric: Metric, value: float | None) -> str:
    """Write a metric's value with its unit, a dash where there is none."""
    return "–" if value is None else format_value(metric, value)


def show_ratio(interval: tuple[float, float] | None) -> str | None:
    """Write the interval of new ÷ base."""
    return None if interval is None else f"{format_number(interval[0])}–{format_number(interval[1])}"
