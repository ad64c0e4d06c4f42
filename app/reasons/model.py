"""Graph breaks, recompile causes and CUDA graph re-recordings across runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.model import ChainLink, build_steps, shorten_steps
from compileboard.app.core.engine import Engine
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import Page
from compileboard.app.core.store import Store, group_runs, open_run_or_board
from compileboard.app.reasons import run_queries
from compileboard.app.reasons.failure_issues import FAILURES, choose_issues, describe_issues
from compileboard.app.reasons.graph_breaks import GRAPH_BREAKS
from compileboard.app.reasons.queries import (
    AffectedRun,
    HistoryPoint,
    ReasonSubject,
    ReasonTrends,
    get_reason,
    get_reason_trends,
    list_affected_runs,
    list_history,
    list_with_trends,
)
from compileboard.app.reasons.reason_events import (
    AffectedModel,
    ValueChange,
    list_affected_models,
    list_benchmarks,
    list_events,
    list_value_changes,
)
from compileboard.app.reasons.recompiles import RECOMPILES
from compileboard.app.reasons.rerecordings import RERECORDINGS
from compileboard.app.reasons.run_queries import (
    Chain,
    GraphBreakRow,
    LimitHit,
    RunCause,
    RunDistinctBreak,
)
from compileboard.app.repros.queries import ReproRow, list_repros
from compileboard.app.runs.advice import CauseRow, describe_order
from compileboard.app.runs.model import list_run_causes
from compileboard.app.runs.queries import RunFilter, list_runs
from compileboard.app.runs.rows import RunRow
from compileboard.app.runs.run_queries import get_run
from compileboard.app.runs.trace_files import get_event, list_stack
from compileboard.collectors.fixes.causes import Variation
from compileboard.collectors.store.dashboard import get_trial_of

MAX_FILES = 5  # Run files opened for the newest events of one page.
MAX_REPROS = 20  # Repros on a failure's page.
NEWEST_RUNS = 300  # Programs are chosen from these runs.
MAX_TRIED = 5  # programs to search for a filter's match


@dataclass(frozen=True)
class ProgramTrends:
    """The trends of one program; runs of different programs are not plotted together."""

    name: str | None  # None if there is only one
    others: Sequence[str]  # all that have a reason, newest first
    trends: ReasonTrends


@dataclass(frozen=True)
class ReasonsScreen:
    listed: Page[Any]
    order: str
    trends: ReasonTrends
    program: ProgramTrends


@dataclass(frozen=True)
class ReasonScreen:
    reason: Any
    events: Sequence[Any]
    history: Sequence[HistoryPoint]
    models: Sequence[AffectedModel]
    newest_run: RunRow | None
    cause: CauseRow | None  # the cause it belongs to, in the newest run that has it


@dataclass(frozen=True)
class GraphBreakScreen(ReasonScreen):
    stack: Sequence[dict[str, Any]]
    text: str | None
    debug_context: str | None


@dataclass(frozen=True)
class FailureScreen(ReasonScreen):
    repros: Sequence[ReproRow]  # the newest


@dataclass(frozen=True)
class RecompileCauseScreen(ReasonScreen):
    values: Sequence[ValueChange]


def build_reasons(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    order: str | None,
    cursor: str | None,
    limit_count: int,
    program: str | None = None,
) -> ReasonsScreen:
    listed, trends = list_with_trends(
        engine, subject, selected, sort=order, cursor=cursor, limit=limit_count
    )
    shown = [reason.id for reason in listed.rows]
    of_program = build_program_trends(engine, subject, selected, trends, shown, program)
    return ReasonsScreen(listed, order or subject.default_order, trends, of_program)


def build_failures(
    store: Store,
    selected: Any,
    order: str | None,
    cursor: str | None,
    limit: int,
    program: str | None,
) -> ReasonsScreen:
    engine = store.engine
    chosen = choose_issues(engine, selected)
    screen = build_reasons(engine, FAILURES, chosen, order, cursor, limit, program)
    rows = describe_issues(engine, store.board, screen.listed.rows, selected.status)
    return replace(screen, listed=Page(rows, screen.listed.next))


def build_program_trends(
    engine: Engine,
    subject: ReasonSubject,
    selected: Any,
    trends: ReasonTrends,
    shown: Sequence[str] | None = None,
    asked: str | None = None,
) -> ProgramTrends:
    """Return the trends of one program among the chosen runs: the requested one, or the newest."""
    chosen = replace(selected.runs, text=None)
    programs: dict[str, RunFilter] = {}
    runs = list_runs(engine, chosen, limit=NEWEST_RUNS, pinned_first=False).rows
    for run in runs:
        if getattr(run, subject.total):
            own = {"suite": run.suite} if run.suite else {"name": run.name}
            programs.setdefault(run.suite or run.name, replace(chosen, **own))
    if not programs or len({run.suite or run.name for run in runs}) < 2:
        return ProgramTrends(None, (), trends)
    names = [asked] if asked in programs else [*programs]
    for name in names[:MAX_TRIED]:
        of_program = replace(selected, runs=programs[name])
        own_trends = get_reason_trends(engine, subject, of_program, shown)
        if own_trends.grid.kinds:
            break
    return ProgramTrends(name, [*programs], own_trends)


def _build_reason(
    store: Store,
    subject: ReasonSubject,
    reason_id: int,
    files: Sequence[sqlite3.Connection],
) -> ReasonScreen | None:
    engine = store.engine
    reason = get_reason(engine, subject, reason_id)
    if reason is None:
        return None
    events: Sequence[Any] = list_events(files, subject, reason_id)
    newest_run = _find_newest_run(store.board, events)
    cause = None
    if newest_run and subject.has_causes:
        keys = (event.compile_key for event in events if event.run_id == newest_run.id)
        cause = _find_cause(store, newest_run, reason_id, next(keys, None))
    return ReasonScreen(
        reason=reason,
        events=events,
        history=list_history(engine, subject, reason_id),
        models=_list_models(store, subject, reason_id),
        newest_run=newest_run,
        cause=cause,
    )


def _list_files(store: Store, subject: ReasonSubject, reason_id: int) -> list[sqlite3.Connection]:
    runs = list_affected_runs(store.engine, subject, reason_id, limit=MAX_FILES).rows
    return [connection for connection, _run_ids in group_runs(store, [run.id for run in runs])]


def _list_models(store: Store, subject: ReasonSubject, reason_id: int) -> list[AffectedModel]:
    run_ids = list_benchmarks(store.engine, subject, reason_id)
    groups = group_runs(store, run_ids, max_files=MAX_FILES)
    return list_affected_models(groups, subject, reason_id)


def _find_newest_run(reader: sqlite3.Connection, events: Sequence[Any]) -> RunRow | None:
    detail = get_run(reader, events[0].run_id) if events else None
    trial = get_trial_of(reader, detail.run.id) if detail and detail.run.source == "trial" else None
    detail = (get_run(reader, trial.run_id) if trial else None) or detail
    return detail.run if detail else None


def _find_cause(
    store: Store, run: RunRow, reason_id: int, compile_key: int | None
) -> CauseRow | None:
    causes = list_run_causes(open_run_or_board(store, run.id), run)
    own = (
        replace(cause, variation=_find_variation(causes, cause))
        for cause in causes
        if reason_id in cause.content_ids
    )
    breaks = (
        cause
        for cause in causes
        if compile_key in (*cause.freed_keys, *cause.passed_keys)
        or any(compile_key in part.recompile_keys for part in cause.resumed)
    )
    return next(own, None) or next(breaks, None)


def _find_variation(causes: Sequence[CauseRow], cause: CauseRow) -> Variation | None:
    """Return what varied in a cause's function, which is stored only with its first cause."""
    return cause.variation or next(
        (
            other.variation
            for other in causes
            if other.variation is not None
            and other.variation.function == cause.function
            and {*cause.sources} <= {varied.source for varied in other.variation.sources}
        ),
        None,
    )


