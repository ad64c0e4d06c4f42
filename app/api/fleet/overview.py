"""What is summed over runs: the overview, distinct graph breaks, causes of recompiles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from compileboard.app.api.answers import PageQuery, operation, read_number, refuse
from compileboard.app.api.run.run import RunJson, list_run_rows
from compileboard.app.db import get_reader, get_settings
from compileboard.app.queries.fields import SORT_HELP, Count, DurationUs, Stack
from compileboard.app.queries.fleet import graph_breaks, overview, recompiles, runs
from compileboard.app.queries.fleet.graph_breaks import (
    AffectedRun,
    BreakEvent,
    BreakFilter,
    BreakSummary,
    DistinctBreak,
    HistoryPoint,
)
from compileboard.app.queries.fleet.overview import DatabaseTotals, RunPoint, RunSeries, TopBreak, TopFunction
from compileboard.app.queries.fleet.recompiles import (
    CauseEvent,
    CauseFilter,
    CauseSummary,
    RecompileCause,
    ValueChange,
)
from compileboard.app.queries.fleet.scope import Slot, TrendGrid, list_slots
from compileboard.app.queries.page import Page
from compileboard.app.queries.parameters import order_by
from compileboard.app.queries.run.trace_files import get_event, list_stack

TrendLine = Annotated[list[float], "Mean count a run, one number for each of `slots`."]
History = Annotated[list[HistoryPoint], "How often it came in each of the newest 200 runs, oldest first."]


@dataclass(frozen=True)
class OverviewScope:
    """Which runs the overview sums."""

    suite: Annotated[str | None, "A run's suite, whole."] = None
    name: Annotated[str | None, "A run's name, whole."] = None


@dataclass(frozen=True)
class BreakSort:
    """The order of a list of distinct graph breaks."""

    sort: Annotated[str, order_by(graph_breaks.ORDERS), SORT_HELP] = "breaks"


@dataclass(frozen=True)
class CauseSort:
    """The order of a list of causes of recompiles."""

    sort: Annotated[str, order_by(recompiles.ORDERS), SORT_HELP] = "recompiles"


@dataclass(frozen=True)
class Overview:
    """What is in this database."""

    totals: Annotated[DatabaseTotals, "Sums over every run."]
    series: Annotated[list[RunSeries], "At most 500."]
    trend: Annotated[list[RunPoint], "The newest runs, oldest first: as many as the setting trend_runs says."]
    newest_runs: Annotated[list[RunJson], "The newest 8."]
    graph_breaks: Annotated[list[TopBreak], "The 8 most frequent in the newest runs."]
    functions: Annotated[list[TopFunction], "The 8 that recompile most in the newest runs."]


@dataclass(frozen=True)
class DistinctBreakDetail(DistinctBreak):
    """One distinct graph break over all runs."""

    stack: Stack
    text: Annotated[str | None, "All that torch wrote, the newest time."]
    debug_context: Annotated[str | None, "torch's context of it, the newest time."]
    events: Annotated[list[BreakEvent], "The newest 20."]
    history: History


@dataclass(frozen=True)
class CauseDetail(RecompileCause):
    """One cause of recompiles over all runs."""

    values: Annotated[list[ValueChange], "The 12 most frequent pairs among the newest thousand failures."]
    events: Annotated[list[CauseEvent], "The newest 20."]
    history: History


@dataclass(frozen=True)
class KindTrend:
    """What distinct things of one kind came to."""

    kind: Annotated[str, "The kind."]
    gb_id: Annotated[str | None, "torch's id, for graph breaks."]
    distinct_count: Annotated[Count, "Distinct things."]
    function_count: Annotated[Count, "Functions."]
    count: Annotated[Count, "How often."]
    guard_failure_count: Annotated[Count, "Failed cache entries, for recompiles."]
    compile_us: Annotated[DurationUs | None, "Time of the compiles."]
    trend: TrendLine


@dataclass(frozen=True)
class DistinctTrend:
    """One distinct thing."""

    id: Annotated[int, "Its `id`."]
    trend: TrendLine


@dataclass(frozen=True)
class _Trends:
    slots: Annotated[list[Slot], "At most 48, oldest first."]
    kinds: Annotated[list[KindTrend], "The most frequent first."]
    distinct: Annotated[list[DistinctTrend], "By `id`."]


@dataclass(frozen=True)
class BreakTrends(_Trends):
    """Distinct graph breaks over runs."""

    summary: Annotated[BreakSummary, "Sums."]


@dataclass(frozen=True)
class CauseTrends(_Trends):
    """Causes of recompiles over runs."""

    summary: Annotated[CauseSummary, "Sums."]


@operation("/overview")
def get_overview(scope: OverviewScope) -> Overview:
    """Return what is in this database, as the overview page shows it."""
    reader, newest = get_reader(), get_settings().trend_runs
    suite, name = scope.suite, scope.name
    page = runs.list_runs(reader, runs.RunFilter(suite=suite, name=name), pinned_first=False, limit=8)
    return Overview(
        totals=overview.get_totals(reader, suite, name),
        series=overview.list_series(reader),
        trend=overview.list_trend(reader, suite, name, newest=newest),
        newest_runs=list_run_rows(page.rows),
        graph_breaks=overview.list_top_breaks(reader, suite, name, newest=newest),
        functions=overview.list_top_functions(reader, suite, name, newest=newest),
    )


@operation("/graph_breaks")
def list_graph_breaks(wanted: BreakFilter, order: BreakSort, page: PageQuery) -> Page[DistinctBreak]:
    """List distinct graph breaks across runs, the most frequent first."""
    return graph_breaks.list_distinct_breaks(
        get_reader(), wanted, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/graph_breaks/trends")
def get_graph_break_trends(wanted: BreakFilter) -> BreakTrends:
    """Return distinct graph breaks summed, and how they went from run to run."""
    reader = get_reader()
    slots = list_slots(reader, wanted.runs)
    summary, cells = graph_breaks.get_break_trends(reader, wanted, slots)
    return BreakTrends(slots, _list_kinds(cells), _list_distinct(cells), summary)


@operation("/recompiles")
def list_recompiles(wanted: CauseFilter, order: CauseSort, page: PageQuery) -> Page[RecompileCause]:
    """List causes of recompiles across runs, the most recompiles first."""
    return recompiles.list_causes(get_reader(), wanted, sort=order.sort, cursor=page.cursor, limit=page.limit)


@operation("/recompiles/trends")
def get_recompile_trends(wanted: CauseFilter) -> CauseTrends:
    """Return causes of recompiles summed, and how they went from run to run."""
    reader = get_reader()
    slots = list_slots(reader, wanted.runs)
    summary, cells = recompiles.get_cause_trends(reader, wanted, slots)
    return CauseTrends(slots, _list_kinds(cells), _list_distinct(cells), summary)


def _list_kinds(cells: TrendGrid) -> list[KindTrend]:
    return [
        KindTrend(
            kind=totals.kind,
            gb_id=totals.gb_id,
            distinct_count=totals.things,
            function_count=len(totals.functions),
            count=totals.count,
            guard_failure_count=totals.guard_failure_count,
            compile_us=totals.compile_us,
            trend=totals.line,
        )
        for totals in cells.kinds
    ]


def _list_distinct(cells: TrendGrid) -> list[DistinctTrend]:
    return [DistinctTrend(key, line) for key, line in sorted(cells.lines.items())]


def _find_break(distinct_id: str) -> DistinctBreak:
    number = read_number(distinct_id)
    found = None if number is None else graph_breaks.get_distinct_break(get_reader(), number)
    return found or refuse(f"There is no graph break {distinct_id[:40]}; its runs may have been deleted.")


@operation("/graph_breaks/<distinct_id>")
def get_graph_break(distinct_id: str) -> DistinctBreakDetail:
    """Return one distinct graph break with its newest events and its history."""
    distinct, reader = _find_break(distinct_id), get_reader()
    events = graph_breaks.list_break_events(reader, distinct.id)
    newest = get_event(reader, events[0].process_id, events[0].sequence) if events else {}
    return DistinctBreakDetail(
        **vars(distinct),
        stack=tuple(list_stack(newest)),
        text=newest.get("text") or None,
        debug_context=newest.get("debug_context"),
        events=events,
        history=graph_breaks.list_history(reader, graph_breaks.HISTORY_SQL, distinct.id),
    )


@operation("/graph_breaks/<distinct_id>/runs")
def list_graph_break_runs(distinct_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one distinct graph break, newest first."""
    key, sql = _find_break(distinct_id).id, graph_breaks.RUNS_SQL
    return graph_breaks.list_affected(get_reader(), sql, key, cursor=page.cursor, limit=page.limit)


def _find_cause(cause_id: str) -> RecompileCause:
    number = read_number(cause_id)
    found = None if number is None else recompiles.get_cause(get_reader(), number)
    return found or refuse(f"There is no cause of recompiles {cause_id[:40]}; its runs may have been deleted.")


@operation("/recompiles/<cause_id>")
def get_recompile(cause_id: str) -> CauseDetail:
    """Return one cause of recompiles with the values that came, its newest guard failures and its history."""
    cause, reader = _find_cause(cause_id), get_reader()
    return CauseDetail(
        **vars(cause),
        values=recompiles.list_value_changes(reader, cause.id),
        events=recompiles.list_cause_events(reader, cause.id),
        history=graph_breaks.list_history(reader, recompiles.HISTORY_SQL, cause.id),
    )


@operation("/recompiles/<cause_id>/runs")
def list_recompile_runs(cause_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one cause of recompiles, newest first."""
    key, sql = _find_cause(cause_id).id, recompiles.RUNS_SQL
    return graph_breaks.list_affected(get_reader(), sql, key, cursor=page.cursor, limit=page.limit)
