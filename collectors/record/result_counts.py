"""A run's benchmark results in a few lines: what became of them, and the geomean of each configuration."""

from __future__ import annotations

import math
import sqlite3

MOST_OUTCOMES = 12
MOST_CONFIGURATIONS = 6


def count_outcomes(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, int]]:
    """Count a run's results by experiment, status and upstream's word for it, the most frequent first."""
    rows = connection.execute(
        """
        select experiment, status, coalesce(accuracy, reason) as word, count(*) as result_count
        from results
        where run_id = :run_id
        group by experiment, status, word
        order by result_count desc, experiment, status, word
        limit :most
        """,
        {"run_id": run_id, "most": MOST_OUTCOMES},
    )
    return [(_outcome(row), row["result_count"]) for row in rows]


def _outcome(row: sqlite3.Row) -> str:
    text = f"{row['experiment']}: {row['status'].replace('_', ' ')}"
    return f"{text}, {row['word']}" if row["word"] else text


def find_geomeans(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, float, int]]:
    """Return the configurations that have the most speedups, each with their geomean and how many they are."""
    rows = connection.execute(
        """
        select suite, mode, dtype, device, backend, dynamic, speedup
        from results join series on series.id = series_id
        where run_id = :run_id and experiment = 'performance' and status = 'measured' and speedup > 0
        limit 1000000
        """,
        {"run_id": run_id},
    )
    logs: dict[str, list[float]] = {}
    for *words, dynamic, speedup in rows:
        name = " ".join(word for word in (*words, "dynamic" if dynamic else "") if word)
        logs.setdefault(name, []).append(math.log(speedup))
    most = sorted(logs.items(), key=lambda it: (-len(it[1]), it[0]))[:MOST_CONFIGURATIONS]
    return [(name, math.exp(math.fsum(its) / len(its)), len(its)) for name, its in most]