def build_graph_break(store: Store, distinct_id: int) -> GraphBreakScreen | None:
    screen = _build_reason(
        store, GRAPH_BREAKS, distinct_id, _list_files(store, GRAPH_BREAKS, distinct_id)
    )
    if screen is None:
        return None
    event = next(iter(screen.events), None)
    newest = (
        get_event(open_run_or_board(store, event.run_id), event.process_id, event.sequence)
        if event
        else {}
    )
    return GraphBreakScreen(
        **vars(screen),
        stack=list_stack(newest),
        text=newest.get("text") or None,
        debug_context=newest.get("debug_context"),
    )


def build_recompile_cause(store: Store, cause_id: int) -> RecompileCauseScreen | None:
    files = _list_files(store, RECOMPILES, cause_id)
    screen = _build_reason(store, RECOMPILES, cause_id, files)
    if screen is None:
        return None
    values = list_value_changes(files, cause_id)
    return RecompileCauseScreen(**vars(screen), values=values)


def build_rerecording(store: Store, reason_id: int) -> ReasonScreen | None:
    files = _list_files(store, RERECORDINGS, reason_id)
    return _build_reason(store, RERECORDINGS, reason_id, files)


def build_failure(store: Store, issue_id: int) -> FailureScreen | None:
    screen = _build_reason(store, FAILURES, issue_id, _list_files(store, FAILURES, issue_id))
    if screen is None:
        return None
    (issue,) = describe_issues(store.engine, store.board, [screen.reason])
    repros = list_repros(store.board, issue_id=issue_id, limit=MAX_REPROS).rows
    return FailureScreen(**vars(screen) | {"reason": issue}, repros=repros)


