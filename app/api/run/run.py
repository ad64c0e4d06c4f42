"""Runs with their surroundings and sums, and configuration texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.analysis import rows
from compileboard.app.analysis.comparison.environment import SettingChange
from compileboard.app.analysis.runs.diagnosis import Fix
from compileboard.app.analysis.runs.states import describe_state
from compileboard.app.api.answers import PageQuery, operation, refuse
from compileboard.app.api.run.compiles import CompileDetail, FrameCompile
from compileboard.app.db import get_clock, get_engine, get_reader
from compileboard.app.queries.fields import SORT_HELP, Count, DurationUs, RunId, StartTime, TimeUs, Title
from compileboard.app.queries.fleet import runs
from compileboard.app.queries.fleet.runs import STATES, RunFilter
from compileboard.app.queries.page import Page, read_id
from compileboard.app.queries.parameters import order_by
from compileboard.app.queries.run import compiles, failures
from compileboard.app.queries.run import run as run_detail
from compileboard.app.queries.run.compiles import PhaseTimes
from compileboard.app.queries.run.failures import CacheResult
from compileboard.app.queries.run.run import ConfigText, ConfigUse, RunDetail
from compileboard.app.queries.run.trace_files import Log, RejectSum, TraceFile
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.schema import one_of
from compileboard.app.screens.fleet.runs import ListedRun, RunsFilters, build_runs
from compileboard.app.screens.run.compiles import build_compile
from compileboard.app.screens.run.environment import build_config, build_environment, build_processes
from compileboard.app.screens.run.run import build_summary


@dataclass(frozen=True)
class RunJson:
    """One run: a job with all its processes."""

    id: RunId
    name: Annotated[str, "The name it was recorded under."]
    title: Title
    shown_name: Annotated[str, "`title`, else `name`."]
    note: Annotated[str | None, "What a person noted."]
    pinned: Annotated[bool, "Whether a person pinned it."]
    tags: Annotated[dict[str, str], "Value by key."]
    suite: Annotated[str | None, "The suite it belongs to."]
    source: Annotated[str, one_of(("live", "import", "bench")), "How it came in."]
    state: Annotated[str, one_of(STATES), "How it stands."]
    shown_state: Annotated[str, "`state`, or `interrupted?` for a running one whose recorder fell silent."]
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
    compile_count: Annotated[Count | None, "Attempts to compile a frame."]
    record_count: Annotated[Count | None, "CompilationMetrics records."]
    graph_break_count: Annotated[Count | None, "Graph breaks."]
    recompile_count: Annotated[Count | None, "Recompiles."]
    recompile_limit_count: Annotated[Count | None, "Compiles that hit the recompile limit."]
    failure_count: Annotated[Count | None, "Failed compiles."]
    runtime_failure_count: Annotated[Count | None, "Exceptions while compiled code ran, or that ended the program."]
    restart_count: Annotated[Count | None, "Restarts of an analysis."]
    cache_hit_count: Annotated[Count | None, "Cache hits."]
    cache_miss_count: Annotated[Count | None, "Cache misses."]
    cache_bypass_count: Annotated[Count | None, "Graphs that cannot be cached."]
    cudagraph_skip_count: Annotated[Count | None, "CUDA graphs not used."]
    process_count: Annotated[Count | None, "Processes."]
    loss_count: Annotated[Count, "Records lost while recording."]
    compile_us: Annotated[DurationUs | None, "Sum of the records' durations, forward and backward."]
    recompile_us: Annotated[DurationUs | None, "The part of it spent on recompiles."]
    result_count: Annotated[Count, "Results of a benchmark: one a model and experiment."]
    failed_result_count: Annotated[Count, "Those that failed."]


@dataclass(frozen=True)
class RunSort:
    """The order of a list of runs."""

    sort: Annotated[str, order_by(runs.ORDERS), SORT_HELP] = "started"


@dataclass(frozen=True)
class RunDetailJson(RunJson):
    """One run with its surroundings and sums."""

    cwd: Annotated[str | None, "Working directory."]
    keep_source: Annotated[bool, "Whether lines of the user's code were kept."]
    stack_room: Annotated[bool | None, "Whether `run --stack-room` started it."]
    facts: Annotated[dict[str, Any], "argv, git, host, gpus and environment as the collector wrote them."]
    findings: Annotated[Sequence[Fix], "What to do, the most costly first: at most 5."]
    phases_us: PhaseTimes
    outcomes: Annotated[dict[str, Count], "Compiles by outcome."]
    distinct_break_count: Annotated[Count, "Distinct graph breaks."]
    cache_results: Annotated[Sequence[CacheResult], "Cache look-ups by cache, result and reason: at most 200."]
    configs: Annotated[Sequence[ConfigUse], "Configuration texts: at most 200."]
    changed_settings: Annotated[Sequence[SettingChange], "Settings that differ from torch's defaults."]
    trace_files: Annotated[Sequence[TraceFile], "Kept trace logs."]
    logs: Annotated[Sequence[Log], "The trace logs that the run was imported from: at most 1000."]
    rejects: Annotated[Sequence[RejectSum], "What of these logs could not be read, summed by kind, the most first."]


def shown_state(run: RunRow) -> str:
    """Return a run's state as pages show it: a silent recorder's run is "interrupted?"."""
    return describe_state(run, *get_clock()).word


def list_run_rows(listed: Sequence[ListedRun]) -> list[RunJson]:
    """List runs as the API has them."""
    return [RunJson(**rows.run_row(one.run, one.tags), shown_state=one.state.word) for one in listed]


@operation("/runs")
def list_runs(wanted: RunFilter, order: RunSort, page: PageQuery) -> Page[RunJson]:
    """List runs, newest first."""
    screen = build_runs(get_engine(), RunsFilters(wanted, order.sort, page.cursor, page.limit), get_clock())
    return Page(tuple(list_run_rows(screen.runs)), screen.next_cursor)


@operation("/runs/<run_id>")
def get_run(detail: RunDetail) -> RunDetailJson:
    """Return one run with its surroundings and sums."""
    reader, run_id = get_reader(), detail.run.id
    summary, environment = build_summary(reader, detail.run), build_environment(reader, run_id)
    files = build_processes(reader, run_id)
    return RunDetailJson(
        **rows.run_detail_row(detail),
        shown_state=shown_state(detail.run),
        findings=summary.fixes,
        phases_us=summary.phases.times,
        outcomes=compiles.count_outcomes(reader, run_id),
        distinct_break_count=summary.distinct_break_count,
        cache_results=failures.count_cache_results(reader, run_id),
        configs=run_detail.list_configs(reader, run_id),
        changed_settings=environment.changes,
        trace_files=files.trace_files,
        logs=files.logs,
        rejects=files.rejects,
    )


@operation("/runs/<run_id>/compiles/<key>")
def get_compile(detail: RunDetail, key: str) -> CompileDetail:
    """Return one compile with its records, graph breaks, recompiles, failures and stack."""
    screen = build_compile(get_reader(), detail.run, read_id(key))
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no compile number {key[:40]}.")
    return CompileDetail(
        **vars(screen.compile),
        stack=screen.stack,
        chain=[FrameCompile(other.id, other.compile_id, other.outcome) for other in screen.chain],
        restart_reasons=screen.restart_reasons,
        compilations=[rows.compilation_row(record) for record in screen.records],
        recompiles=screen.recompiles,
        graph_breaks=screen.graph_breaks,
        failures=screen.failures,
        cache_lookups=screen.cache_lookups,
        cudagraph_skips=screen.cudagraph_skips,
    )


@operation("/runs/<run_id>/configs/<config_hash>")
def get_config(detail: RunDetail, config_hash: str) -> ConfigText:
    """Return one configuration text: what a `config_hash` stands for."""
    screen = build_config(get_reader(), detail.run.id, config_hash)
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no configuration text {config_hash[:40]}.")
    return screen.text
