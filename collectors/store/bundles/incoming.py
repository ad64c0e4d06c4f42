"""Store a large run of a bundle in short transactions: other writers have their turn between them.

1. The run is listed in `incoming_runs`. It has no row among the runs: no page shows anything of it.
2. Its detail comes, some rows in each transaction.
3. In one transaction all else of it comes, its row too, and it goes from that list.

Killed before 3, what came of it is deleted by the next one that imports a large run, or by the process that follows
the board. One process at a time does this for a board.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from compileboard.collectors.store.connection import checkpoint, write_transaction
from compileboard.collectors.store.dashboard.trash import (
    copy_run,
    database_path,
    list_own_rows,
    list_trashed_texts,
    read_tables,
)
from compileboard.collectors.store.errors import StoreBusy, StoreError
from compileboard.collectors.store.maintenance.leases import INCOMING, take_lease
from compileboard.collectors.store.maintenance.pruning import (
    DeletionSteps,
    delete_detail,
    delete_texts,
    list_texts,
    measure_detail,
)
from compileboard.collectors.store.sealed import large_runs
from compileboard.collectors.store.sealed.large_runs import DetailSteps, wait_for_turn
from compileboard.collectors.store.sealed.rows import DETAIL

SPAN_BYTES = 100
SCALE = 4  # somebody waits for an import
_LIST = "select run_id from incoming_runs order by run_id"
_COUNT_SPANS = "select count(*) from spans where lane_id in (select id from lanes where run_id = ?)"


class RunIncoming(StoreBusy):
    """Nothing of a run can be stored while it comes from a bundle."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"Run {run_id} is being imported from a bundle. Try again soon.")


def is_large(bundle: sqlite3.Connection, run_id: str) -> bool:
    """Return whether a run of a bundle is too large for one transaction."""
    (span_count,) = bundle.execute(_COUNT_SPANS, (run_id,)).fetchone()
    return bool(measure_detail(bundle, run_id) + SPAN_BYTES * span_count >= large_runs.LARGE_BYTES)


def list_incoming_runs(connection: sqlite3.Connection) -> list[str]:
    """List the runs of which a part is stored."""
    return [row["run_id"] for row in connection.execute(_LIST)]


def is_incoming(connection: sqlite3.Connection, run_id: str) -> bool:
    """Return whether a part of a run is stored."""
    row = connection.execute("select 1 from incoming_runs where run_id = ?", (run_id,)).fetchone()
    return row is not None


def refuse_incoming_run(connection: sqlite3.Connection, run_id: str) -> None:
    """Refuse to store more of a run that comes from a bundle; what a killed import left of it is deleted first.

    Raises: RunIncoming
    """
    if not is_incoming(connection, run_id):
        return
    if not connection.in_transaction:
        delete_left_runs(connection)
    if is_incoming(connection, run_id):
        raise RunIncoming(run_id)


def delete_left_runs(connection: sqlite3.Connection) -> list[str]:
    """Delete what killed imports left, unless one is at work; return the runs.

    Raises: StoreError if the locks beside the database cannot be made.
    """
    if not list_incoming_runs(connection):
        return []
    database = database_path(connection)
    try:
        lease = take_lease(database, INCOMING)
    except OSError as error:
        raise StoreError(f"the locks beside {database} cannot be made ({error.strerror}).") from error
    if lease is None:
        return []
    with lease:
        return _delete_left(connection)


def _delete_left(connection: sqlite3.Connection) -> list[str]:
    left = list_incoming_runs(connection)
    for run_id in left:
        _delete(connection, run_id)
    if left:
        checkpoint(connection)
    return left


def _delete(connection: sqlite3.Connection, run_id: str) -> None:
    """Delete what is here of a run, and its texts that no other run has."""
    steps, key = DeletionSteps(connection), {"run_id": run_id}
    text_ids = list_texts(connection, run_id)
    delete_detail(connection, steps, dict[str, object](key))
    delete_texts(connection, steps, text_ids, list_trashed_texts(database_path(connection)))
    with write_transaction(connection):
        connection.execute("delete from incoming_runs where run_id = :run_id", key)


@contextmanager
def begin_incoming(connection: sqlite3.Connection) -> Iterator[None]:
    """Wait until no other process stores a large run, and delete what was left of one."""
    with wait_for_turn(database_path(connection), INCOMING):
        _delete_left(connection)
        yield


def mark_incoming(connection: sqlite3.Connection, run_id: str) -> None:
    """List a run as incoming, in the caller's transaction."""
    connection.execute("insert into incoming_runs values (?, ?)", (run_id, time.time_ns() // 1000))


def store_in_steps(
    connection: sqlite3.Connection,
    bundle: sqlite3.Connection,
    run_id: str,
    list_present: Callable[[], Iterable[str]],
    finish: Callable[[], None],
) -> None:
    """Store a run that is marked. `finish` does what is to be done in the transaction that makes its row.

    Where it fails, what came of it is deleted.
    """
    steps = DetailSteps(connection, bundle, lambda: _check(connection, run_id), run_id, SCALE)
    rest = set(list_own_rows(read_tables(connection))) - set(DETAIL)

    def put_rest(compile_shift: int) -> bool:
        copy_run(bundle, connection, run_id, [*list_present(), run_id], only=rest)
        keys = bundle.execute(
            "select id, compile_key from repros where run_id = ? and compile_key is not null", (run_id,)
        ).fetchall()
        connection.executemany(
            "update repros set compile_key = ? where id = ?",
            [(row["compile_key"] + compile_shift, row["id"]) for row in keys],
        )
        connection.execute("delete from incoming_runs where run_id = ?", (run_id,))
        finish()
        return False

    try:
        compile_shift = steps.put()
        steps.run(lambda: put_rest(compile_shift))
    except Exception:
        with suppress(StoreError, sqlite3.Error):  # what this leaves goes later
            _delete(connection, run_id)
        raise


def _check(connection: sqlite3.Connection, run_id: str) -> None:
    if not is_incoming(connection, run_id):
        raise RunIncoming(run_id)