def build_reason_runs(
    engine: Engine,
    subject: ReasonSubject,
    reason_id: int,
    cursor: str | None,
    limit_count: int,
    clock: RecorderClock,
) -> Page[AffectedRun] | None:
    if get_reason(engine, subject, reason_id) is None:
        return None
    return list_affected_runs(
        engine,
        subject,
        reason_id,
        cursor=cursor,
        limit=limit_count,
        alive_since_us=clock.alive_since_us,
    )


@dataclass(frozen=True)
class RunGraphBreaksScreen:
    distinct_count: int
    distinct: Sequence[RunDistinctBreak] = ()
    events: Sequence[GraphBreakRow] = ()
    next: str | None = None


def build_distinct_breaks(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 20
) -> RunGraphBreaksScreen:
    page = run_queries.list_distinct_breaks(reader, run_id, cursor, limit)
    return RunGraphBreaksScreen(
        run_queries.count_distinct_breaks(reader, run_id), distinct=page.rows, next=page.next
    )


def build_graph_breaks(
    reader: sqlite3.Connection,
    run_id: str,
    cursor: str | None = None,
    limit: int = 20,
    *,
    distinct_id: int | None = None,
) -> RunGraphBreaksScreen:
    page: Page[GraphBreakRow] = run_queries.list_graph_breaks(
        reader, run_id, cursor, limit, distinct_id=distinct_id
    )
    return RunGraphBreaksScreen(
        run_queries.count_distinct_breaks(reader, run_id), events=page.rows, next=page.next
    )


MAX_CAUSES = 200
MAX_LIMIT_HITS = 100
MAX_STEPS = 40  # Of a longer chain the first and the newest steps are shown.


@dataclass(frozen=True)
class RecompileChain:
    chain: Chain
    steps: Sequence[ChainLink]
    left_out: int

    @property
    def gap_at(self) -> int | None:
        return MAX_STEPS // 4 if self.left_out else None


@dataclass(frozen=True)
class RunRecompilesScreen:
    fixes: Sequence[CauseRow]  # only the run's causes with recompiles
    limit_hits: Page[LimitHit]
    causes: Page[RunCause]
    chains: Page[RecompileChain]

    @property
    def order(self) -> str:
        return describe_order(self.fixes)


def build_recompiles(
    reader: sqlite3.Connection, run: RunRow, cursor: str | None = None, limit: int = 8
) -> RunRecompilesScreen:
    run_id = run.id
    page = run_queries.list_chains(reader, run_id, cursor, limit)
    return RunRecompilesScreen(
        fixes=[cause for cause in list_run_causes(reader, run) if cause.has_recompiles],
        limit_hits=run_queries.list_limit_hits(reader, run_id, limit=MAX_LIMIT_HITS),
        causes=run_queries.list_causes(reader, run_id, limit=MAX_CAUSES),
        chains=Page(tuple(_build_chain(reader, chain) for chain in page.rows), page.next),
    )


def _build_chain(reader: sqlite3.Connection, chain: Chain) -> RecompileChain:
    members = compiles.list_chain(reader, chain.process_id, chain.generation, chain.frame_id)
    shown, left_out = shorten_steps(build_steps(members, ()), MAX_STEPS)
    rows = [step.compile for step in shown]
    reasons = run_queries.list_compile_recompiles(reader, [row.id for row in rows])
    return RecompileChain(chain, build_steps(rows, reasons), left_out)
