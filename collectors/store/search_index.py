"""The search index: add a run's words in batches, and remove them."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass

from compileboard.collectors.store.codec import pack, unpack
from compileboard.collectors.store.connection import checkpoint, write_transaction
from compileboard.collectors.store.errors import explain
from compileboard.collectors.store.search_documents import Document, read_documents

BATCH_CHARACTERS = 250_000  # 10 to 30 ms under the write lock
BATCH_DOCUMENTS = 500
CHECKPOINT_CHARACTERS = 32_000_000
OPTIMIZE_PAGES = 100  # a step of folding the index's pieces together

_IS_HERE = "select 1 from runs where id = :run_id and id not in (select run_id from sealed_runs)"
Progress = Callable[[int], None]  # bytes of text so far


@dataclass
class Indexed:
    document_count: int = 0
    text_bytes: int = 0
    complete: bool = False


def list_pending(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute(
        """
        select runs.id
        from runs
        left join search_runs on search_runs.run_id = runs.id
        where (
            indexed_us is null
            or indexed_us < heartbeat_us
            or indexed_us < (select max(read_us) from logs where logs.run_id = runs.id)
          )
          and runs.id not in (select run_id from sealed_runs)
        order by started_us desc, runs.id desc
        """
    )
    return [row["id"] for row in rows]


def index_run(
    connection: sqlite3.Connection,
    run_id: str,
    *,
    progress: Progress = lambda _bytes: None,
    most_s: float | None = None,
) -> Indexed:
    """Index a run's new documents in short transactions.

    May be repeated and run concurrently; with `most_s`, it stops and continues in the next call.
    Raises StoreError; what was indexed stays.
    """
    try:
        return _Indexing(connection, run_id, progress, most_s).run()
    except sqlite3.Error as error:
        raise explain(
            error, connection.execute("pragma database_list").fetchone()["file"]
        ) from error


class _Indexing:
    def __init__(
        self, connection: sqlite3.Connection, run_id: str, progress: Progress, most_s: float | None
    ) -> None:
        self._connection = connection
        self._key = {"run_id": run_id}
        self._run_id = run_id
        self._progress = progress
        self._until_s = None if most_s is None else time.monotonic() + most_s
        self._since_checkpoint = 0
        self.indexed = Indexed()

    def run(self) -> Indexed:
        began_us = time.time_ns() // 1000
        batch: list[Document] = []
        size = 0
        for document in read_documents(self._connection, self._run_id):
            batch.append(document)
            size += len(document.text)
            if size >= BATCH_CHARACTERS or len(batch) >= BATCH_DOCUMENTS:
                if not self._write(batch) or self._is_late():
                    return self.indexed
                batch, size = [], 0
        if self._write(batch, indexed_us=began_us):
            self.indexed.complete = True
            self._settle()
        return self.indexed

    def _is_late(self) -> bool:
        return self._until_s is not None and time.monotonic() >= self._until_s

    def _write(self, batch: list[Document], indexed_us: int | None = None) -> bool:
        connection, before = self._connection, self.indexed.text_bytes
        with write_transaction(connection):
            if connection.execute(_IS_HERE, self._key).fetchone() is None:
                return False
            for document in batch:
                self._add(document)
            connection.execute(
                """
                insert into search_runs (run_id, indexed_us, text_bytes)
                values (:run_id, :indexed_us, :text_bytes)
                on conflict (run_id) do update set
                  indexed_us = coalesce(:indexed_us, indexed_us), text_bytes = text_bytes + :text_bytes
                """,
                {
                    **self._key,
                    "indexed_us": indexed_us,
                    "text_bytes": self.indexed.text_bytes - before,
                },
            )
        self._since_checkpoint += self.indexed.text_bytes - before
        if self._since_checkpoint >= CHECKPOINT_CHARACTERS:
            checkpoint(connection)
            self._since_checkpoint = 0
        self._progress(self.indexed.text_bytes)
        return True

    def _add(self, document: Document) -> None:
        row = self._connection.execute(
            """
            insert or ignore into search_documents
              (run_id, kind, ref_id, compile_key, title, payload_id, body, character_count)
            values (:run_id, :kind, :ref_id, :compile_key, :title, :payload_id, :body, :character_count)
            returning id
            """,
            {
                "run_id": self._run_id,
                "kind": document.kind,
                "ref_id": document.ref_id,
                "compile_key": document.compile_key,
                "title": document.title,
                "payload_id": document.payload_id,
                "body": pack(document.text) if document.payload_id is None else None,
                "character_count": len(document.text),
            },
        ).fetchone()
        if row is None:  # another one indexed it meanwhile
            return
        words = _words(row["id"], self._run_id, document.kind, document.title, document.text)
        self._connection.execute(
            "insert into search_words (rowid, body, tags) values (:id, :body, :tags)", words
        )
        self.indexed.document_count += 1
        self.indexed.text_bytes += len(document.text.encode("utf-8", "replace"))

    def _settle(self) -> None:
        if self.indexed.text_bytes < BATCH_CHARACTERS:
            return  # not worth it; FTS5 does some of it by itself
        for _step in range(1 + self.indexed.text_bytes // BATCH_CHARACTERS):
            before = self._connection.total_changes
            with write_transaction(self._connection):
                self._connection.execute(
                    "insert into search_words (search_words, rank) values ('merge', :pages)",
                    {"pages": OPTIMIZE_PAGES},
                )
            if (
                self._connection.total_changes - before < 2
            ):  # FTS5's own sign that there is nothing to merge
                return


def remove_run_words(connection: sqlite3.Connection, run_id: str) -> int:
    """Remove a run from the index, before its texts and in the caller's transaction; return its
    number of documents.
    """
    rows = connection.execute(
        """
        select id, kind, title, payload_id, body, character_count
        from search_documents
        where run_id = :run_id
        order by id
        """,
        {"run_id": run_id},
    ).fetchall()
    for row in rows:
        try:
            text = read_text(connection, row)
        except ValueError:  # damaged on disk: its words point to no document any more
            continue
        connection.execute(
            (
                "insert into search_words (search_words, rowid, body, tags) values ('delete', :id, "
                ":body, :tags)"
            ),
            _words(row["id"], run_id, row["kind"], row["title"], text),
        )
    connection.execute("delete from search_documents where run_id = :run_id", {"run_id": run_id})
    connection.execute("delete from search_runs where run_id = :run_id", {"run_id": run_id})
    if rows and connection.execute("select 1 from search_documents limit 1").fetchone() is None:
        connection.execute("insert into search_words (search_words) values ('delete-all')")
    return len(rows)


def read_text(connection: sqlite3.Connection, row: sqlite3.Row) -> str:
    body = row["body"]
    if row["payload_id"] is not None:
        payload = connection.execute(
            "select body from payloads where id = :id", {"id": row["payload_id"]}
        ).fetchone()
        if payload is None:
            raise ValueError(f"the text {row['payload_id']} is gone")
        body = payload["body"]
    return unpack(body)[: row["character_count"]]


def run_tag(run_id: str) -> str:
    return f"run{run_id.encode().hex()}"


def kind_tag(kind: str) -> str:
    return f"kind{kind.encode().hex()}"


def _words(row_id: int, run_id: str, kind: str, title: str, text: str) -> dict[str, int | str]:
    body = f"{title}\n{text}".encode(
        "utf-8", "replace"
    ).decode()  # a lone surrogate cannot be stored as text
    return {"id": row_id, "body": body, "tags": f"{run_tag(run_id)} {kind_tag(kind)}"}
