"""Artifacts with their texts, and symbolic shapes, of a trace log."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from compileboard.collectors.contract import events
from compileboard.collectors.contract.record_names import (
    AOT_METADATA,
    ARTIFACT,
    GUARDS,
    SPAN,
    SYMBOLS,
)
from compileboard.collectors.contract.shapes import AotSummary, GuardSummary
from compileboard.collectors.contract.values import clean, clean_text
from compileboard.collectors.decode.aot import parse_metadata, summarize
from compileboard.collectors.decode.guards.tree import count_guards
from compileboard.collectors.decode.paths import PathNamer
from compileboard.collectors.decode.records import Captured, Logged
from compileboard.collectors.decode.spans import make_span
from compileboard.collectors.decode.stacks import named_stack, parse_frames, user_frame

_TITLES = ("filename", "name", "url", "url_name", "op")
_STACKS = ("stack", "user_stack", "framework_stack")


def decode_logged(
    captured: Captured, logged: Logged, context: dict[str, Any], namer: PathNamer
) -> list[events.Event]:
    if captured.name == SPAN:
        span = make_span(captured, context, keep_text=logged.state == "kept")
        if span is not None:
            return [span]
    elif captured.name in SYMBOLS and isinstance(captured.metadata, dict):
        return [make_symbol(captured, context, namer)]
    return [make_artifact(captured, logged, context)]


def make_artifact(
    captured: Captured, logged: Logged, context: dict[str, Any]
) -> events.ArtifactSeen:
    metadata = captured.metadata if isinstance(captured.metadata, dict) else {}
    if captured.metadata is not None and not isinstance(captured.metadata, dict):
        metadata = {"value": captured.metadata}  # of others than torch, which writes objects
    text = captured.payload if isinstance(captured.payload, str) else None
    name, encoding, title = captured.name, None, None
    if name.startswith(ARTIFACT):
        name, encoding = name.removeprefix(ARTIFACT), metadata.get("encoding")
        metadata = {
            key: value for key, value in metadata.items() if key not in ("name", "encoding")
        }
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
@lru_cache(maxsize=64)
def _count_guards(text: str) -> GuardSummary | None:
    return cast("GuardSummary | None", count_guards(text))


@lru_cache(maxsize=64)
def _sum_up_aot(text: str) -> AotSummary | None:
    meta = parse_metadata(text)
    return cast("AotSummary", summarize(meta)) if meta is not None else None


def make_symbol(captured: Captured, context: dict[str, Any], namer: PathNamer) -> events.SymbolSeen:
    fields = clean(captured.metadata)
    frames = parse_frames(fields.get("user_stack")) or parse_frames(fields.get("stack"))
    frame = user_frame(frames)
    detail = {key: value for key, value in fields.items() if key not in _STACKS}
    for key in _STACKS:
        if isinstance(fields.get(key), list):
            detail[key] = named_stack(parse_frames(fields[key]), namer)
    return events.SymbolSeen(
        **context,
        symbol_kind=SYMBOLS[captured.name],
        symbol=_text(fields.get("symbol")),
        expression=_text(fields.get("expr") or fields.get("reason")),
        value=_text(fields.get("val") if "val" in fields else fields.get("value")),
        value_range=_text(fields.get("vr")),
        source=_text(fields.get("source") or fields.get("sources")),
        file=namer.name(frame.path) if frame else None,
        line=frame.line if frame else None,
        source_line=frame.code if frame else None,
        detail={"name": captured.name, **detail},
    )


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(str(element) for element in value) or None
    return None if value is None or value == "" else str(value)
