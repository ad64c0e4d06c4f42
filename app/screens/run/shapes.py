"""A run's symbolic shapes: what symbols stand for, what fixed or guarded them, which lines did."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from compileboard.app.analysis.shapes import ShapeCompileRow, build_shapes
from compileboard.app.queries.page import Page
from compileboard.app.queries.run import shapes
from compileboard.app.queries.run.shapes import ShapeLine
from compileboard.app.queries.run_cache import cached_for_run


@dataclass(frozen=True)
class RunShapesScreen:
    """The symbolic shapes of one page of a run's compiles, and of all of them the records by kind and by line."""

    counts: Mapping[str, int]
    lines: Sequence[ShapeLine]
    page: Page[ShapeCompileRow]


def build_run_shapes(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 8
) -> RunShapesScreen:
    """Read the symbolic shapes of a run.

    Raises: FilterError if the cursor cannot be used.
    """
    return RunShapesScreen(
        counts=cached_for_run(reader, run_id, shapes.count_kinds),
        lines=cached_for_run(reader, run_id, shapes.list_lines),
        page=list_shapes(reader, run_id, cursor, limit),
    )


def list_shapes(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 8
) -> Page[ShapeCompileRow]:
    """List a run's compiles with their symbols, what fixed or guarded them, and what to do.

    Raises: FilterError if the cursor cannot be used.
    """
    return shapes.list_shape_compiles(reader, run_id, cursor, limit).map(build_shapes)
