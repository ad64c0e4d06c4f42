"""Charts of graph breaks and recompiles over runs, and sparklines of a table's rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.core.charts import Chart, build_figure, count_axis
from compileboard.app.core.format import format_number, format_time
from compileboard.app.core.labels import describe_cuda_graph_status
from compileboard.app.reasons.queries import HistoryPoint
from compileboard.app.reasons.reason_trends import KindTrend
from compileboard.app.runs.queries import TrendSlot
from compileboard.collectors.contract.categories import label_category
from compileboard.collectors.fixes.titles import strip_ticks

_MAX_SERIES = 7  # the eighth colour is for all others
_OTHERS = "all others"
_MAX_LABEL_LENGTH = 44
WIDTH, HEIGHT = 96, 22


@dataclass(frozen=True)
class TrendSparkline:
    points: str
    text: str


def make_sparkline(values: Sequence[float]) -> TrendSparkline:
    highest = max(values, default=0.0) or 1.0
    step = WIDTH / max(len(values) - 1, 1)
    line = [values[0], *values] if len(values) == 1 else values
    points = " ".join(
        f"{i * step:.1f},{HEIGHT - 2 - (HEIGHT - 4) * value / highest:.1f}"
        for i, value in enumerate(line)
    )
    first, last = (values[0], values[-1]) if values else (0.0, 0.0)
    text = (
        f"per run, oldest to newest: {format_number(first)} first, "
        f"{format_number(max(values, default=0.0))} at most, "
    )
    return TrendSparkline(points, text + f"{format_number(last)} last")


def chart_trend(
    chart_id: str,
    title: str,
    noun: str,
    lines: Mapping[str, Sequence[float]],
    slots: Sequence[TrendSlot],
) -> Chart:
    ranked = sorted(lines, key=lambda name: (-sum(lines[name]), name))
    shown = ranked if len(ranked) <= _MAX_SERIES + 1 else ranked[:_MAX_SERIES]
    series = [(_shorten(name), [*lines[name]]) for name in shown]
    if len(shown) < len(ranked):
        rest = [
            sum(lines[name][position] for name in ranked[len(shown) :])
            for position in range(len(slots))
        ]
        series.append((_OTHERS, rest))
    whens = [format_time(slot.started_us)[:16] for slot in slots]
    most = max((slot.run_count for slot in slots), default=1)
    single = most <= 1
    traces = [
        {
            "type": "bar",
            "x": list(range(len(slots))),
            "y": [float(f"{value:.4g}") for value in values],
            "name": name,
            "meta": {"color": f"series-{number}"},
            "text": whens,
            "textposition": "none",
            "hovertemplate": "%{y} · %{text}",
        }
        | ({"customdata": [f"/runs/{slot.run_id}" for slot in slots]} if single else {})
        for number, (name, values) in enumerate(series, start=1)
    ]
    highest = max(
        (sum(values[position] for _name, values in series) for position in range(len(slots))),
        default=0,
    )
    yaxis = count_axis(highest) if single else {"rangemode": "tozero", "nticks": 6}
    figure = build_figure(
        traces, barmode="stack", bargap=0.15, xaxis=_time_axis(whens), yaxis=yaxis
    )
    note = f"{noun} per run" if single else f"mean {noun} per run, up to {most} runs a bar"
    columns = [("Started", False), ("Runs", True), *((name, True) for name, _values in series)]
    rows = [
        [when, slot.run_count, *(format_number(values[position]) for _name, values in series)]
        for position, (when, slot) in enumerate(zip(whens, slots))
    ]
    return Chart(chart_id, title, figure, columns, rows[::-1], f"{note}, oldest first", "s")


def chart_history(chart_id: str, title: str, noun: str, points: Sequence[HistoryPoint]) -> Chart:
    """Chart one reason's count in each run, in a colour per program."""
    whens = [format_time(point.started_us)[:16] for point in points]
    programs: dict[str, list[int]] = defaultdict(list)
    for position, point in enumerate(points):
        programs[point.name].append(position)
    traces = [
        {
            "type": "bar",
            "x": own,
            "y": [points[position].count for position in own],
            "name": name if len(programs) > 1 else noun,
            "meta": {"color": f"series-{min(number, _MAX_SERIES + 1)}"},
            "text": [f"{points[position].title or name} · {whens[position]}" for position in own],
            "textposition": "none",
            "customdata": [f"/runs/{points[position].run_id}" for position in own],
            "hovertemplate": "%{y} · %{text}",
        }
        for number, (name, own) in enumerate(programs.items(), start=1)
    ]
    yaxis = count_axis(max((point.count for point in points), default=0))
    figure = build_figure(
        traces, barmode="stack", bargap=0.15, xaxis=_time_axis(whens), yaxis=yaxis
    )
    rows = [[when, point.title or point.name, point.count] for point, when in zip(points, whens)]
    columns = [("Started", False), ("Run", False), (noun.capitalize(), True)]
    note = "newest runs of the same suites, oldest first"
    return Chart(chart_id, title, figure, columns, rows[::-1], note, "s")


def _time_axis(whens: Sequence[str]) -> dict[str, object]:
    step = max(len(whens) // 5, 1)
    one_year = len({when[:4] for when in whens}) == 1
    positions = list(range(0, len(whens), step))
    margin = max(0.6, (8 - len(whens)) / 2)
    return {
        "tickmode": "array",
        "tickvals": positions,
        "ticktext": [
            whens[position][5 if one_year else 0 :].replace(" ", "\n") for position in positions
        ],
        "tickangle": 0,
        "range": [-margin, len(whens) - 1 + margin],
        "showgrid": False,
        "zeroline": False,
    }


def _shorten(name: str) -> str:
    line = name.partition("\n")[0]
    return line if len(line) <= _MAX_LABEL_LENGTH else line[: _MAX_LABEL_LENGTH - 1] + "…"


def chart_kinds(kinds: Sequence[KindTrend], slots: Sequence[TrendSlot]) -> Chart:
    lines = {strip_ticks(kind.kind): kind.trend for kind in kinds}
    return chart_trend("graph-breaks-trend", "Graph breaks over time", "graph breaks", lines, slots)


def chart_statuses(kinds: Sequence[KindTrend], slots: Sequence[TrendSlot]) -> Chart:
    lines = {describe_cuda_graph_status(kind.kind).word: kind.trend for kind in kinds}
    title = "CUDA graphs recorded again over time"
    return chart_trend("cuda-graphs-trend", title, "recorded again", lines, slots)


def chart_errors(kinds: Sequence[KindTrend], slots: Sequence[TrendSlot]) -> Chart:
    lines = {kind.kind or "type not recorded": kind.trend for kind in kinds}
    return chart_trend("failures-trend", "Failures over time", "failures", lines, slots)


def chart_categories(kinds: Sequence[KindTrend], slots: Sequence[TrendSlot]) -> Chart:
    lines = {label_category(kind.kind).label: kind.trend for kind in kinds if kind.count}
    return chart_trend("recompiles-trend", "Recompiles over time", "recompiles", lines, slots)
