"""Parse graph break texts of torch 2.5 to 2.13.

Source: torch/_dynamo/symbolic_convert.py (log_graph_break), exc.py (format_graph_break_message,
format_error_msg_verbose) and convert_frame.py (the frame that is skipped).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.fingerprints import fingerprint, source_hash
from compileboard.collectors.decode.records import (
    Frame,
    PathNamer,
    Qualify,
    named_stack,
    parse_traceback,
    qualified_name,
    split_resume_name,
    user_frame,
)

_TABLE = Path(__file__).with_name("break_registry.json")
_SITE = "https://meta-pytorch.github.io/compile-graph-break-site/gb"


@dataclass(frozen=True)
class RegistryEntry:
    gb_id: str
    gb_type: str
    explanation: str
    hints: tuple[str, ...]


@lru_cache(maxsize=1)
def _load_entries() -> dict[str, RegistryEntry]:
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    hints = table["hints"]
    return {
        gb_id: RegistryEntry(gb_id, gb_type, explanation, tuple(hints[i] for i in hint_indices))
        for gb_id, gb_type, explanation, hint_indices in table["breaks"]
    }


@lru_cache(maxsize=1)
def _load_types() -> dict[str, tuple[str, ...]]:
    ids: dict[str, list[str]] = {}
    table = json.loads(_TABLE.read_text(encoding="utf-8"))
    for gb_id, gb_type, _, _ in table["breaks"]:
        ids.setdefault(gb_type, []).append(gb_id)
    for gb_type, gb_ids in table["older_types"].items():
        ids.setdefault(gb_type, []).extend(gb_ids)
    return {gb_type: tuple(sorted(set(gb_ids))) for gb_type, gb_ids in ids.items()}


# Additional ids and types from the installed torch, if it is newer than the table above.
_learnt: dict[str, RegistryEntry] = {}


@lru_cache(maxsize=8)
def load_registry(path: str) -> None:
    try:
        if not Path(path).is_file():  # reading a pipe would block
            return
        table = json.loads(Path(path).read_text(encoding="utf-8"))
        for gb_id, variants in table.items():
            if gb_id not in _load_entries():
                newest = variants[0]
                hints = tuple(str(hint) for hint in newest.get("Hints", ()))
                _learnt[gb_id] = RegistryEntry(
                    gb_id, str(newest["Gb_type"]), str(newest.get("Explanation", "")), hints
                )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return


def lookup(gb_id: str) -> RegistryEntry | None:
    return _load_entries().get(gb_id.upper()) or _learnt.get(gb_id.upper())


def ids_of_type(gb_type: str) -> tuple[str, ...]:
    known = _load_types().get(gb_type, ())
    return known or tuple(
        sorted(entry.gb_id for entry in _learnt.values() if entry.gb_type == gb_type)
    )


def page_url(gb_id: str) -> str:
    return f"{_SITE}/{gb_id.lower()}.html"


_LOCATION = re.compile(r"^Graph break in user code at (?P<path>.+):(?P<line>\d+)$", re.MULTILINE)
_REASON = re.compile(r"^(?:Graph Break )?Reason: ", re.MULTILINE)
_URL = re.compile(r"/gb/?(gb\d{2,6})\.html", re.IGNORECASE)
_RAISED = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Unsupported|Exit|Interrupt|Warning)): ",
    re.MULTILINE,
)
_UNSUPPORTED = re.compile(r"^(?:[\w.]+\.)?Unsupported: ", re.MULTILINE)
_AFTER_STACK = re.compile(
    (
        r"^(?:Traceback \(most recent call last\):|NoneType: None|NOTE: the most recent "
        r"`torch.compile`)"
    ),
    re.MULTILINE,
)
_STACK_HEADS = (
    "User code traceback:\n",
    "The graph break occurred in the following user code:\n",
    "from user code at:\n",
    " The above exception occurred while processing the following code ",
)
_SKIPPED = re.compile(
    r"\A(?:Graph break: skip\b|WON'T CONVERT\b)"
    r"|torch\.compile (?:cannot properly resume|will skip tracing|intentionally decided to skip)"
    r"|\bSkipping (?:the )?(?:function|frame) (?:and falling back to eager|because)"
)
_ANOTHER = re.compile(
    r"^\*\*\* While handling this graph break, another graph break occurred: \*\*\*$", re.MULTILINE
)
_UNCONVERTED = re.compile(
    r"\AWON'T CONVERT (?P<name>\S+) (?P<path>.+) line (?P<line>\d{1,9})$", re.MULTILINE
)
_FIELDS = (
    ("operator", "Higher Order Operator: "),
    ("explanation", "Explanation: "),
    ("hint", "Hint: "),
    ("context", "Developer debug context:"),
    ("link", "For more details about this graph break"),
)
_WRAPPED = re.compile(
    r"^(?:Encountered graph break when attempting to (?:trace|store)\b|Failed to handle graph "
    r"break\b)"
)

_DATA_DEPENDENT = (
    "Could not guard on data-dependent expression",
    "Could not extract specialized integer from",
)

# Parts of a reason that vary between calls, most specific first, each with its placeholder.
_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"<source withheld [0-9a-f]{12}>"), "<source>"),
    (
        re.compile(r"<(?:class|function|module|method|built-in [a-z]+|bound method)\b[^<>]*>"),
        "<object>",
    ),
    (re.compile(r"\b[A-Za-z_]\w*Variable\([^()]*(?:\([^()]*\)[^()]*)*\)"), "<variable>"),
    (re.compile(r"torch\.Size\(\[[^\]]*\]\)"), "<shape>"),
    (re.compile(r"\"(?:[^\"\\\n]|\\.)*\""), "<string>"),
    (re.compile(r"(?<!\w)'(?:[^'\\\n]|\\.)*'"), "<string>"),
    (re.compile(r"\bid\s*=\s*\d+"), "id=<number>"),
    (re.compile(r"[\[(]\s*-?\d+(?:\s*,\s*-?\d+)*\s*,?\s*[\])]"), "<shape>"),
    (re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?!\w)"), "<number>"),
)


# Until 2.7 some reasons are not a type; each is listed with what 2.6 and 2.13 log for the same
# line.
_OLDER_REASONS = tuple(
    (re.compile(pattern), gb_id)
    for pattern, gb_id in (
        (r"builtin: \w+ \[", "GB0059"),
        (r"'skip function graph_break in file .*_dynamo/decorators\.py'", "GB0025"),
        (r"generic_jump TensorVariable\(\)|Data-dependent jump$", "GB0170"),
        (r"Tensor\.item$", "GB0124"),
        (r"Input tensor for tolist must be an integer tensor", "GB0109"),
        (r"Graph break due to unsupported (?:Python )?builtin ", "GB0007"),
        (r"Logger not supported for non-export cases", "GB0291"),
        (r"dynamic shape operator: ", "GB0036"),
        (r"call torch\._dynamo\.disable\(\) wrapped function ", "GB0098"),
    )
)


@dataclass
class BreakMessage:
    head: list[str] = field(default_factory=list)  # paragraphs before the explanation
    explanation: str | None = None
    hints: list[str] = field(default_factory=list)
    context: str | None = None
    structured: bool = False

    @property
    def reason(self) -> str:
        inner = [part for part in self.head if not _WRAPPED.match(part)]
        guard = next((part for part in inner if part.startswith(_DATA_DEPENDENT)), None)
        if guard is not None:  # debugging advice follows
            return guard
        for part in reversed(inner):
            if ids_of_type(part):
                return part
        return inner[-1] if inner else (self.head[-1] if self.head else "")


def parse_message(text: str) -> BreakMessage:
    """Split a graph break message into type, explanation, hints and developer context.

    If handling a break led to another one, the first is the cause; the other's explanation is
    appended.
    """
    parts = _ANOTHER.split(text)
    message = _parse_one(parts[0])
    for part in parts[1:]:
        other = _parse_one(part)
        consequence = ": ".join(filter(None, (other.reason, other.explanation)))
        message.explanation = "\n\n".join(filter(None, (message.explanation, consequence))) or None
        message.hints += [hint for hint in other.hints if hint not in message.hints]
    return message


def _parse_one(text: str) -> BreakMessage:
    message = BreakMessage()
    target, gathered = "head", [""]

    def finish_field() -> None:
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
        field_mark = next(
            ((name, mark) for name, mark in _FIELDS if stripped.startswith(mark)), None
        )
        # A field is indented by one or two spaces, its continuation by four.
        if field_mark and 1 <= len(line) - len(stripped) <= 2:
            finish_field()
            target, mark = field_mark
            gathered = [stripped[len(mark) :]]
            message.structured = True
        else:
            gathered.append(line)
    finish_field()
    return message


def _text_until(text: str, start: int, *ends: str) -> str:
    stops = [stop for end in ends if (stop := text.find(end, start)) >= 0]
    return text[start : min(stops)] if stops else text[start:]


def reason_text(text: str) -> str:
    match = _REASON.search(text)
    if match and (match.start() == 0 or text.startswith(("Graph break", "torch.compile"))):
        ends = (
            "\nUser code traceback:",
            "\nStack variable source attribution:",
            "\nTraceback (most recent call last)",
        )
        return _text_until(text, match.end(), *ends).strip("\n").removeprefix("Unsupported: ")
    # A skipped frame has no "Reason:", but an exception. Dynamo acted on the last one.
    raised = list(_UNSUPPORTED.finditer(text)) or list(_RAISED.finditer(text))
    if raised:
        body = _text_until(
            text, raised[-1].end(), "\n\nfrom user code:", "\n==========", "\nUser code traceback:"
        ).strip("\n")
        kind = raised[-1].groupdict().get("type")
        return f"{kind.rsplit('.', 1)[-1]}: {body}" if kind else body
    first = text.strip().split("\n", 1)[0]
    return (
        first.removeprefix("Graph break: ").removesuffix("from user code at:").strip().rstrip(":")
    )


def user_stack(text: str) -> list[Frame]:
    for head in _STACK_HEADS:
        start = text.find(head)
        if start >= 0:
            body = text[start + len(head) :]
            after = _AFTER_STACK.search(body)
            return parse_traceback(body[: after.start()] if after else body)
    return []


def _gb_id(text: str, message: BreakMessage, gb_type: str | None) -> str | None:
    # The frame's own reason comes first in the text; a nested one may be quoted after it.
    match = _URL.search(text)
    if match:
        return match.group(1).upper()
    if gb_type is None:
        reason = message.reason
        return next((gb_id for known, gb_id in _OLDER_REASONS if known.match(reason)), None)
    ids = ids_of_type(gb_type)
    return ids[0] if len(ids) == 1 else None


def _find_frame(text: str, frames: list[Frame]) -> Frame | None:
    match = _LOCATION.search(text)
    head = Frame(match["path"], int(match["line"])) if match and len(match["line"]) < 10 else None
    # At the end of a frame (a backend that gives up) the frame itself is not on the stack; the
    # headline names it.
    if (
        head
        and not any((f.path, f.line) == (head.path, head.line) for f in frames)
        and user_frame([head], strict=True)
    ):
        return head
    unconverted = _UNCONVERTED.search(text)
    if unconverted and not frames:
        return Frame(unconverted["path"], int(unconverted["line"]), unconverted["name"])
    return user_frame(frames) or head


def normalise_values(text: str) -> str:
    text = text[:10_000]  # such long reasons differ in their beginning
    for pattern, placeholder in _VALUES:
        text = pattern.sub(placeholder, text)
    return " ".join(text.split())


def break_fingerprint(
    gb_id: str | None, reason: str, function: str | None, file: str | None, code: str | None
) -> str:
    what = gb_id or normalise_values(reason)
    return fingerprint("break", what, f"{file or ''}::{function or ''}", code)


def _drop_placeholders(texts: tuple[str, ...]) -> list[str]:
    """Leave out texts with a placeholder for a name of the program."""
    return [text for text in texts if "{" not in text]


def parse_break(
    text: str, namer: PathNamer, qualify: Qualify | None = None, qualname: str | None = None
) -> dict[str, Any]:
    body = reason_text(text)
    message = parse_message(body)
    reason = message.reason
    # The user's lines may contain the word skipping: search only torch's text.
    head = (
        f"{text[: text.find(body)]}{body}"
        if body and body in text
        else text.split("User code traceback:")[0]
    )
    known = message.structured or bool(ids_of_type(reason))
    gb_type = reason if known and reason else None
    gb_id = _gb_id(text, message, gb_type)
    entry = lookup(gb_id) if gb_id else None
    known_texts = (entry.explanation, *entry.hints) if entry and not message.structured else ()
    if gb_id and gb_type is None:  # an older reason is a newer one's context
        message.context = message.context or reason.replace("builtin: ", "builtin ", 1)
    frames = user_stack(text)
    frame = _find_frame(text, frames)
    name, resumed_at = split_resume_name(frame.name if frame else None)
    if frame:
        name = qualified_name(qualify, frame.path, frame.line, name)
    if qualname and name and qualname.rsplit(".", 1)[-1] == name.rsplit(".", 1)[-1]:
        name = qualname
    file = namer.name(frame.path) if frame else None
    code = frame.code if frame else None
    hashed = source_hash(code)
    return {
        "gb_id": gb_id,
        "gb_type": gb_type or (entry.gb_type if entry else None),
        "reason": reason or (entry.gb_type if entry else ""),
        "explanation": message.explanation or next(iter(_drop_placeholders(known_texts[:1])), None),
        "hints": message.hints or _drop_placeholders(known_texts[1:]),
        "debug_context": message.context,
        "function": name,
        "file": file,
        "line": frame.line if frame else None,
        "resumed_at": resumed_at,
        "source_line": code,
        "source_hash": hashed,
        "outcome": "skipped" if _SKIPPED.search(head) else "unknown",
        "fingerprint": break_fingerprint(gb_id, reason, name, file, hashed),
        "stack": named_stack(frames, namer),
        "text": text,
    }
