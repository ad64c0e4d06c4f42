"""The overview: what the newest benchmark run comes to, what is open, and what was observed over all runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.comparison.model import ModelResult
from compileboard.app.analysis.incidents.incident import Incident
from compileboard.app.analysis.metrics import SUMMARY_BY_NAME
from compileboard.app.analysis.models.labels import ModelFailure, list_failures
from compileboard.app.analysis.models.summaries import SummaryDelta, compare, filter_set, format_number
from compileboard.app.analysis.trends.lines import AXES, ENVIRONMENT, Axis, TrendLine, build_suite_line, lay_out
from compileboard.app.format import format_time
from compileboard.app.queries.dashboard.baselines import get_baseline, list_baselines, read_baseline_rows
from compileboard.app.queries.dashboard.incidents import IncidentCounts, count_incidents, get_detection
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.overview import (
    DatabaseTotals,
    RunPoint,
    RunSeries,
    TopBreak,
    TopFunction,
    get_totals,
    list_series,
    list_top_breaks,
    list_top_functions,
    list_trend,
)
from compileboard.app.queries.fleet.runs import RunFilter, list_runs
from compileboard.app.queries.fleet.trends import (
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    choose_set,
    list_branches,
    list_sets,
    list_trend_runs,
    read_choice,
    read_last,
    read_text,
    read_trend_filter,
)
from compileboard.app.queries.newest import MAY_CHANGE, RecorderClock
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run.models import list_results
from compileboard.app.queries.run_cache import cached_ancestry, cached_for_run, cached_for_runs
from compileboard.app.screens.fleet.comparison import (
    count_run_verdicts,
    count_verdicts,
    filter_results,
    list_stored_results,
    load_results,
)
from compileboard.app.screens.fleet.incidents import list_worst
from compileboard.app.screens.fleet.runs import ListedRun, describe_runs
from compileboard.app.screens.fleet.summary import summarize_runs
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.summaries import DEFINITIONS, HUD, Definition

HEADLINE_METRICS = (
    "pass_ratio",
    "geomean_speedup",
    "compilation_latency_s",
    "compression_ratio",
    "graph_breaks_per_model",
    "recompiles_per_model",
)
STORED = "baseline:"
NEWEST_RUNS_COUNT = 8
TOP_COUNT = 8  # graph breaks, and functions
INCIDENT_COUNT = 5
BASELINE_RUN_COUNT = 40
OTHER_SET_COUNT = 60


@dataclass(frozen=True)
class OverviewFilters:
    """What the overview is asked for; `definition` is None where the address names none."""

    sets: TrendFilter
    suite: str | None
    name: str | None
    definition: str | None
    axis: str
    last: str
    run_count: int
    baseline: str | None


@dataclass(frozen=True)
class HeadlineNumber:
    """A number of the newest run, its trend and its change; where it has no value, `missing` says why."""

    value: str
    delta: SummaryDelta
    line: TrendLine
    missing: str | None


@dataclass(frozen=True)
class HeadlineBase:
    """What the newest run is compared with, and what of the environment differs; no title where there is nothing.

    `stored` has the results of a stored baseline as Compare reads them.
    """

    results: Sequence[ResultRow]
    stored: Sequence[ModelResult]
    title: str
    run_id: str | None
    differences: Sequence[str]


@dataclass(frozen=True)
class Headline:
    """What the newest run of one configuration comes to; `running` is a newer run that has not ended."""

    summary: StoredSummary
    run: TrendRun
    running: TrendRun | None
    definition: Definition
    numbers: Sequence[HeadlineNumber]
    base: HeadlineBase
    failures: Sequence[ModelFailure]
    axis: Axis
    baseline_choices: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class OpenIncidents:
    """Open incidents that nobody ignores, the most severe first, of everything in the database."""

    incidents: Sequence[Incident]
    counts: IncidentCounts
    detected_us: int | None


@dataclass(frozen=True)
class ObservedRuns:
    """What the runs of a suite and name come to: their sums, a point a run, the newest, the most frequent causes."""

    series: Sequence[RunSeries]
    totals: DatabaseTotals
    points: Sequence[RunPoint]
    newest: Sequence[ListedRun]
    graph_breaks: Sequence[TopBreak]
    functions: Sequence[TopFunction]

    @property
    def is_live(self) -> bool:
        """Return True while a run may still change."""
        return any(point.state in MAY_CHANGE for point in self.points)


@dataclass(frozen=True)
class OverviewScreen:
    """The overview; `sets` is empty where nothing was ever benchmarked."""

    filters: OverviewFilters
    sets: Sequence[ModelSet]
    selected: ModelSet | None
    others: Sequence[ModelSet]
    branches: Sequence[str]
    headline: Headline | None
    incidents: OpenIncidents
    observed: ObservedRuns

    @property
    def definition(self) -> str:
        """Return the name of the definition that numbers are by."""
        return self.headline.definition.name if self.headline else self.filters.definition or HUD.name


def read_overview_filters(query: Mapping[str, str]) -> OverviewFilters:
    """Read the address of the overview.

    Raises: FilterError if a value cannot be used.
    """
    last, run_count = read_last(query)
    return OverviewFilters(
        sets=read_trend_filter(query),
        suite=query.get("suite") or None,
        name=query.get("name") or None,
        definition=read_choice(query, "definition", DEFINITIONS, HUD.name) if query.get("definition") else None,
        axis=read_choice(query, "axis", [name for name, _label in AXES], "date"),
        last=last,
        run_count=run_count,
        baseline=read_text(query, "baseline"),
    )


def build_overview(
    reader: sqlite3.Connection, engine: Engine, filters: OverviewFilters, clock: RecorderClock, point_count: int
) -> OverviewScreen:
    """Build the overview; charts show at most `point_count` runs.

    Raises: FilterError if there is no such baseline.
    """
    sets = list_sets(engine)
    selected = choose_set(engine, sets, filters.sets)
    return OverviewScreen(
        filters=filters,
        sets=sets,
        selected=selected,
        others=[other for other in sets if other != selected][:OTHER_SET_COUNT],
        branches=list_branches(engine) if sets else (),
        headline=_build_headline(reader, engine, filters, selected, clock) if selected else None,
        incidents=_list_open_incidents(reader),
        observed=build_observed_runs(engine, filters.suite, filters.name, clock, point_count),
    )


def build_observed_runs(
    engine: Engine, suite: str | None, name: str | None, clock: RecorderClock, point_count: int
) -> ObservedRuns:
    """Build what the runs of a suite and name come to; rankings are of the newest `point_count` runs."""
    newest = list_runs(engine, RunFilter(suite=suite, name=name), pinned_first=False, limit=NEWEST_RUNS_COUNT)
    alive_since_us = clock.alive_since_us
    return ObservedRuns(
        series=list_series(engine),
        totals=get_totals(engine, suite, name, alive_since_us=alive_since_us),
        points=list_trend(engine, suite, name, newest=point_count, alive_since_us=alive_since_us),
        newest=describe_runs(engine, newest.rows, clock),
        graph_breaks=list_top_breaks(engine, suite, name, newest=point_count, limit=TOP_COUNT),
        functions=list_top_functions(engine, suite, name, newest=point_count, limit=TOP_COUNT),
    )


def _list_open_incidents(reader: sqlite3.Connection) -> OpenIncidents:
    detection = get_detection(reader)
    worst = list_worst(reader, INCIDENT_COUNT)
    return OpenIncidents(worst, count_incidents(reader), detection.finished_us if detection else None)


def _build_headline(
    reader: sqlite3.Connection, engine: Engine, filters: OverviewFilters, selected: ModelSet, clock: RecorderClock
) -> Headline | None:
    """Build what the newest run of a configuration comes to; None where no run fits.

    Raises: FilterError if there is no such baseline.
    """
    summed = summarize_runs(engine, filters.sets.narrow(selected), filters.definition, clock, filters.run_count)
    if summed is None:
        return None
    newest, definition = summed.newest, summed.definition
    run_ids = [summary.run_id for summary in summed.summaries]
    runs = {run.id: run for run in list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us)}
    axis = lay_out(list(runs.values()), filters.axis, parents=_list_parents(engine, filters.axis, runs.values()))
    position = summed.summaries.index(newest)
    newer, summaries = summed.summaries[:position], summed.summaries[position:]
    previous = summed.find_newest_before(position + 1)
    base = _find_base(reader, engine, filters.baseline, previous, selected, runs[newest.run_id])
    results = filter_set(cached_for_run(reader, newest.run_id, list_results), newest.set)
    failures = list_failures(base.results, results) if base.title else []
    return Headline(
        summary=newest,
        run=runs[newest.run_id],
        running=next((runs[summary.run_id] for summary in newer if summary.run_id in summed.running), None),
        definition=definition,
        numbers=_sum_up(definition, summaries, base.results, results, _count_verdicts(reader, base, newest)),
        base=base,
        failures=[failure for failure in failures if failure.word != "still"],
        axis=axis,
        baseline_choices=_list_baseline_choices(
            reader, [runs[summary.run_id] for summary in summaries[1:BASELINE_RUN_COUNT]]
        ),
    )


def _list_parents(engine: Engine, axis: str, runs: Iterable[TrendRun]) -> Mapping[str, tuple[str | None, int]]:
    return cached_ancestry(engine, [run.git_commit for run in runs]) if axis == "commit" else {}


def _sum_up(
    definition: Definition,
    summaries: Sequence[StoredSummary],
    base: Sequence[ResultRow],
    results: Sequence[ResultRow],
    verdicts: Mapping[str, Mapping[str, int]] | None,
) -> list[HeadlineNumber]:
    deltas = {delta.metric.name: delta for delta in compare(base, results, definition, verdicts)}
    numbers = []
    for name in HEADLINE_METRICS:
        metric = SUMMARY_BY_NAME[name]
        line = build_suite_line(metric, summaries)
        value = format_number(metric, getattr(summaries[0], name), definition)
        missing = None if line.has_points else _format_missing(name, definition)
        numbers.append(HeadlineNumber(value, deltas[name], line, missing))
    return numbers


def _count_verdicts(
    reader: sqlite3.Connection, base: HeadlineBase, newest: StoredSummary
) -> Mapping[str, Mapping[str, int]] | None:
    """Count the models of both sides by Compare's verdicts."""
    fields = newest.set.fields
    if base.run_id:
        return cached_for_runs(reader, (base.run_id, newest.run_id), count_run_verdicts, tuple(fields.items()))
    results = filter_results(load_results(reader, newest.run_id), fields) if base.stored else []
    return count_verdicts(filter_results(base.stored, fields, any_hardware=True), results)


