"""The page of one compile, and the API of a run's compiles and their events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from flask import Blueprint, abort, current_app, render_template, url_for

from compileboard.app.artifacts.artifact_labels import GUARDS
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.charts import chart_phases
from compileboard.app.compiles.page_model import CompileScreen, build_compile, make_compilation
from compileboard.app.compiles.run_queries import (
    ORDERS,
    Compilation,
    CompileFilter,
    CompileRow,
    Outcome,
    RecordOutcome,
    RecordPhaseTimes,
)
from compileboard.app.core import fields
from compileboard.app.core.api import PageQuery, operation
from compileboard.app.core.db import get_run_reader
from compileboard.app.core.format import (
    format_bytes,
    format_count,
    format_duration,
    format_number,
    format_time,
)
from compileboard.app.core.labels import list_shares
from compileboard.app.core.page import Page, check_content_id, read_id
from compileboard.app.core.parameters import Parameter, order_by
from compileboard.app.core.schema import Keywords, describe_type, one_of
from compileboard.app.cuda_graphs.run_queries import CudaGraph
from compileboard.app.reasons import run_queries as reasons
from compileboard.app.reasons.run_queries import (
    Chain,
    GraphBreakRow,
    LimitHit,
    RecompileRow,
    RunCause,
    RunDistinctBreak,
)
from compileboard.app.runs import failures
from compileboard.app.runs import run_queries as run
from compileboard.app.runs.failures import CacheLookup, CudagraphSkip, FailureRow
from compileboard.app.runs.run_queries import NoteRow, ProcessRow, RunDetail, get_run_features
from compileboard.app.runs.shell import find_run
from compileboard.collectors.contract.metric_fields import FIELDS

blueprint = Blueprint("compile", __name__)

_UNITS = {
    "us": "µs",
    "ms": "ms",
    "s": "s",
    "time_us": "µs since 1970",
    "time_s": "s since 1970",
    "bytes": "bytes",
}
_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


def write_value(name: str, value: Any) -> str:
    unit = FIELDS[name].unit if name in FIELDS else "json"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if number and unit in _US:
        return format_duration(value * _US[unit])
    if number and unit in ("time_us", "time_s"):
        return f"{format_time(round(value * (1 if unit == 'time_us' else 1e6)))} UTC"
    if number and unit == "bytes":
        return format_bytes(value)
    if number:
        return format_count(value) if isinstance(value, int) else format_number(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return "\n".join(value) or "none"
    if isinstance(value, str):
        return value or "empty"
    return json.dumps(value, ensure_ascii=False, indent=1)


def list_fields(record: Compilation) -> list[dict[str, Any]]:
    fields = []
    for name, value in record.metrics.items():
        field = FIELDS.get(name)
        digest = value.get("config_hash") if isinstance(value, dict) else None
        digest = digest if isinstance(digest, str) else None
        shown = None if value is None or digest else write_value(name, value)
        fields.append(
            {
                "name": name,
                "value": shown,
                "raw": value
                if field and field.unit in _UNITS and not isinstance(value, dict | list | str)
                else None,
                "unit": _UNITS.get(field.unit, field.unit)
                if field
                else "not known to this version",
                "help": field.help if field else "A field that this version has no description of.",
                "config_hash": digest,
                "long": shown is not None and (len(shown) > 160 or shown.count("\n") > 2),
            }
        )
    return fields


def list_links(run_id: str, screen: CompileScreen) -> list[tuple[str, str]]:
    links, row = [], screen.compile
    if screen.stretch_us is not None:
        window: dict[str, Any] = dict(
            zip(("from", "to"), screen.stretch_us)
        )  # "from" is a keyword in Python
        links.append(("On the timeline", url_for("timeline.show", run_id=run_id, **window)))
    steps = [
        step for attempt in screen.entry.attempts for line in attempt.lines for step in line.steps
    ]
    guards = [step for step in steps if step.kind == "artifact" and step.name in GUARDS]
    if guards:
        links.append(
            (
                "Guards as a tree",
                url_for("guards.show_one", run_id=run_id, artifact_id=guards[-1].ref_id),
            )
        )
    if row.recompiled_from and screen.entry.artifact_count and row.outcome != "recompile_limit":
        changes = url_for("artifacts.changes", run_id=run_id, key=row.id)
        links.append((f"Changes from {row.recompiled_from}", changes))
    links.append(("Compare with…", url_for("compare.compiles", a=f"{run_id}:{row.id}")))
    if row.function and get_run_features(get_run_reader(run_id), run_id).has_stacks:
        links.append(("Among all stacks", url_for("stacks.show", run_id=run_id, q=row.function)))
    return links


@blueprint.get("/runs/<run_id>/compiles/<key>")
def show(run_id: str, key: str) -> str:
    run = find_run(run_id).run
    screen = build_compile(get_run_reader(run.id), run, read_id(key))
    if screen is None:
        abort(404, f"Run {run.shown_name[:80]} has no compile number {key[:40]}.")
    records = screen.records
    return render_template(
        "compiles/one.html",
        run=run,
        screen=screen,
        it=screen.compile,
        records=[
            (record, list_fields(record), list_shares(record.phases_us)) for record in records
        ],
        places=list_links(run_id, screen),
        has_shapes="shapes.show" in current_app.view_functions,
        chart=chart_phases(records) if records else None,
        has_charts=True,
        live=run.state == "running",
    )


_UNIT_SENTENCES = {
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
class RunBreakFilter:
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
            "description": " ".join(
                filter(None, (f"torch's `{name}`.", field.help, _UNIT_SENTENCES.get(field.unit)))
            )
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
    """Another compile of the same frame."""

    id: fields.RowId
    compile_id: Annotated[str, "Compile id as torch prints it: `0/1`."]
    outcome: Outcome


@dataclass(frozen=True)
class CompileDetail(CompileRow):
    """One compile with its events. The lists of events have at most 100 rows."""

    stack: fields.Stack
    chain: Annotated[
        Sequence[FrameCompile], "Every compile of the frame, first to last: at most 500."
    ]
    restart_reasons: Annotated[Sequence[str], "Why tracing restarted."]
    compilations: Annotated[Sequence[CompilationRow], "Compilation records of the compile."]
    recompiles: Annotated[Sequence[RecompileRow], "The recompile, if this compile is one."]
    graph_breaks: Annotated[Sequence[GraphBreakRow], "Graph breaks of the compile."]
    failures: Annotated[Sequence[FailureRow], "What it raised."]
    cache_lookups: Annotated[Sequence[CacheLookup], "Cache lookups of the compile."]
    cudagraphs: Annotated[
        Sequence[CudaGraph],
        "Its CUDA graphs, and the runs to warm up before them; `reasons` has the newest alone.",
    ]
    cudagraph_skips: Annotated[Sequence[CudagraphSkip], "The CUDA graphs it could not use."]


_RUN = "/runs/<run_id>"
Row = TypeVar("Row")


def _read_page(
    list_rows: Callable[..., Page[Row]], detail: RunDetail, page: PageQuery, **more: Any
) -> Page[Row]:
    run_id = detail.run.id
    return list_rows(get_run_reader(run_id), run_id, page.cursor, page.limit, **more)


@operation(f"{_RUN}/compiles")
def list_compiles(
    detail: RunDetail, selection: CompileFilter, order: CompileSort, page: PageQuery
) -> Page[CompileRow]:
    """List a run's compiles: one row per compile of a function."""
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
    return _read_page(compiles.list_compilations, detail, page).map(make_compilation)


