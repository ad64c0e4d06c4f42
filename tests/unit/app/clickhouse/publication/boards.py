"""Boards with a few runs, and whether the engine has the same rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compileboard.app.clickhouse.client import SETTINGS
from compileboard.app.clickhouse.passes import MONTHS
from compileboard.app.clickhouse.publisher import ROLLUPS, THINGS
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.runs import publish_run
from compileboard.collectors.store.trash import delete_run
from tests.tools.history import record_history

ACROSS = ("runs", "run_totals", "run_tags", "run_annotations", *ROLLUPS)
# Columns that stay in the run's own file, or whose number is the engine's own.
NOT_THERE = {"runs": {"facts", "pub"}, "results": {"facts", "traceback"}}
_NEWEST = """
select {names} from (
  select *, row_number() over (partition by series_id, experiment order by time_us desc,
    id desc) as place from results
)
where place = 1
"""
_MONTH = "cast(strftime('%Y%m', r.started_us / 1000000, 'unixepoch') as integer)"


def record_board(path: Path, run_count: int) -> None:
    """Record the newest runs of the demo's history."""
    record_history(path)
    with write(path) as board:
        runs = [
            row["id"] for row in board.execute("select id from runs order by started_us desc, id")
        ]
        for run_id in runs[run_count:]:
            delete_run(board, run_id)


@contextmanager
def write(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a board for writing."""
    board = open_writer(path, create=False)
    try:
        yield board
    finally:
        board.close()


def change_run(board: sqlite3.Connection, run_id: str) -> None:
    """Let a run have one of each thing more, as ingest does."""
    board.execute("begin immediate")
    for table, column in (
        ("run_breaks", "break_count"),
        ("run_functions", "compile_count"),
        ("results", "speedup"),
    ):
        board.execute(f"update {table} set {column} = {column} + 1 where run_id = ?", (run_id,))
    board.execute(
        "update run_totals set compile_count = compile_count + 1 where run_id = ?", (run_id,)
    )
    publish_run(board, run_id)
    board.execute("commit")


def list_names(board: sqlite3.Connection, table: str) -> list[str]:
    """Return the columns of a table that both engines have."""
    names = [
        row["name"] for row in board.execute("select name from pragma_table_info(?)", (table,))
    ]
    return [name for name in names if name not in NOT_THERE.get(table, ())]


def read_engine(client: Any, board: sqlite3.Connection, table: str) -> list[str]:
    """Return the rows of a table in the engine, as sorted texts."""
    sql = f"select {', '.join(list_names(board, table))} from {table}"
    return sorted(repr(tuple(row)) for row in client.query(sql, settings=SETTINGS).result_rows)


def read_both(
    client: Any, board: sqlite3.Connection, sql: str, own_sql: str = ""
) -> tuple[list[str], list[str]]:
    """Return the rows of a statement in the engine and on the board, as sorted texts."""
    there = sorted(repr(tuple(row)) for row in client.query(sql, settings=SETTINGS).result_rows)
    return there, sorted(repr(tuple(row)) for row in board.execute(own_sql or sql))


def assert_same(client: Any, board: sqlite3.Connection) -> None:
    """Assert that the engine has the board's runs and their rows, and nothing else."""
    for table in ACROSS:
        there, here = read_both(
            client, board, f"select {', '.join(list_names(board, table))} from {table}"
        )
        assert there == here, table
    names = ", ".join(list_names(board, "results"))
    there, here = read_both(
        client, board, f"select {names} from newest_results", _NEWEST.format(names=names)
    )
    assert there == here
    for table in THINGS:  # the engine keeps those of runs that were deleted
        there, here = read_both(
            client, board, f"select {', '.join(list_names(board, table))} from {table}"
        )
        assert set(there) >= set(here), table
    assert_same_months(client, board)


def assert_same_months(client: Any, board: sqlite3.Connection) -> None:
    """Assert that the sums of each clean month are those of the board's runs."""
    clean = client.query("select month from clean_months", settings=SETTINGS).result_columns
    months = ", ".join(str(month) for month in (clean[0] if clean else ())) or "0"
    for table, rollup in MONTHS.items():
        sums = ", ".join(f"sum(b.{name})" for name in rollup.columns)
        names = ", ".join(
            (
                "month",
                "suite",
                "name",
                rollup.key,
                *rollup.columns,
                "run_count",
                "first_us",
                "last_us",
            )
        )
        expected = f"""
        select {_MONTH}, r.suite, r.name, b.{rollup.key}, {sums}, count(*), min(r.started_us),
        max(r.started_us)
        from {rollup.table} as b join runs as r on r.id = b.run_id
        where {_MONTH} in ({months})
        group by 1, 2, 3, 4
        """
        there, here = read_both(
            client, board, f"select {names} from {table} where month in ({months})", expected
        )
        assert there == here, table
