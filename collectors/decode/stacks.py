"""Torch's two stack formats, and which frames a person wrote."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from compileboard.collectors.contract.shapes import Frame as NamedFrame
from compileboard.collectors.decode.paths import PathNamer, function_name, is_library, is_torch

_FILE = re.compile(
    r'^(?P<indent>\s*)File "(?P<path>.*?)", line (?P<line>\d+)(?:, in (?P<name>.*))?$'
)
_MARKS = re.compile(r"^[\s^~]+$")
# "['Line: 109, Name: step, Filename: /srv/models.py', …": the form of
# CompilationMetrics.stack_trace
_METRIC = re.compile(r"^Line: (?P<line>\d+), Name: (?P<name>.*?), Filename: (?P<path>.*)$")


@dataclass(frozen=True)
class Frame:
    path: str
    line: int | None = None
    name: str | None = None
    code: str | None = None


def parse_frames(stack: Any) -> list[Frame]:
    """Parse a structured stack: dicts of line, name, filename and loc, or metrics' "Line: …, Name:
    …" texts.
    """
    frames = []
    for entry in stack if isinstance(stack, list | tuple) else ():
        if isinstance(entry, dict):
            path, line, loc = entry.get("filename"), entry.get("line"), entry.get("loc")
            name = entry.get("name")
            frames.append(
                Frame(
                    path=path if isinstance(path, str) else "<unknown>",
                    line=line if isinstance(line, int) else None,
                    name=name if isinstance(name, str) else None,
                    code=loc.strip() if isinstance(loc, str) and loc.strip() else None,
                )
            )
        elif isinstance(entry, str) and (match := _METRIC.match(entry)):
            frames.append(Frame(match["path"], _number(match["line"]), match["name"]))
    return frames


def parse_traceback(text: str) -> list[Frame]:
    frames: list[Frame] = []
    lines = text.split("\n")
    for index, line in enumerate(lines):
        match = _FILE.match(line)
        if match is None:
            continue
        after = lines[index + 1] if index + 1 < len(lines) else ""
        indented = len(after) - len(after.lstrip()) > len(match["indent"])
        is_code = indented and after.strip() and not _FILE.match(after) and not _MARKS.match(after)
        frames.append(
            Frame(
                match["path"],
                _number(match["line"]),
                match["name"],
                after.strip() if is_code else None,
            )
        )
    return frames


def named_stack(frames: Iterable[Frame], namer: PathNamer) -> list[NamedFrame]:
    """Return frames as events store them: {file, line, name, code}."""
    return [
        NamedFrame(file=namer.name(f.path), line=f.line, name=function_name(f.name)[0], code=f.code)
        for f in frames
    ]


def user_frame(frames: list[Frame], strict: bool = False) -> Frame | None:
    """Return the innermost frame outside torch and, if possible, the standard library.

    If there is none, return the innermost of all, or None if strict.
    """
    accepts: tuple[Callable[[Frame], bool], ...] = (
        lambda f: not is_torch(f.path) and not is_library(f.path),
        lambda f: not is_torch(f.path),
    )
    for accept in accepts[: 1 if strict else None]:
        for frame in reversed(frames):
            if accept(frame):
                return frame
    return frames[-1] if frames and not strict else None


def _number(digits: str) -> int | None:
    # int() refuses more than 4300 digits; no real line has ten.
    return int(digits) if len(digits) < 10 else None
