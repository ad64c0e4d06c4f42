"""Read the user's source around graph breaks and recompiles while the file is unchanged."""

from __future__ import annotations

import os
import tokenize
from collections.abc import Callable, Iterable, Iterator, Sequence

from compileboard.collectors.contract.events import CompileStarted, Event, GraphBroke, Recompiled
from compileboard.collectors.contract.secrets import scrub_text
from compileboard.collectors.contract.shapes import Frame
from compileboard.collectors.decode.records import FILE_LIMIT_BYTES, PathNamer, is_library, is_torch
from compileboard.collectors.fixes.fix import SourceLines
from compileboard.collectors.fixes.statement import find_block
from compileboard.collectors.store.run_causes import MOST_EXCERPTS

LINES_BEFORE, LINES_AFTER = 4, 5
LONGEST_BLOCK = 30  # lines from the head of a loop, `with` or `try`, which are kept as well
LONGEST_LINE = 200
MOST_FILES = 200


class SourceReader:
    def __init__(
        self, namer: PathNamer, accepts: Callable[[str], bool] = lambda path: True
    ) -> None:
        self._namer = namer
        self._accepts = accepts
        self._read: set[tuple[str, int]] = set()
        self._files: dict[str, list[str] | None] = {}
        self.unsaved: list[SourceLines] = []

    def read(self, events: Iterable[Event]) -> list[SourceLines]:
        for event in events:
            for file, line, code in _list_lines(event):
                if (file, line) in self._read or len(self._read) >= MOST_EXCERPTS:
                    continue
                self._read.add((file, line))
                excerpt = self._cut(file, line, code, event.time_us)
                self.unsaved += [excerpt] if excerpt else []
        return self.unsaved

    def _cut(self, file: str, line: int, code: str | None, time_us: int) -> SourceLines | None:
        lines = self._load(file, time_us)
        if lines is None or not 1 <= line <= len(lines):
            return None
        if code is not None and code.strip().split("\n")[0].strip() not in lines[line - 1]:
            return None
        block = find_block(SourceLines(file, 1, tuple(lines)), line)
        is_near = block is not None and line - block[1] <= LONGEST_BLOCK
        first = max(1, min(line - LINES_BEFORE, block[1] if block and is_near else line))
        text = scrub_text(
            "\n".join(part[:LONGEST_LINE] for part in lines[first - 1 : line + LINES_AFTER])
        )
        cut = text.split("\n")
        is_whole = len(cut) == len(
            lines[first - 1 : line + LINES_AFTER]
        )  # a secret may have been several lines
        return SourceLines(file, first, tuple(cut)) if is_whole else None

    def _load(self, file: str, time_us: int) -> list[str] | None:
        if file not in self._files and len(self._files) < MOST_FILES:
            self._files[file] = self._read_file(file, time_us)
        return self._files.get(file)

    def _read_file(self, file: str, time_us: int) -> list[str] | None:
        path = self._namer.find_path(file)
        if (
            path is None
            or not path.endswith(".py")
            or is_torch(path)
            or is_library(path)
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
