"""A board of recorded runs for tests of sealing, and its rows to compare."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.sealing import list_sealable, seal_run

NOW_US = 1_900_000_000_000_000
REBUILT = ("search_", "publications", "sqlite_", "published_runs", "removed_runs", "_sqlite")


def copy_board(database: Path, folder: Path) -> sqlite3.Connection:
    """Copy a database to be a folder's board, and open it."""
    folder.mkdir(exist_ok=True)
    return open_writer(shutil.copy(database, folder / "board.db"))


def publish_all(board: sqlite3.Connection) -> None:
    """Note that every run is published as it is, long ago."""
    board.execute("delete from published_runs")
    columns = "run_id, run_pub, rows_pub, rows_run_pub, rows_count, rows_us, published_us"
    board.execute(
        f"insert into published_runs ({columns}) select id, pub, 1, pub, 1, 0, 0 from runs"
    )


def seal_all(board: sqlite3.Connection, *some: str) -> list[str]:
    """Seal every run, or some."""
    publish_all(board)
    run_ids = list(some) or list_sealable(board, NOW_US)
    for run_id in run_ids:
        seal_run(board, run_id, now_us=NOW_US)
    return run_ids


def read_rows(board: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Read the rows of all tables but those that are made anew."""
    names = [row[0] for row in board.execute("select name from sqlite_schema where type = 'table'")]
    return {
        name: sorted((tuple(row) for row in board.execute(f"select * from {name}")), key=repr)
        for name in names
        if not name.startswith(REBUILT)
    }
