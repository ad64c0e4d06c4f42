"""Read and write the lines of a stream; long texts are sent by digest."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, cast

from compileboard.collectors.contract.events import (
    KINDS,
    SCHEMA_VERSION,
    ArtifactSeen,
    ConfigSeen,
    Event,
    Json,
    ReproAnswered,
    ReproCaptured,
    ReproValues,
    build_event,
    dump_event,
)

WIRE_VERSION = 1
MIN_TEXT_BYTES = 4 << 10  # shorter ones stay in their line
MAX_TEXT_BYTES = 64 << 20  # torch's own limit of a record
MAX_LINE_BYTES = 4 << 20
MAX_BODY_BYTES = 8 << 20  # The size of a PATCH as sent.
MAX_PLAIN_BYTES = 16 << 20  # The size of an unpacked PATCH.
MAX_RATIO = 200
TRACE_PIECE_BYTES = 1 << 20  # The size of the pieces of a kept trace log.
MAX_PIECES = 8  # per mark
REQUEST_BYTES = 256 << 10  # sent by a client at once: long requests keep others waiting
_ENCODER = json.JSONEncoder(separators=(",", ":"))
STREAM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{32}")

# Texts sent by digest, for each kind of event that has them.
TEXT_FIELDS: dict[type[Event], tuple[str, ...]] = {
    ArtifactSeen: ("text",),
    ConfigSeen: ("body",),
    ReproCaptured: ("program", "dynamo_program"),
    ReproValues: ("body",),
    ReproAnswered: ("program",),
}


class WireError(ValueError):
    pass


class UnknownLine(WireError):
    """A line of a newer collector: unknown version, event or mark."""


def digest_of(text: bytes) -> str:
    return blake2b(text, digest_size=16).hexdigest()


def checksum_of(body: bytes, before: int = 0) -> int:
    return zlib.crc32(body, before)


def dump_line(
    event: Event, save_text: Callable[[str, bytes], None], generation: int | None = None
) -> bytes:
    """Write an event as one line. `save_text` is called with each long text and its digest.

    Events of a trace log need the generation of their compile.
    """
    more: dict[str, Json] = {} if generation is None else {"generation": generation}
    taken: dict[str, Any] = {}
    for name in TEXT_FIELDS.get(type(event), ()):
        text = getattr(event, name)
        if not isinstance(text, str) or len(text) < MIN_TEXT_BYTES:
            continue
        body = text.encode("utf-8", "surrogatepass")
        digest = digest_of(body)
        save_text(digest, body)
        taken[name] = {"text": digest, "size_bytes": len(body)}
    if taken:
        more["texts"] = taken
        event = replace(event, **cast("dict[str, Any]", dict.fromkeys(taken, "")))
    line = dump_event(event).encode()
    return (
        line + b"\n" if not more else line[:-1] + b"," + _ENCODER.encode(more).encode()[1:] + b"\n"
    )


def read_line(line: bytes, parse: Callable[[bytes], Any] = json.loads) -> Mapping[str, Json]:
    """Parse a line as an object. If a faster `parse` fails, Python's parser is used.

    Raises WireError; UnknownLine if a newer collector wrote it.
    """
    try:
        try:
            body = parse(line)
        except ValueError:
            body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a line is not JSON: {error}") from None
    if not isinstance(body, dict) or type(body.get("v")) is not int:
        raise WireError(f"expected a line with a version, got {line[:80]!r}")
    if body["v"] > SCHEMA_VERSION:
        raise UnknownLine(
            f"a line is of version {str(body['v'])[:20]}; known are versions up to {SCHEMA_VERSION}"
        )
    if "mark" not in body and str(body.get("kind")) not in KINDS:
        raise UnknownLine(
            f"unknown kind of event {str(body.get('kind'))[:80]!r}; known: "
            f"{', '.join(sorted(KINDS))}"
        )
    return cast("Mapping[str, Json]", body)


def list_digests(body: Mapping[str, Json]) -> list[str]:
    texts = body.get("texts", {})
    pieces = body.get("pieces", []) if body.get("mark") == "trace_file" else []
    try:
        digests = [*(text["text"] for text in texts.values()), *pieces]
        are_digests = all(map(DIGEST.fullmatch, digests))
    except (TypeError, AttributeError, KeyError):
        are_digests = False
    if not are_digests:
        raise WireError(f"expected texts named by 32 hex digits, got {str(pieces or texts)[:80]!r}")
    return digests


def load_line(body: Mapping[str, Json], find_text: Callable[[str], str | None]) -> Event:
    """Convert a parsed line to its event; texts that `find_text` lacks are left out.

    Raises ValueError if it is not an event of this version.
    """
    event = build_event(body)
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
    # A dropped text becomes empty if required, else None.
    restored: dict[str, Any] = {
        name: text or "" if name in ("body", "program") else text for name, text in values.items()
    }
    return replace(event, **restored)
