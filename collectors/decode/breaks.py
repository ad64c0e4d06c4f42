"""A graph break's text, as torch 2.5 to 2.13 write it, to its parts.

Source: torch/_dynamo/symbolic_convert.py (log_graph_break), exc.py (format_graph_break_message,
format_error_msg_verbose) and convert_frame.py (the frame that is skipped).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from collectors.decode import registry
from collectors.decode.hashing import fingerprint, normalise_values, source_hash
from collectors.decode.paths import PathNamer, function_name
from collectors.decode.stacks import Frame, named_stack, parse_traceback, user_frame

Qualify = Callable[[str, int], "str | None"]

_PLACE = re.compile(r"^Graph break in user code at (?P<path>.+):(?P<line>\d+)$", re.MULTILINE)
_REASON = re.compile(r"^(?:Graph Break )?Reason: ", re.MULTILINE)
_URL = re.compile(r"/gb/?(gb\d{2,6})\.html", re.IGNORECASE)
_RAISED = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Unsupported|Exit|Interrupt|Warning)): ", re.MULTILINE
)
_UNSUPPORTED = re.compile(r"^(?:[\w.]+\.)?Unsupported: ", re.MULTILINE)
_AFTER_STACK = re.compile(
    r"^(?:Traceback \(most recent call last\):|NoneType: None|NOTE: the most recent `torch.compile`)", re.MULTILINE
)
_STACK_HEADS = (
    "User code traceback:\n",
    "The graph break occurred in the following user code:\n",
    "from user code at:\n",
    " The above exception occurred while processing the following code ",
)
_SKIPPED = ("torch.compile cannot properly resume from this graph break", "torch.compile will skip tracing the frame")
_SKIPPED_START = re.compile(r"^Graph break: skip\b|^WON'T CONVERT\b|intentionally decided to skip", re.MULTILINE)
_FIELDS = (
    ("explanation", "Explanation: "),
    ("hint", "Hint: "),
    ("context", "Developer debug context:"),
    ("link", "For more details about this graph break"),
)
_WRAPPED = re.compile(r"^Encountered graph break when attempting to (?:trace|store)\b")


@dataclass
class Message:
    """Hold what an `Unsupported` message says."""

    head: list[str] = field(default_factory=list)  # paragraphs before the explanation
    explanation: str | None = None
    hints: list[str] = field(default_factory=list)
    context: str | None = None
    structured: bool = False

    @property
    def reason(self) -> str:
        """Give the paragraph that names what broke, without torch's wrapping around it."""
        inner = [part for part in self.head if not _WRAPPED.match(part)]
        for part in reversed(inner):
            if registry.ids_of_type(part):
                return part
        return inner[-1] if inner else (self.head[-1] if self.head else "")


def parse_message(text: str) -> Message:
    """Split a graph break message into type, explanation, hints and developer context."""
    message = Message()
    target, gathered = "head", [""]

    def close() -> None:
        body = "\n".join(line.strip() for line in gathered).strip()
        if target == "head":
            message.head = [" ".join(p.split()) for p in re.split(r"\n\s*\n", body) if p.strip()]
        elif target == "explanation":
            message.explanation = body or None
        elif target == "hint" and body:
            message.hints.append(body)
        elif target == "context":
            message.context = body or None

    for line in text.split("\n"):
        stripped = line.lstrip()
        found = next(((name, mark) for name, mark in _FIELDS if stripped.startswith(mark)), None)
        # A field is indented by one or two spaces, what continues it by four.
        if found and 1 <= len(line) - len(stripped) <= 2:
            close()
            target, mark = found
            gathered = [stripped[len(mark) :]]
            message.structured = True
        else:
            gathered.append(line)
    close()
    return message


def _cut(text: str, start: int, *ends: str) -> str:
    stops = [place for end in ends if (place := text.find(end, start)) >= 0]
    return text[start : min(stops)] if stops else text[start:]


