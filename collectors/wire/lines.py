"""Lines of a stream, written and read; long texts travel by their content."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast

from compileboard.collectors.contract.events import (
    SCHEMA_VERSION,
    ArtifactSeen,
    ConfigSeen,
    Event,
    Json,
    ReproCaptured,
    ReproValues,
    dump_event,
    load_event,
)

WIRE_VERSION = 1
SHORTEST_TEXT_BYTES = 4 << 10  # a shorter one stays in its line
LARGEST_TEXT_BYTES = 64 << 20  # torch's own limit of a record
LARGEST_LINE_BYTES = 4 << 20
LARGEST_BODY_BYTES = 8 << 20  # of a PATCH, as sent
LARGEST_PLAIN_BYTES = 16 << 20  # of a PATCH, unpacked
LARGEST_RATIO = 200
REQUEST_BYTES = 256 << 10  # what a box sends at once: a request that takes long keeps other boxes waiting
STREAM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{32}")

# Texts that travel by their content, of each kind of event that has them.
TEXT_FIELDS: dict[type[Event], tuple[str, ...]] = {
    ArtifactSeen: ("text",),
    ConfigSeen: ("body",),
    ReproCaptured: ("program", "dynamo_program"),
    ReproValues: ("body",),
}
# Lines that are no events. `end` is the last one: `size_bytes` and `checksum` are of all lines before it.
MARKS = ("beat", "batch", "source", "rejects", "trace_file", "end")


class WireError(ValueError):
    """A line that is none of a stream."""


def digest_of(text: bytes) -> str:
    """Name a text by its content, as the store does."""
    return blake2b(text, digest_size=16).hexdigest()


def checksum_of(body: bytes, before: int = 0) -> int:
    """Return the CRC-32 of bytes, or of what came before them and them."""
    return zlib.crc32(body, before)


def dump_line(event: Event, save_text: Callable[[str, bytes], None]) -> bytes:
    """Write an event as one line; `save_text` takes each long text with its digest."""
    taken: dict[str, Any] = {}
    for name in TEXT_FIELDS.get(type(event), ()):
        text = getattr(event, name)
        if not isinstance(text, str) or len(text) < SHORTEST_TEXT_BYTES:
            continue
        body = text.encode("utf-8", "surrogatepass")
        digest = digest_of(body)
        save_text(digest, body)
        taken[name] = {"text": digest, "size_bytes": len(body)}
    if not taken:
        return dump_event(event).encode() + b"\n"
    line = json.loads(dump_event(replace(event, **cast("dict[str, Any]", dict.fromkeys(taken, "")))))
    return json.dumps(line | {"texts": taken}, separators=(",", ":")).encode() + b"\n"


def dump_mark(mark: str, **values: Json) -> bytes:
    """Write a line that is no event."""
    if mark not in MARKS:
        raise WireError(f"unknown mark {mark!r}; known: {', '.join(MARKS)}")
    return json.dumps({"v": SCHEMA_VERSION, "mark": mark, **values}, separators=(",", ":")).encode() + b"\n"


def read_line(line: bytes) -> Mapping[str, Json]:
    """Read a line as an object, not yet as an event.

    Raises: WireError.
    """
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a line is no JSON: {error}") from None
    if not isinstance(body, dict) or not isinstance(body.get("v"), int):
        raise WireError(f"expected a line with a version, got {line[:80]!r}")
    return cast("Mapping[str, Json]", body)


def list_digests(body: Mapping[str, Json]) -> list[str]:
    """List the texts that a line leaves to be sent by content.

    Raises: WireError.
    """
    texts = body.get("texts", {})
    digests = [text.get("text") for text in texts.values()] if _is_texts(texts) else [None]
    digests += body.get("pieces", []) if body.get("mark") == "trace_file" else []
    if not all(isinstance(digest, str) and DIGEST.fullmatch(digest) for digest in digests):
        raise WireError(f"expected texts named by 32 hex digits, got {str(texts)[:80]!r}")
    return [str(digest) for digest in digests]


def _is_texts(texts: Any) -> bool:
    return isinstance(texts, dict) and all(isinstance(text, dict) for text in texts.values())


def load_line(line: bytes, body: Mapping[str, Json], find_text: Callable[[str], str | None]) -> Event:
    """Read a line as its event; a text that `find_text` has no more is left out.

    Raises: ValueError if the line is not an event of this version.
    """
    event = load_event(line.decode())
    names = TEXT_FIELDS.get(type(event), ())
    values: dict[str, Any] = {}
    for name, text in body.get("texts", {}).items():
        if name not in names:
            raise WireError(f"a {event.KIND} event has no long text {name[:80]!r}")
        values[name] = find_text(str(text.get("text")))
    if not values:
        return event
    if isinstance(event, ArtifactSeen) and values.get("text", "") is None:
        values["state"] = "left_out"
    # A text that an event must have is empty where it was dropped; one that it may lack is None.
    restored: dict[str, Any] = {
        name: text or "" if name in ("body", "program") else text for name, text in values.items()
    }
    return replace(event, **restored)
