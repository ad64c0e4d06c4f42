"""One run: state, headline numbers, advice, and exceptions."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Sequence
from dataclasses import dataclass
from functools import cached_property

from compileboard.app.analysis.compiles import CompileGroup, group_compiles
from compileboard.app.analysis.labels import PhaseShare, list_shares, sum_phases
from compileboard.app.analysis.runs.advice import (
    CauseRow,
    RunVerdict,
    SavingShare,
    judge_run,
    list_cause_rows,
    list_savings,
)
from compileboard.app.analysis.runs.problems import Problem, RunFacts, list_problems
from compileboard.app.analysis.runs.states import RunState, describe_state
from compileboard.app.queries.dashboard.incidents import (
    NOT_IGNORED,
    IncidentFilter,
    list_stored_incidents,
)
from compileboard.app.queries.dashboard.streams import is_pushed
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import compiles, failures, graph_breaks, recompiles, trace_files
from compileboard.app.queries.run import run as run_detail
from compileboard.app.queries.run.run import RunDetail, RunFeatures, get_run_features, is_pruned
from compileboard.app.queries.run_cache import cached_for_run
from compileboard.app.queries.run_rows import RunRow
from compileboard.collectors.store.causes import load_causes
from compileboard.collectors.store.dashboard.trials import list_trials

MOST_SKIPS = 200
MOST_INCIDENTS = 5
CHARTED = 24
FIRST_BARS = 3  # of the summary; the others are one click away


@dataclass(frozen=True)
class RunHeader:
    detail: RunDetail
    state: RunState
    features: RunFeatures
    reject_count: int

    @property
    def run(self) -> RunRow:
        return self.detail.run

    @property
    def is_live(self) -> bool:
        return self.run.state == "running"


def build_header(
    reader: sqlite3.Connection, detail: RunDetail, now_us: int, stale_after_s: int
) -> RunHeader:
    run = detail.run
    return RunHeader(
        detail=detail,
        state=describe_state(run, now_us, stale_after_s),
        features=get_run_features(reader, run.id),
        reject_count=trace_files.count_rejects(reader, run.id),
    )


@dataclass(frozen=True)
class RunSummaryScreen:
    run: RunRow
    facts: RunFacts
    causes: Sequence[CauseRow]
    unfinished_count: int
    distinct_break_count: int
    phases: compiles.Phases
    longest: Sequence[compiles.CompileRow]
    incidents: Sequence[tuple[str, str]]  # that began with it: id and title
    is_pruned: bool = False

    @cached_property
    def problems(self) -> list[Problem]:
        return list_problems(self.facts)

    @cached_property
    def verdict(self) -> RunVerdict:
        return judge_run(self.run, self.causes, self.problems, is_pruned=self.is_pruned)

    @cached_property
    def savings(self) -> list[SavingShare]:
        return list_savings(self.causes, self.run.compile_us)

    @property
    def phases_us(self) -> int | None:
        return sum_phases(self.phases)

    @cached_property
    def groups(self) -> list[CompileGroup]:
        return group_compiles(self.longest[:FIRST_BARS])

    @cached_property
    def other_groups(self) -> list[CompileGroup]:
        return group_compiles(self.longest[FIRST_BARS:], self.longest)

    @cached_property
    def shares(self) -> list[PhaseShare]:
        return list_shares(self.phases)

    @property
    def lookup_count(self) -> int:
        return self.run.cache_hit_count + self.run.cache_miss_count + self.run.cache_bypass_count

    @property
    def hit_ratio(self) -> float | None:
        return self.run.cache_hit_count / self.lookup_count if self.lookup_count else None

    @property
    def recompile_ratio(self) -> float | None:
        run = self.run
        return (
            run.recompile_us / run.compile_us
            if run.compile_us and run.recompile_us is not None
            else None
        )


def build_summary(reader: sqlite3.Connection, run: RunRow) -> RunSummaryScreen:
    phases = compiles.get_phases(reader, run.id)
    selected = IncidentFilter(run=run.id, direction="worse", status=NOT_IGNORED)
    causes = list_run_causes(reader, run)
    explained = {key for cause in causes if cause.is_eager for key in cause.compile_keys}
    return RunSummaryScreen(
        run=run,
        facts=read_facts(reader, run, phases, explained),
        causes=causes,
        unfinished_count=failures.count_unfinished(reader, run),
        distinct_break_count=graph_breaks.count_distinct_breaks(reader, run.id),
        phases=phases,
        longest=compiles.list_compiles(reader, run.id, sort="time", limit=CHARTED).rows,
        incidents=[
            (incident.id, incident.title)
            for incident in list_stored_incidents(reader, selected, limit=MOST_INCIDENTS).rows
            if incident.state != "withdrawn"
        ],
        is_pruned=is_pruned(reader, run.id),
    )


def list_run_causes(reader: sqlite3.Connection, run: RunRow) -> list[CauseRow]:
    if not (run.graph_break_count or run.recompile_count):
        return []
    causes = cached_for_run(reader, run.id, load_causes)
    return list_cause_rows(
        causes, run, list_trials(reader, run.id), is_pushed=is_pushed(reader, run.id)
    )


def read_facts(
    reader: sqlite3.Connection, run: RunRow, phases: compiles.Phases, explained: Container[int] = ()
) -> RunFacts:
    """Read the data that problems are derived from, skipping queries that the totals show to be
    empty.

    Recompile limits of `explained` compiles are skipped, since they have a cause of their own.
    """
    limit_hits = (
        recompiles.list_limit_hits(reader, run.id, limit=100).rows
        if run.recompile_limit_count
        else ()
    )
    cacheable = [
        value
        for name in ("inductor", "codegen", "triton")
        if (value := phases.get(name)) is not None
    ]
    return RunFacts(
        unfinished=failures.list_unfinished(reader, run),
        failures=failures.count_failed(reader, run.id) if run.failure_count else (),
        raised=failures.list_runtime_failures(reader, run.id) if run.failure_count else (),
        limit_hits=[
            limit_hit for limit_hit in limit_hits if limit_hit.compile_key not in explained
        ],
        caches=failures.count_cache_results(reader, run.id) if run.cache_bypass_count else (),
        skips=failures.list_cudagraph_skips(reader, run.id, limit=MOST_SKIPS).rows
        if run.cudagraph_skip_count
        else (),
        changed=[
            settings for _process, settings in run_detail.list_changed_configs(reader, run.id)
        ],
        cliffs=run_detail.list_stack_cliffs(reader, run.id),
        cacheable_us=sum(cacheable) if cacheable else None,
    )


@dataclass(frozen=True)
class FailuresScreen:
    page: Page[failures.FailureRow]


def build_failures(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 20
) -> FailuresScreen:
    return FailuresScreen(failures.list_failures(reader, run_id, cursor, limit))
