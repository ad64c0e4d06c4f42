"""A suite over a period: its newest run, the change since the start, and the events in between."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from compileboard.app.analysis.comparison.differences import compare
from compileboard.app.analysis.comparison.model import CompareSide, Comparison
from compileboard.app.analysis.incidents.incident import Incident
from compileboard.app.analysis.models.series import label_fields
from compileboard.app.analysis.models.summaries import (
    ModelFailure,
    SummaryDelta,
    filter_set,
    list_failures,
)
from compileboard.app.analysis.models.summaries import compare as compare_headlines
from compileboard.app.analysis.period import Period
from compileboard.app.analysis.trends.lines import Axis, lay_out
from compileboard.app.analysis.verdict import (
    PageVerdict,
    VerdictFacts,
    decide_verdict,
    describe_incident,
)
from compileboard.app.engines.store import Store
from compileboard.app.format import format_plural, format_time
from compileboard.app.queries.dashboard.incidents import NOT_IGNORED, IncidentFilter
from compileboard.app.queries.dashboard.series_changes import SeriesChange, list_changes_of
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.trends import (
    MOST_RUNS,
    ModelSet,
    StoredSummary,
    TrendFilter,
    TrendRun,
    list_sets,
    list_summaries,
    list_timed_runs,
    list_trend_runs,
)
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.page import FilterError
from compileboard.app.queries.run.models import list_results
from compileboard.app.queries.run_cache import cached_for_run
from compileboard.app.queries.sides import find_side
from compileboard.app.screens.fleet.comparison import load_side
from compileboard.app.screens.fleet.incidents import list_incidents
from compileboard.app.screens.fleet.summary import summarize_runs
from compileboard.collectors.store.rollups.results import ResultRow
from compileboard.collectors.store.rollups.summaries import Definition

INCIDENT_COUNT = 1_000
# How many rows of each list a report for people shows; JSON, CSV and Parquet have all.
REPORT_ROWS = {
    "moved": 50,
    "runs": 200,
    "failures": 200,
    "commits": 200,
    "incidents": 100,
    "changes": 50,
}
_MOST_BEFORE = 40  # runs before the period, and of its beginning, among which base is looked for
_CHOOSERS = ("mode", "dtype", "device", "hardware", "backend", "dynamic", "world_size")


@dataclass(frozen=True)
class SuiteHeadline:
    base: float | None
    new: float | None
    delta: SummaryDelta


@dataclass(frozen=True)
class SuiteCommit:
    hash: str
    subject: str | None
    branch: str | None
    run: TrendRun
    run_count: int


@dataclass(frozen=True)
class SuiteScreen:
    """A suite over a period; `base` and the comparison are None if no other run has a model of
    `new`.

    `summaries` (newest first) and `runs` (oldest first) are those of the period, preceded
    in time by `base` where it is older.
    """

    period: Period
    chosen: ModelSet
    others: tuple[ModelSet, ...]
    branch: str | None
    definition: Definition
    summaries: tuple[StoredSummary, ...]
    runs: tuple[TrendRun, ...]
    axis: Axis
    base: StoredSummary | None
    new: StoredSummary
    headlines: tuple[SuiteHeadline, ...]
    comparison: Comparison | None
    failures: tuple[ModelFailure, ...]
    commits: tuple[SuiteCommit, ...]
    incidents: tuple[Incident, ...]
    changes: tuple[SeriesChange, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.chosen.suite}: {label_fields(self.chosen.fields)}"

    @property
    def is_base_before(self) -> bool:
        return self.base is not None and self.base.started_us < self.period.since_us

    @property
    def run_count(self) -> int:
        return len(self.runs) - self.is_base_before

    @cached_property
    def verdict(self) -> PageVerdict:
        active = [
            incident for incident in self.incidents if incident.state in ("open", "unconfirmed")
        ]
        active = [
            incident
            for incident in active
            if incident.direction == "worse" and incident.status != "ignored"
        ]
        return decide_verdict(
            VerdictFacts(
                incidents=[
                    describe_incident(incident)
                    for incident in sorted(active, key=lambda incident: incident.severity)
                ],
                failing=[failure.row.model for failure in self.failures if failure.new is not None],
                model_count=self.new.total_count,
                run_count=self.run_count,
                newest_us=self.new.started_us,
                now_us=self.new.started_us,
            )
        )

    def find_run(self, run_id: str) -> TrendRun:
        return next(run for run in self.runs if run.id == run_id)


def build_suite(
    store: Store,
    asked: TrendFilter,
    period: Period,
    clock: RecorderClock,
    definition: str | None = None,
) -> SuiteScreen:
    """Build a suite's period for the selected configuration that was measured last."""
    during = replace(asked, since_us=period.since_us, until_us=period.until_us)
    engine = store.engine
    chosen, others = _choose(engine, asked, during, period)
    summed = summarize_runs(engine, during.narrow(chosen), definition, clock)
    assert summed is not None  # _choose found a run of it in the period
    formula, within, new = summed.definition, summed.summaries, summed.newest
    timed = list_timed_runs(engine, asked.narrow(chosen))
    rows = _read_rows(store, new, chosen)
    before = list_summaries(
        engine, replace(asked, until_us=period.since_us).narrow(chosen), formula.name, _MOST_BEFORE
    )
    base, base_rows = _find_base(
        store,
        [summary for summary in (*before, *_older(within, new)) if summary.run_id in timed],
        rows,
        chosen,
    )
    comparison = _compare(store, clock, base, new, chosen) if base else None
    summaries = [*within, base] if base in before and base is not None else within
    run_ids = [summary.run_id for summary in summaries]
    runs = list_trend_runs(engine, run_ids, alive_since_us=clock.alive_since_us)
    axis = lay_out(runs, "date")
    incidents, changes = _list_incidents(store.board, chosen, asked.branch, period)
    return SuiteScreen(
        period=period,
        chosen=chosen,
        others=tuple(others),
        branch=asked.branch,
        definition=formula,
        summaries=tuple(summaries),
        runs=tuple(runs),
        axis=axis,
        base=base,
        new=new,
        headlines=_sum_up(base, new, base_rows, rows, formula, comparison),
        comparison=comparison,
        failures=tuple(list_failures(base_rows, rows)),
        commits=tuple(_list_commits(runs, period)),
        incidents=incidents,
        changes=changes,
        notes=tuple(_note(axis, chosen, others, len(within))),
    )