def _format_missing(name: str, definition: Definition) -> str:
    if name == "pass_ratio" and not definition.has_pass_rate:
        return f"{definition.label} knows no pass rate; another definition has one where accuracy was checked."
    return "No run here has measured it."


def _find_base(
    reader: sqlite3.Connection,
    engine: Engine,
    baseline: str | None,
    previous: StoredSummary | None,
    selected: ModelSet,
    run: TrendRun,
) -> HeadlineBase:
    """Find what the newest run is compared with: the named baseline, else the previous run.

    Raises: FilterError if there is no such run or stored baseline.
    """
    if baseline and baseline.startswith(STORED):
        return _load_stored(reader, baseline.removeprefix(STORED), selected, run)
    run_id = baseline or (previous.run_id if previous else None)
    if run_id is None:
        return HeadlineBase((), (), "", None, ())
    bases = list_trend_runs(engine, [run_id])
    if not bases:
        raise FilterError(f"baseline: there is no run {run_id[:80]}; it may have been deleted")
    results = filter_set(cached_for_run(reader, run_id, list_results), selected, any_hardware=bool(baseline))
    title = f"{bases[0].name}, {format_time(bases[0].started_us)[:16]}"
    differences = [(word, getattr(bases[0], name), getattr(run, name)) for word, name in ENVIRONMENT]
    return HeadlineBase(
        results, (), title if baseline else f"the previous run ({title})", run_id, _list_differences(differences)
    )


