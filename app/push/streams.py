"""Pushed streams: how much is stored, and storing more."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial

from compileboard.app.push.body import format_checksum
from compileboard.app.push.refusals import PushRefused
from compileboard.collectors.store.run_owners import NotOwner, RunSender, may_add
from compileboard.collectors.store.streams.lines import (
    StreamDiffers,
    StreamLines,
    TextsMissing,
    TooManyLines,
    read_lines,
)
from compileboard.collectors.store.streams.receive import RunDeleted, StreamWriter
from compileboard.collectors.store.streams.rows import Stream, StreamMoved, get_removal, get_stream
from compileboard.collectors.wire.lines import STREAM_ID, UnknownLine

ATTEMPTS = 3
MOST_TOLD = 1000  # missing texts in one answer


def find_stream(
    reader: sqlite3.Connection, run_id: str, stream_id: str, token_id: str | None, sender: RunSender
) -> Stream:
    """Raises PushRefused if the stream's run was deleted or pruned, or is of another sender."""
    for name, value in (("run", run_id), ("stream", stream_id)):
        if not STREAM_ID.fullmatch(value):
            raise PushRefused(
                400,
                f"{name}: expected letters, digits, dots and dashes, 64 at most: {value[:80]!r}.",
            )
    if removal := get_removal(reader, run_id):
        raise PushRefused(
            410, f"Run {run_id} was {removal} on the server; nothing more of it is stored."
        )
    if not may_add(reader, run_id, sender):
        raise PushRefused(403, str(NotOwner(sender, run_id)))
    return get_stream(reader, run_id, stream_id) or Stream(run_id, stream_id, token_id)


def describe_place(stream: Stream) -> dict[str, str]:
    return {
        "Upload-Offset": str(stream.stored_bytes),
        "Upload-Checksum": format_checksum(stream.checksum),
    }


def append_lines(
    open_reader: Callable[[], sqlite3.Connection],
    store: Callable[[Callable[[StreamWriter], Stream]], Stream],
    find: Callable[[sqlite3.Connection], Stream],
    sender: RunSender,
    offset: int,
    plain: bytes,
) -> Stream:
    """Store the new part of a body; return the stream after it. Raises PushRefused, StoreError."""
    if plain and not plain.endswith(b"\n"):
        raise PushRefused(400, "The body ends within a line; expected whole lines.")
    for _attempt in range(ATTEMPTS):
        reader = open_reader()
        stream = find(reader)
        try:
            fresh = _cut_known(stream, offset, plain)
            if not fresh:
                return stream
            lines = read_lines(reader, stream, fresh)
            return store(partial(_store_lines, lines, sender))
        except NotOwner as error:
            raise PushRefused(403, str(error)) from None
        except StreamMoved:
            continue  # the same request, sent again while the first one was stored
        except StreamDiffers as error:
            store(partial(_restart, stream))
            fields = {"restart": True}
            raise PushRefused(
                409, f"{error}. Send everything again, under a new stream.", fields=fields
            ) from None
        except UnknownLine as error:
            raise PushRefused(
                426, f"{error}. Upgrade the server; what waits on the box goes out then."
            ) from None
        except TooManyLines as error:
            raise PushRefused(413, f"{error}.") from None
        except TextsMissing as error:
            missing = error.digests[:MOST_TOLD]
            raise PushRefused(
                409, f"{error}: PUT texts/DIGEST.", fields={"missing": missing}
            ) from None
        except RunDeleted:
            continue  # since it was looked up: the next look tells how
    raise PushRefused(
        503, "Other requests of the stream are being stored. Try again soon.", retry_after_s=1
    )


def _cut_known(stream: Stream, offset: int, plain: bytes) -> bytes:
    known_bytes = stream.stored_bytes - offset
    if known_bytes < 0:
        raise PushRefused(
            409,
            (
                f"{stream.stored_bytes:,} bytes of the stream are stored; this would begin at "
                f"{offset:,}."
            ),
            headers=describe_place(stream),
        )
    if 0 < known_bytes < len(plain) and plain[known_bytes - 1 : known_bytes] != b"\n":
        raise StreamDiffers(
            f"{stream.stored_bytes:,} bytes are stored, which is within a line of the box's stream"
        )
    return plain[known_bytes:]


def _store_lines(lines: StreamLines, sender: RunSender, writer: StreamWriter) -> Stream:
    return writer.store(lines, sender)


def _restart(stream: Stream, writer: StreamWriter) -> Stream:
    writer.restart(stream)
    return stream
