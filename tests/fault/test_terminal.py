"""The count on a terminal keeps to its own row; the program's screen is as without it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import pytest

from compileboard.collectors.terminal.progress_line import ProgressLine, progress_line
from tests.fault.screen import Screen
from tests.tools.observed import Workplace

pytestmark = pytest.mark.real_start

ROWS, COLUMNS = 12, 60
FILL = 'import sys, time\nfor n in range(14): print("line", n)\n'
COMPILE = "import torch\ndef f(x): return x + 1\ng = torch.compile(f, backend='eager')\n"
UNTIL = """
import pathlib
def until(words):  # the terminal shows them: a slow machine takes its time, a broken one a minute
    end, seen = time.monotonic() + 60, pathlib.Path("seen")
    while time.monotonic() < end and not (seen.exists() and words in seen.read_text()):
        time.sleep(0.02)
"""
PROGRAM = (
    FILL
    + UNTIL
    + COMPILE
    + """
sys.stdout.write("Loading the model ... ")
sys.stdout.flush()
g(torch.ones(3))
until("compileboard: 1 compile, 0 graph")
print("done")
for n in range(4):
    sys.stdout.write(f"\\r{n + 1}/4 " + "#" * n)
    sys.stdout.flush()
    g(torch.ones(3 + n))
    until("compileboard: " + (
        "1 compile, 0 graph" if n == 0 else "2 compiles, 0 graph breaks, 1 recompile"))
print()
print("over")
"""
)


def watch(
    workplace: Workplace,
    command: list[str],
    do: Callable[[Any, Screen], None] | None = None,
    **env: str,
) -> Any:
    """Run a command on a terminal of its own; return it, what it wrote and its screen, seen after
    each piece.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = workplace.environ(**{"TERM": "xterm-256color", **env})

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    screen, written, seen = Screen(ROWS, COLUMNS), "", []
    with subprocess.Popen(
        command, env=environment, cwd=workplace.folder, preexec_fn=own_terminal, **streams
    ) as started:
        os.close(theirs)
        while True:
            try:
                piece = os.read(ours, 65536).decode()
            except OSError:  # the terminal's other side is closed
                break
            if not piece:
                break
            written += piece
            for line in piece.splitlines(keepends=True):
                screen.feed(line)
                seen.append(screen.text())
            (workplace.folder / "next").write_text(
                "\n".join([f"{screen.region_count} regions", *screen.text()])
            )
            (workplace.folder / "next").rename(workplace.folder / "seen")
            if do:
                do(started, screen)
    os.close(ours)
    return started, written, screen, seen


def collect(workplace: Workplace, text: str) -> list[str]:
    path = workplace.write(text)
    start = [
        sys.executable,
        "-m",
        "compileboard.collectors",
        "run",
        "--db",
        str(workplace.database),
        "--",
    ]
    return [*start, sys.executable, str(path)]


@pytest.mark.torch
def test_partial_lines_and_progress_bars_stay_whole_above_the_count(workplace: Workplace) -> None:
    started, written, screen, seen = watch(workplace, collect(workplace, PROGRAM))
    assert started.returncode == 0
    text = screen.text()
    assert any("Loading the model ... done" in shown for shown in seen), (
        "the closing lines scroll it away at the end"
    )
    assert any("over" in shown for shown in seen)
    assert not any("compileboard: 1 compile," in line for line in text), (
        "the row is given back, empty"
    )
    counts = [
        shown for shown in seen if shown[-1].startswith("compileboard: 1 compile, 0 graph breaks")
    ]
    assert any("Loading the model ..." in shown for shown in counts)
    assert any("2 compiles, 0 graph breaks, 1 recompile" in shown[-1] for shown in seen)
    for shown in seen:
        assert not any(re.match(r"compileboard: \d+ compiles?,", line) for line in shown[:-1]), (
            "the count keeps to its row"
        )
    assert (screen.top, screen.bottom) == (0, ROWS - 1)
    assert "\x1b[1;11r" in written


