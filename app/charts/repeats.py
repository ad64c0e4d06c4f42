"""The distribution of a model's repeats: the one chart that needs numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from compileboard.app.charts.base import Chart, count_axis, finish
from compileboard.app.format import format_number

_FEWEST_BINS, _MOST_BINS = 24, 120


def chart_repeats(
    repeats: Mapping[str, Sequence[float]], chart_id: str = "repeats-chart"
) -> Chart | None:
    """Chart the spread of repeats, in ms; None if none were stored."""
    arrays = {
        name: np.asarray(repeats[name], dtype=float) for name in sorted(repeats, reverse=True)
    }
    finite = {
        name: values[np.isfinite(values)]
        for name, values in arrays.items()
        if np.isfinite(values).any()
    }
    if not finite:
        return None
    together = np.concatenate(list(finite.values()))
    edges = np.histogram_bin_edges(
        together, bins=_count_bins(list(finite.values()), float(np.ptp(together)))
    )
    middles = (edges[:-1] + edges[1:]) / 2
    colors = {"eager": "series-2", "compiled": "series-1"}
    traces: list[dict[str, Any]] = [
        {
            "type": "bar",
            "name": name,
            "x": [float(f"{value:.5g}") for value in middles],
            "y": np.histogram(values, edges)[0].tolist(),
            "width": float(edges[1] - edges[0]),
            "opacity": 0.75,
            "meta": {"color": colors.get(name.rpartition("/")[2], f"series-{number}")},
            "hovertemplate": f"%{{y}} repeats of {name} near %{{x}} ms<extra></extra>",
        }
        for number, (name, values) in enumerate(finite.items(), start=3)
    ]
    figure = finish(
        traces,
        barmode="overlay",
        bargap=0.02,
        xaxis={"ticksuffix": " ms", "nticks": 8, "showgrid": False, "zeroline": False},
        yaxis=count_axis(max(max(trace["y"]) for trace in traces)) | {"title": {"text": "repeats"}},
    )
    columns = [
        ("Repeats of", False),
        *((label, True) for label in ("Count", "Lowest, ms", "Median, ms")),
    ]
    columns += [("Highest, ms", True), ("Spread (IQR ÷ median)", True)]
    return Chart(
        chart_id, "Repeats", figure, columns, [_sum_up(*item) for item in finite.items()], None, "s"
    )


def _count_bins(spread: Sequence[Any], reach: float) -> int:
    widths = [
        float(np.diff(np.histogram_bin_edges(values, bins="fd")[:2])[0])
        for values in spread
        if np.ptp(values) > 0
    ]
    bins = reach / min(widths) if widths else 0
    return int(min(max(bins, _FEWEST_BINS), _MOST_BINS))


def _sum_up(name: str, values: Any) -> list[str]:
    low, first, middle, third, high = (
        float(quantile) for quantile in np.percentile(values, (0, 25, 50, 75, 100))
    )
    spread = f"{100 * (third - first) / middle:.1f}%" if middle else "–"
    return [
        name,
        str(len(values)),
        *(format_number(value) for value in (low, middle, high)),
        spread,
    ]
