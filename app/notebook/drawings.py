"""Results that have both a frame and a figure: a trend, a comparison, a history, an incident."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pandas as pd

from compileboard.app.benchmarks.charts import chart_history, chart_repeats
from compileboard.app.benchmarks.model import ModelScreen
from compileboard.app.benchmarks.series import label_fields
from compileboard.app.benchmarks.trend_charts import chart_metric, share_runs
from compileboard.app.benchmarks.trend_pages import TrendPointJson, TrendSeriesJson, make_trend
from compileboard.app.benchmarks.trends import TrendScreen, TrendSeries
from compileboard.app.comparison.api import (
    CompareDelta,
    ComparedFunction,
    ComparedModel,
    ComparisonJson,
    MetricMean,
    NamedSeries,
)
from compileboard.app.comparison.charts import chart_changes
from compileboard.app.comparison.compare import ComparisonScreen
from compileboard.app.comparison.model import EnvironmentDifference, ReasonChange
from compileboard.app.comparison.summary import comparison_row
from compileboard.app.comparison.table import DEFAULT_ORDER, choose
from compileboard.app.core.charts import Chart, make_figure
from compileboard.app.incidents.charts import chart_incident, mark_incidents
from compileboard.app.incidents.model import IncidentDetail, SeriesChange
from compileboard.app.incidents.page_model import IncidentScreen
from compileboard.app.notebook.data_frames import list_columns, make_frame
from compileboard.app.reasons.api import CauseDetail, DistinctBreakDetail
from compileboard.app.reasons.charts import chart_history as chart_reason
from compileboard.app.reasons.queries import HistoryPoint
from compileboard.collectors.store.results import ResultRow


class NothingToDraw(LookupError):
    """There is no data to draw."""


def draw(chart: Chart | None, nothing: str, shared: dict[str, list[Any]] | None = None) -> Any:
    if chart is None:
        raise NothingToDraw(nothing)
    return make_figure(chart, shared)


@dataclass(frozen=True, repr=False)
class BoardTrend:
    """A metric over the newest runs, of every matching configuration."""

    screen: TrendScreen
    changes: Sequence[SeriesChange]

    @property
    def notes(self) -> list[str]:
        """Return sentences on what is left out."""
        return self.screen.notes

    def frame(self) -> pd.DataFrame:
        """Return a row for each point: the run, the value with its interval, and the
        configuration.
        """
        series = [
            (vars(line), vars(point))
            for line in make_trend(self.screen).series
            for point in line.points
        ]
        columns = [
            column
            for column in list_columns(TrendSeriesJson, TrendPointJson)
            if column.name != "points"
        ]
        return make_frame(columns, [line | point for line, point in series])

    def figure(self) -> Any:
        """Return the chart of the trends page, a line for each configuration."""
        series, axis = self.screen.series, self.screen.axis
        if not series:
            raise NothingToDraw("No run has a value of this metric with these filters.")
        lines = [replace(drawing.line, label=_label_line(drawing)) for drawing in series]
        chart = chart_metric(self.screen.metric, lines, axis, chart_id="trend")
        marked = mark_incidents(replace(chart, height="m", show_legend=True), self.changes, axis)
        return make_figure(marked, share_runs(axis, links=False))

    def __repr__(self) -> str:
        points = sum(len(drawing.line.points) for drawing in self.screen.series)
        return (
            f"<trend of {self.screen.metric.label}: {len(self.screen.series)} series, {points} "
            "points>"
        )


def _label_line(series: TrendSeries) -> str:
    fields = series.fields
    if fields.get("world_size") is None:
        return series.line.label  # the counted item
    return (
        f"{series.line.label if fields.get('model') else fields['suite']} · {label_fields(fields)}"
    )


@dataclass(frozen=True)
class ComparedModelMetric(CompareDelta, NamedSeries):
    metric: Annotated[str, "The metric's name."]
    base_run_id: Annotated[
        str | None, "The run that base's result is of; null for a stored baseline's."
    ]
    new_run_id: Annotated[
        str | None, "The run that new's result is of; null for a stored baseline's."
    ]


class BoardComparison:
    """Differences from base to new; `refused` says why the numbers are not comparable, if so."""

    def __init__(self, screen: ComparisonScreen) -> None:
        self.screen = screen
        self.answer = ComparisonJson(**comparison_row(screen.comparison))

    @property
    def refused(self) -> list[str]:
        return self.answer.refused

    @property
    def warnings(self) -> list[str]:
        return self.answer.warnings

    def frame(self) -> pd.DataFrame:
        """Return a row for each model and metric, with its verdict."""
        models: Any = self.answer.models
        rows = [
            row | delta | {"metric": name}
            for row in models
            for name, delta in row["metrics"].items()
        ]
        return make_frame(list_columns(ComparedModelMetric), rows)

    def models(self) -> pd.DataFrame:
        """Return a row for each model that both sides measured."""
        columns = [column for column in list_columns(ComparedModel) if column.name != "metrics"]
        return make_frame(columns, self.answer.models)

    def metrics(self) -> pd.DataFrame:
        """Return a row for each metric, over the models that have it on both sides."""
        return make_frame(list_columns(MetricMean), self.answer.metrics)

    def graph_breaks(self) -> pd.DataFrame:
        return make_frame(list_columns(ReasonChange), self.answer.graph_breaks.changes)

    def recompile_causes(self) -> pd.DataFrame:
        return make_frame(list_columns(ReasonChange), self.answer.recompile_causes.changes)

    def rerecording_reasons(self) -> pd.DataFrame:
        return make_frame(list_columns(ReasonChange), self.answer.rerecording_reasons.changes)

    def functions(self) -> pd.DataFrame:
        return make_frame(list_columns(ComparedFunction), self.answer.functions)

    def environment(self) -> pd.DataFrame:
        return make_frame(list_columns(EnvironmentDifference), self.answer.environment)

    def figure(self, metric: str | None = None) -> Any:
        """Return the chart of each model's change of a metric, by default the first one."""
        chosen = choose(self.screen.comparison, metric, DEFAULT_ORDER, False).metrics
        chart = (
            chart_changes(chosen[0], self.screen.comparison.pairs, lambda _pair: "", least=1)
            if chosen
            else None
        )
        return draw(chart, "; ".join(self.refused) or "No model has this metric on both sides.")

    def __repr__(self) -> str:
        base, new, pairs = (
            getattr(self.screen.comparison, name) for name in ("base", "new", "pairs")
        )
        return f"<comparison of {base.title!r} with {new.title!r}: {len(pairs)} models in common>"


