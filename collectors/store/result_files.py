"""Keep which files of benchmark results a run has, by their content: the same file again adds nothing."""

from __future__ import annotations

import sqlite3


def add_result_file(
    connection: sqlite3.Connection, run_id: str, *, content_hash: str, name: str, kind: str, row_count: int
) -> None:
    """Say in an import's own transaction that a run has a file."""
    connection.execute(
        """
        insert or ignore into result_files (run_id, content_hash, name, kind, row_count)
        values (:run_id, :content_hash, :name, :kind, :row_count)
        """,
        {"run_id": run_id, "content_hash": content_hash, "name": name, "kind": kind, "row_count": row_count},
    )


def find_result_runs(connection: sqlite3.Connection, content_hash: str) -> list[str]:
    """List the runs that have a file, in the order of their ids."""
    rows = connection.execute(
        "select run_id from result_files where content_hash = :content_hash order by run_id limit 100",
        {"content_hash": content_hash},
    )
    return [str(row["run_id"]) for row in rows]


def count_rows(connection: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    """Count the results and the graph breaks of a run; none where there is no such run."""
    row = connection.execute(
        "select result_count, graph_break_count from run_totals where run_id = :run_id", {"run_id": run_id}
    ).fetchone()
    return (int(row["result_count"]), int(row["graph_break_count"])) if row else (0, 0)
