"""Decode exceptions from compiles (dynamo_error) and from compiled code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from compileboard.collectors.decode.paths import (
    PathNamer,
    Qualify,
    function_name,
    is_torch,
    qualified_name,
)
from compileboard.collectors.decode.stacks import Frame, parse_traceback, user_frame

_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
PHASES = ("compile", "forward", "backward", "wrapper", "program")
_GENERATED = re.compile(r"[/\\](\w\w)[/\\]c\1\w{40,}\.py$")  # inductor's code in its cache
# What torch calls for a graph: AOTAutograd's code around it (a module of its own, and what that
# writes), or the graph.
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
            # The first line after a traceback's frames that is not indented names what was raised.
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
    frames = parse_traceback(
        text.rsplit(_TRACEBACK, 1)[-1]
    )  # without the exceptions it was made from
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
    name = function_name(frame.name)[0] if frame else None
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
    ]  # that is an op's
    parts = [frame for frame in frames if frame in around or _GRAPH.search(frame.path)]
    return bool(parts) and parts[-1] in around
