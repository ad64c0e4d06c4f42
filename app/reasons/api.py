"""Endpoints across runs for graph breaks, recompiles, CUDA graph re-recordings and failures."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, NoReturn, TypeVar

from compileboard.app.core.api import PageQuery, operation, refuse
from compileboard.app.core.db import get_clock, get_engine, get_reader, get_store
from compileboard.app.core.fields import SORT_HELP, ContentId, Stack
from compileboard.app.core.page import Page, read_content_id
from compileboard.app.core.parameters import order_by
from compileboard.app.reasons.failure_issues import (
    FAILURES,
    FailureIssue,
    IssueEvent,
    IssueFilter,
    IssueSummary,
    choose_issues,
    describe_issues,
)
from compileboard.app.reasons.graph_breaks import (
    GRAPH_BREAKS,
    BreakEvent,
    BreakFilter,
    BreakSummary,
    DistinctBreak,
)
from compileboard.app.reasons.model import (
    ReasonScreen,
    build_failure,
    build_graph_break,
    build_reason_runs,
    build_recompile_cause,
    build_rerecording,
)
from compileboard.app.reasons.queries import (
    AffectedRun,
    HistoryPoint,
    ReasonSubject,
    get_reason_trends,
    list_reasons,
)
from compileboard.app.reasons.reason_events import ValueChange
from compileboard.app.reasons.reason_trends import KindTrend, TrendLine
from compileboard.app.reasons.recompiles import (
    RECOMPILES,
    CauseEvent,
    CauseFilter,
    CauseSummary,
    RecompileCause,
)
from compileboard.app.reasons.rerecordings import (
    RERECORDINGS,
    Rerecording,
    RerecordingFilter,
    RerecordingReason,
    RerecordingSummary,
)
from compileboard.app.repros.queries import ReproRow
from compileboard.app.runs.advice import CauseRow
from compileboard.app.runs.queries import TrendSlot

Detail = TypeVar(
    "Detail", bound="DistinctBreakDetail | CauseDetail | RerecordingDetail | FailureDetail"
)
NewestCause = Annotated[
    CauseRow | None, "What it is part of in the newest run that has it, with its fixes."
]
History = Annotated[list[HistoryPoint], "Occurrences in each of the newest 200 runs, oldest first."]


@dataclass(frozen=True)
class DistinctTrend:
    """The trend of one distinct graph break or recompile cause."""

    id: Annotated[ContentId, "`id` of the graph break, cause, reason or failure."]
    trend: TrendLine


@dataclass(frozen=True)
class Trends:
    slots: Annotated[list[TrendSlot], "Groups of consecutive runs, oldest first: at most 48."]
    kinds: Annotated[list[KindTrend], "Kinds, the most frequent first."]
    distinct: Annotated[list[DistinctTrend], "The trend of each, by `id`."]


def read_trends(subject: ReasonSubject, selected: Any) -> dict[str, Any]:
    trends = get_reason_trends(get_engine(), subject, selected)
    distinct = [
        DistinctTrend(reason_id, line) for reason_id, line in sorted(trends.grid.lines.items())
    ]
    return {
        "slots": trends.slots,
        "kinds": trends.grid.kinds,
        "distinct": distinct,
        "summary": trends.summary,
    }


def make_detail(kind: type[Detail], screen: ReasonScreen) -> Detail:
    known = vars(screen) | vars(screen.reason)
    return kind(**{field.name: known[field.name] for field in dataclass_fields(kind)})


def list_runs(subject: ReasonSubject, text: str, page: PageQuery) -> Page[AffectedRun]:
    runs = build_reason_runs(
        get_engine(), subject, read_content_id(text), page.cursor, page.limit, get_clock()
    )
    return runs or refuse_reason(subject, text)


def refuse_reason(subject: ReasonSubject, text: str) -> NoReturn:
    refuse(subject.describe_absence(text))


@dataclass(frozen=True)
class BreakSort:
    sort: Annotated[str, order_by(GRAPH_BREAKS.orders), SORT_HELP] = GRAPH_BREAKS.default_order


@dataclass(frozen=True)
class DistinctBreakDetail(DistinctBreak):
    """One distinct graph break over all runs, with its newest events."""

    stack: Stack
    text: Annotated[str | None, "torch's full text of the newest one."]
    debug_context: Annotated[str | None, "Developer context of the newest one, from torch."]
    cause: NewestCause
    events: Annotated[list[BreakEvent], "The newest 20 events."]
    history: History


@dataclass(frozen=True)
class BreakTrends(Trends):
    """Graph breaks over runs."""

    summary: Annotated[BreakSummary, "Totals over the chosen runs."]


@operation("/graph_breaks")
def list_graph_breaks(
    selection: BreakFilter, order: BreakSort, page: PageQuery
) -> Page[DistinctBreak]:
    """List distinct graph breaks across runs, the most frequent first."""
    return list_reasons(
        get_engine(), GRAPH_BREAKS, selection, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/graph_breaks/trends")
def get_graph_break_trends(selection: BreakFilter) -> BreakTrends:
    """Return the totals of distinct graph breaks, and their trend over runs."""
    return BreakTrends(**read_trends(GRAPH_BREAKS, selection))


@operation("/graph_breaks/<distinct_id>")
def get_graph_break(distinct_id: str) -> DistinctBreakDetail:
    """Return one distinct graph break with its newest events and its history."""
    screen = build_graph_break(get_store(), read_content_id(distinct_id))
    return make_detail(DistinctBreakDetail, screen or refuse_reason(GRAPH_BREAKS, distinct_id))


@operation("/graph_breaks/<distinct_id>/runs")
def list_graph_break_runs(distinct_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one distinct graph break, newest first."""
    return list_runs(GRAPH_BREAKS, distinct_id, page)


