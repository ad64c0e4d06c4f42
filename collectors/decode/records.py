"""Records of torch, and parsing of the file names, stacks and function names in them."""

from __future__ import annotations

import ast
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import lru_cache
from typing import Any

from compileboard.collectors.contract import events
from compileboard.collectors.contract.library_names import name_package_file
from compileboard.collectors.contract.record_names import (
    AOT_METADATA,
    CONFIG,
    EVENTS,
    GUARDS,
    PROCESS_STARTED,
    SNAPSHOT,
    SPAN,
)
from compileboard.collectors.contract.shapes import Frame as NamedFrame


@dataclass(slots=True)
class LoggedPayload:
    md5: str | None = None  # torch's own, of the text
    size_bytes: int | None = None
    state: str = "none"  # of the text: kept | none | left_out | withheld | damaged
    whole: str | None = None  # A long span's full payload; `payload` has only kind and time.


@dataclass(slots=True)
class TorchRecord:
    """One record from torch.

    `name` is torch's event name ("dynamo_start", "bwd_compilation_metrics") or, for
    artifacts, "artifact:" and the artifact's name ("artifact:recompile_reasons").
    """

    process_id: str
    sequence: int
    time_us: int
    name: str
    metadata: Any = None
    payload: Any = None
    frame_id: int | None = None
    frame_compile_id: int | None = None
    compiled_autograd_id: int | None = None
    attempt: int | None = None
    rank: int | None = None
    extra: dict[str, Any] = field(
        default_factory=dict
    )  # only known to a live hook: {"qualname": …}
    logged: LoggedPayload | None = None  # None: from a live hook
    # Other contents of its log, stacks with their file names.
    envelope: dict[str, Any] | None = None

    @property
    def compile_id(self) -> str | None:
        return name_compile(self.compiled_autograd_id, self.frame_id, self.frame_compile_id)


def name_compile(
    compiled_autograd_id: int | None, frame_id: int | None, frame_compile_id: int | None
) -> str | None:
    """Return a compile ID as torch prints it: 0/1, or !0/1/0 under compiled autograd."""
    if compiled_autograd_id is None:
        if frame_id is None:
            return None
        return str(frame_id) if frame_compile_id is None else f"{frame_id}/{frame_compile_id}"
    parts = [f"!{compiled_autograd_id}"]
    parts += [str(part) for part in (frame_id, frame_compile_id) if part is not None]
    return "/".join(parts)


_READ = EVENTS | GUARDS | {SPAN, AOT_METADATA}


def is_event(name: str) -> bool:
    return name in EVENTS


def needs_payload(name: str) -> bool:
    return name in _READ


# The hooks write these directly as events.
HOOK_EVENTS: dict[str, type[events.Event]] = {
    PROCESS_STARTED: events.ProcessStarted,
    SNAPSHOT: events.SnapshotTaken,
    CONFIG: events.ConfigSeen,
}
_IDENTITY = ("process_id", "sequence", "time_us")


def make_event(captured: TorchRecord) -> events.Event | None:
    cls = HOOK_EVENTS.get(captured.name)
    if cls is None or not isinstance(captured.metadata, dict):
        return None
    values: dict[str, Any] = {}
    for declared in fields(cls):
        if declared.name in _IDENTITY:
            continue
        if declared.name in captured.metadata:
            values[declared.name] = captured.metadata[declared.name]
        elif declared.default is MISSING and declared.default_factory is MISSING:
            return None
    return cls(captured.process_id, captured.sequence, captured.time_us, **values)


