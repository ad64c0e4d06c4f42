"""What AOTAutograd found out about a run's graphs, and what its wrappers do around them."""

from __future__ import annotations

from typing import Any

from compileboard.app.analysis.aot_report import RunFinding, explain_graphs, report_run
from compileboard.app.analysis.explored_rows import graph_row
from compileboard.app.analysis.rows import plain_row
from compileboard.app.api.answer import Answer, find_run, read_cursor, read_limit
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries.aot_graphs import list_aot_graphs


def get_aot(run_id: str) -> Answer:
    """Return the findings of a run's graphs, and a page of graphs."""
    find_run(run_id)
    reader = get_reader()
    page = list_aot_graphs(reader, run_id, read_cursor(), read_limit())
    report = report_run(reader, run_id)
    return Answer(
        {
            "graph_count": report.graph_count,
            "trained_count": report.trained_count,
            "plain_count": report.plain_count,
            "findings": [_finding_row(it) for it in report.findings],
            "graphs": [graph_row(it) for it in explain_graphs(reader, run_id, page.rows)],
            "next": page.next,
        }
    )


def _finding_row(it: RunFinding) -> dict[str, Any]:
    graphs = [{"id": number, "compile_id": compile_id} for number, compile_id in it.examples]
    return {
        "title": it.title,
        "example": plain_row(it.example),
        "graph_count": it.graph_count,
        "graphs": graphs,
    }


OPERATIONS = (
    Operation(
        "/runs/<run_id>/aot",
        get_aot,
        "Aot",
        False,
        "What AOTAutograd found out about a run's graphs, and what its wrappers do at each call.",
        PAGE,
    ),
)
