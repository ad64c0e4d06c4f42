"""What a database already has of the demo's history, and what came of a run, read back from it."""

from __future__ import annotations

import sqlite3
from contextlib import closing

from compileboard.collectors.store.connect import open_reader
from compileboard.collectors.store.errors import StoreMissing

SUITE = "demo_history"


def list_measured(database: str) -> set[tuple[str, str]]:
    """Return the commit and the run's name of each version that was measured to its end.

    Raises: StoreError if the database cannot be read.
    """
    try:
        connection = open_reader(database)
    except StoreMissing:
        return set()
    with closing(connection):
        rows = connection.execute(
            """
            select distinct git_commit, name
            from runs
            where suite = :suite and state = 'finished' and git_commit is not null
            order by git_commit, name
            limit 10000
            """,
            {"suite": SUITE},
        )
        return {(row["git_commit"], row["name"]) for row in rows}


def describe_run(database: str, commit: str, name: str) -> str:
    """Say in a few words what the newest run of a commit measured.

    Raises: StoreError if the database cannot be read.
    """
    with closing(open_reader(database)) as connection:
        rows = connection.execute(
            """
            select model, status, reason, speedup, graph_breaks, recompiles
            from results join series on series.id = results.series_id
            where run_id = (
              select max(id) from runs where suite = :suite and git_commit = :commit_hash and name = :name
            )
            order by model
            limit 100
            """,
            {"suite": SUITE, "commit_hash": commit, "name": name},
        )
        return "; ".join(_describe(row) for row in rows)


def _describe(row: sqlite3.Row) -> str:
    if row["status"] != "measured":
        return f"{row['model']} {row['status']}: {row['reason']}"
    words = [row["model"]]
    if row["speedup"] is not None:
        words.append(f"{row['speedup']:.2f}x")
    counted = [(row["graph_breaks"], "graph break"), (row["recompiles"], "recompile")]
    counts = [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counted if count]
    return " ".join(words) + (f" with {' and '.join(counts)}" if counts else "")
