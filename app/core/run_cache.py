"""A cache of values that are slow to read or compute, valid until the run changes."""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from compileboard.app.benchmarks.commit_order import find_span, list_ancestry
from compileboard.app.core.engine import Engine
from compileboard.app.runs.run_queries import get_run_state

_MAX_CACHED = 12  # the largest, a comparison of 64 ranks with 500 compiles each, takes ≈ 10 MB

Found = TypeVar("Found")
_cache: OrderedDict[tuple[object, ...], Any] = OrderedDict()
_lock = threading.Lock()


def cached_for_run(
    connection: sqlite3.Connection, run_id: str, make: Callable[[sqlite3.Connection, str], Found]
) -> Found:
    """Return the cached result of `make`, which is computed again once the run has changed. The
    result must not be modified.
    """
    state = (run_id, make.__module__, make.__qualname__, *get_run_state(connection, run_id))
    path = str(connection.execute("pragma database_list").fetchone()["file"])
    return _get_cached(path, state, lambda: make(connection, run_id))


def cached_ancestry(
    engine: Engine, hashes: Iterable[str | None]
) -> Mapping[str, tuple[str | None, int]]:
    """Return (first parent, time) by hash, for these commits and those between them. Cached."""
    span = find_span(engine, hashes)
    if span is None:
        return {}
    return _get_cached(engine.name, ("ancestry", *span), lambda: list_ancestry(engine, span))


def _get_cached(database: str, state: tuple[object, ...], make: Callable[[], Found]) -> Found:
    key = (database, *state)
    with _lock:
        if key in _cache:
            _cache.move_to_end(key)
            value: Found = _cache[key]
            return value
    made = make()
    with _lock:
        _cache[key] = made
        while len(_cache) > _MAX_CACHED:
            _cache.popitem(last=False)
    return made
