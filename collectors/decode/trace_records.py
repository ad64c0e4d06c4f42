"""What only a trace log tells: artifacts with their texts, timed phases, symbolic shapes."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from compileboard.collectors.contract import events
from compileboard.collectors.contract.record_names import AOT_METADATA, ARTIFACT, GUARDS, SPAN, SYMBOLS
from compileboard.collectors.decode.aot import parse_metadata, summarize
from compileboard.collectors.decode.guards.tree import count_guards
from compileboard.collectors.decode.paths import PathNamer
from compileboard.collectors.decode.records import Captured, Logged
from compileboard.collectors.decode.stacks import named_stack, parse_frames, user_frame
from compileboard.collectors.decode.values import clean, clean_text

_TITLES = ("filename", "name", "url", "url_name", "op")
# How torch writes nearly all of them: read in one step instead of through JSON.
_PLAIN_SPAN = re.compile(
    r'\{\n"name": "([^"\\]*)",\n"ts": (\d{1,17})(\.\d+)?,\n"args": \{(?:\n"compile_id": "([^"\\]*)"\n)?\},\n'
    r'"ph": "([BEi])",\n"cat": "[^"\\]*",\n"tid": (\d{1,9}),\n"pid": \d+(?:,\n"s": "\w")?\n\}'
)
_STACKS = ("stack", "user_stack", "framework_stack")
_LONG = 200  # a value of a span's args longer than this is kept apart, in the whole


def decode_logged(captured: Captured, logged: Logged, context: dict[str, Any], namer: PathNamer) -> list[events.Event]:
    """Decode a record of a trace log that is no event; unknown names are artifacts like the rest."""
    if captured.name == SPAN:
        span = make_span(captured, context, keep_text=logged.state == "kept")
        if span is not None:
            return [span]
    elif captured.name in SYMBOLS and isinstance(captured.metadata, dict):
        return [make_symbol(captured, context, namer)]
    return [make_artifact(captured, logged, context)]


def make_artifact(captured: Captured, logged: Logged, context: dict[str, Any]) -> events.ArtifactSeen:
    """Keep a record under its own name, with its text, and sum up guards and AOTAutograd's metadata."""
    metadata = captured.metadata if isinstance(captured.metadata, dict) else {}
    if captured.metadata is not None and not isinstance(captured.metadata, dict):
        metadata = {"value": captured.metadata}  # of others than torch, which writes objects
    text = captured.payload if isinstance(captured.payload, str) else None
    name, encoding, title = captured.name, None, None
    if name.startswith(ARTIFACT):
        name, encoding = name.removeprefix(ARTIFACT), metadata.get("encoding")
        metadata = {key: value for key, value in metadata.items() if key not in ("name", "encoding")}
    elif metadata:
        title = next((metadata[key] for key in _TITLES if isinstance(metadata.get(key), str)), None)
    guards = _count_guards(text) if text is not None and captured.name in GUARDS else None
    aot = _sum_up_aot(text) if text is not None and captured.name == AOT_METADATA else None
    return events.ArtifactSeen(
        **context,
        name=clean_text(name),
        title=title.rsplit("/", 1)[-1] if title else None,
        encoding=encoding if isinstance(encoding, str) else "string",
        metadata=metadata,
        state=logged.state,
        size_bytes=logged.size_bytes,
        md5=logged.md5,
        text=clean_text(text) if text is not None and logged.state in ("kept", "damaged") else None,
        guards=guards,
        aot=aot,
    )


# Ranks, and the parts of a model that are alike, say the same again.
_count_guards = lru_cache(maxsize=64)(count_guards)


@lru_cache(maxsize=64)
def _sum_up_aot(text: str) -> dict[str, Any] | None:
    meta = parse_metadata(text)
    return summarize(meta) if meta is not None else None


def make_plain_span(captured: Captured) -> events.SpanSeen | None:
    """Read a chromium_event that says no more than what began or ended and when; None for any other."""
    if isinstance(captured.metadata, tuple):  # the reader has taken it apart
        name, phase, thread, compile_id = captured.metadata
        at_us = captured.time_us
    else:
        plain = _PLAIN_SPAN.fullmatch(captured.payload) if isinstance(captured.payload, str) else None
        if plain is None:
            return None
        name, ts, fraction, compile_id, phase, thread = plain.groups()
        at_us = int(ts) + (fraction is not None and fraction >= ".5")
        if not name.isascii():
            return None
    compile_id = captured.compile_id or (None if compile_id == "None" else compile_id)  # written by str()
    return events.SpanSeen(
        captured.process_id,
        captured.sequence,
        captured.time_us,
        compile_id,
        captured.frame_id,
        captured.frame_compile_id,
        captured.attempt,
        captured.rank,
        name,
        phase,
        at_us,
        int(thread),
        {},
        captured.logged.whole if captured.logged else None,
        envelope=captured.envelope or {},
    )


def make_span(captured: Captured, context: dict[str, Any], *, keep_text: bool) -> events.SpanSeen | None:
    """Read one chromium_event; None where it is none."""
    try:
        body = json.loads(captured.payload) if isinstance(captured.payload, str) else captured.metadata
        at_us, phase, name = round(body["ts"]), body["ph"], body["name"]
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    args = body.get("args")
    thread = body.get("tid")
    if not isinstance(name, str) or phase not in ("B", "E", "i") or not 0 <= at_us < 2**62:
        return None
    args = args if isinstance(args, dict) else {}
    if context["compile_id"] is None and isinstance(args.get("compile_id"), str) and args["compile_id"] != "None":
        context = {**context, "compile_id": args["compile_id"]}
    said = {key: value for key, value in args.items() if key != "compile_id" and value is not None}
    short = {key: value for key, value in said.items() if _is_short(value)}
    return events.SpanSeen(
        **context,
        name=clean_text(name),
        phase=phase,
        at_us=at_us,
        thread=thread if isinstance(thread, int) and abs(thread) < 2**62 else 0,
        args=clean(short),
        text=clean_text(captured.payload) if len(short) < len(said) and keep_text else None,
    )


def _is_short(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONG
    if isinstance(value, list | dict):
        return len(value) <= 10 and len(str(value)) <= _LONG
    return True


def make_symbol(captured: Captured, context: dict[str, Any], namer: PathNamer) -> events.SymbolSeen:
    """Read what torch says of a symbolic shape, with the user's line it came from."""
    said = clean(captured.metadata)
    frames = parse_frames(said.get("user_stack")) or parse_frames(said.get("stack"))
    frame = user_frame(frames)
    detail = {key: value for key, value in said.items() if key not in _STACKS}
    for key in _STACKS:
        if isinstance(said.get(key), list):
            detail[key] = named_stack(parse_frames(said[key]), namer)
    return events.SymbolSeen(
        **context,
        symbol_kind=SYMBOLS[captured.name],
        symbol=_text(said.get("symbol")),
        expression=_text(said.get("expr") or said.get("reason")),
        value=_text(said.get("val") if "val" in said else said.get("value")),
        value_range=_text(said.get("vr")),
        source=_text(said.get("source") or said.get("sources")),
        file=namer.name(frame.path) if frame else None,
        line=frame.line if frame else None,
        source_line=frame.code if frame else None,
        detail={"name": captured.name, **detail},
    )


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value) or None
    return None if value is None or value == "" else str(value)
