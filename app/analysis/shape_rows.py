"""Symbolic shapes as plain dicts: the rows of the API and of the JSON report."""

from __future__ import annotations

from typing import Any

from compileboard.app.analysis.shapes import ShapeGuard, ShapesView, ShapeSymbol, describe_reason
from compileboard.app.queries.shapes import SymbolRecord


def shapes_row(view: ShapesView) -> dict[str, Any]:
    """Return one compile with its symbols, what fixed or guarded them, and what to do."""
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
