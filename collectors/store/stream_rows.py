"""Rows of pushed streams and of the texts sent with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.store.connection import (
    StoreError,
    has_row,
    read_value,
    write_transaction,
)


@dataclass(frozen=True)
class Stream:
    run_id: str
    stream_id: str
    token_id: str | None = None
    stored_bytes: int = 0
    checksum: int = 0
    event_count: int = 0
    lost_count: int = 0
    dropped_text_count: int = 0
    version: str | None = None
    started_us: int = 0
    updated_us: int = 0
    ended_us: int | None = None


class StreamMoved(StoreError):
    pass


def get_stream(connection: sqlite3.Connection, run_id: str, stream_id: str) -> Stream | None:
    row = connection.execute(
        """
        select
          run_id, stream_id, token_id, stored_bytes, checksum, event_count, lost_count,
          dropped_text_count, version,
          started_us, updated_us, ended_us
        from streams
        where run_id = :run_id and stream_id = :stream_id
        """,
        {"run_id": run_id, "stream_id": stream_id},
    ).fetchone()
    return Stream(*row) if row else None


def save_stream(connection: sqlite3.Connection, stream: Stream, before_bytes: int) -> None:
    values: dict[str, Any] = vars(stream) | {"before_bytes": before_bytes}
    if before_bytes == 0:
        connection.execute(
            """
            insert or ignore into streams
              (run_id, stream_id, token_id, stored_bytes, checksum, event_count, lost_count,
               dropped_text_count, started_us, updated_us)
            values (:run_id, :stream_id, :token_id, 0, 0, 0, 0, 0, :started_us, :updated_us)
            """,
            values,
        )
    saved = connection.execute(
        """
        update streams set
          stored_bytes = :stored_bytes, checksum = :checksum, event_count = :event_count,
          lost_count = :lost_count,
          dropped_text_count = :dropped_text_count, version = :version, updated_us = :updated_us,
          ended_us = :ended_us
        where run_id = :run_id and stream_id = :stream_id and stored_bytes = :before_bytes
        """,
        values,
    ).rowcount
    if not saved:
        raise StreamMoved(
            f"stream {stream.stream_id} of run {stream.run_id} was written by another request"
        )


def list_unindexed_runs(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        """
        select distinct s.run_id
        from streams as s
        join runs on runs.id = s.run_id
        left join search_runs as i on i.run_id = s.run_id
        where s.ended_us is not null
          and (i.indexed_us is null or i.indexed_us < s.ended_us)
          and s.run_id not in (select run_id from sealed_runs)
        limit 100
        """
    )
    return [row["run_id"] for row in rows]


def forget_stream(connection: sqlite3.Connection, run_id: str, stream_id: str) -> None:
    key = {"run_id": run_id, "stream_id": stream_id}
    connection.execute("delete from streams where run_id = :run_id and stream_id = :stream_id", key)


def forget_run_streams(connection: sqlite3.Connection, run_id: str) -> None:
    for table in ("streams", "dropped_texts"):
        connection.execute(f"delete from {table} where run_id = :run_id", {"run_id": run_id})  # noqa: S608 - our own names


def get_removal(connection: sqlite3.Connection, run_id: str) -> str | None:
    query = """
        select 'deleted' as removal from removed_runs where run_id = :run_id
        union all
        select 'pruned' from pruned_runs where run_id = :run_id
        """
    removal: str | None = read_value(connection, query, {"run_id": run_id})
    return removal


DAY_US = 86_400 * 1_000_000


@dataclass(frozen=True)
class TextRow:
    id: int
    size_bytes: int


def find_texts(connection: sqlite3.Connection, digests: Iterable[str]) -> dict[str, TextRow]:
    query = "select id, size_bytes from payloads where digest = ?"
    rows = (
        (digest, connection.execute(query, (bytes.fromhex(digest),)).fetchone())
        for digest in digests
    )
    return {digest: TextRow(*row) for digest, row in rows if row is not None}


def list_dropped(connection: sqlite3.Connection, run_id: str, digests: Iterable[str]) -> set[str]:
    query = "select 1 from dropped_texts where run_id = ? and digest = ?"
    return {
        digest for digest in digests if has_row(connection, query, (run_id, bytes.fromhex(digest)))
    }


def read_text(connection: sqlite3.Connection, text: TextRow) -> bytes:
    body = read_value(connection, "select body from payloads where id = ?", (text.id,))
    return bytes(body)


def save_text(
    connection: sqlite3.Connection, digest: str, size_bytes: int, packed: bytes, now_us: int
) -> bool:
    values = {
        "digest": bytes.fromhex(digest),
        "size_bytes": size_bytes,
        "body": packed,
        "now_us": now_us,
    }
    with write_transaction(connection):
        is_new = connection.execute(
            """
            insert or ignore into payloads (digest, size_bytes, body)
            values (:digest, :size_bytes, :body)
            """,
            values,
        ).rowcount
        if is_new:
            connection.execute(
                "insert or replace into sent_texts (digest, received_us) values (:digest, :now_us)",
                values,
            )
    return bool(is_new)


def save_texts(
    connection: sqlite3.Connection, texts: Iterable[tuple[str, int, bytes]], now_us: int
) -> None:
    with write_transaction(connection):
        for digest, size_bytes, packed in texts:
            save_text(connection, digest, size_bytes, packed, now_us)


def save_dropped_digests(
    connection: sqlite3.Connection, run_id: str, digests: Iterable[str]
) -> None:
    with write_transaction(connection):
        connection.executemany(
            """
            insert or ignore into dropped_texts (run_id, digest)
            select :run_id, :digest
            where not exists (select 1 from payloads where digest = :digest)
            """,
            [{"run_id": run_id, "digest": bytes.fromhex(digest)} for digest in digests],
        )


def has_texts(connection: sqlite3.Connection, ids: Mapping[str, int]) -> bool:
    query = "select 1 from payloads where id = ? and digest = ?"
    return all(
        has_row(connection, query, (text_id, bytes.fromhex(digest)))
        for digest, text_id in ids.items()
    )


def use_texts(connection: sqlite3.Connection, digests: Iterable[str]) -> None:
    connection.executemany(
        "delete from sent_texts where digest = ?", [(bytes.fromhex(digest),) for digest in digests]
    )


def forget_old_texts(connection: sqlite3.Connection, now_us: int) -> list[int]:
    """Forget texts that were received more than a day ago and whose events never came; return their
    ids.
    """
    digests = connection.execute(
        "delete from sent_texts where received_us < ? returning digest", (now_us - DAY_US,)
    ).fetchall()
    query = "select id from payloads where digest = ?"
    rows = (connection.execute(query, tuple(digest)).fetchone() for digest in digests)
    return [row["id"] for row in rows if row is not None]
