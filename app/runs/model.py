"""Runs as shown: the list, and one run's header, summary, environment and processes."""

from __future__ import annotations

import sqlite3
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any

from compileboard.app.comparison import environment
from compileboard.app.comparison.environment import NonDefaultSetting
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.model import CompileGroup, group_compiles
from compileboard.app.core.engine import Engine
from compileboard.app.core.labels import (
    PhaseShare,
    describe_cuda_graph_status,
    list_shares,
    sum_phases,
)
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import Page
from compileboard.app.core.rows import list_rows
from compileboard.app.core.run_cache import cached_for_run
from compileboard.app.core.schema import PRIVATE, published
from compileboard.app.incidents.queries import NOT_IGNORED, IncidentFilter, list_incidents
from compileboard.app.push.queries import is_pushed
from compileboard.app.ranks.model import build_ranks
from compileboard.app.reasons import run_queries as reasons
from compileboard.app.repros.queries import list_repros
from compileboard.app.runs import failures, run_queries, trace_files
from compileboard.app.runs.advice import (
    CauseRow,
    Problem,
    RunFacts,
    RunVerdict,
    SavingBarSegment,
    describe_order,
    judge_run,
    list_cause_rows,
    list_problems,
    list_savings,
)
from compileboard.app.runs.queries import (
    RunFilter,
    list_runs,
    list_tags,
)
from compileboard.app.runs.rows import RunRow, RunState, describe_state
from compileboard.app.runs.run_queries import (
    ConfigText,
    ConfigUse,
    ProcessRow,
    RunDetail,
    RunFeatures,
    StackCliff,
    get_run_features,
    is_pruned,
)
from compileboard.app.runs.trace_files import Log, Note, RejectedLines, TraceFile
from compileboard.collectors.fixes.fix import TriedFix
from compileboard.collectors.store.results import fill
from compileboard.collectors.store.run_causes import (
    find_first_call,
    list_other_trials,
    load_causes,
)
from compileboard.collectors.store.run_costs import (
    RunCost,
    list_recorded_again,
    list_run_costs,
)
from compileboard.collectors.store.runs import list_disabling


@dataclass(frozen=True)
class Run(RunRow):
    """One run with all its processes."""

    tags: Annotated[dict[str, str], "Value by key."]
    standing: RunState = field(metadata=PRIVATE)

    @property
    @published
    def shown_state(self) -> str:
        """Return `state`, or `interrupted?` if the recorder of a running run no longer responds."""
        return self.standing.word


@dataclass(frozen=True)
class RunWithFacts(Run):
    """One run and its environment."""

    tables = (*Run.tables, "pruned_runs")

    cwd: str | None
    keep_source: bool
    stack_room: bool | None
    pruned_us: int | None
    facts: dict[str, Any]


def describe_runs(engine: Engine, runs: Sequence[RunRow], clock: RecorderClock) -> list[Run]:
    tags = list_tags(engine, [run.id for run in runs])
    return [_describe(run, tags[run.id], clock) for run in runs]


def _describe(run: RunRow, tags: Iterable[tuple[str, str]], clock: RecorderClock) -> Run:
    return fill(Run, vars(run) | {"tags": dict(tags), "standing": describe_state(run, *clock)})


def list_described_runs(
    engine: Engine, clock: RecorderClock, selection: RunFilter | None = None, **options: Any
) -> Page[Run]:
    """List runs with tags and state."""
    page = list_runs(engine, selection, **options)
    return Page(tuple(describe_runs(engine, page.rows, clock)), page.next)


def describe_facts(detail: RunDetail, clock: RecorderClock) -> RunWithFacts:
    return RunWithFacts(
        **vars(_describe(detail.run, detail.tags, clock)),
        cwd=detail.cwd,
        keep_source=detail.keep_source,
        stack_room=detail.stack_room,
        pruned_us=detail.pruned_us,
        facts=detail.facts,
    )


