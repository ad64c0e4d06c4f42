"""Decode artifacts with their texts, and symbolic shapes, of a trace log."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
from compileboard.collectors.decode.guard_tree import count_guards
from compileboard.collectors.decode.records import (
    Frame,
    LoggedPayload,
    PathNamer,
    Qualify,
    TorchRecord,
    is_torch,
    named_stack,
    parse_frames,
    parse_traceback,
    qualified_name,
    split_resume_name,
    user_frame,
)
from compileboard.collectors.decode.spans import make_span

_TITLES = ("filename", "name", "url", "url_name", "op")
_STACKS = ("stack", "user_stack", "framework_stack")


def decode_logged(
    captured: TorchRecord, logged: LoggedPayload, context: dict[str, Any], namer: PathNamer
) -> list[events.Event]:
    if captured.name == SPAN:
        span = make_span(captured, context, keep_text=logged.state == "kept")
        if span is not None:
            return [span]
    elif captured.name in SYMBOLS and isinstance(captured.metadata, dict):
        return [make_symbol(captured, context, namer)]
    return [make_artifact(captured, logged, context)]


def make_artifact(
    captured: TorchRecord, logged: LoggedPayload, context: dict[str, Any]
) -> events.ArtifactSeen:
    metadata = captured.metadata if isinstance(captured.metadata, dict) else {}
    if captured.metadata is not None and not isinstance(captured.metadata, dict):
        metadata = {
            "value": captured.metadata
        }  # from programs other than torch, which logs objects
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


# Ranks, and identical parts of a model, repeat the same.
@lru_cache(maxsize=64)
def _count_guards(text: str) -> GuardSummary | None:
    return cast("GuardSummary | None", count_guards(text))


@lru_cache(maxsize=64)
def _sum_up_aot(text: str) -> AotSummary | None:
    meta = parse_metadata(text)
    return cast("AotSummary", summarize(meta)) if meta is not None else None


def make_symbol(
    captured: TorchRecord, context: dict[str, Any], namer: PathNamer
) -> events.SymbolSeen:
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
        symbol=_as_text(fields.get("symbol")),
        expression=_as_text(fields.get("expr") or fields.get("reason")),
        value=_as_text(fields.get("val") if "val" in fields else fields.get("value")),
        value_range=_as_text(fields.get("vr")),
        source=_as_text(fields.get("source") or fields.get("sources")),
        file=namer.name(frame.path) if frame else None,
        line=frame.line if frame else None,
        source_line=frame.code if frame else None,
        detail={"name": captured.name, **detail},
    )


def _as_text(value: Any) -> str | None:
    if isinstance(value, list):
        return ", ".join(str(element) for element in value) or None
    return None if value is None or value == "" else str(value)


_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
PHASES = ("compile", "forward", "backward", "wrapper", "program")
_GENERATED = re.compile(r"[/\\](\w\w)[/\\]c\1\w{40,}\.py$")  # inductor's code in its cache
# Functions that torch calls for a graph: AOTAutograd's code around it (a module, and generated
# code), or the graph.
_WRAPPER = re.compile(r"[/\\]_functorch[/\\]_aot_autograd[/\\]")
_GRAPH = re.compile(rf"^<eval_with_key>|[/\\]_inductor[/\\]|{_GENERATED.pattern}")
_TRACEBACK = "Traceback (most recent call last):"
_NOISE = re.compile(
    r"^(?:Set TORCHDYNAMO_VERBOSE|Set TORCH_LOGS|You can suppress this exception|from user code:)"
)


def parse_error(text: str) -> tuple[str | None, str | None]:
    lines = text.split("\n")
    start = None
    in_traceback = False
    for index, line in enumerate(lines):
        if line.startswith(_TRACEBACK):
            in_traceback = True
        elif in_traceback and line and not line.startswith((" ", "\t")):
            # The first line after a traceback's frames that is not indented names the exception.
            in_traceback = False
            if _RAISED.match(line):
                start = index
    if start is None:
        start = next(
            (i for i, line in enumerate(lines) if _RAISED.match(line) and ":" in line), None
        )
    if start is None:
        stripped = text.strip()
        return None, stripped or None
    match = _RAISED.match(lines[start])
    assert match is not None
    message_lines = [match["message"] or ""]
    for line in lines[start + 1 :]:
        if _NOISE.match(line) or line.startswith("Traceback (most"):
            break
        message_lines.append(line)
    return match["type"].rsplit(".", 1)[-1], "\n".join(message_lines).strip() or None


def parse_raised(
    metadata: Mapping[str, Any], text: str, namer: PathNamer, qualify: Qualify | None = None
) -> dict[str, Any]:
    frames = parse_traceback(text.rsplit(_TRACEBACK, 1)[-1])  # without its causes
    frame = user_frame(
        [frame for frame in frames if not _GENERATED.search(frame.path)], strict=True
    )
    phase = metadata.get("phase")
    if phase == "forward" and _is_wrapper(frames):
        phase = "wrapper"
    fields = {
        name: metadata[name]
        for name in ("position", "error_type", "message", "ended_program")
        if name in metadata
    }
    fields |= {
        name: metadata[name] for name in ("occurrence_count", "compiled_us") if name in metadata
    }
    name = split_resume_name(frame.name)[0] if frame else None
    if frame and qualify:
        name = qualified_name(qualify, frame.path, frame.line, name)
    where = {
        "function": name,
        "file": namer.name(frame.path) if frame else None,
        "line": frame.line if frame else None,
    }
    return {**fields, **where, "phase": phase if phase in PHASES else "program", "text": text}


def _is_wrapper(frames: list[Frame]) -> bool:
    if not frames or not is_torch(frames[-1].path):
        return False
    around = [
        frame
        for frame in frames
        if _WRAPPER.search(frame.path) and frame.name != "__torch_dispatch__"
    ]  # an op's
    parts = [frame for frame in frames if frame in around or _GRAPH.search(frame.path)]
    return bool(parts) and parts[-1] in around
