"""Numbers of commits to runs: what has a larger one than a reader has seen is new to it. None is given twice."""

from __future__ import annotations

import hashlib
import json
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


def number_runs(connection: sqlite3.Connection) -> None:
    """Number the runs of a database of before; those that detection has not seen come last, so that it goes on
    from where it was.
    """
    row = connection.execute("select seen from detection").fetchone()
    seen = {"run_place": 0, "result_id": 0, "runs": "", "waiting": []} | (json.loads(row["seen"]) if row else {})
    runs = connection.execute(
        """
        select
          id, rowid <= :run_place as is_old,
          rowid > :run_place or id in (select run_id from results where id > :result_id) as is_new
        from runs
        order by is_new, rowid
        """,
        {"run_place": seen["run_place"], "result_id": seen["result_id"]},
    ).fetchall()
    numbers = [{"pub": pub, "id": run["id"]} for pub, run in enumerate(runs, 1)]
    connection.executemany("update runs set pub = :pub where id = :id", numbers)
    # Runs that detection had seen may have been deleted since; it then looks at everything, as it always did.
    known = "\n".join(sorted(run["id"] for run in runs if run["is_old"])).encode("utf-8", "surrogatepass")
    is_whole = hashlib.blake2b(known, digest_size=12).hexdigest() == seen["runs"]
    newest = len(runs) + 1
    connection.execute(
        "insert into publications (id, pub, removed_pub) values (1, ?, ?)", (newest, newest * (not is_whole))
    )
    cursor = {"pub": sum(not run["is_new"] for run in runs), "waiting": seen["waiting"]}
    connection.execute("update detection set seen = ?", (json.dumps(cursor, separators=(",", ":")),))
