"""Keep how far each log was read and what of it could not be: the reading of a log goes on where it stopped."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.rejects import OF_LAST_READING
from compileboard.collectors.store.errors import StoreError


class ReadElsewhere(StoreError):
    """Another command reads the same log at the same time."""


@dataclass(frozen=True)
class LogRow:
    """Name a log that was read, and how far."""

    process_id: str
    run_id: str
    end_offset_bytes: int
    payloads: str
    redacted: bool


def find_logs(connection: sqlite3.Connection, process_ids: Iterable[str]) -> dict[str, LogRow]:
    """Return what is known of the given logs."""
    found = {}
    for process_id in process_ids:
        row = connection.execute(
            "select process_id, run_id, end_offset_bytes, payloads, redacted from logs where process_id = :process_id",
            {"process_id": process_id},
        ).fetchone()
        if row is not None:
            found[process_id] = LogRow(*row)
    return found


def find_last_us(connection: sqlite3.Connection, run_id: str) -> int | None:
    """Return when the last record of a run's logs was written."""
    row = connection.execute("select max(last_us) as last_us from logs where run_id = :run_id", {"run_id": run_id})
    found: int | None = row.fetchone()["last_us"]
    return found


def advance_log(connection: sqlite3.Connection, from_offset: int, values: Mapping[str, Any]) -> None:
    """Say in a batch's own transaction how far a log is read now, so that no record is written twice.

    Raises: ReadElsewhere if another command has read on since.
    """
    row = connection.execute(
        "select end_offset_bytes from logs where process_id = :process_id", {"process_id": values["process_id"]}
    ).fetchone()
    if (row["end_offset_bytes"] if row else 0) != from_offset:
        raise ReadElsewhere(
            f"{values['file_name']} is being imported by another command at the same time; "
            "when that one is done, importing again adds what it left."
        )
    connection.execute(
        """
        insert into logs
          (process_id, run_id, name, file_name, size_bytes, end_offset_bytes, line_count, record_count, payloads,
           redacted, first_us, last_us, read_us)
        values
          (:process_id, :run_id, :name, :file_name, :size_bytes, :end_offset_bytes, :line_count, :record_count,
           :payloads, :redacted, :first_us, :last_us, :read_us)
        on conflict (process_id) do update set
          size_bytes = excluded.size_bytes, end_offset_bytes = excluded.end_offset_bytes,
          line_count = excluded.line_count, record_count = record_count + excluded.record_count,
          last_us = coalesce(excluded.last_us, last_us), read_us = excluded.read_us
        """,
        values,
    )
    connection.execute(
        """
        update processes set last_seen_us = max(last_seen_us, :last_us)
        where id = :process_id and :last_us is not null
        """,
        {"process_id": values["process_id"], "last_us": values["last_us"]},
    )


def keep_rejects(
    connection: sqlite3.Connection, process_id: str, rejects: Iterable[tuple[str, int, int | None, str | None]]
) -> None:
    """Add what could not be read: kind, count, first line, example. A torn end is only ever the last reading's."""
    key = {"process_id": process_id}
    connection.executemany(
        "delete from log_rejects where process_id = :process_id and kind = :kind",
        [{**key, "kind": kind} for kind in OF_LAST_READING],
    )
    connection.executemany(
        """
        insert into log_rejects (process_id, kind, reject_count, first_line, example)
        values (:process_id, :kind, :reject_count, :first_line, :example)
        on conflict (process_id, kind) do update set reject_count = reject_count + excluded.reject_count
        """,
        [
            {**key, "kind": kind, "reject_count": count, "first_line": line, "example": example}
            for kind, count, line, example in rejects
        ],
    )


def replace_rejects(
    connection: sqlite3.Connection, process_id: str, rejects: Iterable[tuple[str, int, int | None, str | None]]
) -> None:
    """Say anew what could not be read of a file that is read whole each time."""
    connection.execute("delete from log_rejects where process_id = :process_id", {"process_id": process_id})
    keep_rejects(connection, process_id, rejects)


def keep_run_rejects(
    connection: sqlite3.Connection, run_id: str, rejects: Iterable[tuple[str, str, int, int | None, str | None]]
) -> None:
    """Keep what of a run's spool could not be recorded: file, kind, count, first line, example.

    A spool that is read once more counts the same lines again: the largest count holds.
    """
    connection.executemany(
        """
        insert into run_rejects (run_id, file_name, kind, reject_count, first_line, example)
        values (:run_id, :file_name, :kind, :reject_count, :first_line, :example)
        on conflict (run_id, file_name, kind) do update set reject_count = max(reject_count, excluded.reject_count)
        """,
        [
            {
                "run_id": run_id,
                "file_name": file_name,
                "kind": kind,
                "reject_count": count,
                "first_line": line,
                "example": example,
            }
            for file_name, kind, count, line, example in rejects
        ],
    )


LEARNT_LATE = ("rank", "python_version", "torch_version", "torch_git", "cuda_version", "gpu_name")


def complete_process(
    connection: sqlite3.Connection, process_id: str, run_id: str, facts: Mapping[str, Any], *, gpu_count: int = 1
) -> None:
    """Say of a process and its run what its log did not tell yet when it was read first: of LEARNT_LATE."""
    values = {name: facts.get(name) for name in LEARNT_LATE}
    values |= {"process_id": process_id, "run_id": run_id, "gpu_count": gpu_count if facts.get("gpu_name") else 0}
    connection.execute(
        """
        update processes set
          rank = coalesce(rank, :rank), python_version = coalesce(python_version, :python_version),
          torch_version = coalesce(torch_version, :torch_version), torch_git = coalesce(torch_git, :torch_git),
          cuda_version = coalesce(cuda_version, :cuda_version)
        where id = :process_id
        """,
        values,
    )
    connection.execute(
        """
        update runs set
          python_version = coalesce(python_version, :python_version),
          torch_version = coalesce(torch_version, :torch_version), cuda_version = coalesce(cuda_version, :cuda_version),
          gpu_count = max(gpu_count, :gpu_count), gpu_name = coalesce(gpu_name, :gpu_name)
        where id = :run_id
        """,
        values,
    )


def name_run(connection: sqlite3.Connection, run_id: str, name: str, label: str) -> None:
    """Give a run that is called by its `label` its name."""
    connection.execute(
        "update runs set name = :name where id = :run_id and name = :label",
        {"run_id": run_id, "name": name, "label": label},
    )


def forget_deletion(connection: sqlite3.Connection, run_id: str) -> None:
    """Let a run that a person deleted be imported again, because a person asks for it."""
    connection.execute("delete from deleted_runs where run_id = :run_id", {"run_id": run_id})
