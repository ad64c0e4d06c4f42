"""Texts that clients send by digest, before the events that refer to them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from compileboard.collectors.store.codec import pack_large
from compileboard.collectors.store.connection import write_transaction

DAY_US = 86_400 * 1_000_000
# The tables of many rows have an index for it.
_DROP_UNUSED = """
delete from payloads
where digest = :digest
  and not exists (select 1 from artifacts where payload_id = payloads.id)
  and not exists (select 1 from spans where payload_id = payloads.id)
  and not exists (select 1 from repro_results where program_id = payloads.id)
  and not exists (select 1 from repros where program_id = payloads.id
    or dynamo_program_id = payloads.id)
  and not exists (select 1 from temp.trashed_texts where id = payloads.id)
"""


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
        digest
        for digest in digests
        if connection.execute(query, (run_id, bytes.fromhex(digest))).fetchone() is not None
    }


def read_text(connection: sqlite3.Connection, text: TextRow) -> bytes:
    (body,) = connection.execute("select body from payloads where id = ?", (text.id,)).fetchone()
    return bytes(body)


def pack_text(text: bytes) -> bytes:
    return pack_large(text)


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
            insert or ignore into payloads (digest, size_bytes, body) values (:digest, :size_bytes, :body)
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


def save_dropped(connection: sqlite3.Connection, run_id: str, digests: Iterable[str]) -> None:
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
        connection.execute(query, (text_id, bytes.fromhex(digest))).fetchone() is not None
        for digest, text_id in ids.items()
    )


def use_texts(connection: sqlite3.Connection, digests: Iterable[str]) -> None:
    connection.executemany(
        "delete from sent_texts where digest = ?", [(bytes.fromhex(digest),) for digest in digests]
    )


def list_old_texts(connection: sqlite3.Connection, now_us: int) -> list[bytes]:
    rows = connection.execute(
        "select digest from sent_texts where received_us < ?", (now_us - DAY_US,)
    )
    return [row["digest"] for row in rows]


def drop_unused_texts(connection: sqlite3.Connection, digests: Iterable[bytes]) -> None:
    keys = [{"digest": digest} for digest in digests]
    if keys:
        connection.executemany(_DROP_UNUSED, keys)
        connection.executemany("delete from sent_texts where digest = :digest", keys)
