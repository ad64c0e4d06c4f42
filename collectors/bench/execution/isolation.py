"""Run one task in a child process with a time limit and separate output, and interpret its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.bench.execution.endings import (
    OUTPUT,
    outcome_of_killed,
    outcome_of_late,
    read_result,
)
from compileboard.collectors.bench.execution.fork_server import (
    STEP_S,
    ForkedProcess,
    ForkServer,
    list_cache_variables,
)
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import ExperimentOutcome
from compileboard.collectors.contract.values import clean_text
from compileboard.start import PACKAGE, shared_command

PACKAGE_ROOT = Path(PACKAGE).resolve().parent
CACHE_VARIABLE = "COMPILEBOARD_BENCH_CACHE"
END_PATIENCE_S = 2.0


ChildProcess = subprocess.Popen[bytes] | ForkedProcess


@dataclass(frozen=True)
class TaskOutcome:
    outcome: ExperimentOutcome
    started_us: int
    duration_us: int


def run_task(
    task: Task,
    folder: Path,
    environment: Mapping[str, str],
    *,
    cwd: str | None,
    beat: Callable[[], None],
    server: ForkServer | None = None,
) -> TaskOutcome:
    """Run a task to its end or time limit, if possible as a fork of `server`; call `beat`
    meanwhile.

    The child has its own session, so that the limit, or an interrupt here, ends everything it
    started. The server's import of torch does not count.
    """
    started_us = time.time_ns() // 1000
    try:
        child = _start(task, folder, environment, cwd, beat, server)
    except OSError as error:  # a full disk, most of all: the next task may find room
        message = (
            f"its process cannot be started in {folder}: {error}; free some space or mend the "
            "folder"
        )
        return TaskOutcome(
            ExperimentOutcome(status="failed", reason="infra_error", message=clean_text(message)),
            started_us,
            0,
        )
    started_us, started_s = time.time_ns() // 1000, time.monotonic()
    try:
        late = wait_for(child, started_s + task.settings.timeout_s, beat)
    finally:
        end_group(child)
    outcome = read_result(folder) or (
        outcome_of_late(folder, task.settings.timeout_s)
        if late
        else outcome_of_killed(folder, child.wait())
    )
    if isinstance(child, ForkedProcess):
        outcome.facts["forked"] = True
    return TaskOutcome(outcome, started_us, int((time.monotonic() - started_s) * 1e6))


def _start(
    task: Task,
    folder: Path,
    environment: Mapping[str, str],
    cwd: str | None,
    beat: Callable[[], None],
    server: ForkServer | None,
) -> ChildProcess:
    folder.mkdir(parents=True, exist_ok=True)
    task.write(folder)
    own = {**environment, **list_caches(task, folder, environment)}
    with (folder / OUTPUT).open(
        "wb"
    ) as output:  # of a fork too: whether it can be written is known here
        if server is not None and (forked := server.fork(folder, own, cwd, beat)) is not None:
            return forked
        return subprocess.Popen(
            shared_command(
                "compileboard.collectors.bench.worker.child:start", str(os.getpid()), str(folder)
            ),
            env=own,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def list_caches(task: Task, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    if task.has_own_caches or CACHE_VARIABLE in environment:
        return list_cache_variables(cache_folder(folder, environment))
    return {}


def cache_folder(folder: Path, environment: Mapping[str, str]) -> Path:
    shared = environment.get(CACHE_VARIABLE)
    return Path(shared) if shared else folder / "cache"


def wait_for(child: ChildProcess, deadline_s: float, beat: Callable[[], None]) -> bool:
    while True:
        try:
            child.wait(timeout=STEP_S)
            return False
        except subprocess.TimeoutExpired:
            beat()
        if time.monotonic() > deadline_s:
            return True


def end_group(child: ChildProcess) -> None:
    """End the child's whole session, including compilers it started. A second Ctrl-C ends the wait,
    not the kill.
    """
    try:
        _signal_group(child, signal.SIGTERM)
        child.wait(timeout=END_PATIENCE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal_group(child, signal.SIGKILL)
        child.wait()


def _signal_group(child: ChildProcess, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, number)


def clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