def _read_rows(store: Store, of: StoredSummary, chosen: ModelSet) -> list[ResultRow]:
    return filter_set(cached_for_run(store.open_run(of.run_id), of.run_id, list_results), chosen)


def _find_base(
    store: Store, offered: Iterable[StoredSummary], rows: Sequence[ResultRow], chosen: ModelSet
) -> tuple[StoredSummary | None, list[ResultRow]]:
    models = {row.model for row in rows}
    for summary in offered:
        base_rows = _read_rows(store, summary, chosen)
        if any(row.model in models for row in base_rows):
            return summary, base_rows
    return None, []


def _older(within: Sequence[StoredSummary], new: StoredSummary) -> list[StoredSummary]:
    return [summary for summary in reversed(within) if summary.started_us < new.started_us][
        :_MOST_BEFORE
    ]


def _choose(
    engine: Engine, selection: TrendFilter, during: TrendFilter, period: Period
) -> tuple[ModelSet, list[ModelSet]]:
    sets = list_sets(engine)
    suites = list(dict.fromkeys(model_set.suite for model_set in sets))
    if selection.suite not in suites:
        known = (
            ", ".join(repr(suite) for suite in suites[:20])
            or "none yet; `compileboard-collect bench` measures one"
        )
        raise FilterError(
            f"suite: there is no suite {(selection.suite or '')[:80]!r} in this database; "
            f"known: {known}"
        )
    fitting = [model_set for model_set in sets if selection.takes(model_set)]
    if not fitting:
        own = [
            label_fields(model_set.fields)
            for model_set in sets
            if model_set.suite == selection.suite
        ]
        raise FilterError(
            f"suite: {selection.suite!r} was never measured like this; it was as "
            f"{'; '.join(own[:20])}"
        )
    measured = {
        tuple(summary.set.fields.values()) for summary in list_summaries(engine, during, "hud")
    }
    present = [model_set for model_set in fitting if tuple(model_set.fields.values()) in measured]
    if not present:
        raise FilterError(_format_empty(engine, selection, period))
    return present[0], present[1:]


