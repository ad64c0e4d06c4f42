"""Trends of suites, models and per-run counts, over time, commits or torch versions."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from compileboard.app.benchmarks.commit_order import Parents
from compileboard.app.benchmarks.metrics import Metric
from compileboard.app.benchmarks.series_queries import count_recompiles, count_runs
from compileboard.app.benchmarks.trend_lines import (
    Axis,
    TrendLine,
    build_axis,
    build_count_line,
    build_model_lines,
    build_suite_line,
    find_metric,
    pad,
)
from compileboard.app.benchmarks.trend_queries import (
    MAX_RUNS,
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    choose_set,
    list_eligible_summaries,
    list_model_rows,
    list_sets,
    list_trend_runs,
    read_ids,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import FilterError
from compileboard.app.core.run_cache import cached_ancestry
from compileboard.app.incidents.model import SeriesChange
from compileboard.app.incidents.queries import list_series_changes
from compileboard.collectors.contract.categories import CATEGORIES
from compileboard.collectors.store.rollups import DEFINITIONS, HUD

# Counts of every run: label, what a point is, and the noun for one item.
COUNTED = {
    "function": ("Recompiles of functions", "in each run", "function"),
    "break": ("Graph breaks", "occurrences per run", "distinct graph break"),
    "category": ("Recompiles", "in each run, by category", "category"),
}


class UnknownCountedError(LookupError):
    """The database has no such function or graph break."""


@dataclass(frozen=True)
class TrendsFilters:
    sets: TrendFilter
    metrics: Sequence[str]
    models: Sequence[str]
    counted: Mapping[str, Sequence[str]]
    axis: str
    last: str
    run_count: int
    definition: str | None


class TrendDrawing(NamedTuple):
    metric: Metric
    lines: Sequence[TrendLine]


@dataclass(frozen=True)
class TrendsScreen:
    filters: TrendsFilters
    sets: Sequence[ModelSet]
    selected: ModelSet | None
    definition: str
    drawings: Sequence[TrendDrawing]
    axis: Axis
    changes: Sequence[SeriesChange]
    notes: Sequence[str]

    @property
    def shown_changes(self) -> list[SeriesChange]:
        shown = {run.id for run in self.axis.runs}
        return [change for change in self.changes if change.first_run_id in shown]


@dataclass(frozen=True)
class TrendSeries:
    line: TrendLine
    fields: Mapping[str, Any]
    axis: Axis


@dataclass(frozen=True)
class TrendScreen:
    metric: Metric
    definition: str | None
    series: Sequence[TrendSeries]
    axis: Axis

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for series in self.series for note in series.axis.notes))


def build_trends(
    reader: sqlite3.Connection, engine: Engine, filters: TrendsFilters, clock: RecorderClock
) -> TrendsScreen:
    sets = list_sets(engine)
    selected = choose_set(engine, sets, filters.sets, filters.models[0] if filters.models else None)
    definition = filters.definition or HUD.name
    notes: list[str] = []
    drawings: list[TrendDrawing] = []
    if selected is not None:
        narrowed = filters.sets.narrow(selected)
        by, summaries = list_eligible_summaries(
            engine, narrowed, filters.definition, filters.run_count
        )
        definition = by.name
        drawings = _measure_configuration(engine, filters, selected, definition, summaries, notes)
    drawings += [
        TrendDrawing(
            make_count_metric(kind),
            count_lines(engine, kind, values, filters.sets.suite, filters.run_count),
        )
        for kind, values in filters.counted.items()
        if values
    ]
    metrics = {drawing.metric.name for drawing in drawings}
    changes = (
        list_changes(reader, selected.fields, filters.models, metrics, filters.sets.branch)
        if selected
        else []
    )
    run_ids = {
        point.run_id for drawing in drawings for line in drawing.lines for point in line.points
    }
    runs, parents = _list_runs(engine, run_ids, filters.sets.branch, filters.axis, clock)
    axis = build_axis(runs, filters.axis, parents=parents)
    return TrendsScreen(
        filters, sets, selected, definition, drawings, axis, changes, [*notes, *axis.notes]
    )


def build_trend(
    engine: Engine,
    selected: TrendFilter,
    metric: str,
    model: str | None,
    counted: tuple[str, str] | None,
    axis: str,
    definition: str | None,
    run_count: int,
    clock: RecorderClock,
) -> TrendScreen:
    """Build one metric of every matching configuration, or a per-run count if `counted` (kind,
    value) is set.

    Raises UnknownCountedError for an unknown function or graph break.
    """
    by = None
    lines: list[tuple[TrendLine, dict[str, Any]]]
    if counted:
        kind, value = counted
        drawn = make_count_metric(kind)
        fields = dict.fromkeys(("model", *ModelSet.__dataclass_fields__)) | {
            "suite": selected.suite
        }
        lines = [
            (line, fields) for line in count_lines(engine, kind, [value], selected.suite, run_count)
        ]
    else:
        trend_metric = find_metric(metric, of_suite=model is None)
        if trend_metric is None:
            raise FilterError(f"metric: {'a model' if model else 'a suite'} has no {metric[:40]}")
        drawn = trend_metric
        summed, summaries = list_eligible_summaries(engine, selected, definition, MAX_RUNS)
        by = None if model else summed.name
        lines = _measure_sets(engine, selected, drawn, model, summaries, run_count)
    run_ids = {point.run_id for line, _fields in lines for point in line.points}
    runs, parents = _list_runs(engine, run_ids, selected.branch, axis, clock)
    known = {run.id: run for run in runs}
    series = []
    for line, fields in lines:
        own = [known[point.run_id] for point in line.points if point.run_id in known]
        series.append(
            TrendSeries(line, fields, build_axis(own, axis, max_count=len(own), parents=parents))
        )
    return TrendScreen(
        drawn, by, series, build_axis(runs, axis, max_count=len(runs), parents=parents)
    )


def _measure_sets(
    engine: Engine,
    selected: TrendFilter,
    metric: Metric,
    model: str | None,
    summaries: Sequence[StoredSummary],
    run_count: int,
) -> list[tuple[TrendLine, dict[str, Any]]]:
    members: dict[ModelSet, list[StoredSummary]] = {}
    for summary in summaries:
        members.setdefault(summary.set, []).append(summary)
    lines: list[tuple[TrendLine, dict[str, Any]]] = []
    for configuration, own in members.items():
        fields = configuration.fields | {"model": model}
        if model is None:
            lines.append((build_suite_line(metric, own[:run_count]), fields))
            continue
        narrowed = replace(selected.narrow(configuration), since_us=own[:run_count][-1].started_us)
        rows = list_model_rows(engine, narrowed, [model], metric.columns)
        lines += [(line, fields) for line in build_model_lines(metric, rows)]
    return lines


def _measure_configuration(
    engine: Engine,
    filters: TrendsFilters,
    selected: ModelSet,
    definition: str,
    summaries: Sequence[StoredSummary],
    notes: list[str],
) -> list[TrendDrawing]:
    models = filters.models
    metrics = [(name, find_metric(name, of_suite=not models)) for name in filters.metrics]
    missing = [name for name, metric in metrics if metric is None]
    if missing:
        notes.append(
            f"{', '.join(missing)}: {'a model' if models else 'a suite'} has no such number"
        )
    known = [metric for _name, metric in metrics if metric is not None]
    if not summaries or not known:
        return []
    if not models:
        by = DEFINITIONS[definition].label
        drawings = [
            TrendDrawing(metric, [build_suite_line(metric, summaries, selected.suite)])
            for metric in known
        ]
        return _drop_empty(drawings, f"no run here has one by {by}", notes)
    columns = [name for metric in known for name in metric.columns]
    narrowed = replace(filters.sets.narrow(selected), since_us=summaries[-1].started_us)
    rows = list_model_rows(engine, narrowed, models, columns)
    unknown = sorted(set(models) - {row.model for row in rows})
    if unknown:
        notes.append(f"{', '.join(unknown)}: no result in these runs")
    run_ids = [summary.run_id for summary in summaries]
    drawings = [
        TrendDrawing(metric, [pad(line, run_ids) for line in build_model_lines(metric, rows)])
        for metric in known
    ]
    return _drop_empty(drawings, "not measured in these runs", notes)


def _drop_empty(drawings: Sequence[TrendDrawing], why: str, notes: list[str]) -> list[TrendDrawing]:
    shown = [drawing for drawing in drawings if any(line.has_points for line in drawing.lines)]
    if len(shown) < len(drawings):
        notes.append(
            f"{', '.join(drawing.metric.label for drawing in drawings if drawing not in shown)}: "
            f"{why}"
        )
    return shown


def list_changes(
    reader: sqlite3.Connection,
    configuration: Mapping[str, Any],
    models: Sequence[str],
    metrics: Collection[str],
    branch: str | None,
) -> list[SeriesChange]:
    subject, names = ("model", models) if models else ("suite", [""])
    return [
        change
        for change in list_series_changes(reader, subject, configuration["suite"], names)
        if change.metric in metrics
        and branch in (None, change.branch)
        and change.has_fields(configuration)
    ]


def count_lines(
    engine: Engine, kind: str, values: Sequence[str], suite: str | None, run_count: int
) -> list[TrendLine]:
    """Return one trend line for each value: its count in each run.

    Raises FilterError for an invalid category or id, UnknownCountedError for an unknown function or
    graph break.
    """
    if kind == "category":
        known = {category.name: category.label for category in CATEGORIES}
        for name in values:
            if name not in known:
                raise FilterError(f"category: {name[:40]!r} is not one of {', '.join(known)}")
        return [
            build_count_line(
                known[name], count_recompiles(engine, name, suite, run_count=run_count)
            )
            for name in values
        ]
    lines = []
    for text, thing_id in read_ids(kind, values).items():
        counted = count_runs(engine, kind, thing_id, run_count=run_count)
        if counted is None:
            raise UnknownCountedError(f"There is no {COUNTED[kind][2]} {text[:40]}.")
        lines.append(build_count_line(counted.label, counted.points))
    return lines


def make_count_metric(kind: str) -> Metric:
    label, meaning, _thing = COUNTED[kind]
    return Metric(kind, label, "", "down_is_good", 0, "count", "the hooks", meaning)


def _list_runs(
    engine: Engine, run_ids: set[str], branch: str | None, axis: str, clock: RecorderClock
) -> tuple[list[TrendRun], Parents]:
    runs = list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us)
    runs = [run for run in runs if branch in (None, run.git_branch)]
    parents = cached_ancestry(engine, [run.git_commit for run in runs]) if axis == "commit" else {}
    return runs, parents
