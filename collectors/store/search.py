"""The search index: add a run's words in batches, and remove them."""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.decode.caches import parse_components
from compileboard.collectors.fixes.fix import BreakFacts
from compileboard.collectors.fixes.titles import label_break, strip_ticks
from compileboard.collectors.store import reading
from compileboard.collectors.store.codec import pack, unpack
from compileboard.collectors.store.connection import (
    checkpoint,
    explained,
    has_row,
    read_value,
    write_transaction,
)
from compileboard.collectors.store.reading import read_json

# Long and the same in every compile; the pages of caches and of the environment show them.
CACHE_KEYS = frozenset(
    ("fx_graph_cache_hit", "fx_graph_cache_miss", "aotautograd_cache_hit", "aotautograd_cache_miss")
)
LEFT_OUT = frozenset(("torch._functorch.config", "torch._inductor.config", "torch._dynamo.config"))
LONGEST = 2_000_000  # characters of a text: other writers wait while it is indexed
TITLE_LIMIT = 300
_KEY = re.compile(r'"key": ?"([^"\\]*)"')
_COMPONENT = re.compile(
    r'(?<!\\)"\[[a-z0-9]{1,128}\] (\w+(?:\[[^\]"]*\])?):'
)  # a quote inside a JSON text is escaped


@dataclass(frozen=True, slots=True)
class Document:
    kind: str
    ref_id: int
    compile_key: int | None
    title: str
    text: str
    payload_id: int | None = None


Row = dict[str, Any]


def read_documents(connection: sqlite3.Connection, run_id: str) -> Iterator[Document]:
    """Yield a run's documents that are not indexed yet.

    No statement stays open between documents, so that a writer may begin a transaction.
    """
    for kind, (sql, read) in READERS.items():
        key = {"run_id": run_id, "kind": kind}
        query = "select ref_id from search_documents where run_id = :run_id and kind = :kind"
        known = {row["ref_id"] for row in connection.execute(query, key)}
        for values in connection.execute(sql, key).fetchall():
            ref_id, compile_key, title, *_rest = values
            row = dict(values)
            text = None if ref_id in known else read(connection, row)
            if text is not None:
                title = " ".join(row.get("title", title).split())[:TITLE_LIMIT]
                yield Document(kind, ref_id, compile_key, title, text, row.get("payload_id"))


def _read_columns(_connection: sqlite3.Connection, row: Row) -> str:
    return _lines(*list(row.values())[3:])


def _read_break(connection: sqlite3.Connection, row: Row) -> str:
    row["hints"] = "\n".join(read_json(list[str], row["hints"]) or [])
    text, kind = _read_columns(connection, row), row["title"]
    facts = BreakFacts(
        gb_id=row["gb_id"],
        gb_type=kind,
        reason=row["reason"] or "",
        explanation=row["explanation"] or "",
        source_line=row["source_line"],
    )
    row["title"] = strip_ticks(label_break(facts))
    return text if kind in text else _lines(text, kind)


def _read_recompile(connection: sqlite3.Connection, row: Row) -> str:
    failures = connection.execute(
        """
        select reason, source, source_line
        from guard_failures
        where recompile_id = :ref_id
        order by position
        """,
        row,
    ).fetchall()
    return _lines(*dict.fromkeys(value for failure in failures for value in failure))


def _read_repro(connection: sqlite3.Connection, row: Row) -> str:
    """Return a repro's graph without its settings, which are nearly the same in all repros."""
    program = reading.read_text(row["body"]) or ""
    row["body"] = program[max(0, program.find("class Repro")) :]
    return _read_columns(connection, row)


def _read_artifact(connection: sqlite3.Connection, row: Row) -> str | None:
    if row["name"] in LEFT_OUT:
        return None
    body = read_value(connection, "select body from payloads where id = :payload_id", row)
    text = reading.read_text(body)
    if text is None:  # damaged on disk; its page says so
        return None
    keyed = _cache_words(text) if row["name"] in CACHE_KEYS else None
    if keyed is None:
        return text[:LONGEST]
    row["payload_id"] = None
    return keyed