MAX_SKIPS = 200
MAX_CLIFFS = 256
MAX_INCIDENTS = 5
CHARTED = 24
FIRST_BARS = 3  # The summary shows these; a click shows the others.


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
    problems: Sequence[Problem]
    causes: Sequence[CauseRow]
    unfinished_count: int
    distinct_break_count: int
    phases: compiles.Phases
    longest: Sequence[compiles.CompileRow]
    incidents: Sequence[tuple[str, str]]  # Id and title of the incidents that began with this run.
    trials: Sequence[TriedFix] = ()  # Trials that belong to no cause.
    costs: Sequence[RunCost] = ()  # only if steps were timed
    is_pruned: bool = False
    disabling: Sequence[str] = ()  # what turned torch.compile off, where nothing was compiled

    @cached_property
    def verdict(self) -> RunVerdict:
        return judge_run(
            self.run,
            self.causes,
            self.problems,
            is_pruned=self.is_pruned,
            disabling=self.disabling,
        )

    @cached_property
    def savings(self) -> list[SavingBarSegment]:
        return list_savings(self.causes, self.run.compile_us)

    @property
    def fixes_title(self) -> str:
        is_needless = self.causes and all(cause.is_expected for cause in self.causes)
        return "Nothing to fix" if is_needless and not self.problems else "Fix this first"

    @cached_property
    def order(self) -> str:
        return describe_order(self.causes)

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
    def hit_ratio(self) -> float | None:
        return (
            (self.run.cache_hit_count or 0) / self.run.lookup_count
            if self.run.lookup_count
            else None
        )

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
    problems = list_problems(read_facts(reader, run, phases, explained))
    return RunSummaryScreen(
        run=run,
        problems=[
            replace(
                problem,
                called_at=find_first_call(reader, run.id, problem.file, problem.function),
            )
            for problem in problems
        ],
        causes=causes,
        unfinished_count=failures.count_unfinished(reader, run),
        distinct_break_count=reasons.count_distinct_breaks(reader, run.id),
        phases=phases,
        longest=compiles.list_compiles(reader, run.id, sort="time", limit=CHARTED).rows,
        incidents=[
            (incident.id, incident.title)
            for incident in list_incidents(reader, selected, limit=MAX_INCIDENTS).rows
            if incident.state != "withdrawn"
        ],
        trials=list_other_trials(reader, run.id, causes),
        costs=rank_run_costs(reader, run.id, causes),
        is_pruned=is_pruned(reader, run.id),
        disabling=() if run.compile_count else list_disabling(reader, run.id),
    )


def rank_run_costs(
    reader: sqlite3.Connection, run_id: str, causes: Sequence[CauseRow]
) -> list[RunCost]:
    return list_run_costs(
        reader, run_id, causes, lambda status: describe_cuda_graph_status(status).word
    )


def list_run_causes(reader: sqlite3.Connection, run: RunRow) -> list[CauseRow]:
    if not (run.graph_break_count or run.recompile_count):
        return []
    causes = cached_for_run(reader, run.id, load_causes)
    return list_cause_rows(causes, run, is_pushed=is_pushed(reader, run.id))


def read_facts(
    reader: sqlite3.Connection, run: RunRow, phases: compiles.Phases, explained: Container[int] = ()
) -> RunFacts:
    """Read the facts from which problems are derived. Queries are skipped if the totals show that
    they would be empty.

    Recompile limits of `explained` compiles are skipped, because they have a cause of their own.
    """
    limit_hits = (
        reasons.list_limit_hits(reader, run.id, limit=100).rows if run.recompile_limit_count else ()
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
        repros=list_repros(reader, run_id=run.id).rows,
        limit_hits=[
            limit_hit for limit_hit in limit_hits if limit_hit.compile_key not in explained
        ],
        caches=failures.count_cache_results(reader, run.id) if run.cache_bypass_count else (),
        skips=failures.list_cudagraph_skips(reader, run.id, limit=MAX_SKIPS).rows
        if run.cudagraph_skip_count
        else (),
        recorded_again=list_recorded_again(reader, run.id)
        if run.cudagraph_rerecording_count
        else (),
        changed=[
            settings for _process, settings in run_queries.list_changed_configs(reader, run.id)
        ],
        ranks=build_ranks(reader, run.id) if (run.process_count or 0) > 1 else None,
        cliffs=list_rows(StackCliff, run_queries.CLIFFS_SQL, reader, run.id, limit=MAX_CLIFFS),
        cacheable_us=sum(cacheable) if cacheable else None,
    )