@dataclass(frozen=True)
class CauseSort:
    sort: Annotated[str, order_by(RECOMPILES.orders), SORT_HELP] = RECOMPILES.default_order


@dataclass(frozen=True)
class CauseDetail(RecompileCause):
    """One recompile cause over all runs."""

    values: Annotated[
        list[ValueChange], "The 12 most frequent pairs among the newest thousand failures."
    ]
    cause: NewestCause
    events: Annotated[list[CauseEvent], "The newest 20 events."]
    history: History


@dataclass(frozen=True)
class CauseTrends(Trends):
    """Recompile causes over runs."""

    summary: Annotated[CauseSummary, "Totals over the chosen runs."]


@operation("/recompiles")
def list_recompiles(
    selection: CauseFilter, order: CauseSort, page: PageQuery
) -> Page[RecompileCause]:
    """List causes of recompiles across runs, most frequent first by default."""
    return list_reasons(
        get_engine(), RECOMPILES, selection, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/recompiles/trends")
def get_recompile_trends(selection: CauseFilter) -> CauseTrends:
    """Return the totals of recompile causes, and their trend over runs."""
    return CauseTrends(**read_trends(RECOMPILES, selection))


@operation("/recompiles/<cause_id>")
def get_recompile(cause_id: str) -> CauseDetail:
    """Return one recompile cause with its values, its newest guard failures and its history."""
    screen = build_recompile_cause(get_store(), read_content_id(cause_id))
    return make_detail(CauseDetail, screen or refuse_reason(RECOMPILES, cause_id))


@operation("/recompiles/<cause_id>/runs")
def list_recompile_runs(cause_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one cause of recompiles, newest first."""
    return list_runs(RECOMPILES, cause_id, page)


@dataclass(frozen=True)
class RerecordingSort:
    sort: Annotated[str, order_by(RERECORDINGS.orders), SORT_HELP] = RERECORDINGS.default_order


@dataclass(frozen=True)
class RerecordingDetail(RerecordingReason):
    """A reason for re-recording one function's CUDA graphs, over all runs."""

    events: Annotated[list[Rerecording], "The newest 20 events."]
    history: History


@dataclass(frozen=True)
class RerecordingTrends(Trends):
    """CUDA graph re-recordings over runs."""

    summary: Annotated[RerecordingSummary, "Totals over the chosen runs."]


@operation("/cuda_graphs")
def list_rerecordings(
    selection: RerecordingFilter, order: RerecordingSort, page: PageQuery
) -> Page[RerecordingReason]:
    """List reasons for CUDA graph re-recordings across runs, the most frequent first."""
    return list_reasons(
        get_engine(), RERECORDINGS, selection, sort=order.sort, cursor=page.cursor, limit=page.limit
    )


@operation("/cuda_graphs/trends")
def get_rerecording_trends(selection: RerecordingFilter) -> RerecordingTrends:
    """Return the totals of CUDA graph re-recordings, and their trend over runs."""
    return RerecordingTrends(**read_trends(RERECORDINGS, selection))


@operation("/cuda_graphs/<reason_id>")
def get_rerecording(reason_id: str) -> RerecordingDetail:
    """Return one reason for CUDA graph re-recordings, with its newest recordings and history."""
    screen = build_rerecording(get_store(), read_content_id(reason_id))
    return make_detail(RerecordingDetail, screen or refuse_reason(RERECORDINGS, reason_id))


@operation("/cuda_graphs/<reason_id>/runs")
def list_rerecording_runs(reason_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one reason for CUDA graph re-recordings, newest first."""
    return list_runs(RERECORDINGS, reason_id, page)


@dataclass(frozen=True)
class FailureOrder:
    sort: Annotated[str, order_by(FAILURES.orders), SORT_HELP] = FAILURES.default_order


@dataclass(frozen=True)
class FailureDetail(FailureIssue):
    """One failure over all runs."""

    repros: Annotated[list[ReproRow], "The newest 20 repros."] = dataclass_field(
        default_factory=list
    )
    events: Annotated[list[IssueEvent], "The newest 20 events."] = dataclass_field(
        default_factory=list
    )
    history: History = dataclass_field(default_factory=list)


@dataclass(frozen=True)
class FailureTrends(Trends):
    """Failures over runs."""

    summary: Annotated[IssueSummary, "Totals over the chosen runs."]


@operation("/failures")
def list_failure_issues(
    selection: IssueFilter, order: FailureOrder, page: PageQuery
) -> Page[FailureIssue]:
    """List failures across runs by exception type, operation and message, the last seen first."""
    engine, limit = get_engine(), page.limit
    chosen = choose_issues(engine, selection)
    listed = list_reasons(
        engine, FAILURES, chosen, sort=order.sort, cursor=page.cursor, limit=limit
    )
    return Page(describe_issues(engine, get_reader(), listed.rows, chosen.status), listed.next)


@operation("/failures/trends")
def get_failure_trends(selection: IssueFilter) -> FailureTrends:
    """Return the totals of failures, and their trend over runs."""
    return FailureTrends(**read_trends(FAILURES, choose_issues(get_engine(), selection)))


@operation("/failures/<issue_id>")
def get_failure_issue(issue_id: str) -> FailureDetail:
    """Return one failure with its repros, newest events and history."""
    screen = build_failure(get_store(), read_content_id(issue_id))
    return make_detail(FailureDetail, screen or refuse_reason(FAILURES, issue_id))


@operation("/failures/<issue_id>/runs")
def list_failure_issue_runs(issue_id: str, page: PageQuery) -> Page[AffectedRun]:
    """List the runs that have one failure, newest first."""
    return list_runs(FAILURES, issue_id, page)
