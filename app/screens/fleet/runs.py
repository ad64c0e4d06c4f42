"""The list of runs selected by a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis.runs.states import RunState, describe_state
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fields import Count, DurationUs, RunId, StartTime, TimeUs, Title
from compileboard.app.queries.fleet.runs import (
    STATES,
    RunFilter,
    count_runs,
    list_runs,
    list_tags,
    read_run_filter,
)
from compileboard.app.queries.newest import MAY_CHANGE, RecorderClock
from compileboard.app.queries.page import Page
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.schema import one_of
from compileboard.collectors.store.rollups.results import fill
from compileboard.collectors.store.rollups.totals import COMPILER_COUNTS

DEFAULT_ORDER = "started"


@dataclass(frozen=True)
class RunsFilters:
    runs: RunFilter
    order: str
    cursor: str | None
    limit_count: int
    is_pinned_first: bool = False
    is_counted: bool = False


@dataclass(frozen=True)
class RunJson:
    """One run with all its processes."""

    id: RunId
    name: Annotated[str, "The name it was recorded under."]
    title: Title
    shown_name: Annotated[str, "`title`, else `name`."]
    note: Annotated[str | None, "What a person noted."]
    pinned: Annotated[bool, "Whether a person pinned it."]
    tags: Annotated[dict[str, str], "Value by key."]
    suite: Annotated[str | None, "The suite it belongs to."]
    source: Annotated[
        str, one_of(("live", "import", "bench", "trial")), "How it was recorded: live or imported."
    ]
    state: Annotated[str, one_of(STATES), "How it stands."]
    shown_state: Annotated[
        str, "`state`, or `interrupted?` for a running one whose recorder fell silent."
    ]
    level: Annotated[str, "How much was recorded: light or full."]
    command: Annotated[str, "The command, without secrets."]
    started_us: StartTime
    ended_us: Annotated[TimeUs | None, "End."]
    heartbeat_us: Annotated[TimeUs, "Last sign of life from its recorder."]
    duration_us: Annotated[DurationUs | None, "From start to end, or to the last sign of life."]
    exit_code: Annotated[int | None, "Exit code."]
    signal: Annotated[str | None, "The signal that ended it."]
    host: Annotated[str | None, "Machine."]
    gpu_name: Annotated[str | None, "GPU."]
    gpu_count: Annotated[Count, "GPUs."]
    torch_version: Annotated[str | None, "Version of torch."]
    cuda_version: Annotated[str | None, "Version of CUDA."]
    python_version: Annotated[str | None, "Version of Python."]
    git_commit: Annotated[str | None, "Commit of the program's repository."]
    git_branch: Annotated[str | None, "Its branch."]
    git_subject: Annotated[str | None, "Its subject."]
    git_dirty: Annotated[bool | None, "Whether there were changes that no commit holds."]
    compile_count: Annotated[Count | None, "Compiles."]
    record_count: Annotated[Count | None, "CompilationMetrics records."]
    graph_break_count: Annotated[Count | None, "Graph breaks."]
    recompile_count: Annotated[Count | None, "Recompiles."]
    recompile_limit_count: Annotated[Count | None, "Compiles that reached the recompile limit."]
    failure_count: Annotated[
        Count | None, "Failed compiles, and exceptions of compiled code or that ended the program."
    ]
    skipped_frame_count: Annotated[
        Count | None, "Frames that dynamo left to eager without a failure."
    ]
    restart_count: Annotated[Count | None, "Restarts of an analysis."]
    cache_hit_count: Annotated[Count | None, "Cache hits."]
    cache_miss_count: Annotated[Count | None, "Cache misses."]
    cache_bypass_count: Annotated[Count | None, "Graphs that cannot be cached."]
    cudagraph_skip_count: Annotated[Count | None, "CUDA graphs not used."]
    process_count: Annotated[Count | None, "Processes."]
    loss_count: Annotated[Count, "Records dropped while recording."]
    compile_us: Annotated[DurationUs | None, "Sum of the records' durations, forward and backward."]
    recompile_us: Annotated[DurationUs | None, "The part of it spent on recompiles."]
    result_count: Annotated[Count, "Results of a benchmark: one a model and experiment."]
    failed_result_count: Annotated[Count, "Those that failed."]


@dataclass(frozen=True)
class RunFactsJson(RunJson):
    cwd: Annotated[str | None, "Working directory."]
    keep_source: Annotated[bool, "Whether lines of the user's code were kept."]
    stack_room: Annotated[bool | None, "Whether `run --stack-room` started it."]
    pruned_us: Annotated[TimeUs | None, "When its detail was pruned; totals and results stay."]
    facts: Annotated[
        dict[str, Any], "argv, git, host, gpus and environment as the collector wrote them."
    ]


@dataclass(frozen=True)
class ListedRun:
    run: RunRow
    state: RunState
    tags: Sequence[tuple[str, str]]

    @property
    def row(self) -> RunJson:
        return fill(RunJson, self.values)

    @property
    def values(self) -> dict[str, Any]:
        run = self.run
        values = vars(run) | {
            "shown_name": run.shown_name,
            "duration_us": run.duration_us,
            "tags": dict(self.tags),
            "shown_state": self.state.word,
        }
        if run.is_observed:
            return values
        return values | {name: run.count(name) for name in (*COMPILER_COUNTS, "process_count")}


@dataclass(frozen=True)
class RunsScreen:
    filters: RunsFilters
    runs: Sequence[ListedRun]
    next_cursor: str | None
    run_count: int | None

    @property
    def is_live(self) -> bool:
        return any(listed.state.word in MAY_CHANGE for listed in self.runs)


def read_runs_filters(query: Mapping[str, str], limit_count: int) -> RunsFilters:
    order, cursor = query.get("sort") or DEFAULT_ORDER, query.get("cursor")
    return RunsFilters(
        read_run_filter(query), order, cursor, limit_count, is_pinned_first=True, is_counted=True
    )


def describe_runs(engine: Engine, runs: Sequence[RunRow], clock: RecorderClock) -> list[ListedRun]:
    tags = list_tags(engine, [run.id for run in runs])
    return [ListedRun(run, describe_state(run, *clock), tags[run.id]) for run in runs]


def build_runs(engine: Engine, filters: RunsFilters, clock: RecorderClock) -> RunsScreen:
    page = list_runs(
        engine,
        filters.runs,
        sort=filters.order,
        cursor=filters.cursor,
        limit=filters.limit_count,
        pinned_first=filters.is_pinned_first,
    )
    return RunsScreen(
        filters=filters,
        runs=describe_runs(engine, page.rows, clock),
        next_cursor=page.next,
        run_count=_count(engine, filters, page) if filters.is_counted else None,
    )


def _count(engine: Engine, filters: RunsFilters, page: Page[RunRow]) -> int:
    is_whole = not filters.cursor and page.next is None
    return len(page.rows) if is_whole else count_runs(engine, filters.runs)


def describe_facts(detail: RunDetail, clock: RecorderClock) -> RunFactsJson:
    listed = ListedRun(detail.run, describe_state(detail.run, *clock), detail.tags)
    return RunFactsJson(
        **listed.values,
        cwd=detail.cwd,
        keep_source=detail.keep_source,
        stack_room=detail.stack_room,
        pruned_us=detail.pruned_us,
        facts=detail.facts,
    )