_PACKAGES = re.compile(r"(?:^|/)(?:site|dist)-packages/(.+)$")
_STDLIB = re.compile(r"(?:^|/)lib(?:64)?/python3(?:\.\d+)?t?/(.+)$")
_STDLIB_WINDOWS = re.compile(r"^[A-Za-z]:/.*?/Lib/(.+)$")
# Our own code, even if an editable installation has it outside of every root.
_OURS = re.compile(r"(?:^|/)(compileboard/collectors/.+)$")
_OBSERVER = re.compile(r"(?:^|/)compileboard/collectors/observe/")
_TORCH = re.compile(r"^(?:torch|functorch|torchgen)/")
# ipykernel compiles each cell to a file of its own: /tmp/ipykernel_123/456.py, or
# <ipython-input-3-abc>.
_NOTEBOOK = re.compile(r"(?:^|/)ipykernel_\d+/\d+\.py$|^<ipython-input-.*>$|/xpython_\d+/\d+\.py$")
_GENERATED = re.compile(r"^<(eval_with_key|frozen [^>]*|string|stdin|[^<>]*)>")
_RESUME = re.compile(r"^torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)$")
_DRIVE = re.compile(r"^[A-Za-z]:[\\/]")

NOTEBOOK = "<notebook>"

Qualify = Callable[
    [str, int, str], "str | None"
]  # absolute path, line, bare name -> its qualified name


def slashed(path: str) -> str:
    return path.replace("\\", "/") if _DRIVE.match(path) or path.startswith("\\\\") else path


class PathNamer:
    def __init__(self, roots: Sequence[str] = ()) -> None:
        cleaned = {slashed(root).rstrip("/") for root in roots if root}
        # The deepest root wins: a repository inside a repository is named from the inner one.
        self._roots = sorted((root for root in cleaned if root), key=len, reverse=True)
        self._names: dict[str, str] = {}
        self._paths: dict[str, str | None] = {}  # by name; None if several files have it

    def name(self, path: str) -> str:
        name = self._names.get(path)
        if name is None:
            name = self._names[path] = self._name(slashed(path))
            known = self._paths.get(name, path) or ""
            # torch cuts the start of a path in a guard's comment.
            cut, whole = sorted((known, path), key=len)
            self._paths[name] = whole if known and whole.endswith(cut) else None
        return name

    def find_path(self, name: str) -> str | None:
        return self._paths.get(name)

    def _name(self, path: str) -> str:
        if _NOTEBOOK.search(path):
            return NOTEBOOK
        generated = _GENERATED.match(path)
        if generated:
            return (
                "<eval_with_key>"
                if generated.group(1).startswith("eval_with_key")
                else generated.group(0)
            )
        inside = self._below_root(path)
        # An environment inside the repository (.venv/lib/…/site-packages/torch) is still a package.
        if below := _PACKAGES.search(inside if inside is not None else path):
            return name_package_file(below.group(1))
        for pattern in (_STDLIB, _STDLIB_WINDOWS):
            if below := pattern.search(inside if inside is not None else path):
                return below.group(1)
        if inside is not None:
            return inside
        if ours := _OURS.search(path):
            return ours.group(1)
        relative = path[2:] if path.startswith("./") else path
        if (
            not relative.startswith(("/", "../", "~"))
            and not _DRIVE.match(relative)
            and "/../" not in relative
        ):
            return relative or "<unknown>"
        return relative.rstrip("/").rsplit("/", 1)[-1] or "<unknown>"

    def _below_root(self, path: str) -> str | None:
        for root in self._roots:
            if path.startswith(root + "/") and len(path) > len(root) + 1:
                inside = path[len(root) + 1 :].lstrip("/")
                if inside and "/../" not in f"/{inside}":
                    return inside
        return None


def is_torch(path: str) -> bool:
    path = slashed(path)
    below = _PACKAGES.search(path)
    return bool(_TORCH.match(below.group(1) if below else path)) or path.startswith(
        "<eval_with_key>"
    )


def is_stdlib(path: str) -> bool:
    path = slashed(path)
    if _PACKAGES.search(path):
        return False
    return bool(_STDLIB.search(path) or _STDLIB_WINDOWS.match(path)) or path.startswith("<frozen ")


