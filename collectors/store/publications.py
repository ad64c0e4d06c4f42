"""Publication numbers of runs: a larger number than a reader has seen is new. None is reused."""

from __future__ import annotations

import sqlite3

NEXT = "update publications set pub = pub + 1 returning pub"


def publish_run(connection: sqlite3.Connection, run_id: str) -> None:
    (pub,) = connection.execute(NEXT).fetchone()
    connection.execute("update runs set pub = :pub where id = :id", {"id": run_id, "pub": pub})


def publish_removal(connection: sqlite3.Connection) -> None:
    connection.execute("update publications set pub = pub + 1, removed_pub = pub + 1")


def get_last_result_id(connection: sqlite3.Connection) -> int:
    """Return the largest result id of any sealed run."""
    (last_id,) = connection.execute("select last_result_id from publications").fetchone()
    return int(last_id)
