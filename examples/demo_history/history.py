"""Measure the versions of the demo's history that the database lacks."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO

from compileboard.collectors.store.connection import StoreMissing, open_reader
from compileboard.start import own_command
from examples.demo_history.repository import Repository
from examples.demo_history.versions import SUITE, VERSIONS, Version


def list_measured(database: str) -> set[tuple[str, str]]:
    """Return the commit and run name of each version whose measurement was completed.

    Raises StoreError if the database cannot be read.
    """
    try:
        connection = open_reader(database)
    except StoreMissing:
        return set()
    with closing(connection):
        rows = connection.execute(
            """
            select distinct git_commit, name
            from runs
            where suite = :suite and state = 'finished' and git_commit is not null
            order by git_commit, name
            limit 10000
            """,
            {"suite": SUITE},
        )
        return {(row["git_commit"], row["name"]) for row in rows}


def describe_run(database: str, commit: str, name: str) -> str:
    """Describe in a few words what the newest run of a commit measured.

    Raises StoreError if the database cannot be read.
    """
    with closing(open_reader(database)) as connection:
        rows = connection.execute(
            """
            select model, status, reason, speedup, graph_breaks, recompiles
            from results join series on series.id = results.series_id
            where run_id = (
              select max(id) from runs where suite = :suite and git_commit = :commit_hash
                and name = :name
            )
            order by model
            limit 100
            """,
            {"suite": SUITE, "commit_hash": commit, "name": name},
        )
        return "; ".join(_describe(row) for row in rows)


def _describe(row: sqlite3.Row) -> str:
    if row["status"] != "measured":
        return f"{row['model']} {row['status']}: {row['reason']}"
    words = [row["model"]]
    if row["speedup"] is not None:
        words.append(f"{row['speedup']:.2f}x")
    counted = [(row["graph_breaks"], "graph break"), (row["recompiles"], "recompile")]
    counts = [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counted if count]
    return " ".join(words) + (f" with {' and '.join(counts)}" if counts else "")


PrintLine = Callable[[str], None]
FINISHED = (0, 1)  # bench returns 1 if every model failed, which a version may cause.
STEP_S = 0.2
END_PATIENCE_S = 20.0
TAIL_CHARACTERS = 2000
ASK_DEVICE = "import torch; print('cuda' if torch.cuda.is_available() else 'cpu')"
# A second of timing at most for each model: importing torch takes longer. One thread on a CPU:
# models this small run no faster on more, and on a busy machine threads that wait for each other
# are most of the noise.
TIMING = ("--repeat", "15", "--iterations-per-run", "10", "--timeout", "300")
ON_A_CPU = ("--threads", "1")


class HistoryStopped(Exception):
    """Measuring stopped before the newest version; the message says why."""


@dataclass(frozen=True)
class Setup:
    """The database, device and backend with which versions are measured."""

    database: str
    device: str
    backend: str

    def name(self, flags: Sequence[str]) -> str:
        """Return the run name of a configuration."""
        return " ".join([f"demo history, {self.backend}", *flags])

    def command(self, flags: Sequence[str]) -> list[str]:
        """Return the benchmark's command line for the repository, without the path of the
        models.
        """
        words = [
            "bench",
            "--db",
            self.database,
            "--suite",
            SUITE,
            "--name",
            self.name(flags),
            "--quiet",
        ]
        threads = ON_A_CPU if self.device == "cpu" else ()
        return [
            *words,
            "--device",
            self.device,
            "--backend",
            self.backend,
            *threads,
            *TIMING,
            *flags,
        ]


def find_setup(database: str, backend: str | None) -> Setup:
    """Return a setup for this machine's device, with a backend that needs no compiler on a CPU.

    Raises HistoryStopped if torch is missing.
    """
    answer = subprocess.run(
        [sys.executable, "-c", ASK_DEVICE],
        capture_output=True,
        text=True,
        errors="replace",
        stdin=subprocess.DEVNULL,
    )
    if answer.returncode:
        raise HistoryStopped(
            f"torch cannot be imported: {answer.stderr.strip()[-TAIL_CHARACTERS:]}"
        )
    device = answer.stdout.split()[-1]
    return Setup(
        os.path.abspath(database), device, backend or ("inductor" if device == "cuda" else "eager")
    )


def measure_history(
    setup: Setup,
    print_line: PrintLine,
    *,
    again: bool = False,
    go_on: Callable[[], bool] = lambda: True,
    versions: Sequence[Version] = VERSIONS,
) -> int:
    """Measure the versions that the database lacks, oldest first; return the number of runs.

    Raises HistoryStopped, NoRepository, StoreError.
    """
    known = set() if again else list_measured(setup.database)
    total = sum(1 + len(version.also) for version in versions)
    done = count = 0
    began_s = time.monotonic()
    with Repository() as repository:
        for version in versions:
            commit = repository.commit(version)
            for flags in ((), *version.also):
                done += 1
                if (commit, setup.name(flags)) in known:
                    continue
                if not go_on():
                    return count
                _measure(setup, flags, str(repository.folder), go_on)
                if not go_on():
                    return count
                count += 1
                left_s = (time.monotonic() - began_s) / count * (total - done)
                outcome = describe_run(setup.database, commit, setup.name(flags))
                what = " ".join([f"{commit[:7]} {version.subject}", *flags])
                print_line(f"[{done}/{total}] {what}: {outcome}{_format_time_left(left_s)}")
    return count


def _format_time_left(left_s: float) -> str:
    if left_s < 1:
        return ""
    return (
        f" (about {left_s / 60:.0f} min left)" if left_s > 90 else f" (about {left_s:.0f} s left)"
    )


def _measure(setup: Setup, flags: Sequence[str], folder: str, go_on: Callable[[], bool]) -> None:
    """Run the benchmark in the repository and stop it if this process stops; finished results are
    kept.

    Raises HistoryStopped with the benchmark's output.
    """
    command = own_command(
        "compileboard.collectors", *setup.command(flags), "--only", f"path:{folder}/bench_models.py"
    )
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        bench = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C comes to us: a second one would cut its tidying short
        )
        try:
            while bench.poll() is None and go_on():
                time.sleep(STEP_S)
        finally:
            end(bench)
        if go_on() and bench.returncode not in FINISHED:
            raise HistoryStopped(_tail(output) or f"the benchmark ended with {bench.returncode}")


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> None:
    """Terminate a process that still runs, and wait for it."""
    if process.poll() is not None:
        return
    process.send_signal(number)
    try:
        process.wait(END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(output: IO[str]) -> str:
    output.seek(0)
    return output.read().strip()[-TAIL_CHARACTERS:]
