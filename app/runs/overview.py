"""The overview: verdict, incidents, key numbers, recent runs, and the costliest causes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import log
from statistics import median
from typing import Annotated, Any, TypeVar

from compileboard.app.benchmarks.metrics import SUMMARY_BY_NAME, Metric, format_short
from compileboard.app.benchmarks.summaries import SummarizedRuns, SummaryDelta, summarize_runs
from compileboard.app.benchmarks.trend_lines import ENVIRONMENT
from compileboard.app.benchmarks.trend_queries import (
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    choose_set,
    list_branches,
    list_sets,
    list_trend_runs,
    parse_run_count,
    read_trend_filter,
)
from compileboard.app.comparison.verdict import (
    PageVerdict,
    VerdictCount,
    VerdictFacts,
    decide_verdict,
    is_stale,
)
from compileboard.app.core.engine import Engine
from compileboard.app.core.fields import Count, DurationUs, RunId
from compileboard.app.core.format import format_count, format_duration
from compileboard.app.core.newest import MAY_CHANGE, RecorderClock
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.core.schema import one_of
from compileboard.app.core.store import Store, open_run_or_board
from compileboard.app.incidents.model import Incident, Sparkline
from compileboard.app.incidents.page_model import build_sparkline
from compileboard.app.incidents.queries import (
    IncidentCounts,
    IncidentFilter,
    count_incidents,
    list_incidents,
    list_worse_changes,
    list_worst,
)
from compileboard.app.runs.model import Run, describe_runs
from compileboard.app.runs.overview_queries import (
    DatabaseTotals,
    FailedModel,
    RunSeries,
    RunSpeedup,
    TopBreak,
    TopCause,
    get_totals,
    list_failed_models,
    list_measured_models,
    list_program_runs,
    list_series,
    list_speedups,
    list_top,
    list_wrong_models,
)
from compileboard.app.runs.queries import RunFilter, get_run, list_runs
from compileboard.app.runs.rows import RunRow
from compileboard.collectors.contract.fingerprints import parse_id
from compileboard.collectors.contract.library_names import is_library_name
from compileboard.collectors.fixes.causes import Cause
from compileboard.collectors.fixes.titles import describe_savings, saves_nothing
from compileboard.collectors.store.rollups import SuiteDefinition
from compileboard.collectors.store.run_causes import find_break_call, find_first_call, load_causes

MAX_PROGRAMS = 5  # of each kind: programs, and benchmarks
MAX_READ = 10  # of each kind, since some have nothing to save
Top = TypeVar("Top", TopBreak, TopCause)
MAX_COMPILES = 5_000  # a run with more is too slow for a list of several


@dataclass(frozen=True)
class ProgramSavings:
    """The time that fixes of a program's or benchmark's newest run would save."""

    run_id: RunId
    name: Annotated[str, "The run's name."]
    sentence: Annotated[str, "What its fixes save, in one sentence."]
    saved_us: Annotated[
        DurationUs,
        "Compile time that its fixes save: measured where a fix was verified, else an estimate.",
    ]
    run_us: Annotated[
        DurationUs | None,
        "Time that they save of the whole run, compile time and each step; null where no step was "
        "timed.",
    ]
    is_measured: Annotated[
        bool, "Whether trials measured all of that; false where any of it is an estimate."
    ]
    compile_us: Annotated[DurationUs | None, "Compile time of the run."]
    fix_count: Annotated[Count, "Causes with a known fix."]
    first_cause: Annotated[str, "The cause to fix first."]
    first_fix: Annotated[str, "The fix of it."]
    is_benchmark: Annotated[bool, "Whether the run measured models."]


def list_programs(store: Store, filters: OverviewFilters, run_count: int) -> list[ProgramSavings]:
    """List the newest run of each recent program and benchmark that has a fix, the largest saving
    first.
    """
    listed = list_program_runs(
        store.engine, filters.suite, filters.name, run_count=run_count, max_compiles=MAX_COMPILES
    )
    programs: list[ProgramSavings] = []
    for is_benchmark in (False, True):
        run_ids = [row.id for row in listed if row.is_benchmark == is_benchmark]
        runs = (get_run(store.engine, run_id) for run_id in run_ids[:MAX_READ])
        saving = (program for run in runs if run and (program := _read_program(store, run)))
        programs += islice(saving, MAX_PROGRAMS)
    return sorted(
        programs, key=lambda program: (-(program.run_us or program.saved_us), program.name)
    )


def _read_program(store: Store, run: RunRow) -> ProgramSavings | None:
    causes = _read_causes(store, run)
    fixable = [cause for cause in causes if cause.is_fixable]
    if all(map(saves_nothing, fixable)):
        return None
    saving = [cause for cause in fixable if (cause.saved_us or 0) > 0 or cause.step_us]
    return ProgramSavings(
        run_id=run.id,
        name=run.shown_name,
        sentence=describe_savings(causes, run.compile_us, format_duration),
        saved_us=sum(max(0, cause.saved_us or 0) for cause in fixable),
        run_us=None
        if all(cause.run_us is None for cause in fixable)
        else sum(max(0, cause.ranked_us) for cause in fixable),
        is_measured=bool(saving) and all(_is_measured(cause) for cause in saving),
        compile_us=run.compile_us,
        fix_count=len(fixable),
        first_cause=fixable[0].title,
        first_fix=fixable[0].fixes[0].title,
        is_benchmark=bool(run.result_count),
    )


def _is_measured(cause: Cause) -> bool:
    is_step_measured = not cause.step_us or cause.measured_step is not None
    return (not cause.saved_us or cause.measured is not None) and is_step_measured


SUITE, RUN_COUNT = "demo_history", 15  # The runs of examples/demo_history.
MAX_RUNS = 200
PAUSE_US = 60_000_000  # between the end of a version and the first record of the next


@dataclass(frozen=True)
class DemoProgress:
    measured_count: int
    total_count: int
    left_us: int | None

    @property
    def note(self) -> str:
        if self.left_us is None:
            return f"{self.measured_count} of {self.total_count} runs measured"
        left_s = self.left_us / 1_000_000
        left = f"{left_s / 60:.0f} min" if left_s > 90 else f"{left_s:.0f} s"
        return f"{self.measured_count} of {self.total_count} runs measured, about {left} left"


def build_demo_progress(
    engine: Engine, newest: Sequence[RunRow], clock: RecorderClock
) -> DemoProgress | None:
    if not newest or newest[0].suite != SUITE or not _is_in_progress(newest[0], clock):
        return None
    runs = list_runs(engine, RunFilter(suite=SUITE), pinned_first=False, limit=MAX_RUNS).rows
    backend = _name_backend(newest[0])  # another backend belongs to another history
    measured = {
        (run.git_commit, run.name): run.duration_us or 0
        for run in runs
        if run.state == "finished" and _name_backend(run) == backend
    }
    left_count = RUN_COUNT - len(measured)
    if left_count <= 0:
        return None
    return DemoProgress(
        len(measured),
        RUN_COUNT,
        sum(measured.values()) * left_count // len(measured) if measured else None,
    )


def _is_in_progress(run: RunRow, clock: RecorderClock) -> bool:
    ended_us = run.ended_us or run.heartbeat_us
    return clock.is_running(run.state, run.heartbeat_us) or clock.now_us - ended_us < PAUSE_US


def _name_backend(run: RunRow) -> str:
    return run.name.partition(" --")[0]


HEADLINE_METRICS = (
    "geomean_speedup",
    "compilation_latency_s",
    "graph_breaks_per_model",
    "recompiles_per_model",
    "compression_ratio",
    "pass_ratio",
)
LABELS = {"compilation_latency_s": "Cold compile time per model"}
REFERENCE_RUN_COUNT = 10
SPARK_RUN_COUNT = 30
MIN_JUDGED = 3  # With fewer earlier values their scatter is unknown.
# Share of a speedup's change that the compiled latency must explain, as in Compare.
_OWN_SHARE = 0.5
WORDS = ("better", "worse", "same", "moved", "first")


@dataclass(frozen=True)
class HeadlineTile:
    """One number of a suite. `incomplete` has the positions of values that lack models and are not
    shown as the headline.
    """

    metric: Annotated[str, "Name of the metric."]
    label: Annotated[str, "Label of the number."]
    run_id: RunId
    value: Annotated[float, "Value in the newest complete run."]
    text: Annotated[str, "The value with its unit."]
    reference: Annotated[
        float | None,
        "The level before the oldest open incident, else the median of the 10 runs before.",
    ]
    verdict: Annotated[
        str,
        one_of(WORDS),
        "Against the reference; `moved` is a change that noise or eager mode may have made.",
    ]
    change: Annotated[str, "The change in words."]
    values: Annotated[list[float | None], "Values of the newest runs, the oldest first."]
    incomplete: Annotated[list[int], "Positions of values of runs in which models failed."]
    changed_from: Annotated[int | None, "Position of the first run of the oldest open incident."]


def build_tiles(
    summaries: Sequence[StoredSummary],
    incident_us: int | None,
    recovered: Sequence[tuple[int, int]] = (),
) -> list[HeadlineTile]:
    """Build a tile for each metric with a value; `summaries` are newest first.

    Runs in the `recovered` periods of incidents are not used as reference.
    """
    metrics = [SUMMARY_BY_NAME[name] for name in HEADLINE_METRICS]
    return [
        tile
        for metric in metrics
        if (tile := _build_tile(metric, summaries, incident_us, recovered))
    ]


def _build_tile(
    metric: Metric,
    summaries: Sequence[StoredSummary],
    incident_us: int | None,
    recovered: Sequence[tuple[int, int]],
) -> HeadlineTile | None:
    is_rate = (
        metric.name == "pass_ratio"
    )  # it counts failures; the others average the remaining models
    complete = [
        (summary, value)
        for summary in summaries
        if (is_rate or not summary.is_incomplete)
        and (value := getattr(summary, metric.name)) is not None
    ]
    if not complete:
        return None
    newest, value = complete[0]
    before = [
        (older, older_value)
        for older, older_value in complete[1:]
        if (incident_us is None or older.started_us < incident_us)
        and not any(begun_us <= older.started_us < ended_us for begun_us, ended_us in recovered)
    ][:REFERENCE_RUN_COUNT]
    values = [older_value for _older, older_value in before]
    reference = median(values) if values else None
    shown = list(reversed(summaries[:SPARK_RUN_COUNT]))
    starts = [
        position
        for position, summary in enumerate(shown)
        if incident_us and summary.started_us >= incident_us
    ]
    is_judged = _is_beyond_noise(metric, before, newest, value)
    verdict, change = _describe_change(metric, reference, value, is_judged)
    return HeadlineTile(
        metric=metric.name,
        label=LABELS.get(metric.name, metric.label),
        run_id=newest.run_id,
        value=value,
        text=format_short(metric, value),
        reference=reference,
        verdict=verdict,
        change=change,
        values=[getattr(summary, metric.name) for summary in shown],
        incomplete=[
            position
            for position, summary in enumerate(shown)
            if summary.is_incomplete and not is_rate
        ],
        changed_from=starts[0] if starts else None,
    )


def _is_beyond_noise(
    metric: Metric,
    before: Sequence[tuple[StoredSummary, float]],
    newest: StoredSummary,
    value: float,
) -> bool:
    """Return whether a value is outside all earlier ones. Not if eager mode explains the change of
    a speedup.
    """
    values = [older_value for _older, older_value in before]
    if len(values) < (1 if metric.name == "pass_ratio" else MIN_JUDGED) or min(
        values
    ) <= value <= max(values):
        return False
    times = [older.abs_latency_ms for older, _value in before if older.abs_latency_ms]
    if metric.name != "geomean_speedup" or not times or not newest.abs_latency_ms:
        return True
    reference = median(values)
    return (
        -log(newest.abs_latency_ms / median(times)) / log(value / reference) >= _OWN_SHARE
        if reference
        else True
    )


def _describe_change(
    metric: Metric, reference: float | None, value: float, is_judged: bool
) -> tuple[str, str]:
    if reference is None:
        return "first", "First run"
    word = SummaryDelta(metric, reference, value, 0).word
    level = format_short(metric, reference)
    if word not in ("better", "worse"):
        return "same", "Unchanged" if level == format_short(
            metric, value
        ) else f"≈ {level}, within noise"
    share = f" {format_share(value / reference - 1)}" if reference else ""
    change = f"{'▲' if value > reference else '▼'}{share} from {level}"
    return (word, change) if is_judged else ("moved", f"{change}, not judged")


def format_share(share: float) -> str:
    percent = 100 * abs(share)
    return f"{percent:.0f}%" if percent >= 9.5 else f"{percent:.1f}%"


NEWEST_RUNS_COUNT = 8
RECENT_RUNS_COUNT = 50  # enough to include the newest runs that are not trials
TOP_COUNT = 8  # The API's limit; a page shows fewer.
INCIDENT_COUNT = 5  # open ones, and as many that recovered within a day
VERDICT_INCIDENT_COUNT = 200
RECOVERED_COUNT = 50
BROKEN_OFF = ("killed", "interrupted", "interrupted?")  # not told by the number of failures
_DAY_US = 86_400_000_000


@dataclass(frozen=True)
class OverviewFilters:
    sets: TrendFilter
    suite: str | None
    name: str | None
    last: str
    run_count: int

    @property
    def runs(self) -> RunFilter:
        return RunFilter(suite=self.suite, name=self.name)


@dataclass(frozen=True)
class OverviewIncidents:
    confirmed: Sequence[Incident]
    unconfirmed: Sequence[Incident]
    recovered: Sequence[Incident]
    recovered_ranges: Sequence[tuple[int, int]]  # start and end of recovered incidents
    lasting_ids: Sequence[str]  # open and recovered ones
    counts: IncidentCounts
    sparklines: Mapping[str, Sparkline | None]  # Sparklines of the shown incidents by id.

    @property
    def shown(self) -> Sequence[Incident]:
        return [*self.confirmed, *self.unconfirmed][:INCIDENT_COUNT]


@dataclass(frozen=True)
class RecentRun:
    """A run with its failures and, for a benchmark, its speedup. `worse` are models with an
    incident that was open at the time.
    """

    run: Run
    failed: Sequence[FailedModel]
    speedup: RunSpeedup | None
    worse: Sequence[str] = ()
    is_suspected: bool = False  # an earlier change is not confirmed yet

    @property
    def has_failed(self) -> bool:
        return bool(self.failed) or self.run.standing.kind == "bad"

    @property
    def status(self) -> tuple[str, str]:
        state = self.run.standing
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
    definition: SuiteDefinition
    run_count: int  # it was chosen from these
    failed_run_count: int
    failing_since: str  # its commit, if the run before it had no failure
    failed: Sequence[FailedModel]
    wrong: Sequence[str]
    passing_again: Sequence[str]
    environment: Sequence[str]  # differences from the run before


@dataclass(frozen=True)
class OverviewScreen:
    filters: OverviewFilters
    series: Sequence[RunSeries]
    sets: Sequence[ModelSet]
    selected: ModelSet | None
    is_unmatched: bool  # runs exist, but none fits the filters
    branches: Sequence[str]
    verdict: PageVerdict
    suite: NewestSuiteRun | None
    incidents: OverviewIncidents
    tiles: Sequence[HeadlineTile]
    programs: Sequence[ProgramSavings]
    totals: DatabaseTotals
    runs: Sequence[RecentRun]
    graph_breaks: Sequence[TopBreak]
    recompile_causes: Sequence[TopCause]

    @property
    def is_live(self) -> bool:
        return any(recent.run.standing.word in MAY_CHANGE for recent in self.runs)

    @property
    def newest_us(self) -> int:
        return max((recent.run.started_us for recent in self.runs), default=0)


def read_overview_filters(query: Mapping[str, str]) -> OverviewFilters:
    last, run_count = parse_run_count(query)
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
    costliest: Any = {**scope, "run_count": point_count, "limit": TOP_COUNT}
    runs = _list_recent_runs(reader, engine, filters, incidents, clock)
    totals = get_totals(engine, **scope, alive_since_us=clock.alive_since_us)
    programs = list_programs(store, filters, point_count)
    has_benchmarks = any(filters.suite in (None, model_set.suite) for model_set in sets)
    return OverviewScreen(
        filters=filters,
        series=list_series(engine),
        sets=sets,
        selected=selected,
        is_unmatched=not runs or (has_benchmarks and suite is None),
        branches=list_branches(engine) if sets else (),
        verdict=decide_verdict(_collect_facts(suite, incidents, runs, programs, totals, clock)),
        suite=suite,
        incidents=incidents,
        tiles=_build_tiles(summed, incidents) if summed else (),
        programs=programs,
        totals=totals,
        runs=runs,
        graph_breaks=_add_calls(store, list_top(engine, TopBreak, **costliest)),
        recompile_causes=_add_calls(store, list_top(engine, TopCause, **costliest)),
    )


def _add_calls(store: Store, tops: Sequence[Top]) -> list[Top]:
    """Add the call of each, from the run's records, and move those that need no fix to the end."""
    explained = [
        replace(top, called_at=_find_call(store, top), is_expected=_is_expected(store, top))
        for top in tops
    ]
    return sorted(explained, key=lambda top: top.is_expected)


