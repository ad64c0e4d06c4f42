"""Stored repros: graphs that failed, with their inputs and answers. They are never executed
here.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any

from compileboard.collectors.contract.fingerprints import format_id, parse_id
from compileboard.collectors.contract.records import TABLES
from compileboard.collectors.contract.repros import MAX_STORAGE_BYTES, ReproManifest, load_manifest
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import read_value, write_transaction
from compileboard.collectors.store.ingest.payload_writer import PayloadWriter
from compileboard.collectors.store.large_runs import reopen_large_run
from compileboard.collectors.store.reading import read_json, read_text
from compileboard.collectors.store.reopening import reopen_run
from compileboard.collectors.store.runs import publish_run

COMMANDS = ("run", "minify", "analyze", "check", "bisect")


_RESULT = TABLES["repro_results"].list_names("id")
# An answer is stored once.
ADD_RESULT = f"""
insert into repro_results ({", ".join(_RESULT)})
select {", ".join(f":{name}" for name in _RESULT)}
where not exists (
  select 1
  from repro_results
  where repro_id = :repro_id and command = :command and started_us = :started_us
)
"""  # noqa: S608  own names


class NoSuchRepro(LookupError):
    pass


@dataclass(frozen=True)
class StoredRepro:
    id: str  # 16 hexadecimal digits
    run_id: str
    process_id: str
    position: int
    manifest: ReproManifest
    program: str
    dynamo_program: str | None
    storage_bytes: dict[str, int]  # size of each kept storage, by its digest
    compile_id: str | None
    time_us: int


@dataclass(frozen=True)
class ReproLine:
    id: str
    run_id: str
    run_name: str
    kind: str
    level: str
    phase: str
    fingerprint: str
    error_type: str | None
    message: str | None
    operation: str | None
    function: str | None
    file: str | None
    line: int | None
    node_count: int | None
    torch_version: str | None
    device: str | None
    time_us: int


@dataclass(frozen=True)
class ReproResult:
    """The stored result of a `repro` command."""

    tables = ("repro_results",)

    command: str  # one of COMMANDS
    status: str
    seconds: float
    started_us: int
    ended_us: int
    operation: str | None = None
    node_count: int | None = None
    torch_version: str | None = None
    device: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    program: Annotated[str | None, "The minimal graph as Python's source."] = None


def load_repro(connection: sqlite3.Connection, repro: str) -> StoredRepro:
    """Load a repro by id or prefix, without input bytes. Raises NoSuchRepro, also if it is
    damaged.
    """
    key = find_repro(connection, repro)
    row = connection.execute(
        """
        select
          repros.id, run_id, process_id, position, manifest, compile_id, time_us,
          programs.body as program,
          dynamo_programs.body as dynamo_program
        from repros
        left join payloads as programs on programs.id = program_id
        left join payloads as dynamo_programs on dynamo_programs.id = dynamo_program_id
        where repros.id = :id
        """,
        {"id": key},
    ).fetchone()
    storages = connection.execute(
        "select digest, size_bytes from repro_storages where repro_id = :id order by digest",
        {"id": key},
    )
    try:
        manifest = load_manifest(json.loads(unpack(row["manifest"])))
        programs = [
            unpack(row[name]) if row[name] else None for name in ("program", "dynamo_program")
        ]
    except (ValueError, RecursionError) as error:
        raise NoSuchRepro(
            f"repro {format_id(key)} is stored damaged ({error}); record it again."
        ) from None
    return StoredRepro(
        id=format_id(key),
        run_id=row["run_id"],
        process_id=row["process_id"],
        position=row["position"],
        manifest=manifest,
        program=programs[0] or "",
        dynamo_program=programs[1],
        storage_bytes={storage["digest"]: storage["size_bytes"] for storage in storages},
        compile_id=row["compile_id"],
        time_us=row["time_us"],
    )


def load_storage(connection: sqlite3.Connection, repro: str, digest: str) -> bytes | None:
    row = connection.execute(
        "select body from repro_storages where repro_id = :id and digest = :digest",
        {"id": find_repro(connection, repro), "digest": digest},
    ).fetchone()
    try:
        return zlib.decompressobj().decompress(row["body"], MAX_STORAGE_BYTES)
    except (TypeError, zlib.error):  # none, or damaged: as one that was not kept
        return None


def find_repro(connection: sqlite3.Connection, repro: str) -> int:
    text = repro.strip().lower()
    try:
        low, high = parse_id(text.ljust(16, "0")), parse_id(text.ljust(16, "f"))
    except ValueError:
        raise NoSuchRepro(
            f"{repro[:40]!r} is not the id of a repro: expected up to 16 digits of 0-9 and a-f"
        ) from None
    rows = connection.execute(
        "select id from repros where id between :low and :high and state = 'captured' limit 2",
        {"low": low, "high": high},
    ).fetchall()
    if len(rows) != 1:
        several = "several repros begin" if rows else "no repro of this database begins"
        raise NoSuchRepro(f"{several} with {repro[:40]!r}; `collectors repro list` shows their ids")
    return int(rows[0]["id"])


def list_repros(
    connection: sqlite3.Connection, run_id: str | None = None, *, limit: int = 1_000
) -> list[ReproLine]:
    condition = "repros.run_id = :run_id and" if run_id is not None else ""
    rows = connection.execute(
        f"""
        select
          repros.id, run_id, coalesce(title, runs.name) as run_name, kind, repros.level, phase,
          fingerprint, error_type,
          message, operation, functions.name as function, file, line, node_count,
          repros.torch_version, device, time_us
        from repros
        join runs on runs.id = run_id
        left join run_annotations using (run_id)
        left join functions on functions.id = function_id
        where {condition} repros.state = 'captured'
        order by time_us desc, repros.id
        limit :limit
        """,  # noqa: S608 - our own names
        {"run_id": run_id, "limit": limit},
    )
    return [ReproLine(**{**dict(row), "id": format_id(row["id"])}) for row in rows]


def list_runnable(
    connection: sqlite3.Connection, repros: Iterable[ReproLine]
) -> Iterator[ReproLine]:
    """Yield the repros that `repro run` can run: those without a compiler of the program's own."""
    for repro in repros:
        with suppress(NoSuchRepro):
            if repro.level != "aot" or load_repro(connection, repro.id).manifest.compiler is None:
                yield repro


