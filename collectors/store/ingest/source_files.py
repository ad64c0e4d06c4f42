"""A run's source files: read positions in logs, rejects, and result files by content."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.rejects import OF_LAST_READING, Rejects
from compileboard.collectors.store.connection import StoreError, read_value, write_transaction
from compileboard.collectors.store.large_runs import reopen_large_run
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.runs import NotOwner, RunSender, may_add


class ReadElsewhere(StoreError):
    """Another command is reading the same log."""


@dataclass(frozen=True)
class LogRow:
    process_id: str
    run_id: str
    end_offset_bytes: int
    payloads: str
    redacted: bool
    content_digest: str | None = None


def find_logs(connection: sqlite3.Connection, process_ids: Iterable[str]) -> dict[str, LogRow]:
    logs = {}
    for process_id in process_ids:
        row = connection.execute(
            """
            select process_id, run_id, end_offset_bytes, payloads, redacted, content_digest
            from logs
            where process_id = :process_id
            """,
            {"process_id": process_id},
        ).fetchone()
        if row is not None:
            logs[process_id] = LogRow(*row)
    return logs


def find_last_us(connection: sqlite3.Connection, run_id: str) -> int | None:
    query = "select max(last_us) from logs where run_id = ?"
    last_us: int | None = read_value(connection, query, (run_id,))
    return last_us


def advance_log(
    connection: sqlite3.Connection, from_offset: int, values: Mapping[str, Any]
) -> None:
    """Save a log's position in the batch's transaction, so that no record is stored twice.

    Raises ReadElsewhere if another command has read further.
    """
    query = "select end_offset_bytes from logs where process_id = ?"
    if (read_value(connection, query, (values["process_id"],)) or 0) != from_offset:
        raise ReadElsewhere(
            f"{values['file_name']} is being imported by another command at the same time; "
            "when that one is done, importing again adds what it left."
        )
    connection.execute(
        """
        insert into logs
          (process_id, run_id, name, file_name, size_bytes, end_offset_bytes, content_digest,
           line_count, record_count, payloads, redacted, first_us, last_us, read_us)
        values
          (:process_id, :run_id, :name, :file_name, :size_bytes, :end_offset_bytes, :content_digest,
           :line_count, :record_count, :payloads, :redacted, :first_us, :last_us, :read_us)
        on conflict (process_id) do update set
          size_bytes = excluded.size_bytes, end_offset_bytes = excluded.end_offset_bytes,
          content_digest = excluded.content_digest,
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


RejectRow = dict[str, str | int | None]  # kind, reject_count, first_line, example


def list_rejects(rejects: Rejects, *, examples: bool = True) -> Iterator[RejectRow]:
    for kind, reject in sorted(rejects.by_kind.items()):
        example = reject.example if examples else None
        yield {
            "kind": kind,
            "reject_count": reject.count,
            "first_line": reject.first_line,
            "example": example,
        }


def save_rejects(
    connection: sqlite3.Connection, process_id: str, rejects: Iterable[RejectRow]
) -> None:
    key = {"process_id": process_id}
    connection.executemany(
        "delete from log_rejects where process_id = :process_id and kind = :kind",
        [{**key, "kind": kind} for kind in OF_LAST_READING],
    )
    connection.executemany(
        """
        insert into log_rejects (process_id, kind, reject_count, first_line, example)
        values (:process_id, :kind, :reject_count, :first_line, :example)
        on conflict (process_id, kind) do update set
          reject_count = reject_count + excluded.reject_count
        """,
        [{**key, **row} for row in rejects],
    )


def replace_rejects(
    connection: sqlite3.Connection, process_id: str, rejects: Iterable[RejectRow]
) -> None:
    connection.execute(
        "delete from log_rejects where process_id = :process_id", {"process_id": process_id}
    )
    save_rejects(connection, process_id, rejects)


