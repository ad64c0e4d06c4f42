"""Write repros and their input bytes. A later event of the same position adds to a repro."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Mapping
from typing import Any

from compileboard.collectors.contract.events import (
    FrameContext,
    ReproAnswered,
    ReproCaptured,
    ReproValues,
)
from compileboard.collectors.contract.fingerprints import content_id, parse_id
from compileboard.collectors.contract.repros import (
    MAX_STORAGE_BYTES,
    ReproManifest,
    failure_fingerprint,
    load_manifest,
)
from compileboard.collectors.store.codec import pack, unpack
from compileboard.collectors.store.connection import has_row, read_value
from compileboard.collectors.store.ingest.batch import Batch, find_function
from compileboard.collectors.store.ingest.insert import Insert, select_fields, select_table_fields
from compileboard.collectors.store.repros import ReproResult, add_result

CAPTURED = "captured"
MESSAGE_CHARS = 300  # Shown in the list; the manifest has the whole message.
_STEP_BYTES = 1 << 20
_REPRO = Insert("repros")
_STORAGE = Insert("repro_storages", once=True)
_COMPLETE = """
update repros set
  {columns},
  program_id = coalesce(:program_id, program_id),
  dynamo_program_id = coalesce(:dynamo_program_id, dynamo_program_id),
  compile_key = coalesce(compile_key, :compile_key),
  compile_id = coalesce(compile_id, :compile_id),
  failure_position = coalesce(:failure_position, failure_position)
where id = :id
"""
# A failure of compiled code comes before or after its repro, a compile's after.
_OF_ISSUE = """
update repros set issue_id = coalesce(
  (
    select x.issue_id
    from failures as x
    where x.process_id = repros.process_id
      and x.position = repros.failure_position
  ),
  (
    select max(c.issue_id)
    from compilations as c
    where c.compile_key = repros.compile_key
      and repros.failure_position is null
      and repros.kind = 'compile'
  ),
  issue_id
)
where id = :id
"""
_CHANGED = (
    *(
        "kind",
        "level",
        "phase",
        "fingerprint",
        "error_type",
        "message",
        "operation",
        "function_id",
        "line",
    ),
    *("node_count", "torch_version", "device", "manifest"),
)


def repro_id(process_id: str, position: int) -> int:
    """Return a repro's id, which is the same in every database."""
    return content_id("repro", process_id, position)


def write_repro(batch: Batch, event: ReproCaptured) -> None:
    """Insert a repro or add to it. Raises ValueError without a valid manifest or program."""
    key = repro_id(event.process_id, event.position)
    known = read_value(batch.connection, "select manifest from repros where id = ?", (key,))
    if known is None and not event.program:
        raise ValueError(f"repro {event.position} has no program")
    manifest = {**(json.loads(unpack(known)) if known else {}), **event.manifest}
    add_text = batch.traces.payloads.add_now
    row = {
        **select_table_fields("repros", event),
        **_describe(batch, load_manifest(manifest)),
        "state": CAPTURED,
        "manifest": pack(
            json.dumps(manifest, ensure_ascii=False, separators=(",", ":")), primed=False
        ),
        "id": key,
        "compile_key": _find_compile(batch, event),
        "issue_id": None,
        "program_id": add_text(event.program) if event.program else None,
        "dynamo_program_id": None
        if event.dynamo_program is None
        else add_text(event.dynamo_program),
        "run_id": batch.run_id,
    }
    if known is None:
        _REPRO.add(batch.connection, row)
    else:
        columns = ", ".join(f"{column} = :{column}" for column in _CHANGED)
        batch.connection.execute(_COMPLETE.format(columns=columns), row)
    batch.connection.execute(_OF_ISSUE, {"id": key})


def _describe(batch: Batch, manifest: ReproManifest) -> dict[str, Any]:
    return {
        **select_table_fields("repros", manifest),
        "fingerprint": failure_fingerprint(manifest),
        "error_type": manifest.error_type or manifest.signal,
        "message": (manifest.message or "")[:MESSAGE_CHARS] or None,
        "function_id": find_function(batch, manifest.file, manifest.function),
        "torch_version": text_of(manifest.versions, "torch"),
    }


def text_of(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    return value if isinstance(value, str) else None


def _find_compile(batch: Batch, event: FrameContext) -> int | None:
    key = batch.frames.key_of(event)
    if key is not None or event.compile_id is None:
        return key
    newest: int | None = read_value(
        batch.connection,
        """
        select id from compiles
        where process_id = :process_id and compile_id = :compile_id
        order by generation desc
        limit 1
        """,
        select_fields(event, "process_id", "compile_id"),
    )
    return newest


def write_repro_values(batch: Batch, event: ReproValues) -> None:
    body = base64.b64decode(event.body, validate=True)
    values = {"repro_id": repro_id(event.process_id, event.position), "digest": event.digest}
    _STORAGE.add(
        batch.connection,
        {**values, "size_bytes": measure_storage(body, event.digest), "body": body},
    )


def write_repro_answer(batch: Batch, event: ReproAnswered) -> None:
    """Write a command's answer. Raises ValueError for an unknown repro or command."""
    key = parse_id(event.repro)
    query = "select 1 from repros where id = ? and run_id = ?"
    if not has_row(batch.connection, query, (key, batch.run_id)):
        raise ValueError(f"the run has no repro {event.repro[:40]!r}")
    result = ReproResult(
        started_us=event.sequence,
        ended_us=event.time_us,
        program=event.program,
        **select_table_fields("repro_results", event),
    )
    add_result(batch.connection, batch.traces.payloads, key, result)


def measure_storage(body: bytes, digest: str) -> int:
    """Return the unpacked size in bytes, computed in constant memory.

    Raises ValueError if the storage is damaged, too large, or has another digest.
    """
    expander, sha, size_bytes = zlib.decompressobj(), hashlib.sha256(), 0
    try:
        while body and not expander.eof and size_bytes <= MAX_STORAGE_BYTES:
            step = expander.decompress(body, _STEP_BYTES)
            body = expander.unconsumed_tail
            sha.update(step)
            size_bytes += len(step)
    except zlib.error as error:
        raise ValueError(f"a storage's bytes are damaged: {error}") from None
    if size_bytes > MAX_STORAGE_BYTES:
        raise ValueError(f"a storage has more than {MAX_STORAGE_BYTES:,} bytes")
    if not expander.eof or sha.hexdigest() != digest:
        raise ValueError(f"a storage's bytes are not those of {digest[:16]}")
    return size_bytes
