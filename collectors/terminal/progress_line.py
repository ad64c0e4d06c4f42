"""Show counts of compiles, breaks and recompiles on the terminal's bottom row.

The row is excluded from the scroll region (DECSTBM), so that the program's output continues above
it; cursor and colours are restored after each write. Nothing is written before the first compile,
in raw-mode terminals (editors, pagers), in the background, or if the terminal is too small.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compileboard.collectors.pipeline.recorder import Recorder

INTERVAL_S = 0.5
LEAST_ROWS = 5
WITHOUT_REGIONS = ("dumb", "unknown", "emacs", "eterm", "cons25", "network")
LOCAL_FLAGS = 3  # of what tcgetattr returns
SAVE, RESTORE = "\x1b7", "\x1b8"
MAKE_ROOM = (
    "\x1bD\x1b[A"  # one line down, scrolling if there is none, and up again: the column stays
)


class ProgressLine:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._text = ""
        self._rows = 0  # of the terminal when the region was set; 0: it is not, or may no longer be
        self._reserved = False  # whether it has to be given back at the end
        self._columns = 0
        self._due_s = 0.0
        self._previous: Any = None

    def __enter__(self) -> ProgressLine:
        previous = signal.getsignal(signal.SIGTSTP)
        if previous == signal.SIG_DFL:  # a shell without job control ignores it, and so do we
            self._previous = signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(self, *error: object) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGTSTP, self._previous)
        self.clear()

    def show(self, recorder: Recorder) -> None:
        if time.monotonic() < self._due_s:
            return
        self._due_s = time.monotonic() + INTERVAL_S
        counts = recorder.sink.count_compiles()
        if any(counts):
            self.show_text(counts_text(*counts))

    def show_text(self, text: str) -> None:
        size = _size(self._descriptor)
        if size is None or not self._is_ours():
            self._rows = (
                0  # a full-screen program sets the region for itself; it is set anew afterwards
            )
            return
        columns, rows = size
        if (text, rows, columns) == (self._text, self._rows, self._columns):
            return
        line = f"{SAVE}\x1b[{rows};1H\x1b[2K" + f"compileboard: {text}"[: columns - 1]
        self._reserved = True  # before: a write may be cut short
        reserve = "" if (rows, columns) == (self._rows, self._columns) else _reserve(rows)
        if self._write(f"{reserve}{line}{RESTORE}"):
            self._text, self._rows, self._columns = text, rows, columns

    def clear(self) -> None:
        if self._reserved:
            size = _size(self._descriptor)
            rows = size[1] if size else self._rows
            erase = f"\x1b[{rows};1H\x1b[2K" if rows else ""
            self._write(f"{SAVE}\x1b[r{erase}{RESTORE}", patience_s=1.0)
            self._rows, self._text, self._reserved = 0, "", False

    def _suspend(self, number: int, frame: FrameType | None) -> None:
        """Clear the row before Ctrl-Z stops the process, and redraw it afterwards."""
        self.clear()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)

    def _is_ours(self) -> bool:
        try:
            if os.tcgetpgrp(self._descriptor) != os.getpgrp():
                return False
            return bool(termios.tcgetattr(self._descriptor)[LOCAL_FLAGS] & termios.ICANON)
        except (OSError, termios.error):
            return False

    def _write(self, text: str, patience_s: float = 0.0) -> bool:
        """Write without blocking, since Ctrl-S may hold the terminal."""
        try:
            if not select.select([], [self._descriptor], [], patience_s)[1]:
                return False
            os.write(self._descriptor, text.encode("ascii", "replace"))
        except (OSError, ValueError):
            return False
        return True


def progress_line(environment: Mapping[str, str]) -> ProgressLine | None:
    try:
        if sys.stderr is None or not sys.stderr.isatty():
            return None
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError):
        return None
    terminal = environment.get("TERM", "")
    if not terminal or terminal.startswith(WITHOUT_REGIONS) or _size(descriptor) is None:
        return None
    if environment.get("COMPILEBOARD_SPOOL"):
        return None  # inside an observed program, whose own line is there
    return ProgressLine(descriptor)


def _reserve(rows: int) -> str:
    return f"{MAKE_ROOM}{SAVE}\x1b[1;{rows - 1}r{RESTORE}"


def _size(descriptor: int) -> tuple[int, int] | None:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        return None
    return (columns, rows) if rows >= LEAST_ROWS and columns >= 20 else None


def counts_text(compiles: int, breaks: int, recompiles: int) -> str:
    parts = [(compiles, "compile"), (breaks, "graph break"), (recompiles, "recompile")]
    return ", ".join(count_text(count, name) for count, name in parts)


def count_text(count: int, name: str) -> str:
    return f"{count} {name}{'' if count == 1 else 's'}"
