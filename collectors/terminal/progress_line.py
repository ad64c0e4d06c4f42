"""Show counts of compiles, breaks and recompiles on the terminal's bottom row.

The row is excluded from the scroll region (DECSTBM), so that the program's output continues above
it; cursor and colours are restored after each write. Nothing is written before the first compile,
in raw-mode terminals (editors, pagers), in the background, or if the terminal is too small.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sqlite3
import sys
import termios
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

from compileboard.collectors.contract.record_names import GRAPH_CHECKED
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.push.outbox import list_run, outbox_root
from compileboard.collectors.push.target import Target
from compileboard.collectors.store.codec import unpack
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.values import count_text, dashboard_command

if TYPE_CHECKING:
    from compileboard.collectors.record.recorder import Recorder


INTERVAL_S = 0.5
MIN_ROWS = 5
WITHOUT_REGIONS = ("dumb", "unknown", "emacs", "eterm", "cons25", "network")
LOCAL_FLAGS = 3  # index in the result of tcgetattr
SAVE, RESTORE = "\x1b7", "\x1b8"
# One line down, scrolling if there is none, and up again: the column stays.
MAKE_ROOM = "\x1bD\x1b[A"


class ProgressLine:
    def __init__(self, descriptor: int, prefix: str = "") -> None:
        self._descriptor = descriptor
        self._prefix = prefix
        self._text = ""
        self._rows = 0  # The terminal's height when the region was set; 0 if it is not set.
        self._reserved = False  # whether it must be released at the end
        self._columns = 0
        self._due_s = 0.0
        self._previous: Any = None

    def __enter__(self) -> ProgressLine:
        previous = signal.getsignal(signal.SIGTSTP)
        if (
            previous == signal.SIG_DFL
        ):  # a shell without job control ignores it, and so does this class
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
        if self._prefix or any(counts):
            self.show_text(self._prefix + counts_text(*counts))

    def show_text(self, text: str) -> None:
        size = _terminal_size(self._descriptor)
        if size is None or not self._is_ours():
            # A full-screen program sets the region for itself, so set it again afterwards.
            self._rows = 0
            return
        columns, rows = size
        if (text, rows, columns) == (self._text, self._rows, self._columns):
            return
        line = f"{SAVE}\x1b[{rows};1H\x1b[2K" + f"compileboard: {text}"[: columns - 1]
        self._reserved = True  # set before writing, which may be interrupted
        reserve = "" if (rows, columns) == (self._rows, self._columns) else _reserve_row(rows)
        if self._write(f"{reserve}{line}{RESTORE}"):
            self._text, self._rows, self._columns = text, rows, columns

    def clear(self) -> None:
        if self._reserved:
            size = _terminal_size(self._descriptor)
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
        """Write without blocking, because the terminal may be stopped by Ctrl-S."""
        try:
            if not select.select([], [self._descriptor], [], patience_s)[1]:
                return False
            os.write(self._descriptor, text.encode("ascii", "replace"))
        except (OSError, ValueError):
            return False
        return True


def progress_line(environment: Mapping[str, str], prefix: str = "") -> ProgressLine | None:
    try:
        if sys.stderr is None or not sys.stderr.isatty():
            return None
        descriptor = sys.stderr.fileno()
    except (OSError, ValueError):
        return None
    terminal = environment.get("TERM", "")
    if not terminal or terminal.startswith(WITHOUT_REGIONS) or _terminal_size(descriptor) is None:
        return None
    if environment.get("COMPILEBOARD_SPOOL"):
        return None  # inside an observed program, which has its own line
    return ProgressLine(descriptor, prefix)


def _reserve_row(rows: int) -> str:
    return f"{MAKE_ROOM}{SAVE}\x1b[1;{rows - 1}r{RESTORE}"


def _terminal_size(descriptor: int) -> tuple[int, int] | None:
    try:
        columns, rows = os.get_terminal_size(descriptor)
    except OSError:
        return None
    return (columns, rows) if rows >= MIN_ROWS and columns >= 20 else None


def counts_text(compiles: int, breaks: int, recompiles: int) -> str:
    parts = [(compiles, "compile"), (breaks, "graph break"), (recompiles, "recompile")]
    return ", ".join(count_text(count, name) for count, name in parts)


STEP_S = 0.25


class DestinationLine:
    def __init__(self, config: RunConfig, run_id: str, print_line: Callable[[str], None]) -> None:
        self._config = config
        self._run_id = run_id
        self._print_line = print_line
        self._began_s, self._began_us = time.monotonic(), time.time_ns() // 1000
        self._due_s = 0.0
        self._waits = False
        self._is_over = False

    def step(self) -> None:
        now_s = time.monotonic()
        if self._is_over or now_s < self._due_s:
            return
        self._due_s = now_s + STEP_S
        if not self._config.server:
            served = dashboard_command("serve", database=self._config.database)
            self._end(
                f"run {self._run_id} is recorded in {self._config.database}; see it with: {served}"
            )
            return
        with suppress(OSError, ValueError, RuntimeError):
            self._ask(now_s)

    def _ask(self, now_s: float) -> None:
        from compileboard.collectors.push.outbox_report import (
            FIRST_ANSWER_S,  # imports an HTTP client
        )
        from compileboard.collectors.push.sender import read_status

        root, target = outbox_root(os.environ), Target.of(self._config)
        if any(item.read_sent().offset for item in list_run(root / self._run_id)):
            self._end(f"run {self._run_id} is pushed to {target.run_page(self._run_id)}")
        elif not self._waits:
            status = read_status(root, target, self._run_id)
            error = status.error if (status.failed_us or 0) > self._began_us else None
            if error is None and now_s - self._began_s > FIRST_ANSWER_S:
                error = f"{target.server} gave no answer so far"
            if error is not None:
                self._waits = True
                self._print_line(f"run {self._run_id} waits for the server: {error}")

    def _end(self, line: str) -> None:
        self._is_over = True
        self._print_line(line)


LIST_NOTED = """
select events.body
from events join processes on processes.id = events.process_id
where events.run_id = :run_id and events.kind = 'noted' and (:task is null
  or processes.task = :task)