def _load_stored(reader: sqlite3.Connection, name: str, selected: ModelSet, run: TrendRun) -> HeadlineBase:
    stored = get_baseline(reader, name)
    if stored is None:
        raise FilterError(f"baseline: there is no stored baseline {name[:80]!r}; `compileboard baseline list` has them")
    title = f"the stored baseline {name}"
    results = read_baseline_rows(stored.body, title)
    environment = stored.body.get("environment", {})
    differences = [
        ("torch", environment.get("torch"), run.torch_version),
        ("GPU", environment.get("hardware"), selected.hardware),
    ]
    results = filter_set(results, selected, any_hardware=True)
    return HeadlineBase(results, list_stored_results(stored), title, None, _list_differences(differences))


def _list_differences(values: Iterable[tuple[str, str | None, str | None]]) -> list[str]:
    return [f"{word} {before} → {now}" for word, before, now in values if before and now and before != now]


def _list_baseline_choices(reader: sqlite3.Connection, runs: Sequence[TrendRun]) -> list[tuple[str, str]]:
    """List what can be compared with: stored baselines, then the newest runs."""
    stored = [(STORED + baseline.name, f"stored: {baseline.name}") for baseline in list_baselines(reader).rows]
    labels = [(run.name, format_time(run.started_us)[:16], (run.git_commit or "")[:8]) for run in runs]
    return stored + [(run.id, " · ".join(label)) for run, label in zip(runs, labels)]
