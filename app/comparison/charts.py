"""A chart of two sides: new relative to base, one dot per model, with its noise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compileboard.app.benchmarks.metrics import Metric
from compileboard.app.comparison.model import MetricDelta, ModelPair
from compileboard.app.comparison.table import format_change, format_ratio_of, format_value_or_dash
from compileboard.app.core.charts import Chart, build_figure
from compileboard.collectors.contract.verdicts import LABELS, METHODS

_COLORS = {
    "worse": "state-bad",
    "better": "state-good",
    "changed": "state-warn",
    "eager": "state-quiet",
    "wrong": "state-quiet",
    "negligible": "series-8",
    "noise": "state-quiet",
    "single": "state-quiet",
    "same": "series-7",
}
# Verdicts that share a colour.
_MARKERS = {
    "eager": {"symbol": "diamond"},
    "wrong": {"symbol": "x"},
    "single": {"symbol": "circle-open"},
}
_MAX_NAMES = 24
MIN_MODELS = 3  # fewer are easier to read in the table
_WAYS = {"up_is_good": "above 0 is better", "down_is_good": "below 0 is better"}
Moves = Sequence[tuple[ModelPair, MetricDelta]]


def chart_changes(
    metric: Metric,
    pairs: Sequence[ModelPair],
    address: Callable[[ModelPair], str],
    least: int = MIN_MODELS,
) -> Chart | None:
    known = [(pair, pair.deltas[metric.name]) for pair in pairs if metric.name in pair.deltas]
    moves = sorted(
        (moved for moved in known if moved[1].change is not None),
        key=lambda moved: (-_percent_change(moved[1]), moved[0].model),
    )
    if len(moves) < least:
        return None
    positions = {id(pair): n for n, (pair, _delta) in enumerate(moves, start=1)}
    traces = [
        _build_trace(word, [moved for moved in moves if moved[1].word == word], positions, address)
        for word in LABELS
        if any(moved[1].word == word for moved in moves)
    ]
    few = len(moves) <= _MAX_NAMES
    xaxis: dict[str, Any] = {"zeroline": False, "showgrid": False, "range": [0, len(moves) + 1]}
    if few:
        names = [pair.model[:18] for pair, _delta in moves]
        xaxis |= {
            "tickmode": "array",
            "tickvals": list(range(1, len(moves) + 1)),
            "ticktext": names,
            "tickangle": -35,
        }
    else:
        xaxis |= {
            "title": {"text": f"{len(moves)} models, the largest change first"},
            "showticklabels": False,
        }
    yaxis = {
        "ticksuffix": "%",
        "zeroline": True,
        "nticks": 7,
        "title": {"text": "new relative to base"},
    }
    has_bars = any(delta.ratio_interval for _pair, delta in moves)
    bars = "bars are 95% intervals" if has_bars else None
    note = ", ".join(filter(None, ("new relative to base", _WAYS.get(metric.direction), bars)))
    columns = [
        ("Model", False),
        ("Base", True),
        ("New", True),
        ("Change", True),
        ("New ÷ base, 95% interval", True),
    ]
    columns += [("Verdict", False), ("By", False)]
    rows = [_make_row(metric, pair, delta) for pair, delta in moves]
    title = f"{metric.label}: change of each model"
    return Chart(
        "changes-chart",
        title,
        build_figure(traces, xaxis=xaxis, yaxis=yaxis),
        columns,
        rows,
        note,
        "m",
    )


def _make_row(metric: Metric, pair: ModelPair, delta: MetricDelta) -> list[str | None]:
    values = [
        format_value_or_dash(metric, delta.base),
        format_value_or_dash(metric, delta.new),
        format_change(delta),
    ]
    return [
        pair.model,
        *values,
        format_ratio_of(delta.ratio_interval) or "–",
        delta.label,
        METHODS[delta.method],
    ]


def _build_trace(
    word: str, moves: Moves, positions: dict[int, int], address: Callable[[ModelPair], str]
) -> dict[str, Any]:
    trace: dict[str, Any] = {
        "type": "scatter",
        "mode": "markers",
        "name": LABELS[word],
        "x": [positions[id(pair)] for pair, _delta in moves],
        "y": [_percent_change(delta) for _pair, delta in moves],
        "text": [pair.model for pair, _delta in moves],
        "customdata": [address(pair) for pair, _delta in moves],
        "meta": {"color": _COLORS[word]},
        "marker": {"size": 8} | _MARKERS.get(word, {}),
        "hovertemplate": "%{text}: %{y}%<extra></extra>",
    }
    bars = [_interval_bar(delta) for _pair, delta in moves]
    if any(above or below for above, below in bars):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "thickness": 1,
            "width": 3,
            "array": [above for above, _below in bars],
            "arrayminus": [below for _above, below in bars],
        }
    return trace


def _interval_bar(delta: MetricDelta) -> tuple[float, float]:
    if delta.ratio_interval is None or delta.change is None:
        return 0.0, 0.0
    low, high = delta.ratio_interval
    ratio = 1 + delta.change
    return _round_share(100 * (high - ratio)), _round_share(100 * (ratio - low))


def _percent_change(delta: MetricDelta) -> float:
    return _round_share(100 * (delta.change or 0.0))


def _round_share(value: float) -> float:
    return float(f"{value:.4g}")
