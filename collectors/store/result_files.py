"""Keep which files of benchmark results a run has, by their content: the same file again adds nothing."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence


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


def find_runs_of_any(connection: sqlite3.Connection, content_hashes: Sequence[str]) -> dict[str, str]:
    """Return the name of each run that has a file of one of these contents, by the run's id, in the ids' order."""
    rows = connection.execute(
        """
        select distinct id, name from runs
        where id in (
          select run_id from result_files where content_hash in (select value from json_each(:content_hashes))
        )
        order by id
        limit 1000
        """,
        {"content_hashes": json.dumps(content_hashes)},
    )
    return {str(row["id"]): str(row["name"]) for row in rows}


def list_result_files(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, str, str]]:
    """List the kind, the name and the content of a run's files, the shortest first."""
    rows = connection.execute(
        "select kind, name, content_hash from result_files where run_id = :run_id order by row_count limit 100000",
        {"run_id": run_id},
    )
    return [(str(row["kind"]), str(row["name"]), str(row["content_hash"])) for row in rows]


def count_rows(connection: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    """Count the results and the graph breaks of a run; none where there is no such run."""
    row = connection.execute(
        "select result_count, graph_break_count from run_totals where run_id = :run_id", {"run_id": run_id}
    ).fetchone()
    return (int(row["result_count"]), int(row["graph_break_count"])) if row else (0, 0)