MAX_PROCESSES = 64
_MAX_TEXTS = 8  # configuration texts of one kind to compare


@dataclass(frozen=True)
class EnvironmentScreen:
    changes: Sequence[NonDefaultSetting]
    is_changed_recorded: bool
    uses: Sequence[ConfigUse]
    differences: Sequence[tuple[str, Sequence[Any]]]
    processes: Sequence[ProcessRow]

    @property
    def variables(self) -> list[tuple[str, str]]:
        return sorted({pair for process in self.processes for pair in process.environment.items()})

    def find_version(self, name: str) -> str | None:
        """Return a version from the first process that recorded it, because a launcher may not
        import torch.
        """
        return next(
            (version for process in self.processes if (version := getattr(process, name))), None
        )


def build_environment(
    reader: sqlite3.Connection, run_id: str, *, compare: bool = False
) -> EnvironmentScreen:
    changed = run_queries.list_changed_configs(reader, run_id)
    by_kind: dict[str, list[ConfigUse]] = {}
    for use in run_queries.list_configs(reader, run_id):
        if use.kind != "changed":
            by_kind.setdefault(use.kind, []).append(use)
    differences = []
    for kind, uses in by_kind.items():
        if compare and len(uses) > 1:
            texts = [
                run_queries.get_config(reader, run_id, use.config_hash) for use in uses[:_MAX_TEXTS]
            ]
            pairs = [(text.config_hash, text.values) for text in texts if text]
            differences.append((kind, environment.compare_texts(pairs)))
    return EnvironmentScreen(
        changes=environment.list_changes(changed),
        is_changed_recorded=bool(changed),
        uses=[use for uses in by_kind.values() for use in uses],
        differences=differences,
        processes=run_queries.list_processes(reader, run_id, limit=MAX_PROCESSES),
    )


@dataclass(frozen=True)
class ConfigScreen:
    """One configuration text. `defaults` has torch's default of each changed setting."""

    text: ConfigText
    values: Mapping[str, Any]
    defaults: Mapping[str, str]

    def list_settings(self, name_contains: str = "") -> list[tuple[str, str]]:
        return [
            (name, environment.show_value(value))
            for name, value in self.values.items()
            if name_contains in name.lower()
        ]


def build_config(reader: sqlite3.Connection, run_id: str, config_hash: str) -> ConfigScreen | None:
    text = run_queries.get_config(reader, run_id, config_hash)
    if text is None:
        return None
    changes = environment.list_changes(run_queries.list_changed_configs(reader, run_id))
    defaults = {change.name: change.default for change in changes if change.module == text.kind}
    return ConfigScreen(text, text.values, defaults)


@dataclass(frozen=True)
class ProcessesScreen:
    processes: Sequence[ProcessRow]
    notes: Sequence[Note]
    trace_files: Sequence[TraceFile]
    logs: Sequence[Log]
    rejects: Sequence[RejectedLines]


def build_processes(reader: sqlite3.Connection, run_id: str) -> ProcessesScreen:
    return ProcessesScreen(
        processes=run_queries.list_processes(reader, run_id, limit=MAX_PROCESSES),
        notes=trace_files.list_notes(reader, run_id),
        trace_files=trace_files.list_trace_files(reader, run_id),
        logs=list_rows(Log, trace_files.LOGS_SQL, reader, run_id, limit=trace_files.MAX_LOGS),
        rejects=trace_files.sum_rejects(reader, run_id),
    )