def save_run_rejects(
    connection: sqlite3.Connection,
    run_id: str,
    rejects: Iterable[RejectRow],
    *,
    are_more: bool = False,
) -> None:
    """Save rejects of a run by file. Nothing is saved if the run does not exist.

    A spool is read again, so the largest count is kept. A stream is not, so its rejects are added
    (`are_more`).
    """
    connection.executemany(
        """
        insert into run_rejects (run_id, file_name, kind, reject_count, first_line, example)
        select :run_id, :file_name, :kind, :reject_count, :first_line, :example
        from runs
        where id = :run_id
        on conflict (run_id, file_name, kind) do update set reject_count = iif(
          :are_more, reject_count + excluded.reject_count, max(reject_count, excluded.reject_count)
        )
        """,
        [{"run_id": run_id, "are_more": are_more, **row} for row in rejects],
    )


def save_log_read(
    connection: sqlite3.Connection,
    run_id: str,
    values: Mapping[str, Any],
    rejects: Iterable[RejectRow],
) -> None:
    saved = connection.execute(
        """
        insert into logs
          (process_id, run_id, name, file_name, size_bytes, end_offset_bytes, line_count,
            record_count, payloads,
           redacted, last_us, read_us)
        select
          :process_id, :run_id, :name, :name, :end_bytes, :end_bytes, :line_count, :record_count,
          'kept', 0, :last_us,
          :read_us
        from processes
        where id = :process_id and run_id = :run_id
        on conflict (process_id) do update set
          size_bytes = excluded.size_bytes, end_offset_bytes = max(excluded.end_offset_bytes,
            end_offset_bytes),
          line_count = excluded.line_count, record_count = excluded.record_count,
          last_us = coalesce(excluded.last_us, last_us), read_us = excluded.read_us
        where excluded.size_bytes >= coalesce(size_bytes, 0)
        """,
        {**values, "run_id": run_id},
    ).rowcount
    if saved:
        replace_rejects(connection, values["process_id"], rejects)


def advance_logs(connection: sqlite3.Connection, ends: Mapping[str, int]) -> None:
    connection.executemany(
        "update logs set end_offset_bytes = max(end_offset_bytes, ?) where process_id = ?",
        [(end, process_id) for process_id, end in ends.items()],
    )


LEARNT_LATE = (
    "rank",
    "python_version",
    "torch_version",
    "torch_git",
    "cuda_version",
    "triton_version",
    "gpu_name",
)


def fill_in_process_facts(
    connection: sqlite3.Connection,
    process_id: str,
    run_id: str,
    facts: Mapping[str, Any],
    *,
    gpu_count: int = 1,
) -> None:
    """Fill in facts of a process and its run that were missing when its log was first read."""
    values = {name: facts.get(name) for name in LEARNT_LATE}
    values |= {
        "process_id": process_id,
        "run_id": run_id,
        "gpu_count": gpu_count if facts.get("gpu_name") else 0,
    }
    connection.execute(
        """
        update processes set
          rank = coalesce(rank, :rank), python_version = coalesce(python_version, :python_version),
          torch_version = coalesce(torch_version, :torch_version),
          torch_git = coalesce(torch_git, :torch_git),
          cuda_version = coalesce(cuda_version, :cuda_version),
          triton_version = coalesce(triton_version, :triton_version)
        where id = :process_id
        """,
        values,
    )
    connection.execute(
        """
        update runs set
          python_version = coalesce(python_version, :python_version),
          torch_version = coalesce(torch_version, :torch_version),
          cuda_version = coalesce(cuda_version, :cuda_version),
          gpu_count = max(gpu_count, :gpu_count), gpu_name = coalesce(gpu_name, :gpu_name)
        where id = :run_id
        """,
        values,
    )


def replace_default_name(
    connection: sqlite3.Connection, run_id: str, name: str, label: str
) -> None:
    connection.execute(
        "update runs set name = :name where id = :run_id and name = :label",
        {"run_id": run_id, "name": name, "label": label},
    )


