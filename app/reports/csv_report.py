"""The tables of a run's report, and their CSV form (RFC 4180), safe to open in a spreadsheet.

The columns are the same for every run; values without a column are JSON in `other_metrics`. A list
is a JSON array, `[]` if empty: an empty cell means not recorded.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson

from compileboard.app.aot.model import list_graph_reports
from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.run_queries import ArtifactRow
from compileboard.app.benchmarks.model import iterate_distributed, iterate_exports
from compileboard.app.benchmarks.run_queries import (
    get_result_parts,
    list_measured,
    list_results,
)
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.page_model import make_compilation
from compileboard.app.compiles.run_queries import PHASES, Compilation
from compileboard.app.core.format import format_iso_time
from compileboard.app.core.json_text import dump_json
from compileboard.app.core.newest import RecorderClock
from compileboard.app.core.page import Page
from compileboard.app.core.resources import __version__
from compileboard.app.core.schema import get_plain, list_names
from compileboard.app.cuda_graphs.run_queries import CudaGraph, list_graphs
from compileboard.app.guards import run_queries as guards
from compileboard.app.guards.run_queries import GuardSet
from compileboard.app.ranks.model import build_ranks, report_ranks
from compileboard.app.reasons import run_queries as reasons
from compileboard.app.reasons.run_queries import GraphBreakRow, RecompileRow
from compileboard.app.reports.redaction import clean_row
from compileboard.app.repros import queries as repros
from compileboard.app.repros.queries import ReproRow
from compileboard.app.runs import failures, trace_files
from compileboard.app.runs import run_queries as run
from compileboard.app.runs.model import describe_facts
from compileboard.app.runs.run_queries import RunDetail
from compileboard.app.runs.trace_files import RejectedLines
from compileboard.app.shapes.model import list_shapes
from compileboard.app.stacks.model import list_stack_frames
from compileboard.app.steps.model import list_window_rows
from compileboard.app.timeline import run_queries as timeline
from compileboard.app.timeline.run_queries import NameTotal
from compileboard.collectors.contract.metric_fields import FIELDS
from compileboard.collectors.store.results import ResultRow

Row = dict[str, Any]


class ReportTable(NamedTuple):
    name: str
    list: Callable[[sqlite3.Connection, str], Iterable[Any]]
    to_row: Callable[[Any], Row] = get_plain


_PAGE = 200
_MOST = 100_000


def _paged(
    list_page: Callable[..., Page[Any]],
) -> Callable[[sqlite3.Connection, str], Iterator[Any]]:
    """Iterate over all pages. Each page is read whole, so that a slow client holds no read lock."""

    def iterate(connection: sqlite3.Connection, run_id: str) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = list_page(connection, run_id, cursor=cursor, limit=_PAGE)
            yield from page.rows
            cursor = page.next
            if cursor is None:
                return

    return iterate


def _list_measurements(connection: sqlite3.Connection, run_id: str) -> Iterator[Row]:
    for result in list_measured(connection, run_id):
        parts = get_result_parts(connection, result.id)
        yield vars(result) | (vars(parts) if parts else {})


TABLES: tuple[ReportTable, ...] = (
    ReportTable("processes", partial(run.list_processes, limit=_MOST)),
    ReportTable(
        "changed_configuration",
        run.list_changed_configs,
        lambda config: {"process_id": config[0], "changed": config[1]},
    ),
    ReportTable("compiles", _paged(compiles.list_compiles)),
    ReportTable("compilations", _paged(compiles.list_compilations), make_compilation),
    ReportTable("distinct_graph_breaks", _paged(reasons.list_distinct_breaks)),
    ReportTable("graph_breaks", _paged(reasons.list_graph_breaks)),
    ReportTable("recompile_causes", _paged(reasons.list_causes)),
    ReportTable("recompiles", _paged(reasons.list_recompiles)),
    ReportTable("recompile_limit_hits", _paged(reasons.list_limit_hits)),
    ReportTable("failures", _paged(failures.list_failures)),
    ReportTable(
        "repros",
        _paged(
            lambda connection, run_id, **page: repros.list_repros(connection, run_id=run_id, **page)
        ),
    ),
    ReportTable("cache_lookups", _paged(failures.list_cache_lookups)),
    ReportTable("caches", failures.count_cache_results),
    ReportTable("cudagraphs", _paged(list_graphs)),
    ReportTable("cudagraph_skips", _paged(failures.list_cudagraph_skips)),
    ReportTable("steps", _paged(list_window_rows)),
    # A row per model and set of metrics, then the other values of each experiment.
    ReportTable("results", list_results),
    ReportTable("measurements", _list_measurements, dict),
    ReportTable("exports", lambda *run: iterate_exports(run[0], list_measured(*run))),
    ReportTable("distributed", lambda *run: iterate_distributed(run[0], list_measured(*run))),
    ReportTable(
        "artifacts",
        _paged(
            lambda connection, run_id, **page: artifacts.list_artifacts(
                connection, run_id, None, **page
            )
        ),
    ),
    ReportTable("spans_by_name", partial(timeline.list_totals, limit=_MOST)),
    ReportTable("stacks", lambda *run: list_stack_frames(*run).rows),
    ReportTable("guards", _paged(guards.list_guard_sets)),
    ReportTable("symbols", _paged(list_shapes)),
    ReportTable("aot", _paged(list_graph_reports)),
    ReportTable("rejects", trace_files.sum_rejects, lambda row: dict(vars(row))),
)
BY_NAME = {table.name: table for table in TABLES}


def read_rows(
    connection: sqlite3.Connection, run_id: str, table: ReportTable, source: bool
) -> Iterator[Row]:
    for record in table.list(connection, run_id):
        row = table.to_row(record)
        yield row if source else clean_row(row)


DEFAULT_TABLE = "compilations"
# Full-width too: some spreadsheets treat them as the plain ones.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_GUARD = (
    "cache_entry",
    "category",
    "source",
    "reason",
    "expected",
    "actual",
    "source_line",
    "line",
)
CHUNK = 64 * 1024  # bytes, or characters of CSV


def _list_field_names(kind: type, *without: str) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if field.name not in without]


_RECORD = [
    *_list_field_names(Compilation, "metrics", "phases_us"),
    *(f"phase_{phase}_us" for phase in PHASES if phase != "first_calls"),
]
# The row type of each table; its fields are the columns, except for those below.
KINDS: dict[str, Any] = {
    "compilations": Compilation,
    "graph_breaks": GraphBreakRow,
    "recompiles": RecompileRow,
    "cudagraphs": CudaGraph,
    "results": ResultRow,
    "artifacts": ArtifactRow,
    "spans_by_name": NameTotal,
    "guards": GuardSet,
    "rejects": RejectedLines,
    "repros": ReproRow,
}
COLUMNS: dict[str, Sequence[str]] = {
    **{table: _list_field_names(kind) for table, kind in KINDS.items()},
    "compilations": (*_RECORD, *(name for name in FIELDS if name not in _RECORD), "other_metrics"),
    "graph_breaks": (*_list_field_names(GraphBreakRow), "page_url"),
    "recompiles": (
        *_list_field_names(RecompileRow, "guards"),
        "guard_count",
        *(f"guard_{name}" for name in _GUARD),
        "guards",
    ),
    "results": list_names(ResultRow),
    "artifacts": (*_list_field_names(ArtifactRow), "meaning"),
    "spans_by_name": list_names(NameTotal),
}


def format_cell(value: Any) -> Any:
    """Format one cell: text that a spreadsheet would run as a formula gets a leading apostrophe,
    numbers never do.
    """
    text = flatten_value(value)
    return f"'{text}" if isinstance(text, str) and text.startswith(_FORMULA) else text


def flatten_value(value: Any) -> Any:
    """Return numbers and strings unchanged, None as "", and anything else as JSON."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, (int, float, str)) else json.dumps(value, ensure_ascii=False)


