"""Numbers of commits to runs: what has a larger one than a reader has seen is new to it. None is given twice."""

from __future__ import annotations

import sqlite3

NEXT = "update publications set pub = pub + 1 returning pub"


def publish_run(connection: sqlite3.Connection, run_id: str) -> None:
    """Number a run anew, in the transaction that changes it."""
    (pub,) = connection.execute(NEXT).fetchone()
    connection.execute("update runs set pub = :pub where id = :id", {"id": run_id, "pub": pub})


def publish_removal(connection: sqlite3.Connection) -> None:
    """Note that a run goes, in the transaction that deletes it: what was found with its help may be wrong now."""
    connection.execute("update publications set pub = pub + 1, removed_pub = pub + 1")


def get_last_result_id(connection: sqlite3.Connection) -> int:
    """Return the largest id of a result of any run that was sealed."""
    (last_id,) = connection.execute("select last_result_id from publications").fetchone()
    return int(last_id)
