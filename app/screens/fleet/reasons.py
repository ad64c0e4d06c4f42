"""Graph breaks and recompile causes across runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic

from compileboard.app.analysis.runs.advice import CauseRow
from compileboard.app.engines.store import Store, group_runs, open_run_or_board
from compileboard.app.queries.engine import Engine
from compileboard.app.queries.fleet.graph_breaks import GRAPH_BREAKS, BreakEvent, DistinctBreak
from compileboard.app.queries.fleet.reasons import (
    AffectedRun,
    AnySubject,
    Event,
    HistoryPoint,
    Reason,
    ReasonSubject,
    ReasonTrends,
    Selection,
    Summary,
    get_reason,
    list_affected_runs,
    list_history,
    list_with_trends,
)
from compileboard.app.queries.fleet.recompiles import RECOMPILES, CauseEvent, RecompileCause
from compileboard.app.queries.newest import RecorderClock
from compileboard.app.queries.page import Page
from compileboard.app.queries.reason_events import (
    AffectedModel,
    ValueChange,
    list_affected_models,
    list_benchmarks,
    list_events,
    list_value_changes,
)
from compileboard.app.queries.run.run import get_run
from compileboard.app.queries.run.trace_files import get_event, list_stack
from compileboard.app.queries.run_rows import RunRow
from compileboard.app.screens.run.run import list_run_causes
from compileboard.collectors.store.dashboard.trials import get_trial_of

MOST_FILES = 5  # of runs, that one page opens for the newest events


@dataclass(frozen=True)
class ReasonsScreen(Generic[Reason, Summary]):
    listed: Page[Reason]
    order: str
    trends: ReasonTrends[Summary]


@dataclass(frozen=True)
class ReasonScreen(Generic[Reason, Event]):
    reason: Reason
    events: Sequence[Event]
    history: Sequence[HistoryPoint]
    models: Sequence[AffectedModel]
    newest_run: RunRow | None
    cause: CauseRow | None  # what it is part of in the newest run that has it


@dataclass(frozen=True)
class GraphBreakScreen(ReasonScreen[DistinctBreak, BreakEvent]):
    stack: Sequence[dict[str, Any]]
    text: str | None
    debug_context: str | None


@dataclass(frozen=True)
class RecompileCauseScreen(ReasonScreen[RecompileCause, CauseEvent]):
    values: Sequence[ValueChange]


def build_reasons(
    engine: Engine,
    subject: ReasonSubject[Selection, Reason, Summary, Any],
    selected: Selection,
    order: str | None,
    cursor: str | None,
    limit_count: int,
) -> ReasonsScreen[Reason, Summary]:
    listed, trends = list_with_trends(
        engine, subject, selected, sort=order, cursor=cursor, limit=limit_count
    )
    return ReasonsScreen(listed, order or subject.default_order, trends)


def _build_reason(
    store: Store,
    subject: ReasonSubject[Any, Reason, Any, Event],
    reason_id: int,
    files: Sequence[sqlite3.Connection],
) -> ReasonScreen[Reason, Event] | None:
    engine = store.engine
    reason = get_reason(engine, subject, reason_id)
    if reason is None:
        return None
    events: Sequence[Any] = list_events(files, subject, reason_id)
    newest_run = _find_newest_run(store.board, events)
    compile_key = next(
        (event.compile_key for event in events if newest_run and event.run_id == newest_run.id),
        None,
    )
    return ReasonScreen(
        reason=reason,
        events=events,
        history=list_history(engine, subject, reason_id),
        models=_list_models(store, subject, reason_id),
        newest_run=newest_run,
        cause=_find_cause(store, newest_run, reason_id, compile_key) if newest_run else None,
    )


def _list_files(store: Store, subject: AnySubject, reason_id: int) -> list[sqlite3.Connection]:
    runs = list_affected_runs(store.engine, subject, reason_id, limit=MOST_FILES).rows
    return [connection for connection, _run_ids in group_runs(store, [run.id for run in runs])]


def _list_models(store: Store, subject: AnySubject, reason_id: int) -> list[AffectedModel]:
    run_ids = list_benchmarks(store.engine, subject, reason_id)
    groups = group_runs(store, run_ids, most_files=MOST_FILES)
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
    own = (cause for cause in causes if reason_id in cause.content_ids)
    breaks = (
        cause
        for cause in causes
        if any(compile_key in part.recompile_keys for part in cause.resumed)
    )
    return next(own, None) or next(breaks, None)


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


def build_reason_runs(
    engine: Engine,
    subject: AnySubject,
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
