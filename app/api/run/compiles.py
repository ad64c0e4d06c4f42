"""Records, graph breaks, recompiles, failures and caches of compiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_run_reader
from compileboard.app.queries import fields
from compileboard.app.queries.outcomes import Outcome, RecordOutcome
from compileboard.app.queries.page import Page, check_content_id
from compileboard.app.queries.parameters import Parameter, order_by
from compileboard.app.queries.run import compiles, failures, graph_breaks, recompiles, run
from compileboard.app.queries.run.compiles import (
    ORDERS,
    CompileFilter,
    CompileRow,
    RecordPhaseTimes,
)
from compileboard.app.queries.run.failures import CacheLookup, CudagraphSkip, FailureRow
from compileboard.app.queries.run.graph_breaks import GraphBreakRow, RunDistinctBreak
from compileboard.app.queries.run.recompiles import Chain, LimitHit, RecompileRow, RunCause
from compileboard.app.queries.run.run import NoteRow, ProcessRow, RunDetail
from compileboard.app.schema import Keywords, describe_type, one_of
from compileboard.app.screens.run.compiles import make_compilation
from compileboard.collectors.contract.fields import FIELDS

_UNITS = {
    "us": "Microseconds.",
    "ms": "Milliseconds.",
    "s": "Seconds.",
    "time_us": "Microseconds since 1970.",
    "time_s": "Seconds since 1970.",
    "bytes": "Bytes.",
}


@dataclass(frozen=True)
class CompileSort:
    sort: Annotated[str, order_by(ORDERS), fields.SORT_HELP] = "started.asc"


@dataclass(frozen=True)
class BreakOfRun:
    distinct: Annotated[
        int | None,
        Parameter(read=check_content_id),
        fields.ID_PATTERN,
        "Only the occurrences of this graph break.",
    ] = None


def _describe_record() -> Keywords:
    ours: dict[str, Any] = {
        "id": fields.RowId,
        "sequence": fields.SequenceNumber,
        "process_id": fields.ProcessId,
        "rank": fields.Rank,
        "compile_key": fields.CompileKey,
        "compile_id": fields.CompileId,
        "kind": Annotated[
            str,
            one_of(("forward", "backward", "runtime")),
            "Which part of a compile the record is of.",
        ],
        "function": fields.FunctionName,
        "file": fields.FileName,
        "line": fields.LineNumber,
        "outcome": RecordOutcome,
        "start_us": Annotated[fields.TimeUs | None, "Start."],
        "duration_us": Annotated[fields.DurationUs | None, "Duration."],
        "duration_source": Annotated[
            str | None, "torch's fields that the duration is of, `duration_us` where it has that."
        ],
        "phases_us": RecordPhaseTimes,
        "restart_count": Annotated[fields.Count, "Restarts of the analysis."],
    }
    described = {name: describe_type(hint, {}) for name, hint in ours.items()}
    metrics = {
        name: {
            "description": f"torch's `{name}`. {field.help} {_UNITS.get(field.unit, '')}".strip()
        }
        for name, field in FIELDS.items()
    }
    required = [*ours, *(name for name in FIELDS if name not in ours)]
    return Keywords(properties=metrics | described, required=required, additionalProperties=True)


CompilationRow = Annotated[
    dict[str, Any],
    _describe_record(),
    "One CompilationMetrics record with every metric under torch's own name, null where torch "
    "recorded none: its "
    "version has none, or left it empty. One that this document does not know is there as "
    "well. A configuration "
    "text is given as {config_hash}. Where a name of ours is one of torch's too, torch's value "
    "stands, if any.",
]


@dataclass(frozen=True)
class FrameCompile:
    """One compile of the same frame."""

    id: fields.RowId
    compile_id: Annotated[str, "Compile id."]
    outcome: Outcome


@dataclass(frozen=True)
class CompileDetail(CompileRow):
    """One compile with all that belongs to it. The lists of events have at most 100 rows."""

    stack: fields.Stack
    chain: Annotated[
        Sequence[FrameCompile], "Every compile of the frame, first to last: at most 500."
    ]
    restart_reasons: Annotated[Sequence[str], "Why tracing restarted."]
    compilations: Annotated[Sequence[CompilationRow], "Its records."]
    recompiles: Annotated[Sequence[RecompileRow], "The recompile that it is, if any."]
    graph_breaks: Annotated[Sequence[GraphBreakRow], "Its graph breaks."]
    failures: Annotated[Sequence[FailureRow], "What it raised."]
    cache_lookups: Annotated[Sequence[CacheLookup], "Its cache lookups."]
    cudagraph_skips: Annotated[Sequence[CudagraphSkip], "The CUDA graphs it could not use."]


_RUN = "/runs/<run_id>"


@operation(f"{_RUN}/compiles")
def list_compiles(
    detail: RunDetail, selection: CompileFilter, order: CompileSort, page: PageQuery
) -> Page[CompileRow]:
    """List a run's compiles: one row a compile of a function."""
    return compiles.list_compiles(
        get_run_reader(detail.run.id),
        detail.run.id,
        selection,
        sort=order.sort,
        cursor=page.cursor,
        limit=page.limit,
    )


