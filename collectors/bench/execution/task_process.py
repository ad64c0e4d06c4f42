"""Run one task in a child process with a time limit and separate output, and interpret its exit."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

from compileboard.collectors.bench.experiments import FORKED
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.collectors.bench.worker.outcome import RESULT, ExperimentOutcome, load_outcome
from compileboard.collectors.contract.values import clean_text
from compileboard.collectors.record.program import (
    read_tail,
    run_to_deadline,
    signal_name,
    start_session,
)
from compileboard.start import PACKAGE, shared_command

OUTPUT = "output.txt"
# The status of a process that dies in a stage, in upstream's words.
DIED = {
    "load": "model_fail_to_load",
    "reference": "eager_1st_run_fail",
    "eager": "eager_1st_run_fail",
    "compile": "fail_to_run",
    "export": "fail_to_run",
    "draft": "fail_to_run",
    "load package": "fail_to_run",
    "another batch": "fail_to_run",
    "run": "fail_to_run",
    "measure": "fail_to_run",
    "compare": "fail_to_run",
}


def read_result(folder: Path) -> ExperimentOutcome | None:
    try:
        return load_outcome((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError):
        return None


def make_timeout_outcome(folder: Path, timeout_s: float) -> ExperimentOutcome:
    message = f"no result within {timeout_s:g} s; it was stopped in stage {read_stage(folder)!r}"
    return ExperimentOutcome(
        status="failed", reason="timeout", message=message, traceback=read_output(folder)
    )


def make_killed_outcome(folder: Path, code: int) -> ExperimentOutcome:
    stage = read_stage(folder)
    ended = f"killed by {signal_name(-code)}" if code < 0 else f"it ended with exit code {code}"
    if -code == signal.SIGKILL:
        ended += " (the machine's memory may have run out)"
    reason = DIED.get(stage, "infra_error")
    message = f"{ended} in stage {stage!r}"
    return ExperimentOutcome(
        status="failed", reason=reason, message=message, traceback=read_output(folder)
    )


def read_stage(folder: Path) -> str:
    return read_tail(folder / "stage") or "start"


def read_output(folder: Path) -> str | None:
    """Return the last output of a task's process and of its ranks."""
    tails = [(path.parent.name, read_tail(path)) for path in list_outputs(folder)]
    texts = [
        text if not number else f"{name}:\n{text}"
        for number, (name, text) in enumerate(tails)
        if text
    ]
    return "\n".join(texts) or None


def list_outputs(folder: Path) -> list[Path]:
    return [
        folder / OUTPUT,
        *sorted(folder.glob(f"rank*/{OUTPUT}"), key=lambda path: int(path.parent.name[4:])),
    ]


# Variables set per task. torch 2.13 makes the cache folder on import and does not keep its name.
OF_TASK = (
    "COMPILEBOARD_TASK",
    "COMPILEBOARD_BENCH_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
START_S = 120.0  # for importing torch on a busy machine; not part of a task's --timeout
STEP_S = 0.1


def list_cache_variables(root: Path) -> dict[str, str]:
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(root / "inductor"),
        "TRITON_CACHE_DIR": str(root / "triton"),
    }


def is_forkable(task: Task) -> bool:
    """Return whether a task may start as a fork: not with CUDA, with several ranks, or without
    stack room.
    """
    settings = task.settings
    is_plain = (
        settings.device == "cpu" and not settings.is_distributed and not settings.no_stack_room
    )
    return is_plain and task.experiment in FORKED and sys.platform == "linux"