def flatten_row(table: str, row: dict[str, Any]) -> dict[str, Any]:
    if table == "compilations":
        phases = row.pop("phases_us")
        row |= {f"phase_{phase}_us": time_us for phase, time_us in phases.items()}
        row["other_metrics"] = {
            name: row[name] for name in row if name not in COLUMNS[table]
        } or None
    elif table == "recompiles":
        guards = row["guards"]
        newest = guards[0] if guards else {}
        row |= {f"guard_{name}": newest.get(name) for name in _GUARD} | {"guard_count": len(guards)}
    return row


def write_csv(columns: Sequence[str], rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([format_cell(row.get(name)) for name in columns])
        if buffer.tell() >= CHUNK:
            yield buffer.getvalue().encode("utf-8", "replace")
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue().encode("utf-8", "replace")


def dump(value: Any) -> bytes:
    return dump_json(value, orjson.OPT_NON_STR_KEYS)


def describe_document(kind: str, written_us: int) -> dict[str, Any]:
    """Return the fields with which every JSON report begins."""
    return {
        "schema": f"compileboard.{kind}",
        "version": 1,
        "written_by": f"CompileBoard {__version__}",
        "written_at": format_iso_time(written_us),
    }


def write_json(
    connection: sqlite3.Connection,
    detail: RunDetail,
    source: bool,
    written_us: int,
    stale_after_s: int,
) -> Iterator[bytes]:
    run = get_plain(describe_facts(detail, RecorderClock(written_us, stale_after_s)))
    head = describe_document("report", written_us) | {
        "source_lines": source and detail.keep_source,
        "run": run if source else clean_row(run),
    }
    yield b"{\n"
    for name, value in head.items():
        yield dump(name) + b": " + dump(value) + b",\n"
    for position, table in enumerate(TABLES):
        yield (b",\n" if position else b"") + dump(table.name) + b": ["
        for number, row in enumerate(read_rows(connection, detail.run.id, table, source)):
            yield (b",\n  " if number else b"\n  ") + dump(row)
        yield b"\n]"
    ranks = get_plain(report_ranks(build_ranks(connection, detail.run.id)))
    yield b',\n"ranks": ' + dump(ranks if source else clean_row(ranks))
    yield b"\n}\n"


def join_chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces into chunks worth writing."""
    chunk: list[bytes] = []
    size = 0
    for piece in pieces:
        chunk.append(piece)
        size += len(piece)
        if size >= CHUNK:
            yield b"".join(chunk)
            chunk, size = [], 0
    yield b"".join(chunk)
