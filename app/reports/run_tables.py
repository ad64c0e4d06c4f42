"""The tables of a run's report, for CSV, Parquet and JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from compileboard.app.aot.model import list_graph_reports
from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.benchmarks.model import iterate_distributed, iterate_exports
from compileboard.app.benchmarks.run_queries import (
    get_result_parts,
    list_measured,
    list_results,
)
from compileboard.app.compiles import run_queries as compiles
from compileboard.app.compiles.page_model import make_compilation
from compileboard.app.core.page import Page
from compileboard.app.core.schema import get_plain
from compileboard.app.guards import run_queries as guards
from compileboard.app.reasons import run_queries as reasons
from compileboard.app.reports.redaction import clean_row
from compileboard.app.repros import queries as repros
from compileboard.app.runs import failures, trace_files
from compileboard.app.runs import run_queries as run
from compileboard.app.shapes.model import list_shapes
from compileboard.app.stacks.model import list_stack_frames
from compileboard.app.timeline import run_queries as timeline

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
    """Iterate over all pages. Each is read whole, so that a slow client holds no read lock."""

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
    ReportTable("cudagraph_skips", _paged(failures.list_cudagraph_skips)),
    # A row per model and set of metrics, then what each experiment reported.
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
