"""Keep what the results of a run come to, by each definition: the one writer of the table `run_summaries`."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from compileboard.collectors.store.result_rows import COLUMNS, ResultRow, merge_results, read_measured
from compileboard.collectors.store.summaries import DEFINITIONS, SuiteSummary, summarize

# What the models of one summary have in common: what tells series apart, but for the model and its batch size.
SET = ("suite", "mode", "dtype", "device", "hardware", "backend", "dynamic", "world_size")
NUMBERS = (
    "total_count",
    "measured_count",
    "failed_count",
    "passed_count",
    "speedup_count",
    "geomean_speedup",
    "compilation_latency_s",
    "abs_latency_ms",
    "compression_ratio",
    "dynamo_peak_mem_gb",
    "graph_breaks_per_model",
    "recompiles_per_model",
)
_ROW = ("run_id", *SET, "definition", "time_us", *NUMBERS)

# The statements name our own columns alone; every value is bound.
OF_SUITE_SQL = f"""
select {COLUMNS}
from results as x
join series as s on s.id = x.series_id
where x.run_id = :run_id
  and s.suite = :suite
"""  # noqa: S608
SUITES_SQL = """
select distinct x.run_id, s.suite
from results as x
join series as s on s.id = x.series_id
order by x.run_id, s.suite
"""
ADD = f"""
insert into run_summaries ({", ".join(_ROW)})
values ({", ".join(f":{name}" for name in _ROW)})
"""  # noqa: S608


def write_summaries(connection: sqlite3.Connection, run_id: str, suites: Iterable[str]) -> None:
    """Sum up what a run has of some suites, in place of what was kept of them; within the caller's transaction."""
    for suite in sorted(suites):
        key = {"run_id": run_id, "suite": suite}
        rows = merge_results(read_measured(connection.execute(OF_SUITE_SQL, key)))
        connection.execute("delete from run_summaries where run_id = :run_id and suite = :suite", key)
        connection.executemany(ADD, _sum_up(run_id, rows))


def grow_summaries(connection: sqlite3.Connection) -> None:
    """Sum up every run of a database that was made before there was the table."""
    for run_id, suites in groupby(connection.execute(SUITES_SQL).fetchall(), key=lambda row: str(row[0])):
        write_summaries(connection, run_id, [str(row[1]) for row in suites])


def _sum_up(run_id: str, rows: list[ResultRow]) -> list[dict[str, Any]]:
    sets: dict[tuple[Any, ...], list[ResultRow]] = {}
    for row in rows:
        sets.setdefault(_find_set(row), []).append(row)
    found = []
    for key, members in sets.items():
        common = {"run_id": run_id, "time_us": max(it.time_us for it in members), **dict(zip(SET, key))}
        for definition in DEFINITIONS.values():
            summary = summarize(members, definition)
            if summary.total_count:
                found.append(common | {"definition": definition.name, **_number(summary)})
    return found


def _find_set(row: ResultRow) -> tuple[Any, ...]:
    words = tuple(getattr(row, name) or "" for name in SET[:-2])
    return (*words, int(row.dynamic), row.world_size)


def _number(summary: SuiteSummary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in NUMBERS}