def forget_deletion(connection: sqlite3.Connection, run_id: str, sender: RunSender) -> None:
    """Allow a deleted run to be imported again. Raises NotOwner if the run is another sender's."""
    if not may_add(connection, run_id, sender):
        raise NotOwner(sender, run_id)
    connection.execute("delete from removed_runs where run_id = :run_id", {"run_id": run_id})


PIECE_BYTES = 1 << 20


def save_trace_file(connection: sqlite3.Connection, run_id: str, path: Path) -> None:
    size_bytes = path.stat().st_size
    reopen_large_run(connection, run_id)
    with path.open("rb") as file, write_transaction(connection):
        reopen_run(connection, run_id)
        if begin_trace_file(connection, run_id, path.name, size_bytes):
            pieces = iter(lambda: file.read(PIECE_BYTES), b"")
            packed = (zlib.compress(piece, 6) for piece in pieces)
            save_trace_pieces(connection, run_id, path.name, size_bytes, 0, packed)


def begin_trace_file(
    connection: sqlite3.Connection, run_id: str, name: str, size_bytes: int
) -> bool:
    return bool(
        connection.execute(
            """
            insert into trace_files (run_id, name, size_bytes)
            select :run_id, :name, :size_bytes
            from runs
            where id = :run_id
            on conflict (run_id, name) do update set size_bytes = excluded.size_bytes
            where excluded.size_bytes > size_bytes
            """,
            {"run_id": run_id, "name": name, "size_bytes": size_bytes},
        ).rowcount
    )


def save_trace_pieces(
    connection: sqlite3.Connection,
    run_id: str,
    name: str,
    size_bytes: int,
    position: int,
    packed: Iterable[bytes],
) -> None:
    connection.executemany(
        """
        insert or replace into trace_pieces (run_id, name, position, body)
        select run_id, name, :position, :body
        from trace_files
        where run_id = :run_id and name = :name and size_bytes = :size_bytes
        """,
        (
            {
                "run_id": run_id,
                "name": name,
                "size_bytes": size_bytes,
                "position": number,
                "body": body,
            }
            for number, body in enumerate(packed, position)
        ),
    )


def add_result_file(connection: sqlite3.Connection, values: Mapping[str, Any]) -> None:
    connection.execute(
        """
        insert or ignore into result_files (run_id, content_hash, name, kind, row_count)
        values (:run_id, :content_hash, :name, :kind, :row_count)
        """,
        values,
    )


def find_result_runs(connection: sqlite3.Connection, content_hash: str) -> list[str]:
    rows = connection.execute(
        (
            "select run_id from result_files where content_hash = :content_hash order by run_id "
            "limit 100"
        ),
        {"content_hash": content_hash},
    )
    return [str(row["run_id"]) for row in rows]


def find_runs_of_any(
    connection: sqlite3.Connection, content_hashes: Sequence[str]
) -> dict[str, str]:
    rows = connection.execute(
        """
        select distinct id, name from runs
        where id in (
          select run_id from result_files where content_hash in (select value
            from json_each(:content_hashes))
        )
        order by id
        limit 1000
        """,
        {"content_hashes": json.dumps(content_hashes)},
    )
    return {str(row["id"]): str(row["name"]) for row in rows}


def list_result_files(connection: sqlite3.Connection, run_id: str) -> list[tuple[str, str, str]]:
    rows = connection.execute(
        (
            "select kind, name, content_hash from result_files where run_id = :run_id order by "
            "row_count limit 100000"
        ),
        {"run_id": run_id},
    )
    return [(str(row["kind"]), str(row["name"]), str(row["content_hash"])) for row in rows]


def count_rows(connection: sqlite3.Connection, run_id: str) -> tuple[int, int]:
    row = connection.execute(
        "select result_count, graph_break_count from run_totals where run_id = :run_id",
        {"run_id": run_id},
    ).fetchone()
    return (int(row["result_count"]), int(row["graph_break_count"])) if row else (0, 0)
