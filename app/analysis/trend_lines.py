"""Lines of trends made of what queries return: of suites, of models, of things that are counted in every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from compileboard.app.analysis.metrics import BY_NAME, SUMMARY_BY_NAME, Metric, get_value
from compileboard.app.analysis.result_words import describe_status
from compileboard.app.analysis.trends import Status, TrendLine, TrendPoint
from compileboard.app.queries.distinct_break import HistoryPoint
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.result_rows import ResultRow
from compileboard.app.queries.trends import KeptSummary

# A model's metric -> what a suite has of it.
SUMMARY_OF = {
    "speedup": "geomean_speedup",
    "graph_breaks": "graph_breaks_per_model",
    "recompiles": "recompiles_per_model",
}
_MODEL_OF = {name: model for model, name in SUMMARY_OF.items()}
CHOICES = ("pass_ratio", *BY_NAME)


def find_metric(name: str, *, of_suite: bool) -> Metric | None:
    """Return a metric as a suite or a model has it, None where that has none of it.

    Raises: FilterError if there is no such metric at all.
    """
    if name not in BY_NAME and name not in SUMMARY_BY_NAME:
        known = ", ".join(dict.fromkeys((*BY_NAME, *SUMMARY_BY_NAME)))
        raise FilterError(f"metric: {name[:40]!r} is not one of {known}")
    if of_suite:
        return SUMMARY_BY_NAME.get(SUMMARY_OF.get(name, name))
    return BY_NAME.get(_MODEL_OF.get(name, name))


def find_choice(name: str) -> str | None:
    """Return what the trend page calls a metric, None where it draws none of that name."""
    choice = _MODEL_OF.get(name, name)
    return choice if choice in CHOICES else None


def read_choices(names: Sequence[str]) -> list[str]:
    """Name metrics as selectors do, whether a suite's or a model's name was given; each once."""
    return list(dict.fromkeys(_MODEL_OF.get(name, name) for name in names))


def draw_suite(metric: Metric, summaries: Sequence[KeptSummary], label: str = "the suite") -> TrendLine:
    """Make a suite's line."""
    return TrendLine(label, [_sum_point(metric, it) for it in summaries])


def _sum_point(metric: Metric, it: KeptSummary) -> TrendPoint:
    value: float | None = getattr(it, metric.name)
    if it.measured_count:
        # What failed is in no mean: a suite that loses its worst model is no better.
        note = f"{it.failed_count} of {it.total_count} models failed" if it.failed_count else None
        is_incomplete = it.is_incomplete and value is not None and metric.name != "pass_ratio"
        return TrendPoint(it.run_id, value, note=note, is_incomplete=is_incomplete)
    status: Status = "failed" if it.failed_count else "skipped"
    said = f"{it.failed_count} of {it.total_count} models failed, none was measured"
    return TrendPoint(it.run_id, value, status=status, reason=said if it.failed_count else "no model was measured")


def draw_models(metric: Metric, rows: Sequence[ResultRow]) -> list[TrendLine]:
    """Make a line a model; one measured with several batch sizes has a line each."""
    found: dict[tuple[str, Any], list[ResultRow]] = {}
    for row in rows:
        found.setdefault((row.model, row.batch_size), []).append(row)
    many = {model for model, _size in found if sum(model == other for other, _other_size in found) > 1}
    lines = []
    for (model, size), members in sorted(found.items(), key=lambda pair: (pair[0][0], pair[0][1] or 0)):
        label = f"{model}, batch {size}" if model in many and size else model
        lines.append(TrendLine(label, [_row_point(metric, it) for it in members]))
    return lines


def _row_point(metric: Metric, row: ResultRow) -> TrendPoint:
    low = getattr(row, metric.low) if metric.low else None
    high = getattr(row, metric.high) if metric.high else None
    status: Status = row.status if row.status in ("failed", "skipped", "not_run") else "measured"  # type: ignore[assignment]
    reason = None if status == "measured" else describe_status(row).word
    return TrendPoint(row.run_id, get_value(metric, row), low, high, status, reason)


def draw_counts(label: str, points: Sequence[HistoryPoint]) -> TrendLine:
    """Make the line of something that is counted in every run that was observed; none is a real 0."""
    return TrendLine(label, [TrendPoint(it.run_id, it.count) for it in points])
