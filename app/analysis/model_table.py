"""The suite as a table: its orders, a page of it, and what each row is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from app.analysis.result_words import STATUSES
from app.queries.page import FilterError, Page, decode_cursor, encode_cursor
from app.queries.result_rows import ResultRow

Row = TypeVar("Row")

# Largest first; a name ends in .asc for the smallest first. What has no value comes last either way.
ORDERS: dict[str, Callable[[ResultRow], Any]] = {
    "model": lambda it: (it.model.lower(), it.suite.lower()),
    "status": lambda it: STATUSES.index(it.status) if it.status in STATUSES else len(STATUSES),
    "accuracy": lambda it: it.accuracy,
    "speedup": lambda it: it.speedup,
    "latency": lambda it: it.abs_latency_ms,
    "compile_time": lambda it: it.compilation_latency_s,
    "memory": lambda it: it.dynamo_peak_mem_gb,
    "compression": lambda it: it.compression_ratio,
    "breaks": lambda it: it.graph_breaks,
    "recompiles": lambda it: it.recompiles,
    "ops": lambda it: it.calls_captured,
    "time": lambda it: it.time_us,
}
DEFAULT_ORDER = "model.asc"
_SHOWN = ("suite", "mode", "dtype", "hardware", "backend", "batch_size")


def find_alike(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """Return what is the same in all rows, so that it is said once."""
    return {name: getattr(rows[0], name) for name in _SHOWN if len({getattr(it, name) for it in rows}) == 1}


def list_alike(same: Mapping[str, Any]) -> list[str]:
    """Write what is the same in all rows as words."""
    return [f"batch {it}" if name == "batch_size" else str(it) for name, it in same.items() if it]


def sort_results(rows: Sequence[ResultRow], sort: str) -> list[ResultRow]:
    """Sort rows by a name in ORDERS; rows that are equal in it stay in the order of suite and model.

    Raises: FilterError if there is no such order.
    """
    order, _dot, direction = sort.partition(".")
    if order not in ORDERS or direction not in ("", "asc", "desc"):
        raise FilterError(f"sort: {sort[:40]!r} is not one of {', '.join(ORDERS)}, each also with .asc")
    key = ORDERS[order]
    known = [it for it in rows if key(it) is not None]
    return sorted(known, key=key, reverse=direction != "asc") + [it for it in rows if key(it) is None]


def cut_page(rows: Sequence[Row], cursor: str | None, limit: int) -> Page[Row]:
    """Cut a page out of rows that are all there.

    Raises: FilterError if the cursor cannot be used.
    """
    (start,) = decode_cursor(cursor, int) or (0,)
    first = max(int(start), 0)
    end = first + limit
    return Page(tuple(rows[first:end]), encode_cursor(end) if end < len(rows) else None)
