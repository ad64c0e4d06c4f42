"""Seal runs: move detail and roll-ups from the database into one file.

1. The file is written: a bundle of the run at one moment, atomically and synced.
2. One transaction marks the run as sealed, if it is unchanged since, and deletes its roll-ups.
3. Its detail is deleted in short transactions, so that others can write.

If the process is killed before step 2, the next attempt replaces or removes the unnamed file; if it
is killed later, the next pass continues with step 3. From step 2 on, readers use the file. New data
restores the rows (reopening.py, large_runs.py), even during step 3.
"""

from __future__ import annotations

import sqlite3

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.store.bundles import write_bundle
from compileboard.collectors.store.connection import (
    StoreError,
    checkpoint,
    has_row,
    read_value,
    write_transaction,
)
from compileboard.collectors.store.leases import REOPEN, try_acquire_lease
from compileboard.collectors.store.pruning import (
    WriteSteps,
    delete_detail,
    delete_texts,
    delete_unused_texts,
    list_texts,
)
from compileboard.collectors.store.run_rows import ROLLUPS, delete_rows
from compileboard.collectors.store.sealed_files import (
    RunFile,
    get_sealed_run,
    name_run_file,
    open_workplace,
    pack_run_file,
    remove_run_files,
)
from compileboard.collectors.store.search import remove_run_words
from compileboard.collectors.store.trash import database_path, list_trashed_text_ids

PAGE_BYTES = 1024  # an empty schema has 194 KB of these, and 631 KB of SQLite's usual ones
QUIET_US = 600 * 1_000_000  # without a commit, where nobody says how long
SILENT_US = 86_400 * 1_000_000  # A run that never ended may be sealed after this silence.

# Ended, or silent for a day; its state published whole, a while ago; nobody is deleting of it.
SEALABLE_SQL = """
select r.id, r.pub
from published_runs as p
cross join runs as r on r.id = p.run_id -- most are sealed: their rows are not read
where p.run_id not in (select run_id from sealed_runs)
  and p.rows_us <= :now_us - :quiet_us
  and p.rows_run_pub = r.pub
  and (r.state <> 'running' or r.heartbeat_us <= :now_us - :silent_us)
  and not exists (select 1 from pruned_runs as d where d.run_id = r.id and d.deleted_bytes is null)
"""
_STATE_SQL = """
select r.state, r.heartbeat_us, r.pub, p.rows_run_pub, p.rows_us
from runs as r
left join published_runs as p on p.run_id = r.id
where r.id = :run_id
"""


class NotSealable(StoreError):
    pass


class _Reopened(Exception):
    pass


def list_sealable(
    connection: sqlite3.Connection, now_us: int, limit: int = 1000, *, quiet_us: int = QUIET_US
) -> list[str]:
    left = connection.execute(
        "select run_id from sealed_runs where coalesce(emptied_us, 0) = 0 order by run_id"
    ).fetchall()
    rows = connection.execute(
        f"{SEALABLE_SQL} order by r.pub limit :limit", _values(now_us, quiet_us) | {"limit": limit}
    )
    return [row["run_id"] for row in left] + [row["id"] for row in rows]


def seal_run(
    connection: sqlite3.Connection,
    run_id: str,
    *,
    now_us: int | None = None,
    quiet_us: int = QUIET_US,
) -> None:
    """Seal a run, or continue a killed attempt.

    Raises NotSealable if it is running, changed recently or is unpublished; StoreError.
    """
    now_us = read_clock_us() if now_us is None else now_us
    sealed = get_sealed_run(connection, run_id)
    if sealed is None:
        pub = _need_sealable(connection, run_id, now_us, quiet_us)
        file = _write_file(connection, run_id, pub)
        with write_transaction(connection):
            if _need_sealable(connection, run_id, now_us, quiet_us) != pub:
                raise NotSealable(
                    f"run {run_id} changed while it was being sealed; it is tried again"
                )
            text_ids = list_texts(connection, run_id)
            _mark_sealed(connection, run_id, file, now_us)
        remove_run_files(database_path(connection), run_id, named=file.name)
        _delete_sealed_detail(connection, run_id, file, now_us, text_ids)
    elif not sealed.is_emptied:
        _take_over(connection, run_id)
        _delete_sealed_detail(connection, run_id, sealed.file, now_us, None)