def _cache_words(text: str) -> str | None:
    """Return a lookup's key and component names. A regular expression is ten times faster than
    parsing the JSON.
    """
    names = dict.fromkeys(_COMPONENT.findall(text))
    if not names:  # torch 2.5 wrote them as one text
        names = dict.fromkeys(component.name for component in parse_components(text) or ())
    if not names:
        return None
    key = _KEY.search(text)
    return _lines(key[1] if key else None, *names)


def _lines(*parts: str | None) -> str:
    text = "\n".join(part for part in parts if part)[:LONGEST]
    return text.encode(
        "utf-8", "replace"
    ).decode()  # a lone surrogate out of JSON cannot be stored as text


# What is short and sought first comes first. Behind `title`, columns are lines of the text, unless
# the kind's function makes another one.
READERS: dict[str, tuple[str, Callable[[sqlite3.Connection, Row], str | None]]] = {
    "graph_break": (
        """
        select
          distinct_breaks.id as ref_id,
          (select compile_key from graph_breaks where run_id = :run_id
            and distinct_id = distinct_breaks.id
           order by graph_breaks.id limit 1) as compile_key,
          coalesce(nullif(gb_type, ''), reason) as title,
          gb_id, reason, explanation, hints, source_line, name, file
        from run_breaks
        join distinct_breaks on distinct_breaks.id = run_breaks.distinct_id
        left join functions on functions.id = distinct_breaks.function_id
        where run_breaks.run_id = :run_id
        order by ref_id
        """,
        _read_break,
    ),
    "recompile": (
        """
        select
          recompiles.id as ref_id, compile_key,
          'recompile' || coalesce(' ' || compile_id, '') || coalesce(' ' || name, '') as title
        from recompiles
        left join functions on functions.id = recompiles.function_id
        where recompiles.run_id = :run_id
        order by ref_id
        """,
        _read_recompile,
    ),
    "rerecording": (
        """
        select
          rerecording_reasons.id as ref_id,
          (select compile_key from cudagraphs where run_id = :run_id
            and reason_id = rerecording_reasons.id
           order by cudagraphs.id limit 1) as compile_key,
          'CUDA graph recorded again' || coalesce(' ' || name, '') as title,
          status, inputs, source_line, file
        from run_rerecordings
        join rerecording_reasons on rerecording_reasons.id = run_rerecordings.reason_id
        left join functions on functions.id = rerecording_reasons.function_id
        where run_rerecordings.run_id = :run_id
        order by ref_id
        """,
        _read_columns,
    ),
    "issue": (
        """
        select
          failure_issues.id as ref_id,
          (select compile_key from compilations where run_id = :run_id
            and issue_id = failure_issues.id
           order by compilations.id limit 1) as compile_key,
          coalesce(nullif(error_type, ''), 'failure')
            || coalesce(' in ' || nullif(operation, ''), '') as title,
          message, file
        from run_issues
        join failure_issues on failure_issues.id = run_issues.issue_id
        left join functions on functions.id = failure_issues.function_id
        where run_issues.run_id = :run_id
        order by ref_id
        """,
        _read_columns,
    ),
    "failure": (
        """
        select
          id as ref_id, compile_key, coalesce(nullif(error_type, ''), 'failure') as title, message
        from failures
        where run_id = :run_id
        order by id
        """,
        _read_columns,
    ),
    "result": (
        """
        select
          min(results.id) as ref_id, null as compile_key,
          model || ': ' || replace(coalesce(reason, status), '_', ' ') as title,
          reason, message
        from results
        join series on series.id = results.series_id
        where results.run_id = :run_id and status = 'failed'
        group by model, reason, message
        order by ref_id
        """,
        _read_columns,
    ),
    "repro": (
        """
        select
          repros.id as ref_id, compile_key,
          coalesce(nullif(error_type, ''), repros.kind)
            || coalesce(' in ' || nullif(operation, ''), '') as title,
          message, operation, functions.name, functions.file, payloads.body
        from repros
        left join functions on functions.id = repros.function_id
        left join payloads on payloads.id = repros.program_id
        where repros.run_id = :run_id and repros.state = 'captured'
        order by ref_id
        """,
        _read_repro,
    ),
    "function": (
        """
        select
          functions.id as ref_id, null as compile_key, functions.name as title, functions.file
        from run_functions
        join functions on functions.id = run_functions.function_id
        where run_functions.run_id = :run_id
        order by ref_id
        """,
        _read_columns,
    ),
    "frame": (
        """
        select
          min(id) as ref_id, null as compile_key,
          file || coalesce(':' || nullif(line, 0), '') as title, name, min(code) as code
        from stack_nodes
        where run_id = :run_id
        group by file, line, name
        order by ref_id
        """,
        _read_columns,
    ),
    "symbol": (
        """
        select
          id as ref_id, compile_key, kind || coalesce(' ' || nullif(symbol, ''), '') as title,
          expression, value, value_range, source,
          file || coalesce(':' || nullif(line, 0), '') as place, source_line
        from symbols
        where run_id = :run_id
        order by id
        """,
        _read_columns,
    ),
    # Each reason once: thousands of look-ups may share it.
    "cache_lookup": (
        """
        select min(id) as ref_id, compile_key, cache || ' ' || result as title, reason
        from cache_lookups
        where run_id = :run_id and reason is not null
        group by cache, result, reason
        order by ref_id
        """,
        _read_columns,
    ),
    "cudagraph_skip": (
        """
        select min(id) as ref_id, compile_key, 'CUDA graph skipped' as title, reason
        from cudagraph_skips
        where run_id = :run_id
        group by reason
        order by ref_id
        """,
        _read_columns,
    ),
    "artifact": (
        """
        select
          ref_id, compile_key, name || coalesce(' ' || nullif(title, ''), '') as title,
          name, payload_id
        from (
          select
            min(id) as ref_id, payload_id, compile_key, title,
            iif(substr(name, 1, 9) = 'artifact:', substr(name, 10), name) as name
          from artifacts
          where run_id = :run_id and payload_id is not null
          group by payload_id
        )
        order by ref_id
        """,
        _read_artifact,
    ),
}
KINDS = tuple(READERS)


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
    max_s: float | None = None,
) -> Indexed:
    """Index a run's new documents in short transactions.

    It may be repeated and run concurrently. With `max_s` it stops after that time, and the next
    call continues. Raises StoreError; documents indexed before are kept.
    """
    with explained(connection.execute("pragma database_list").fetchone()["file"]):
        return _Indexing(connection, run_id, progress, max_s).run()


