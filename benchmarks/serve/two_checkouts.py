"""Time commands and pages of another checkout beside ours, in pairs.

    python -m benchmarks.serve.two_checkouts OLD DB OLD_DB

OLD is a checkout of another commit; `git worktree add OLD COMMIT` makes one. DB and OLD_DB hold the
same runs, each made by its own checkout, since a schema without a release takes no step to the
next: `collectors import` of the same logs makes them.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from benchmarks.common import (
    ROOT,
    Row,
    bootstrap,
    clean_environment,
    interleave,
    medians,
    print_table,
    ratios,
    scratch_folder,
)

CAPTURES = ROOT / "tests" / "data" / "captures"
PAGES = (
    "/",
    "/runs",
    "/graph_breaks",
    "/recompiles",
    "/models",
    "/trends",
    "/incidents",
    "/api/v1/runs",
)
MAKE_APP = """
try:
    from compileboard.app import create_app
except ImportError:  # before the package had its name
    from app import create_app
create_app()
"""
RUN_PAGES = ("/runs/{run}", "/runs/{run}/report.html", "/api/v1/runs/{run}/compiles")


def start(checkout: Path, folder: Path, arguments: tuple[str, ...]) -> subprocess.Popen[str]:
    environment = clean_environment(
        PYTHONPATH=str(checkout), COMPILEBOARD_HOME=str(folder / "home")
    )
    command = [sys.executable, *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def cpu_of(checkout: Path, folder: Path, *arguments: str) -> Callable[[], float]:
    """Return a function that runs a command and returns its CPU seconds, its children's too."""

    def run() -> float:
        for path in folder.glob("new.db*"):
            path.unlink()
        process = start(checkout, folder, arguments)
        output = process.communicate()[0] if process.stdout is None else process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(
                f"{' '.join(arguments)} of {checkout} ended with {process.returncode}:\n{output}"
            )
        return usage.ru_utime + usage.ru_stime

    return run


@contextmanager
def serving(checkout: Path, folder: Path, database: Path) -> Iterator[tuple[str, int]]:
    """Serve a copy of a database; its address and its process."""
    folder.mkdir()
    copy = shutil.copy(database, folder / "served.db")
    process = start(checkout, folder, ("-m", "app", "serve", "--db", str(copy), "--port", "0"))
    assert process.stdout is not None
    try:
        address = next(
            match[0] for line in process.stdout if (match := re.search(r"http://[\d.:]+", line))
        )
        yield address, process.pid
    finally:
        process.terminate()
        process.communicate()


def read_cpu_s(pid: int) -> dict[int, float]:
    """Return the CPU seconds of a process and of those that it started: a busy machine does not
    disturb them.
    """
    pids, seconds = [pid], {}
    for process in pids:  # grows while it is read
        threads = list(Path(f"/proc/{process}/task").iterdir())
        seconds[process] = (
            sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
        )
        pids += [
            int(child) for thread in threads for child in (thread / "children").read_text().split()
        ]
    return seconds


def answer_of(address: str, pid: int) -> Callable[[], float]:
    """Return a function that asks for a page and returns the CPU seconds of the process that
    answered.
    """

    def ask() -> float:
        before = read_cpu_s(pid)
        with urllib.request.urlopen(address, timeout=60) as answer:
            answer.read()
        after = read_cpu_s(pid)
        return max(after[process] - before[process] for process in after.keys() & before.keys())

    return ask


def make_row(what: str, pairs: list[tuple[float, float]]) -> Row:
    ours_s, reference_s = medians(pairs)
    return Row(
        what,
        f"{1000 * ours_s:.1f} ms",
        f"{1000 * reference_s:.1f} ms",
        str(bootstrap(ratios(pairs))),
        "≤ 1",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("databases", type=Path, nargs=2)
    parser.add_argument("--pairs", type=int, default=11)
    asked = parser.parse_args()
    checkouts = (ROOT, asked.old.resolve())
    with closing(sqlite3.connect(asked.databases[0])) as connection:
        (run,) = connection.execute(
            "select id from runs order by started_us desc limit 1"
        ).fetchone()
    commands = {
        "collectors import tests/data/captures, CPU": (
            "-m",
            "collectors",
            "import",
            str(CAPTURES),
            "--db",
            "new.db",
        ),
        "collectors run -- true, CPU": (
            "-m",
            "collectors",
            "run",
            "--quiet",
            "--db",
            "new.db",
            "--",
            "true",
        ),
        "app --version, CPU": ("-m", "app", "--version"),
        "create_app, CPU": ("-c", MAKE_APP),
    }
    with scratch_folder() as folder, ExitStack() as stack:
        rows = [
            make_row(
                what,
                interleave(
                    asked.pairs, *(cpu_of(checkout, folder, *words) for checkout in checkouts)
                ),
            )
            for what, words in commands.items()
        ]
        servers = [
            stack.enter_context(serving(checkout, folder / f"server-{number}", database))
            for number, (checkout, database) in enumerate(zip(checkouts, asked.databases))
        ]
        for page in (*PAGES, *(page.format(run=run) for page in RUN_PAGES)):
            asks = [answer_of(address + page, pid) for address, pid in servers]
            interleave(2, *asks)  # the first answers fill caches
            rows.append(make_row(page.replace(run, "ID"), interleave(asked.pairs, *asks)))
        print_table("Ours beside another checkout, medians of pairs", rows)


if __name__ == "__main__":
    main()