def _take_over(connection: sqlite3.Connection, run_id: str) -> None:
    lease = try_acquire_lease(database_path(connection), REOPEN)
    if lease is None:
        raise NotSealable(f"run {run_id} is being put back")
    with lease, write_transaction(connection):
        connection.execute(
            "update sealed_runs set emptied_us = null where run_id = ? and emptied_us = 0",
            (run_id,),
        )


def _values(now_us: int, quiet_us: int) -> dict[str, int]:
    return {"now_us": now_us, "quiet_us": quiet_us, "silent_us": SILENT_US}


def _need_sealable(connection: sqlite3.Connection, run_id: str, now_us: int, quiet_us: int) -> int:
    row = connection.execute(
        f"{SEALABLE_SQL} and p.run_id = :run_id", _values(now_us, quiet_us) | {"run_id": run_id}
    ).fetchone()
    if row is not None:
        return int(row["pub"])
    row = connection.execute(_STATE_SQL, {"run_id": run_id}).fetchone()
    if row is None:
        raise NotSealable(f"there is no run {run_id[:80]}")
    if row["state"] == "running" and row["heartbeat_us"] > now_us - SILENT_US:
        raise NotSealable(f"run {run_id} is running")
    if row["rows_run_pub"] != row["pub"]:
        raise NotSealable(f"run {run_id} is not published as it is")
    raise NotSealable(f"run {run_id} changed lately, was sealed, or is being pruned")


def _write_file(connection: sqlite3.Connection, run_id: str, pub: int) -> RunFile:
    database = database_path(connection)
    with open_workplace(database) as folder:
        path = folder / "run.db"
        connection.execute("begin")  # all of one moment
        try:
            if read_value(connection, "select pub from runs where id = ?", (run_id,)) != pub:
                raise NotSealable(
                    f"run {run_id} changed while it was being sealed; it is tried again"
                )
            write_bundle(connection, [run_id], str(path), page_bytes=PAGE_BYTES)
        finally:
            connection.execute("rollback")
        return pack_run_file(database, path, name_run_file(run_id, pub))


def _mark_sealed(connection: sqlite3.Connection, run_id: str, file: RunFile, now_us: int) -> None:
    key = {"run_id": run_id}
    connection.execute(
        """
        insert into sealed_runs (run_id, file_name, digest, size_bytes, unpacked_bytes, sealed_us)
        values (:run_id, :name, :digest, :size_bytes, :unpacked_bytes, :now_us)
        """,
        {**key, **file._asdict(), "now_us": now_us},
    )
    connection.execute(
        """
        update publications set last_result_id = max(
          last_result_id, coalesce((select max(id) from results where run_id = :run_id), 0)
        )
        """,
        key,
    )
    connection.execute("update repros set compile_key = null where run_id = :run_id", key)
    remove_run_words(connection, run_id)
    delete_rows(connection, run_id, ROLLUPS)


def _delete_sealed_detail(
    connection: sqlite3.Connection,
    run_id: str,
    file: RunFile,
    now_us: int,
    text_ids: list[int] | None,
) -> None:
    key: dict[str, object] = {"run_id": run_id, "file_name": file.name}
    query = (
        "select 1 from sealed_runs where run_id = :run_id and file_name = :file_name and "
        "emptied_us is null"
    )

    def check() -> None:
        if not has_row(connection, query, key):
            raise _Reopened

    steps, trashed = WriteSteps(connection, check), list_trashed_text_ids(database_path(connection))
    try:
        delete_detail(connection, steps, run_id)
        if text_ids is None:
            delete_unused_texts(connection, steps, trashed)
        else:
            delete_texts(connection, steps, text_ids, trashed)
        steps.run(
            lambda: (
                connection.execute(
                    "update sealed_runs set emptied_us = :now_us where run_id = :run_id",
                    {"now_us": now_us, **key},
                ).rowcount
            )
        )
    except _Reopened:
        return
    checkpoint(connection)