def save_result(connection: sqlite3.Connection, repro: str, result: ReproResult) -> None:
    key = find_repro(connection, repro)
    run_id = read_value(connection, "select run_id from repros where id = :id", {"id": key})
    reopen_large_run(connection, run_id)
    with write_transaction(connection):
        key = find_repro(connection, repro)
        reopen_run(connection, run_id)
        add_result(connection, PayloadWriter(connection), key, result)
        publish_run(connection, run_id)


def add_result(
    connection: sqlite3.Connection, payloads: PayloadWriter, repro_key: int, result: ReproResult
) -> None:
    """Save an answer once, in the caller's transaction. Raises ValueError for an unknown
    command.
    """
    if result.command not in COMMANDS:
        raise ValueError(
            f"{result.command!r} is not a command: expected one of {', '.join(COMMANDS)}"
        )
    program = None if result.program is None else payloads.add_now(result.program)
    connection.execute(
        ADD_RESULT,
        {
            **vars(result),
            "repro_id": repro_key,
            "detail": json.dumps(result.detail, separators=(",", ":")),
            "program_id": program,
        },
    )


def list_results(connection: sqlite3.Connection, repro: str) -> list[ReproResult]:
    rows = connection.execute(
        f"""
        select {TABLES["repro_results"].select_sql("r", "id", "repro_id", "program_id")},
        body as program
        from repro_results as r
        left join payloads on payloads.id = program_id
        where repro_id = :id
        order by started_us desc, r.id desc
        """,  # noqa: S608  own names
        {"id": find_repro(connection, repro)},
    )
    return [
        ReproResult(
            **{
                **dict(row),
                "detail": read_json(dict[str, Any], row["detail"]) or {},
                "program": read_text(row["program"]),
            }
        )
        for row in rows
    ]