"""
WORDS = {"same": "right", "wrong": "wrong", "skipped": "not compared"}


def describe_graph_checks(database: str, run_id: str) -> str:
    with closing(open_reader(database)) as connection:
        verdicts, seconds, reasons = read_graph_checks(connection, run_id)
    if not verdicts:
        return (
            "--repro=accuracy compared no graph: none was compiled for inductor or another "
            "backend and called"
        )
    counts = ", ".join(
        f"{verdicts[word]} {label}" for word, label in WORDS.items() if verdicts[word]
    )
    line = (
        f"compared {count_text(sum(verdicts.values()), 'graph')} with eager in {seconds:.3g} "
        f"s: {counts}"
    )
    return f"{line} ({reasons.most_common(1)[0][0]})" if reasons else line


def read_graph_checks(
    connection: sqlite3.Connection, run_id: str, task: str | None = None
) -> tuple[Counter[str], float, Counter[str]]:
    """Return the number of graphs and shapes by verdict, the time for comparing them, and reasons
    for skipping.

    `task` selects its processes. Units: seconds.
    """
    verdicts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    seconds = 0.0
    rows = connection.execute(LIST_NOTED, {"run_id": run_id, "task": task}).fetchall()
    for row in rows:
        event = json.loads(unpack(row["body"]))
        if event.get("name") != GRAPH_CHECKED:
            continue
        fields = (event.get("body") or {}).get("metadata") or {}
        seconds += float(fields.get("seconds") or 0)
        if int(fields.get("call") or 1) > 1:  # counted by its first call
            if fields.get("verdict") != "wrong":
                continue
            verdicts["same"] -= 1
        verdicts[str(fields.get("verdict"))] += 1
        if fields.get("reason"):
            reasons[str(fields["reason"])] += 1
    return verdicts, seconds, reasons
