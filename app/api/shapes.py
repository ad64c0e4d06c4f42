"""Symbolic shapes of a run."""

from __future__ import annotations

from typing import Any

from app.analysis.shapes import ShapeGuard, ShapesView, ShapeSymbol, build_shapes, describe_reason
from app.api.answer import Answer, find_run, give_page, read_cursor, read_limit
from app.api.operation import Operation
from app.api.parameters import PAGE
from app.db import get_reader
from app.queries.shapes import SymbolRecord, list_shape_compiles


def list_shapes(run_id: str) -> Answer:
    """List the compiles that have symbolic shapes."""
    find_run(run_id)
    page = list_shape_compiles(get_reader(), run_id, read_cursor(), read_limit())
    return give_page(page, lambda it: _view_row(build_shapes(it)))


def _view_row(view: ShapesView) -> dict[str, Any]:
    it = view.compile
    return {
        "compile_key": it.key,
        "compile_id": it.compile_id,
        "rank": it.rank,
        "function": it.function,
        "file": it.file,
        "outcome": it.outcome,
        "record_count": it.record_count,
        "symbols": [_symbol_row(symbol) for symbol in view.symbols],
        "other_guards": [_guard_row(guard) for guard in view.other],
        "fixed": [{"name": one.name, "dim": one.dim, "size": one.size} for one in view.fixed],
    }


def _place_row(record: SymbolRecord | None) -> dict[str, Any]:
    return {
        "file": record.file if record else None,
        "line": record.line if record else None,
        "source_line": record.source_line if record else None,
        "stack": list(record.stack) if record else [],
    }


def _symbol_row(it: ShapeSymbol) -> dict[str, Any]:
    return {
        "symbol": it.name,
        "is_unbacked": it.is_unbacked,
        "source": it.source,
        "value": it.record.value if it.record else None,
        "value_range": it.record.value_range if it.record else None,
        "same": list(it.same),
        "specialized": [
            {"value": one.value, "reason": one.expression, "words": describe_reason(one.expression)} | _place_row(one)
            for one in it.specialized
        ],
        "guards": [_guard_row(guard) for guard in it.guards],
        "advice": list(it.advice),
    } | _place_row(it.record)


def _guard_row(it: ShapeGuard) -> dict[str, Any]:
    said = {"expression": it.record.expression, "words": it.words, "count": it.count}
    return said | {"by_user": bool(it.record.stack)} | _place_row(it.record)


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
