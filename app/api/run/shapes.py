"""Symbolic shapes."""

from __future__ import annotations

from compileboard.app.analysis.shapes import ShapeCompileRow
from compileboard.app.api.answers import PageQuery, operation
from compileboard.app.db import get_run_reader
from compileboard.app.queries.page import Page
from compileboard.app.queries.run.run import RunDetail
from compileboard.app.screens.run.shapes import list_shapes as list_compiles


@operation("/runs/<run_id>/shapes")
def list_shapes(detail: RunDetail, page: PageQuery) -> Page[ShapeCompileRow]:
    """List a run's symbolic shapes by compile: what each symbol stands for, what fixed or guarded
    it, its fix.
    """
    return list_compiles(get_run_reader(detail.run.id), detail.run.id, page.cursor, page.limit)
