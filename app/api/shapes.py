"""Symbolic shapes of a run."""

from __future__ import annotations

from compileboard.app.analysis.shape_rows import shapes_row
from compileboard.app.analysis.shapes import build_shapes
from compileboard.app.api.answer import Answer, find_run, give_page, read_cursor, read_limit
from compileboard.app.api.operation import Operation
from compileboard.app.api.parameters import PAGE
from compileboard.app.db import get_reader
from compileboard.app.queries.shapes import list_shape_compiles


def list_shapes(run_id: str) -> Answer:
    """List the compiles that have symbolic shapes."""
    find_run(run_id)
    page = list_shape_compiles(get_reader(), run_id, read_cursor(), read_limit())
    return give_page(page, lambda it: shapes_row(build_shapes(it)))


OPERATIONS = (
    Operation(
        "/runs/<run_id>/shapes",
        list_shapes,
        "ShapeCompile",
        True,
        "A run's symbolic shapes by compile: what each symbol stands for, what fixed or guarded it, what to do.",
        PAGE,
    ),
)
