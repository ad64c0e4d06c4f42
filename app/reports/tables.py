"""The tables of a run's report, for CSV, Parquet and JSON."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from compileboard.app.aot.model import list_graph_reports
from compileboard.app.artifacts import run_queries as artifacts
from compileboard.app.artifacts.model import explain_artifact
from compileboard.app.benchmarks.matrix import cut_page
from compileboard.app.benchmarks.model import iterate_distributed, iterate_exports
from compileboard.app.benchmarks.run_queries import (
    ResultParts,
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
from compileboard.collectors.store.results import ExperimentResult

Row = dict[str, Any]
List = Callable[..., Page[Any]]


class ReportTable(NamedTuple):
    name: str
    list: List
    to_row: Callable[[Any], Row]


def _list_results(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(list_results(connection, run_id)), None)


def _list_measurements(
    connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int
) -> Page[Any]:
    page = cut_page(list_measured(connection, run_id), cursor, limit)
    return Page(tuple((row, get_result_parts(connection, row.id)) for row in page.rows), page.next)


def _measurement_row(measurement: tuple[ExperimentResult, ResultParts | None]) -> Row:
    result, parts = measurement
    return vars(result) | (vars(parts) if parts else {})


def _list_exports(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(iterate_exports(connection, list_measured(connection, run_id))), None)


def _list_distributed(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(iterate_distributed(connection, list_measured(connection, run_id))), None)


# A model and metric set a row; and what each experiment said, with its repeats, other numbers and
# traceback.
BENCH_TABLES = (
    ReportTable("results", _list_results, get_plain),
    ReportTable("measurements", _list_measurements, _measurement_row),
    ReportTable("exports", _list_exports, get_plain),
    ReportTable("distributed", _list_distributed, get_plain),
)


def _list_names(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(timeline.list_totals(connection, run_id, limit=100_000)), None)


def _list_stacks(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return list_stack_frames(connection, run_id)  # all at once: a page makes the whole tree


def _list_artifacts(
    connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int
) -> Page[Any]:
    return artifacts.list_artifacts(connection, run_id, None, cursor, limit).map(explain_artifact)


def _list_rejects(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(trace_files.sum_rejects(connection, run_id)), None)


def _list_repros(
    connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int
) -> Page[Any]:
    return repros.list_repros(connection, run_id=run_id, cursor=cursor, limit=limit)


def _list_guards(
    connection: sqlite3.Connection, run_id: str, cursor: str | None, limit: int
) -> Page[Any]:
    return guards.list_guard_sets(connection, run_id, cursor=cursor, limit=limit)


EXPLORED_TABLES = (
    ReportTable("artifacts", _list_artifacts, get_plain),
    ReportTable("spans_by_name", _list_names, get_plain),
    ReportTable("stacks", _list_stacks, get_plain),
    ReportTable("guards", _list_guards, get_plain),
    ReportTable("symbols", list_shapes, get_plain),
    ReportTable("aot", list_graph_reports, get_plain),
    ReportTable("rejects", _list_rejects, lambda row: dict(vars(row))),
)


PAGE = 200


def _list_all(
    read: Callable[..., Any], connection: sqlite3.Connection, run_id: str, **_page: Any
) -> Page[Any]:
    return Page(tuple(read(connection, run_id, limit=100_000)), None)


def _list_changed(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    configs = run.list_changed_configs(connection, run_id)
    return Page(
        tuple({"process_id": process_id, "changed": changed} for process_id, changed in configs),
        None,
    )


def _list_caches(connection: sqlite3.Connection, run_id: str, **_page: Any) -> Page[Any]:
    return Page(tuple(failures.count_cache_results(connection, run_id)), None)


TABLES: tuple[ReportTable, ...] = (
    ReportTable("processes", partial(_list_all, run.list_processes), get_plain),
    ReportTable("changed_configuration", _list_changed, dict),
    ReportTable("compiles", compiles.list_compiles, get_plain),
    ReportTable("compilations", compiles.list_compilations, make_compilation),
    ReportTable("distinct_graph_breaks", reasons.list_distinct_breaks, get_plain),
    ReportTable("graph_breaks", reasons.list_graph_breaks, get_plain),
    ReportTable("recompile_causes", reasons.list_causes, get_plain),
    ReportTable("recompiles", reasons.list_recompiles, get_plain),
    ReportTable("recompile_limit_hits", reasons.list_limit_hits, get_plain),
    ReportTable("failures", failures.list_failures, get_plain),
    ReportTable("repros", _list_repros, get_plain),
    ReportTable("cache_lookups", failures.list_cache_lookups, get_plain),
    ReportTable("caches", _list_caches, get_plain),
    ReportTable("cudagraph_skips", failures.list_cudagraph_skips, get_plain),
    *BENCH_TABLES,
    *EXPLORED_TABLES,
)
BY_NAME = {table.name: table for table in TABLES}


def read_rows(
    connection: sqlite3.Connection, run_id: str, table: ReportTable, source: bool
) -> Iterator[Row]:
    """Yield every row of a table. Pages are read whole, so that a slow client holds no read
    lock.
    """
    cursor: str | None = None
    while True:
        page = table.list(connection, run_id, cursor=cursor, limit=PAGE)
        for record in page.rows:
            row = table.to_row(record)
            yield row if source else clean_row(row)
        cursor = page.next
        if cursor is None:
            return
