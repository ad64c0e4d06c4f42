"""Read the user's functions of graph breaks and recompiles, while the file is unchanged since."""

from __future__ import annotations

import ast
import os
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from compileboard.collectors.contract.events import CompileStarted, Event, GraphBroke, Recompiled
from compileboard.collectors.contract.secrets import scrub_text
from compileboard.collectors.contract.shapes import Frame
from compileboard.collectors.decode.records import FILE_LIMIT_BYTES, PathNamer, is_stdlib, is_torch
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.store.run_causes import MAX_EXCERPTS, MAX_LINES

LINES_BEFORE, LINES_AFTER = 4, 5  # if the line is in no function
MAX_LINE_LENGTH = 200
MAX_FILES = 200
_MAY_BE_SECRET = re.compile(r"[\"'#]|\d{4}")  # text, a comment, or a number like a PIN


class SourceReader:
    def __init__(
        self, namer: PathNamer, accepts: Callable[[str], bool] = lambda path: True
    ) -> None:
        self._namer = namer
        self._accepts = accepts
        self._read: set[tuple[str, int]] = set()
        self._files: dict[str, list[str] | None] = {}
        self._outlines: dict[str, _Outline] = {}
        self.unsaved: list[SourceLines] = []

    def read(self, events: Iterable[Event]) -> list[SourceLines]:
        for event in events:
            for file, line, code in _list_lines(event):
                if (file, line) in self._read or len(self._read) >= MAX_EXCERPTS:
                    continue
                self._read.add((file, line))
                excerpt = self._read_excerpt(file, line, code, event.time_us)
                self.unsaved += [excerpt] if excerpt else []
        return self.unsaved

    def _read_excerpt(
        self, file: str, line: int, code: str | None, time_us: int
    ) -> SourceLines | None:
        lines = self._load(file, time_us)
        if lines is None or not 1 <= line <= len(lines):
            return None
        if code is not None and code.strip().split("\n")[0].strip() not in lines[line - 1]:
            return None
        if file not in self._outlines:
            self._outlines[file] = _read_outline("\n".join(lines))
        outline = self._outlines[file]
        first, last = outline.find_function(line)
        kept = [part[:MAX_LINE_LENGTH] for part in lines[max(1, first) - 1 : last]]
        scrubbed = scrub_text("\n".join(kept)).split("\n")
        if len(scrubbed) != len(kept):  # a secret may have spanned several lines
            return None
        cut = (
            part if outline.is_code(number, part) else safe
            for number, (part, safe) in enumerate(zip(kept, scrubbed), max(1, first))
        )
        return SourceLines(file, max(1, first), tuple(cut))

    def _load(self, file: str, time_us: int) -> list[str] | None:
        if file not in self._files and len(self._files) < MAX_FILES:
            self._files[file] = self._read_file(file, time_us)
        return self._files.get(file)

    def _read_file(self, file: str, time_us: int) -> list[str] | None:
        path = self._namer.find_path(file)
        if (
            path is None
            or not path.endswith(".py")
            or is_torch(path)
            or is_stdlib(path)
            or not self._accepts(path)
        ):
            return None
        try:
            status = os.stat(path)
            if status.st_size > FILE_LIMIT_BYTES or status.st_mtime_ns // 1000 > time_us:
                return None
            with tokenize.open(path) as text:
                return text.read().split("\n")
        except (OSError, SyntaxError, ValueError):
            return None


def _list_lines(event: Event) -> Iterator[tuple[str, int, str | None]]:
    if isinstance(event, GraphBroke):
        if event.file and event.line:
            yield event.file, event.line, event.source_line
        yield from _list_callers(event.stack)
    elif isinstance(event, CompileStarted):
        is_own = event.file and event.line and not is_torch(event.file)
        if is_own and event.frame_compile_id:
            yield str(event.file), event.line or 0, None
        yield from list(_list_callers(event.stack[:-1] if is_own else event.stack))[:1]
    elif isinstance(event, Recompiled):
        for guard in event.guards:
            if guard.file and guard.line:
                yield guard.file, guard.line, guard.source_line


def _list_callers(stack: Sequence[Frame]) -> Iterator[tuple[str, int, str | None]]:
    for frame in reversed(stack):
        file, line = frame.get("file"), frame.get("line")
        if file is not None and line is not None and not is_torch(file):
            yield file, line, frame.get("code")


@dataclass(frozen=True)
class _Outline:
    functions: tuple[tuple[int, int], ...] = ()  # first and last line, with decorators
    text_lines: frozenset[int] | None = None  # Lines of multi-line strings; None if unknown.

    def find_function(self, line: int) -> tuple[int, int]:
        around = [span for span in self.functions if span[0] <= line <= span[1]]
        if not around:
            return line - LINES_BEFORE, line + LINES_AFTER
        first, last = max(around)
        return max(first, line - MAX_LINES), min(last, line + MAX_LINES)

    def is_code(self, number: int, line: str) -> bool:
        """Return whether nothing in a line could be a secret: `token = ids[-1]`."""
        if self.text_lines is None or number in self.text_lines:
            return False
        return not _MAY_BE_SECRET.search(line)


def _read_outline(text: str) -> _Outline:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Outline()
    functions, text_lines = [], set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            functions.append((first, node.end_lineno or first))
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            last = node.end_lineno or node.lineno
            text_lines |= set(range(node.lineno, last + 1)) if last > node.lineno else set()
    return _Outline(tuple(functions), frozenset(text_lines))