@operation(f"{_RUN}/compilations")
def list_compilations(detail: RunDetail, page: PageQuery) -> Page[CompilationRow]:
    """List a run's CompilationMetrics records by start, each with every metric under torch's own
    name.
    """
    records = compiles.list_compilations(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )
    return Page(tuple(make_compilation(record) for record in records.rows), records.next)


@operation(f"{_RUN}/graph_breaks")
def list_graph_breaks(detail: RunDetail, query: BreakOfRun, page: PageQuery) -> Page[GraphBreakRow]:
    """List a run's graph breaks in order of occurrence."""
    return graph_breaks.list_graph_breaks(
        get_run_reader(detail.run.id),
        detail.run.id,
        page.cursor,
        page.limit,
        distinct_id=query.distinct,
    )


@operation(f"{_RUN}/distinct_graph_breaks")
def list_distinct_breaks(detail: RunDetail, page: PageQuery) -> Page[RunDistinctBreak]:
    """List a run's distinct graph breaks, the most compile time first."""
    return graph_breaks.list_distinct_breaks(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/recompiles")
def list_recompiles(detail: RunDetail, page: PageQuery) -> Page[RecompileRow]:
    """List a run's recompiles in order of occurrence, each with the failed guards of every cache
    entry.
    """
    return recompiles.list_recompiles(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/recompile_chains")
def list_chains(detail: RunDetail, page: PageQuery) -> Page[Chain]:
    """List the frames that a run compiled more than once, the most compile time first."""
    return recompiles.list_chains(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/recompile_causes")
def list_causes(detail: RunDetail, page: PageQuery) -> Page[RunCause]:
    """List a run's recompile causes, most compile time first."""
    return recompiles.list_causes(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit, of_older_entries=True
    )


@operation(f"{_RUN}/recompile_limits")
def list_limit_hits(detail: RunDetail, page: PageQuery) -> Page[LimitHit]:
    """List the compiles that reached the recompile limit: their functions fell back to eager."""
    return recompiles.list_limit_hits(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/failures")
def list_failures(detail: RunDetail, page: PageQuery) -> Page[FailureRow]:
    """List a run's failures: of compiles, of running compiled code, and of the program."""
    return failures.list_failures(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/cache_lookups")
def list_cache_lookups(detail: RunDetail, page: PageQuery) -> Page[CacheLookup]:
    """List a run's lookups in the FX graph cache and AOTAutograd's cache."""
    return failures.list_cache_lookups(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/cudagraph_skips")
def list_cudagraph_skips(detail: RunDetail, page: PageQuery) -> Page[CudagraphSkip]:
    """List the CUDA graphs that inductor could not use, and why."""
    return failures.list_cudagraph_skips(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/processes")
def list_processes(detail: RunDetail, page: PageQuery) -> Page[ProcessRow]:
    """List a run's processes with their capabilities, counters and losses."""
    return run.list_process_page(
        get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit
    )


@operation(f"{_RUN}/notes")
def list_notes(detail: RunDetail, page: PageQuery) -> Page[NoteRow]:
    """List records from torch that this version has no decoder for."""
    return run.list_notes(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