class ForkedProcess:
    def __init__(self, server: Connection, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end and return its exit code, or that of a kill if the server
        died with it.

        Raises subprocess.TimeoutExpired.
        """
        if self.returncode is None:
            if not self._server.poll(timeout):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            try:
                self.returncode = int(self._server.recv())
            except (EOFError, OSError):
                self.returncode = -signal.SIGKILL
        return self.returncode


class ForkServer:
    """The process that has imported torch, started by the first task.

    `folder` receives the files torch writes while it is imported.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._environment: dict[str, str] = {}
        self._cwd: str | None = None
        self._is_usable = True

    def fork(
        self,
        folder: Path,
        environment: Mapping[str, str],
        cwd: str | None,
        beat: Callable[[], None],
    ) -> ForkedProcess | None:
        """Fork a task's process, calling `beat` while waiting. None if it must be started
        normally.
        """
        common = {name: value for name, value in environment.items() if name not in OF_TASK}
        if (common, cwd) != (self._environment, self._cwd):
            self.close()
        if self._connection is None and self._is_usable:
            self._start(common, cwd, beat)
        if self._connection is None:
            return None
        request = {
            "folder": str(folder),
            "output": str(folder / OUTPUT),
            "environment": dict(environment),
        }
        with contextlib.suppress(EOFError, OSError):
            self._connection.send(request)
            if pid := self._wait_for_answer(self._connection, beat):
                return ForkedProcess(self._connection, pid)
        self._give_up()
        return None

    def _start(
        self, environment: dict[str, str], cwd: str | None, beat: Callable[[], None]
    ) -> None:
        self._environment, self._cwd = environment, cwd
        self._connection, theirs = Pipe()
        command = shared_command(
            "compileboard.collectors.bench.worker.child:serve",
            str(os.getpid()),
            str(theirs.fileno()),
        )
        with theirs:
            self._process = subprocess.Popen(
                command,
                env={**environment, **list_cache_variables(self._folder)},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=(theirs.fileno(),),
            )
        with contextlib.suppress(EOFError, OSError):
            if self._wait_for_answer(self._connection, beat) is not None:
                return
        self._give_up()  # torch is missing, or has started threads

    def _wait_for_answer(self, connection: Connection, beat: Callable[[], None]) -> int | None:
        """Return the server's next answer, None if there is none. Raises EOFError or OSError."""
        deadline_s = time.monotonic() + START_S
        try:
            while not connection.poll(STEP_S):
                if time.monotonic() > deadline_s:
                    return None
                beat()
        except BaseException:
            self.close()
            raise
        return int(connection.recv())

    def _give_up(self) -> None:
        self.close()
        self._is_usable = False

    def close(self) -> None:
        """End the server and all processes that it forked."""
        if self._process is not None and self._connection is not None:
            self._process.kill()
            self._process.wait()
            self._connection.close()
        self._process = self._connection = None


PACKAGE_ROOT = Path(PACKAGE).resolve().parent
CACHE_VARIABLE = "COMPILEBOARD_BENCH_CACHE"
CACHE = "cache"  # A subfolder for a task with its own caches.


def run_task(
    task: Task,
    folder: Path,
    environment: Mapping[str, str],
    *,
    cwd: str | None,
    beat: Callable[[], None],
    server: ForkServer | None = None,
) -> ExperimentOutcome:
    """Run a task to its end or time limit, as a fork of `server` if possible. `beat` is called
    while it runs.

    The child has a session of its own, so that the limit, or an interrupt, ends every process it
    started. The time in which the server imports torch does not count.
    """
    started_us = time.time_ns() // 1000
    try:
        child = _start(task, folder, environment, cwd, beat, server)
    except OSError as error:  # usually a full disk: there may be space for the next task
        message = (
            f"its process cannot be started in {folder}: {error}; free some space or fix the folder"
        )
        return ExperimentOutcome(
            status="failed",
            reason="infra_error",
            message=clean_text(message),
            started_us=started_us,
        )
    started_us, started_s = time.time_ns() // 1000, time.monotonic()
    is_late = run_to_deadline(child, started_s + task.settings.timeout_s, beat)
    outcome = read_result(folder) or (
        make_timeout_outcome(folder, task.settings.timeout_s)
        if is_late
        else make_killed_outcome(folder, child.wait())
    )
    outcome.started_us = started_us
    outcome.duration_us = int((time.monotonic() - started_s) * 1e6)
    if isinstance(child, ForkedProcess):
        outcome.facts["forked"] = True
    return outcome


def _start(
    task: Task,
    folder: Path,
    environment: Mapping[str, str],
    cwd: str | None,
    beat: Callable[[], None],
    server: ForkServer | None,
) -> subprocess.Popen[bytes] | ForkedProcess:
    folder.mkdir(parents=True, exist_ok=True)
    task.write(folder)
    caches = {}
    if CACHE_VARIABLE in environment:
        caches = list_cache_variables(Path(environment[CACHE_VARIABLE]))
    elif task.has_own_caches:
        caches = list_cache_variables(folder / CACHE)
    own = {**environment, **caches}
    # For forks too: an unwritable file is noticed here.
    with (folder / OUTPUT).open("wb") as output:
        if server is not None and (forked := server.fork(folder, own, cwd, beat)) is not None:
            return forked
        command = shared_command(
            "compileboard.collectors.bench.worker.child:start", str(os.getpid()), str(folder)
        )
        return start_session(command, output, env=own, cwd=cwd)


def clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