@dataclass(frozen=True, repr=False)
class BoardModel:
    screen: ModelScreen

    def frame(self) -> pd.DataFrame:
        """Return every result of the model, series by series, the oldest first."""
        points = [point for series in self.screen.history.series for point in series.points]
        return make_frame(list_columns(ResultRow), [point.row for point in points])

    def figures(self) -> dict[str, Any]:
        """Return the charts of the model's page: each metric over time, and the newest result's
        repeats.
        """
        points = self.screen.selected.points
        charts = chart_history(points, [""] * len(points))
        repeats = chart_repeats(self.screen.repeats)
        return {
            chart.title: make_figure(chart) for chart in (*charts, *([repeats] if repeats else []))
        }

    def __repr__(self) -> str:
        history = self.screen.history
        return (
            f"<model {history.model!r}: {len(history.series)} series, shown: "
            f"{self.screen.selected.label}>"
        )


@dataclass(frozen=True, repr=False)
class BoardIncident:
    screen: IncidentScreen
    detail: IncidentDetail

    def figure(self) -> Any:
        """Return the chart of the incident's leading series."""
        series = self.screen.series
        if series is None:
            raise NothingToDraw("No run of this series is left.")
        chart = chart_incident(
            series.change, series.metric, series.line, series.axis, series.levels
        )
        return make_figure(chart, share_runs(series.axis, links=False))

    def frame(self) -> pd.DataFrame:
        return make_frame(list_columns(SeriesChange), self.detail.changes)

    def __repr__(self) -> str:
        return f"<incident {self.detail.id}: {self.detail.title}>"


@dataclass(frozen=True, repr=False)
class BoardReason:
    detail: DistinctBreakDetail | CauseDetail
    noun: str

    def frame(self) -> pd.DataFrame:
        """Return the count in each of its newest runs, the oldest first."""
        return make_frame(list_columns(HistoryPoint), self.detail.history)

    def figure(self) -> Any:
        history = self.detail.history
        chart = (
            chart_reason("history", "From run to run", self.noun, history)
            if len(history) > 1
            else None
        )
        return draw(chart, "It occurs in a single run.")

    def __repr__(self) -> str:
        return (
            f"<{self.noun.removesuffix('s')} {self.detail.id}: "
            f"{self.detail.reason.partition(chr(10))[0][:80]}>"
        )
