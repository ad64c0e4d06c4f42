"""Benchmark results of a run: one row a model and metric set, and all that is kept of one result."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from compileboard.app.queries.result_rows import Measured, ResultRow, merge_results, merge_with_parts
from compileboard.collectors.events import BenchMeasured, load_event
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.result_rows import COLUMNS, read_measured

__all__ = [
    "COLUMNS",
    "Measured",
    "ResultParts",
    "ResultRow",
    "get_result_parts",
    "list_measured",
    "list_results",
    "load_measured",
    "merge_results",
    "merge_with_parts",
    "read_measured",
]

MOST_RESULTS = 100_000

OF_RUN_SQL = f"""
select {COLUMNS}
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
order by x.series_id, x.experiment
limit :limit
"""  # noqa: S608  COLUMNS is ours
PARTS_SQL = """
select facts, traceback
from results
where id = :result_id
limit 1
"""
VALUES_SQL = """
select name, value
from result_values
where result_id = :result_id
order by name
limit 10000
"""
REPEATS_SQL = """
select name, body
from result_repeats
where result_id = :result_id
order by name
limit 1000
"""
EVENTS_SQL = """
select body
from events
where run_id = :run_id
  and kind = 'bench_measured'
order by process_id, sequence
limit :limit
"""


@dataclass(frozen=True)
class ResultParts:
    """Hold what a result has beside its columns.

    Units: repeats are ms, in the order in which they were measured; values are in the unit of their upstream column.
    """

    values: dict[str, float]
    repeats: dict[str, list[float]]
    facts: dict[str, Any]
    traceback: str | None


def list_measured(connection: sqlite3.Connection, run_id: str, limit: int = MOST_RESULTS) -> list[Measured]:
    """List a run's results as the experiments gave them."""
    return list(read_measured(connection.execute(OF_RUN_SQL, {"run_id": run_id, "limit": limit})))


def list_results(connection: sqlite3.Connection, run_id: str) -> list[ResultRow]:
    """List a run's results: one row a model and metric set, by suite and model."""
    return merge_results(list_measured(connection, run_id))


def get_result_parts(connection: sqlite3.Connection, result_id: int) -> ResultParts | None:
    """Return what a result has beside its columns, or None if there is no such result."""
    row = connection.execute(PARTS_SQL, {"result_id": result_id}).fetchone()
    if row is None:
        return None
    values = connection.execute(VALUES_SQL, {"result_id": result_id})
    repeats = connection.execute(REPEATS_SQL, {"result_id": result_id})
    facts = json.loads(row["facts"])
    return ResultParts(
        values={it["name"]: it["value"] for it in values},
        repeats={it["name"]: json.loads(unpack(it["body"])) for it in repeats},
        facts=facts if isinstance(facts, dict) else {},
        traceback=None if row["traceback"] is None else unpack(row["traceback"]),
    )


def load_measured(connection: sqlite3.Connection, run_id: str, limit: int = MOST_RESULTS) -> list[BenchMeasured]:
    """Load a run's results as the events that they came as: every column, with upstream's names."""
    rows = connection.execute(EVENTS_SQL, {"run_id": run_id, "limit": limit})
    events = [load_event(unpack(row["body"])) for row in rows]
    return [event for event in events if isinstance(event, BenchMeasured)]
