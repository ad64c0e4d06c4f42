"""AOTAutograd's analysis of a run's graphs."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.aot.errors import WrapperError, explain_errors
from compileboard.app.analysis.aot.report import (
    AotGraphRow,
    RunReport,
    explain_graphs,
    sum_up_graphs,
)
from compileboard.app.analysis.aot.saved import SavedTensors, measure_saved
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import aot, failures, shapes
from compileboard.app.queries.run.aot import AotGraph

_MOST_FAILURES = 100


@dataclass(frozen=True)
class AotScreen:
    report: RunReport
    graphs: Sequence[AotGraphRow]
    next: str | None
    errors: Sequence[WrapperError]


def build_aot(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 25
) -> AotScreen:
    wrappers = aot.list_wrappers(reader, run_id)
    rng_settings = aot.list_rng_settings(reader, run_id)
    page = aot.list_aot_graphs(reader, run_id, cursor, limit)
    report = sum_up_graphs(aot.list_summaries(reader, run_id), wrappers, rng_settings)
    errors = explain_errors(failures.list_runtime_failures(reader, run_id, _MOST_FAILURES))
    return AotScreen(report, _explain(reader, page.rows, wrappers, rng_settings), page.next, errors)


def list_graph_reports(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 25
) -> Page[AotGraphRow]:
    page = aot.list_aot_graphs(reader, run_id, cursor, limit)
    wrappers, rng_settings = (
        aot.list_wrappers(reader, run_id),
        aot.list_rng_settings(reader, run_id),
    )
    return Page(tuple(_explain(reader, page.rows, wrappers, rng_settings)), page.next)


def _explain(
    reader: sqlite3.Connection,
    graphs: Sequence[AotGraph],
    wrappers: Mapping[int, frozenset[str]],
    rng_settings: Mapping[int, bool],
) -> list[AotGraphRow]:
    saved = {graph.id: _measure(reader, graph) for graph in graphs if graph.summary.get("trained")}
    return explain_graphs(graphs, wrappers, rng_settings, saved)


def _measure(reader: sqlite3.Connection, graph: AotGraph) -> SavedTensors | None:
    text = aot.read_backward(reader, graph.artifact_id)
    if text is None or graph.compile_key is None:
        return None
    symbols = shapes.list_values(reader, graph.compile_key)
    return measure_saved(text, symbols, graph.summary.get("donated_buffer_indices"))