def split_resume_name(code_name: str | None) -> tuple[str | None, int | None]:
    """Split torch's name of a resume function into the original name and the line of resumption."""
    resumed_at = None
    # Since Python 3.11 the name may be qualified: Model.torch_dynamo_resume_in_forward_at_64.
    qualifier, dot, code_name = (code_name or "").rpartition(".")
    while code_name:
        resume = _RESUME.match(code_name)
        if resume is None:
            break
        code_name = resume.group("name")
        # The outermost name is the newest break; older ones are inside it.
        if resumed_at is None:
            resumed_at = int(resume.group("line"))
    return f"{qualifier}{dot}{code_name}" or None, resumed_at


def qualified_name(
    qualify: Qualify | None, path: str, line: int | None, name: str | None
) -> str | None:
    """Return a function's name with its class, if `qualify` finds the function at that line.

    If it finds another function there, the file may have changed, and the plain name is used.
    """
    qualified = (
        qualify(path, line, name) if qualify is not None and line is not None and name else None
    )
    if not qualified or not name:
        return name
    if (
        name.startswith("<") and name != "<module>"
    ):  # <lambda>, <listcomp>: the index has the enclosing function
        return f"{qualified}.<locals>.{name}"
    return qualified if qualified.rsplit(".", 1)[-1] == name else name


FILE_LIMIT_BYTES = 4 << 20


def qualify(path: str, line: int, name: str) -> str | None:
    """Return the qualified name of the function that contains a line, None if unknown.

    `name` is the frame's: decorators and defaults of an inner function run in the outer one. For a
    frame without a function of that name (<lambda>, <listcomp>) it is the innermost enclosing
    function.
    """
    starts, spans = _index_functions(path)
    best = None
    for index in range(bisect_right(starts, line)):
        start, end, qualified = spans[index]
        if start <= line <= end and (name.startswith("<") or qualified.rpartition(".")[2] == name):
            best = qualified  # sorted by start, so the last match is the innermost
    return best


@lru_cache(maxsize=512)
def _index_functions(path: str) -> tuple[list[int], list[tuple[int, int, str]]]:
    try:
        if not path.endswith(".py") or os.path.getsize(path) > FILE_LIMIT_BYTES:
            return [], []
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return [], []
    spans: list[tuple[int, int, str]] = []
    _walk_functions(tree, "", spans)
    spans.sort()
    return [span[0] for span in spans], spans


def _walk_functions(node: ast.AST, prefix: str, spans: list[tuple[int, int, str]]) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            _walk_functions(child, f"{prefix}{child.name}.", spans)
        elif isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name = prefix + child.name
            start = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
            spans.append((start, child.end_lineno or child.lineno, name))
            _walk_functions(child, f"{name}.<locals>.", spans)
        else:
            _walk_functions(child, prefix, spans)


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
            frames.append(Frame(match["path"], _parse_line_number(match["line"]), match["name"]))
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
                _parse_line_number(match["line"]),
                match["name"],
                after.strip() if is_code else None,
            )
        )
    return frames


def named_stack(frames: Iterable[Frame], namer: PathNamer) -> list[NamedFrame]:
    """Return frames as events store them: {file, line, name, code}."""
    return [
        NamedFrame(
            file=namer.name(f.path), line=f.line, name=split_resume_name(f.name)[0], code=f.code
        )
        for f in frames
    ]


def user_frame(frames: list[Frame], strict: bool = False) -> Frame | None:
    """Return the innermost frame outside torch, our hook and, if possible, the standard library.

    If there is none, return the innermost of all frames, or None if strict.
    """
    accepts: tuple[Callable[[Frame], bool], ...] = (
        lambda f: not is_torch(f.path) and not is_stdlib(f.path),
        lambda f: not is_torch(f.path),
    )
    frames = [frame for frame in frames if not _OBSERVER.search(slashed(frame.path))]
    for accept in accepts[: 1 if strict else None]:
        for frame in reversed(frames):
            if accept(frame):
                return frame
    return frames[-1] if frames and not strict else None


def _parse_line_number(digits: str) -> int | None:
    # int() refuses more than 4,300 digits; no real line has ten.
    return int(digits) if len(digits) < 10 else None
