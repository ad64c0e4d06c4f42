"""The overview: verdict, incidents, key numbers, recent runs, and the costliest causes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from compileboard.app.analysis.incidents.incident import Incident, Sparkline
from compileboard.app.analysis.tiles import HeadlineTile, build_tiles
from compileboard.app.analysis.trends.lines import ENVIRONMENT
from compileboard.app.analysis.verdict import (
    PageVerdict,
    VerdictCount,
    VerdictFacts,
    decide_verdict,
    describe_incident,
)
from compileboard.app.engines.store import Store
from compileboard.app.format import format_count
from compileboard.app.queries.dashboard.incidents import (
    IncidentCounts,
    IncidentFilter,
    count_incidents,
)
from compileboard.app.queries.dashboard.series_changes import list_worse_changes
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.overview import (
    DatabaseTotals,
    FailedModel,
    RunPoint,
    RunSeries,
    RunSpeedup,
    TopBreak,
    TopCause,
    TopFunction,
    get_totals,
    list_failed_models,
    list_measured_models,
    list_series,
    list_speedups,
    list_top_breaks,
    list_top_causes,
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
    read_last,
    read_trend_filter,
)
from compileboard.app.queries.newest import MAY_CHANGE, RecorderClock
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.screens.fleet.incidents import build_sparkline, list_incidents, list_worst
from compileboard.app.screens.fleet.programs import ProgramSavings, list_programs
from compileboard.app.screens.fleet.runs import ListedRun, describe_runs
from compileboard.app.screens.fleet.summary import SummarizedRuns, summarize_runs
from compileboard.collectors.store.rollups.summaries import Definition

NEWEST_RUNS_COUNT = 8
PROGRAM_RUNS_COUNT = 50  # newest runs among which programs are looked for
TOP_COUNT = 8  # of the API; a page shows fewer
INCIDENT_COUNT = 5  # open ones, and as many that recovered within a day
VERDICT_INCIDENT_COUNT = 200
RECOVERED_COUNT = 50
BROKEN_OFF = ("killed", "interrupted", "interrupted?")  # states that a run's failures do not tell
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class OverviewFilters:
    sets: TrendFilter
    suite: str | None
    name: str | None
    last: str
    run_count: int


@dataclass(frozen=True)
class OverviewIncidents:
    confirmed: Sequence[Incident]
    unconfirmed: Sequence[Incident]
    recovered: Sequence[Incident]
    recovered_ranges: Sequence[tuple[int, int]]  # from when to when incidents lasted that recovered
    lasting_ids: Sequence[str]  # those that are open, and those that were
    counts: IncidentCounts
    sparklines: Mapping[str, Sparkline | None]  # of those that are shown, by id

    @property
    def shown(self) -> Sequence[Incident]:
        return [*self.confirmed, *self.unconfirmed][:INCIDENT_COUNT]


@dataclass(frozen=True)
class RecentRun:
    """A run with its failures and, for a benchmark, its speedup; `worse` are the models with an
    incident open at the time.
    """

    listed: ListedRun
    failed: Sequence[FailedModel]
    speedup: RunSpeedup | None
    worse: Sequence[str] = ()
    is_suspected: bool = False  # a change that came before it waits to be confirmed

    @property
    def has_failed(self) -> bool:
        return bool(self.failed) or self.listed.state.kind == "bad"

    @property
    def status(self) -> tuple[str, str]:
        state = self.listed.state
        failed = (
            [f"{len(self.failed)} of {self.speedup.total_count} failed"]
            if self.failed and self.speedup
            else []
        )
        parts = (
            failed or list(state.problems) or ([f"{len(self.worse)} worse"] if self.worse else [])
        )
        if state.word in BROKEN_OFF or not parts:
            parts.insert(0, state.word)
        text = ", ".join(parts)
        kind = "quiet" if self.is_suspected and state.kind == "good" else state.kind
        is_bad = self.has_failed or (self.worse and not state.problems)
        return text[0].upper() + text[1:], "bad" if is_bad else "warn" if state.problems else kind


@dataclass(frozen=True)
class NewestSuiteRun:
    newest: StoredSummary
    run: TrendRun
    running: TrendRun | None
    definition: Definition
    run_count: int  # from which it was chosen
    failed_run_count: int
    failing_since: str  # its commit, where the run before it had no failure
    failed: Sequence[FailedModel]
    passing_again: Sequence[str]
    environment: Sequence[str]  # what differs from the run before


@dataclass(frozen=True)
class RecordedRuns:
    series: Sequence[RunSeries]
    totals: DatabaseTotals
    points: Sequence[RunPoint]
    newest: Sequence[ListedRun]
    graph_breaks: Sequence[TopBreak]
    recompile_causes: Sequence[TopCause]
    functions: Sequence[TopFunction]


@dataclass(frozen=True)
class OverviewScreen:
    filters: OverviewFilters
    series: Sequence[RunSeries]
    sets: Sequence[ModelSet]
    selected: ModelSet | None
    branches: Sequence[str]
    verdict: PageVerdict
    suite: NewestSuiteRun | None
    incidents: OverviewIncidents
    tiles: Sequence[HeadlineTile]
    programs: Sequence[ProgramSavings]  # where nothing was benchmarked
    totals: DatabaseTotals
    runs: Sequence[RecentRun]
    graph_breaks: Sequence[TopBreak]
    recompile_causes: Sequence[TopCause]

    @property
    def is_live(self) -> bool:
        return any(recent.listed.state.word in MAY_CHANGE for recent in self.runs)

    @property
    def newest_us(self) -> int:
        return max((recent.listed.run.started_us for recent in self.runs), default=0)


def read_overview_filters(query: Mapping[str, str]) -> OverviewFilters:
    last, run_count = read_last(query)
    return OverviewFilters(
        sets=read_trend_filter(query),
        suite=query.get("suite") or None,
        name=query.get("name") or None,
        last=last,
        run_count=run_count,
    )


def build_overview(
    store: Store, filters: OverviewFilters, clock: RecorderClock, point_count: int
) -> OverviewScreen:
    reader, engine = store.board, store.engine
    sets = list_sets(engine)
    selected = choose_set(engine, sets, filters.sets)
    narrowed = filters.sets.narrow(selected) if selected else None
    summed = summarize_runs(engine, narrowed, None, clock, filters.run_count) if narrowed else None
    incidents = _list_incidents(reader, engine, filters.suite, clock)
    suite = _describe_suite(engine, summed, clock) if summed else None
    scope = {"suite": filters.suite, "name": filters.name}
    runs = _list_recent_runs(reader, engine, filters, incidents, clock)
    totals = get_totals(engine, **scope, alive_since_us=clock.alive_since_us)
    programs = list_programs(store, _list_newest(engine, filters)) if not sets else []
    return OverviewScreen(
        filters=filters,
        series=list_series(engine),
        sets=sets,
        selected=selected,
        branches=list_branches(engine) if sets else (),
        verdict=decide_verdict(_collect_facts(suite, incidents, runs, programs, totals, clock)),
        suite=suite,
        incidents=incidents,
        tiles=_build_tiles(summed, incidents) if summed else (),
        programs=programs,
        totals=totals,
        runs=runs,
        graph_breaks=list_top_breaks(engine, **scope, newest=point_count, limit=TOP_COUNT),
        recompile_causes=list_top_causes(engine, **scope, newest=point_count, limit=TOP_COUNT),
    )


def build_recorded_runs(
    engine: Engine, suite: str | None, name: str | None, clock: RecorderClock, point_count: int
) -> RecordedRuns:
    newest = list_runs(
        engine, RunFilter(suite=suite, name=name), pinned_first=False, limit=NEWEST_RUNS_COUNT
    )
    alive_since_us = clock.alive_since_us
    return RecordedRuns(
        series=list_series(engine),
        totals=get_totals(engine, suite, name, alive_since_us=alive_since_us),
        points=list_trend(engine, suite, name, newest=point_count, alive_since_us=alive_since_us),
        newest=describe_runs(engine, newest.rows, clock),
        graph_breaks=list_top_breaks(engine, suite, name, newest=point_count, limit=TOP_COUNT),
        recompile_causes=list_top_causes(engine, suite, name, newest=point_count, limit=TOP_COUNT),
        functions=list_top_functions(engine, suite, name, newest=point_count, limit=TOP_COUNT),
    )


def _list_newest(engine: Engine, filters: OverviewFilters) -> Sequence[RunRow]:
    selected = RunFilter(suite=filters.suite, name=filters.name)
    runs = list_runs(engine, selected, pinned_first=False, limit=PROGRAM_RUNS_COUNT).rows
    return [run for run in runs if run.source != "trial"]


def _list_recent_runs(
    reader: sqlite3.Connection,
    engine: Engine,
    filters: OverviewFilters,
    incidents: OverviewIncidents,
    clock: RecorderClock,
) -> list[RecentRun]:
    listed = describe_runs(engine, _list_newest(engine, filters)[:NEWEST_RUNS_COUNT], clock)
    benched = [entry.run.id for entry in listed if entry.run.result_count]
    failed_ids = [entry.run.id for entry in listed if entry.run.failed_result_count]
    failed = list_failed_models(engine, failed_ids) if failed_ids else {}
    speedups = list_speedups(engine, benched) if benched else {}
    worse = _find_worse_models(reader, engine, incidents, [entry.run for entry in listed])
    suspected = [
        (incident.suite, incident.branch, incident.first_us) for incident in incidents.unconfirmed
    ]
    return [
        RecentRun(
            entry,
            failed.get(run.id, ()),
            speedups.get(run.id),
            sorted(worse[run.id]),
            any(
                (run.suite, run.git_branch or "") == (suite, branch) and run.started_us >= first_us
                for suite, branch, first_us in suspected
            ),
        )
        for entry in listed
        for run in [entry.run]
    ]


def _find_worse_models(
    reader: sqlite3.Connection, engine: Engine, incidents: OverviewIncidents, runs: Sequence[RunRow]
) -> dict[str, set[str]]:
    worse: dict[str, set[str]] = {run.id: set() for run in runs}
    changes = list_worse_changes(reader, incidents.lasting_ids)
    if not changes:
        return worse
    models = sorted({change.model for change in changes})
    measured = list_measured_models(engine, [run.id for run in runs if run.result_count], models)
    for run in runs:
        keys = measured.get(run.id, set())
        own = [
            change
            for change in changes
            if change.key in keys and change.branch == (run.git_branch or "")
        ]
        worse[run.id] |= {change.model for change in own if change.covers(run.started_us)}
    return worse


def _describe_suite(engine: Engine, summed: SummarizedRuns, clock: RecorderClock) -> NewestSuiteRun:
    newest = summed.newest
    position = summed.summaries.index(newest)
    newer = [
        summary.run_id
        for summary in summed.summaries[:position]
        if summary.run_id in summed.running
    ]
    ended, previous = summed.summaries[position:], summed.find_newest_before(position + 1)
    run_ids = [newest.run_id, *([previous.run_id] if previous else []), *newer[:1]]
    runs = {
        run.id: run for run in list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us)
    }
    run, before = runs[newest.run_id], runs[previous.run_id] if previous else None
    failures = list_failed_models(engine, run_ids[:2])
    failed = failures.get(run.id, [])
    failing = {model.model for model in failed}
    failed_before = [model.model for model in failures.get(before.id, [])] if before else []
    return NewestSuiteRun(
        newest=newest,
        run=run,
        running=runs[newer[0]] if newer else None,
        definition=summed.definition,
        run_count=len({summary.run_id for summary in ended} - summed.running),
        failed_run_count=sum(summary.failed_count > 0 for summary in ended),
        failing_since=(run.git_commit or "")[:7] if previous and not previous.failed_count else "",
        failed=failed,
        passing_again=[model for model in failed_before if model not in failing],
        environment=_list_differences(before, run) if before else (),
    )


def _list_differences(before: TrendRun, run: TrendRun) -> list[str]:
    values = [(word, getattr(before, name), getattr(run, name)) for word, name in ENVIRONMENT]
    return [f"{word} {old} → {new}" for word, old, new in values if old and new and old != new]


def _build_tiles(summed: SummarizedRuns, incidents: OverviewIncidents) -> list[HeadlineTile]:
    suite = summed.newest.set.suite
    starts = [incident.first_us for incident in incidents.confirmed if incident.suite == suite]
    ended = summed.summaries[summed.summaries.index(summed.newest) :]
    return build_tiles(ended, min(starts, default=None), incidents.recovered_ranges)


def _collect_facts(
    suite: NewestSuiteRun | None,
    incidents: OverviewIncidents,
    runs: Sequence[RecentRun],
    programs: Sequence[ProgramSavings],
    totals: DatabaseTotals,
    clock: RecorderClock,
) -> VerdictFacts:
    newest = next((recent.listed for recent in runs if recent.listed.state.word != "running"), None)
    failing = [model.model for model in suite.failed] if suite else []
    if suite is None and newest and newest.state.kind == "bad":
        failing = [newest.run.shown_name]
    is_killed = suite is None and newest is not None and newest.state.word == "killed"
    return VerdictFacts(
        incidents=[
            *(describe_incident(incident) for incident in incidents.confirmed),
            *(describe_incident(incident) for incident in incidents.unconfirmed),
        ],
        recovered_count=len(incidents.recovered),
        failing=failing,
        failure="was killed" if is_killed else "fails",
        failing_since=suite.failing_since if suite else "",
        model_count=suite.newest.total_count if suite else 0,
        run_count=suite.run_count if suite else totals.run_count - totals.running_count,
        newest_us=suite.run.started_us if suite else newest.run.started_us if newest else 0,
        now_us=clock.now_us,
        fixes=f"{programs[0].name}: {programs[0].sentence}" if programs else "",
        is_recording=totals.running_count > 0,
        has_others=totals.run_count > totals.running_count,
        passing_again=suite.passing_again if suite else (),
        environment=suite.environment if suite else (),
        counts=_count(suite) if suite else (),
    )


def _count(suite: NewestSuiteRun) -> list[VerdictCount]:
    newest = suite.newest
    passed = newest.passed_count
    return [
        VerdictCount(
            "Models measured",
            f"{format_count(newest.measured_count)} of {format_count(newest.total_count)}",
        ),
        VerdictCount(
            "Failed runs",
            f"{format_count(suite.failed_run_count)} of {format_count(suite.run_count)}",
        ),
        VerdictCount(
            "Accuracy",
            f"{format_count(passed)} of {format_count(newest.total_count)} passed"
            if passed is not None and suite.definition.has_pass_rate
            else "not checked",
        ),
    ]


def _list_incidents(
    reader: sqlite3.Connection, engine: Engine, suite: str | None, clock: RecorderClock
) -> OverviewIncidents:
    worst = list_worst(reader, VERDICT_INCIDENT_COUNT)
    unconfirmed = IncidentFilter(state="unconfirmed", status="open", direction="worse", suite=suite)
    selected = IncidentFilter(state="recovered", direction="worse", suite=suite)
    recovered = list_incidents(reader, selected, limit_count=RECOVERED_COUNT).rows
    incidents = OverviewIncidents(
        confirmed=[incident for incident in worst if suite in (None, incident.suite)],
        unconfirmed=list_incidents(reader, unconfirmed, limit_count=INCIDENT_COUNT).rows,
        recovered=[
            incident
            for incident in recovered
            if (incident.recovered_us or 0) >= clock.now_us - _DAY_US
        ][:INCIDENT_COUNT],
        recovered_ranges=[
            (incident.first_us, incident.recovered_us)
            for incident in recovered
            if incident.recovered_us is not None
        ],
        lasting_ids=[incident.id for incident in (*worst, *recovered)],
        counts=count_incidents(reader),
        sparklines={},
    )
    sparklines = {
        incident.id: build_sparkline(reader, engine, incident, clock)
        for incident in incidents.shown
    }
    return replace(incidents, sparklines=sparklines)