@pytest.mark.sampled(2)
@pytest.mark.torch
@pytest.mark.parametrize("how", ["killed", "raised", "terminated", "read by key"])
def test_the_row_is_given_back_however_the_program_ends(workplace: Workplace, how: str) -> None:
    last = {
        "killed": "import os; os.kill(os.getpid(), 9)",
        "raised": "raise ValueError('mine')",
        "terminated": "time.sleep(60)",
        "read by key": "import tty; tty.setcbreak(0); time.sleep(1)",
    }[how]
    told: list[int] = []

    def do(started: Any, screen: Screen) -> None:
        if how == "terminated" and screen.bottom == ROWS - 2 and not told:
            told.append(started.pid)
            os.kill(started.pid, signal.SIGTERM)

    text = FILL + UNTIL + COMPILE + f"g(torch.ones(3)); until('1 compile,')\n{last}\n"
    started, written, screen, _ = watch(workplace, collect(workplace, text), do)
    assert (
        started.returncode == {"killed": -9, "raised": 1, "terminated": -15, "read by key": 0}[how]
    )
    assert "\x1b[1;11r" in written
    assert (screen.top, screen.bottom) == (0, ROWS - 1)


@pytest.mark.sampled(2)
@pytest.mark.torch
@pytest.mark.parametrize("case", ["dumb", "no name", "raw", "nothing compiled"])
def test_nothing_is_written_where_it_would_be_in_the_way(workplace: Workplace, case: str) -> None:
    raw = "import tty; tty.setcbreak(0)\n" if case == "raw" else ""
    call = "" if case == "nothing compiled" else "g(torch.ones(3))"
    text = f"{raw}import time\n{COMPILE}{call}\ntime.sleep(1)\n"
    terminal = {"dumb": "dumb", "no name": ""}.get(case, "xterm")
    started, written, _, _ = watch(workplace, collect(workplace, text), TERM=terminal)
    assert started.returncode == 0
    assert "\x1b" not in written


@pytest.mark.nightly
@pytest.mark.torch
def test_the_row_is_given_back_before_the_job_is_suspended(workplace: Workplace) -> None:
    told: list[int] = []

    def do(started: Any, screen: Screen) -> None:
        if screen.bottom == ROWS - 2 and not told:
            told.append(started.pid)
            os.kill(
                started.pid, signal.SIGTSTP
            )  # nobody could continue a session's leader: the kernel lets it go on

    text = FILL + UNTIL + COMPILE + "g(torch.ones(3)); until('2 regions')\n"
    started, written, screen, _ = watch(workplace, collect(workplace, text), do)
    assert started.returncode == 0
    assert written.count("\x1b[1;11r") == written.count("\x1b[r") == 2
    assert (screen.top, screen.bottom) == (0, ROWS - 1)


def drawn(monkeypatch: pytest.MonkeyPatch, sizes: list[tuple[int, int]]) -> str:
    """Write once for each size of the terminal, and clear; return what was written."""
    ours, theirs = pty.openpty()
    monkeypatch.setattr(ProgressLine, "_is_ours", lambda self: True)
    try:
        with ProgressLine(theirs) as line:
            for rows, columns in sizes:
                fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
                line.show_text("3 compiles, 1 graph break, 0 recompiles")
        time.sleep(0.05)
        os.write(theirs, b"end")
        written = b""
        while not written.endswith(b"end"):
            written += os.read(ours, 4096)
    finally:
        os.close(ours)
        os.close(theirs)
    return written.decode()


def test_a_resized_terminal_gets_its_row_anew_and_an_unchanged_one_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    once = drawn(monkeypatch, [(24, 80)])
    assert drawn(monkeypatch, [(24, 80), (24, 80)]) == once
    text = drawn(monkeypatch, [(24, 80), (30, 24)])
    assert text.index("\x1b[1;23r") < text.index("\x1b[1;29r")
    assert "compileboard: 3 compile\x1b8" in text, "cut to the width"
    assert text.endswith("\x1b7\x1b[r\x1b[30;1H\x1b[2K\x1b8end")


def test_a_small_terminal_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(monkeypatch, [(4, 80), (24, 10)]) == "end"
    assert progress_line({"TERM": "xterm"}) is None, "stderr is no terminal in a test"