@operation(f"{_RUN}/graph_breaks")
def list_graph_breaks(
    detail: RunDetail, query: RunBreakFilter, page: PageQuery
) -> Page[GraphBreakRow]:
    """List a run's graph breaks in order of occurrence."""
    return _read_page(reasons.list_graph_breaks, detail, page, distinct_id=query.distinct)


@operation(f"{_RUN}/distinct_graph_breaks")
def list_distinct_breaks(detail: RunDetail, page: PageQuery) -> Page[RunDistinctBreak]:
    """List a run's distinct graph breaks, the most compile time first."""
    return _read_page(reasons.list_distinct_breaks, detail, page)


@operation(f"{_RUN}/recompiles")
def list_recompiles(detail: RunDetail, page: PageQuery) -> Page[RecompileRow]:
    """List a run's recompiles in order of occurrence, each with the failed guards of every cache
    entry.
    """
    return _read_page(reasons.list_recompiles, detail, page)


@operation(f"{_RUN}/recompile_chains")
def list_chains(detail: RunDetail, page: PageQuery) -> Page[Chain]:
    """List the frames that a run compiled more than once, the most compile time first."""
    return _read_page(reasons.list_chains, detail, page)


@operation(f"{_RUN}/recompile_causes")
def list_causes(detail: RunDetail, page: PageQuery) -> Page[RunCause]:
    """List a run's recompile causes, most compile time first."""
    return _read_page(reasons.list_causes, detail, page)


@operation(f"{_RUN}/recompile_limits")
def list_limit_hits(detail: RunDetail, page: PageQuery) -> Page[LimitHit]:
    """List the compiles that reached the recompile limit: their functions fell back to eager."""
    return _read_page(reasons.list_limit_hits, detail, page)


@operation(f"{_RUN}/failures")
def list_failures(detail: RunDetail, page: PageQuery) -> Page[FailureRow]:
    """List a run's failures: of compiles, of running compiled code, and of the program."""
    return _read_page(failures.list_failures, detail, page)


@operation(f"{_RUN}/cache_lookups")
def list_cache_lookups(detail: RunDetail, page: PageQuery) -> Page[CacheLookup]:
    """List a run's lookups in the FX graph cache and AOTAutograd's cache."""
    return _read_page(failures.list_cache_lookups, detail, page)


@operation(f"{_RUN}/cudagraph_skips")
def list_cudagraph_skips(detail: RunDetail, page: PageQuery) -> Page[CudagraphSkip]:
    """List the CUDA graphs that inductor could not use, and why."""
    return _read_page(failures.list_cudagraph_skips, detail, page)


@operation(f"{_RUN}/processes")
def list_processes(detail: RunDetail, page: PageQuery) -> Page[ProcessRow]:
    """List a run's processes with their capabilities, counters and losses."""
    return _read_page(run.list_process_page, detail, page)


@operation(f"{_RUN}/notes")
def list_notes(detail: RunDetail, page: PageQuery) -> Page[NoteRow]:
    """List records from torch that this version has no decoder for."""
    return _read_page(run.list_notes, detail, page)