class _Indexing:
    def __init__(
        self, connection: sqlite3.Connection, run_id: str, progress: Progress, max_s: float | None
    ) -> None:
        self._connection = connection
        self._key = {"run_id": run_id}
        self._run_id = run_id
        self._progress = progress
        self._until_s = None if max_s is None else time.monotonic() + max_s
        self._since_checkpoint = 0
        self.indexed = Indexed()

    def run(self) -> Indexed:
        began_us = read_clock_us()
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
            self._merge_index()
        return self.indexed

    def _is_late(self) -> bool:
        return self._until_s is not None and time.monotonic() >= self._until_s

    def _write(self, batch: list[Document], indexed_us: int | None = None) -> bool:
        connection, before = self._connection, self.indexed.text_bytes
        with write_transaction(connection):
            if not has_row(connection, _IS_HERE, self._key):
                return False
            for document in batch:
                self._add(document)
            connection.execute(
                """
                insert into search_runs (run_id, indexed_us, text_bytes)
                values (:run_id, :indexed_us, :text_bytes)
                on conflict (run_id) do update set
                  indexed_us = coalesce(:indexed_us, indexed_us),
                  text_bytes = text_bytes + :text_bytes
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
            values
              (:run_id, :kind, :ref_id, :compile_key, :title, :payload_id, :body, :character_count)
            returning id
            """,
            {
                **asdict(document),
                "run_id": self._run_id,
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

    def _merge_index(self) -> None:
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
    if rows and not has_row(connection, "select 1 from search_documents limit 1"):
        connection.execute("insert into search_words (search_words) values ('delete-all')")
    return len(rows)


def read_text(connection: sqlite3.Connection, row: sqlite3.Row) -> str:
    body = row["body"]
    if row["payload_id"] is not None:
        query = "select body from payloads where id = ?"
        body = read_value(connection, query, (row["payload_id"],))
        if body is None:
            raise ValueError(f"the text {row['payload_id']} is gone")
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