def _is_expected(store: Store, top: TopBreak | TopCause) -> bool:
    content_id = top.distinct_id if isinstance(top, TopBreak) else top.cause_id
    causes = _read_causes(store, get_run(store.engine, top.run_id))
    return any(cause.is_expected and parse_id(content_id) in cause.content_ids for cause in causes)


def _read_causes(store: Store, run: RunRow | None) -> list[Cause]:
    if run is None or (run.compile_count or 0) > MAX_COMPILES:
        return []
    return cached_for_run(open_run_or_board(store, run.id), run.id, load_causes)


def _find_call(store: Store, top: TopBreak | TopCause) -> str | None:
    if not is_library_name(top.file or ""):
        return None
    run_file = open_run_or_board(store, top.run_id)
    if isinstance(top, TopBreak):
        return find_break_call(run_file, top.run_id, top.fingerprint, top.file)
    return find_first_call(run_file, top.run_id, top.file, top.function)


def _list_recent_runs(
    reader: sqlite3.Connection,
    engine: Engine,
    filters: OverviewFilters,
    incidents: OverviewIncidents,
    clock: RecorderClock,
) -> list[RecentRun]:
    newest = list_runs(engine, filters.runs, pinned_first=False, limit=RECENT_RUNS_COUNT).rows
    own = [run for run in newest if run.source != "trial"][:NEWEST_RUNS_COUNT]
    runs = describe_runs(engine, own, clock)
    benched = [run.id for run in runs if run.result_count]
    failed_ids = [run.id for run in runs if run.failed_result_count]
    failed = list_failed_models(engine, failed_ids) if failed_ids else {}
    speedups = list_speedups(engine, benched) if benched else {}
    worse = _find_worse_models(reader, engine, incidents, runs)
    suspected = [
        (incident.suite, incident.branch, incident.first_us) for incident in incidents.unconfirmed
    ]
    return [
        RecentRun(
            run,
            failed.get(run.id, ()),
            speedups.get(run.id),
            sorted(worse[run.id]),
            any(
                (run.suite, run.git_branch or "") == (suite, branch) and run.started_us >= first_us
                for suite, branch, first_us in suspected
            ),
        )
        for run in runs
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
    failures = list_failed_models(engine, run_ids[:2], newest.set.suite)
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
        wrong=list_wrong_models(engine, run.id, newest.set.suite),
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
    is_stale_suite = suite is not None and is_stale(suite.run.started_us, clock.now_us)
    if is_stale_suite and not all(program.is_benchmark for program in programs):
        suite = None  # programs are what people work on
    newest = next((recent.run for recent in runs if recent.run.standing.word != "running"), None)
    failing = [model.model for model in suite.failed] if suite else []
    if suite is None and newest and newest.standing.kind == "bad":
        failing = [newest.shown_name]
    is_killed = suite is None and newest is not None and newest.standing.word == "killed"
    # Incidents of other suites may be about models of the same name.
    open_incidents = (*incidents.confirmed, *incidents.unconfirmed)
    is_of_suite = suite and all(it.suite == suite.newest.set.suite for it in open_incidents)
    own = [program for program in programs if not program.is_benchmark] or programs
    return VerdictFacts(
        incidents=open_incidents,
        recovered_count=len(incidents.recovered),
        failing=failing,
        failure="was killed" if is_killed else "fails",
        failing_since=suite.failing_since if suite else "",
        wrong=suite.wrong if suite else (),
        model_count=suite.newest.total_count if suite and is_of_suite else 0,
        run_count=suite.run_count if suite else totals.run_count - totals.running_count,
        newest_us=suite.run.started_us if suite else newest.started_us if newest else 0,
        now_us=clock.now_us,
        fixes=f"{own[0].name}: {own[0].sentence}" if own and not suite else "",
        is_recording=totals.running_count > 0,
        has_others=totals.run_count > totals.running_count,
        passing_again=suite.passing_again if suite else (),
        environment=suite.environment if suite else (),
        counts=_count_models(suite) if suite else (),
    )


def _count_models(suite: NewestSuiteRun) -> list[VerdictCount]:
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
    recovered = list_incidents(reader, selected, limit=RECOVERED_COUNT).rows
    incidents = OverviewIncidents(
        confirmed=[incident for incident in worst if suite in (None, incident.suite)],
        unconfirmed=list_incidents(reader, unconfirmed, limit=INCIDENT_COUNT).rows,
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