def reason_text(text: str) -> str:
    """Find the message inside a whole payload."""
    found = _REASON.search(text)
    if found and (found.start() == 0 or text.startswith(("Graph break", "torch.compile"))):
        ends = ("\nUser code traceback:", "\nStack variable source attribution:", "\nTraceback (most recent call last)")
        return _cut(text, found.end(), *ends).strip("\n")
    # A skipped frame has no "Reason:"; what was raised says it. The last one is what dynamo acted on.
    raised = list(_UNSUPPORTED.finditer(text)) or list(_RAISED.finditer(text))
    if raised:
        return _cut(text, raised[-1].end(), "\n\nfrom user code:", "\n==========", "\nUser code traceback:").strip("\n")
    first = text.strip().split("\n", 1)[0]
    return first.removeprefix("Graph break: ").removesuffix("from user code at:").strip().rstrip(":")


def user_stack(text: str) -> list[Frame]:
    """Read the user's stack of a payload, outermost first, without dynamo's own traceback after it."""
    for head in _STACK_HEADS:
        start = text.find(head)
        if start >= 0:
            body = text[start + len(head) :]
            after = _AFTER_STACK.search(body)
            return parse_traceback(body[: after.start()] if after else body)
    return []


def _gb_id(text: str, gb_type: str | None) -> str | None:
    # The frame's own reason comes first in the text; a nested one may be quoted after it.
    found = _URL.search(text)
    if found:
        return found.group(1).upper()
    ids = registry.ids_of_type(gb_type) if gb_type else ()
    return ids[0] if len(ids) == 1 else None


def _place(text: str, frames: list[Frame]) -> Frame | None:
    found = user_frame(frames)
    if found is not None:
        return found
    place = _PLACE.search(text)
    if place and len(place["line"]) < 10:
        return Frame(place["path"], int(place["line"]))
    return None


def break_fingerprint(gb_id: str | None, reason: str, function: str | None, file: str | None, code: str | None) -> str:
    """Identify a distinct break: id (else the reason without its values), function, and its line's text."""
    what = gb_id or normalise_values(reason)
    return fingerprint("break", what, f"{file or ''}::{function or ''}", code)


def parse_break(
    text: str, namer: PathNamer, qualify: Qualify | None = None, qualname: str | None = None
) -> dict[str, Any]:
    """Read a whole payload into the fields of a GraphBroke event."""
    message = parse_message(reason_text(text))
    reason = message.reason
    known = message.structured or bool(registry.ids_of_type(reason))
    gb_type = reason if known and reason else None
    gb_id = _gb_id(text, gb_type)
    entry = registry.lookup(gb_id) if gb_id else None
    frames = user_stack(text)
    frame = _place(text, frames)
    name, resumed_at = function_name(frame.name if frame else None)
    if frame and frame.line is not None and qualify is not None:
        name = qualify(frame.path, frame.line) or name
    if qualname and name and qualname.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]:
        name = qualname
    file = namer.name(frame.path) if frame else None
    code = frame.code if frame else None
    hashed = source_hash(code)
    skipped = any(mark in text for mark in _SKIPPED) or bool(_SKIPPED_START.search(text))
    return {
        "gb_id": gb_id,
        "gb_type": gb_type or (entry.gb_type if entry else None),
        "reason": reason or (entry.gb_type if entry else ""),
        "explanation": message.explanation or (entry.explanation if entry and not message.structured else None),
        "hints": message.hints or (list(entry.hints) if entry and not message.structured else []),
        "debug_context": message.context,
        "function": name,
        "file": file,
        "line": frame.line if frame else None,
        "resumed_at": resumed_at,
        "source_line": code,
        "source_hash": hashed,
        "outcome": "skipped" if skipped else "unknown",
        "fingerprint": break_fingerprint(gb_id, reason, name, file, hashed),
        "stack": named_stack(frames, namer),
        "text": text,
    }