def _format_empty(engine: Engine, selection: TrendFilter, period: Period) -> str:
    on = f" on branch {selection.branch!r}" if selection.branch else ""
    runs = list_summaries(engine, selection, "hud")
    if not runs:
        return f"branch: no run of suite {selection.suite!r} is{on}"
    between = (
        f"its runs{on} are of {format_time(runs[-1].started_us)[:10]} to "
        f"{format_time(runs[0].started_us)[:10]}"
    )
    return f"since: suite {selection.suite!r} has no run{on} from {period.text} (UTC); {between}"


def _sum_up(
    base: StoredSummary | None,
    new: StoredSummary,
    before: Sequence[ResultRow],
    after: Sequence[ResultRow],
    definition: Definition,
    comparison: Comparison | None,
) -> tuple[SuiteHeadline, ...]:
    def of(side: StoredSummary | None, name: str) -> float | None:
        value: float | None = getattr(side, name) if side else None
        return value

    verdicts = (
        {total.metric.name: total.verdicts for total in comparison.sums} if comparison else None
    )
    deltas = compare_headlines(before, after, definition, verdicts)
    return tuple(
        SuiteHeadline(of(base, delta.metric.name), of(new, delta.metric.name), delta)
        for delta in deltas
    )


def _compare(
    store: Store,
    clock: RecorderClock,
    base: StoredSummary,
    new: StoredSummary,
    chosen: ModelSet,
) -> Comparison:
    sides = [
        load_side(store, clock, find_side(store.board, store.engine, clock, summary.run_id, name))
        for name, summary in (("base", base), ("new", new))
    ]
    return compare(_only_set(sides[0], chosen), _only_set(sides[1], chosen))


def _only_set(side: CompareSide, chosen: ModelSet) -> CompareSide:
    entries = tuple(
        entry
        for entry in side.entries
        if all(entry.series.get(name) == value for name, value in chosen.fields.items())
    )
    keys = {entry.key for entry in entries}
    breaks, causes = (
        None
        if items is None
        else tuple(item for item in items if item.model is None or item.model in keys)
        for items in (side.breaks, side.causes)
    )
    return replace(side, entries=entries, breaks=breaks, causes=causes)


def _list_commits(runs: Iterable[TrendRun], period: Period) -> list[SuiteCommit]:
    runs_by_commit: dict[str, list[TrendRun]] = {}
    for run in runs:
        if run.git_commit:
            runs_by_commit.setdefault(run.git_commit, []).append(run)
    return [
        SuiteCommit(name, of[0].git_subject, of[0].git_branch, of[0], len(of))
        for name, of in runs_by_commit.items()
        if of[0].started_us >= period.since_us
    ]


def _list_incidents(
    reader: sqlite3.Connection, chosen: ModelSet, branch: str | None, period: Period
) -> tuple[tuple[Incident, ...], tuple[SeriesChange, ...]]:
    selection = IncidentFilter(
        suite=chosen.suite,
        branch=branch,
        since_us=period.since_us,
        before_us=period.until_us,
        status=NOT_IGNORED,
    )
    listed = list_incidents(reader, selection, limit_count=INCIDENT_COUNT).rows
    incidents = [incident for incident in listed if incident.state != "withdrawn"]
    changes = [
        change
        for change in list_changes_of(reader, [incident.id for incident in incidents])
        if change.state != "withdrawn" and (change.subject == "runs" or _is_of(change, chosen))
    ]
    own = {change.incident_id for change in changes}
    return tuple(incident for incident in incidents if incident.id in own), tuple(changes)


def _is_of(change: SeriesChange, chosen: ModelSet) -> bool:
    # A change has '' and 0 where a set has None.
    return all(
        (getattr(change, name) or None) == (value or None) for name, value in chosen.fields.items()
    )


def _note(axis: Axis, chosen: ModelSet, others: Sequence[ModelSet], count: int) -> Iterable[str]:
    yield from axis.notes
    if count == MOST_RUNS:
        yield f"the period has more runs than {MOST_RUNS}: these are the newest"
    if others:
        differing = [
            name
            for name in _CHOOSERS
            if any(getattr(model_set, name) != getattr(chosen, name) for model_set in others)
        ]
        options = ", ".join(name.replace("_", " ") for name in differing)
        ways = "; ".join(label_fields(model_set.fields) for model_set in others[:8]) + (
            "; …" if len(others) > 8 else ""
        )
        yield (
            f"the suite was measured in {format_plural(len(others), 'other configuration')} in "
            f"this period ({ways}). "
            f"Shown is the newest; name the {options} to choose another"
        )
