"""A run's symbolic shapes."""

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
    counts: Mapping[str, int]
    lines: Sequence[ShapeLine]
    page: Page[ShapeCompileRow]


def build_run_shapes(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 8
) -> RunShapesScreen:
    return RunShapesScreen(
        counts=cached_for_run(reader, run_id, shapes.count_kinds),
        lines=cached_for_run(reader, run_id, shapes.list_lines),
        page=list_shapes(reader, run_id, cursor, limit),
    )


def list_shapes(
    reader: sqlite3.Connection, run_id: str, cursor: str | None = None, limit: int = 8
) -> Page[ShapeCompileRow]:
    return shapes.list_shape_compiles(reader, run_id, cursor, limit).map(build_shapes)
