"""API of runs with their environment and totals, and of configuration texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from compileboard.app.comparison.environment import NonDefaultSetting
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.page_model import MAX_EVENTS, build_compile, make_compilation
from compileboard.app.compiles.pages import CompileDetail, FrameCompile
from compileboard.app.compiles.run_queries import PhaseTimes
from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_clock, get_engine, get_run_reader
from compileboard.app.core.fields import SORT_HELP, Count
from compileboard.app.core.page import Page, decode_cursor, make_page, read_id
from compileboard.app.core.parameters import order_by
from compileboard.app.runs import failures
from compileboard.app.runs import queries as runs
from compileboard.app.runs import run_queries as run_detail
from compileboard.app.runs.advice import CauseRow, Problem, RunVerdict
from compileboard.app.runs.failures import CacheResult
from compileboard.app.runs.model import (
    Run,
    RunWithFacts,
    build_config,
    build_environment,
    build_processes,
    build_summary,
    describe_facts,
    list_described_runs,
    list_run_causes,
    rank_run_costs,
)
from compileboard.app.runs.queries import RunFilter
from compileboard.app.runs.run_queries import ConfigText, ConfigUse, RunDetail
from compileboard.app.runs.trace_files import Log, RejectedLines, TraceFile
from compileboard.collectors.store.run_costs import RunCost


@dataclass(frozen=True)
class RunSort:
    sort: Annotated[str, order_by(runs.ORDERS), SORT_HELP] = runs.DEFAULT_ORDER


@dataclass(frozen=True)
class RunDetailJson(RunWithFacts):
    """One run with its environment and totals."""

    verdict: Annotated[RunVerdict, "The verdict, in one sentence."]
    problems: Annotated[
        Sequence[Problem], "Problems other than graph breaks and recompiles, failures first."
    ]
    triton_version: Annotated[str | None, "Version of triton."]
    phases_us: PhaseTimes
    outcomes: Annotated[dict[str, Count], "Compiles by outcome."]
    distinct_break_count: Annotated[Count | None, "Distinct graph breaks; null if not counted."]
    cache_results: Annotated[
        Sequence[CacheResult], "Cache lookups by cache, result and reason: at most 200."
    ]
    configs: Annotated[Sequence[ConfigUse], "Configuration texts: at most 200."]
    changed_settings: Annotated[
        Sequence[NonDefaultSetting], "Settings that differ from torch's defaults."
    ]
    trace_files: Annotated[Sequence[TraceFile], "Kept trace logs."]
    logs: Annotated[Sequence[Log], "The trace logs that the run was imported from: at most 1000."]
    rejects: Annotated[
        Sequence[RejectedLines],
        "What of these logs could not be read, summed by kind, the most first.",
    ]


@operation("/runs")
def list_runs(selection: RunFilter, order: RunSort, page: PageQuery) -> Page[Run]:
    """List runs, newest first."""
    return list_described_runs(
        get_engine(),
        get_clock(),
        selection,
        sort=order.sort,
        cursor=page.cursor,
        limit=page.limit,
        pinned_first=False,
    )


@operation("/runs/<run_id>")
def get_run(detail: RunDetail) -> RunDetailJson:
    """Return one run with its environment and totals."""
    reader, run_id = get_run_reader(detail.run.id), detail.run.id
    summary, environment = build_summary(reader, detail.run), build_environment(reader, run_id)
    files = build_processes(reader, run_id)
    return RunDetailJson(
        **vars(describe_facts(detail, get_clock())),
        verdict=summary.verdict,
        problems=summary.problems,
        triton_version=environment.find_version("triton_version"),
        phases_us=summary.phases.times,
        outcomes=compiles.count_outcomes(reader, run_id),
        distinct_break_count=None
        if detail.run.graph_break_count is None
        else summary.distinct_break_count,
        cache_results=failures.count_cache_results(reader, run_id),
        configs=run_detail.list_configs(reader, run_id),
        changed_settings=environment.changes,
        trace_files=files.trace_files,
        logs=files.logs,
        rejects=files.rejects,
    )


@operation("/runs/<run_id>/causes")
def list_causes(detail: RunDetail, page: PageQuery) -> Page[CauseRow]:
    """List the causes of a run's lost compile time with their fixes: those with a verified fix
    first, then functions that run eagerly, then by saving.
    """
    causes = list_run_causes(get_run_reader(detail.run.id), detail.run)
    places = {cause.number: place for place, cause in enumerate(causes, 1)}
    after = int((decode_cursor(page.cursor, int) or (0,))[0])
    return make_page(causes[after:], page.limit, lambda cause: (places[cause.number],))


@operation("/runs/<run_id>/costs")
def list_costs(detail: RunDetail, page: PageQuery) -> Page[RunCost]:
    """List the costs of graph breaks, recompiles and CUDA graph recordings, in compile time and
    steps; empty if no step was timed.
    """
    reader = get_run_reader(detail.run.id)
    costs = rank_run_costs(reader, detail.run.id, list_run_causes(reader, detail.run))
    places = {id(cost): place for place, cost in enumerate(costs, 1)}
    after = int((decode_cursor(page.cursor, int) or (0,))[0])
    return make_page(costs[after:], page.limit, lambda cost: (places[id(cost)],))


@operation("/runs/<run_id>/compiles/<key>")
def get_compile(detail: RunDetail, key: str) -> CompileDetail:
    """Return one compile with its records, graph breaks, recompiles, failures and stack."""
    screen = build_compile(get_run_reader(detail.run.id), detail.run, read_id(key))
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no compile number {key[:40]}.")
    return CompileDetail(
        **vars(screen.compile),
        stack=screen.stack,
        chain=[FrameCompile(other.id, other.compile_id, other.outcome) for other in screen.chain],
        restart_reasons=screen.restart_reasons,
        compilations=[make_compilation(record) for record in screen.records],
        recompiles=screen.recompiles,
        graph_breaks=screen.graph_breaks,
        failures=screen.failures,
        cache_lookups=screen.cache_lookups,
        cudagraphs=screen.cudagraphs[:MAX_EVENTS],
        cudagraph_skips=screen.cudagraph_skips,
    )


@operation("/runs/<run_id>/configs/<config_hash>")
def get_config(detail: RunDetail, config_hash: str) -> ConfigText:
    """Return the configuration text of a `config_hash`."""
    screen = build_config(get_run_reader(detail.run.id), detail.run.id, config_hash)
    if screen is None:
        refuse(f"Run {detail.run.shown_name[:80]} has no configuration text {config_hash[:40]}.")
    return screen.text
