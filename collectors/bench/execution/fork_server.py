"""Fork tasks from a process that has imported torch, because importing it takes longer than many
tasks.

Each task is still its own process, with its own environment, output, session and time limit.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from compileboard.collectors.bench.execution.endings import OUTPUT
from compileboard.collectors.bench.experiments import FORKED
from compileboard.collectors.bench.plan.tasks import Task
from compileboard.start import shared_command

# What of the environment is a task's own. torch 2.13, when imported, makes the cache folder and
# keeps no name of it.
OF_TASK = (
    "COMPILEBOARD_TASK",
    "COMPILEBOARD_BENCH_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
)
START_S = 120.0  # for importing torch on a busy machine; no task's --timeout counts it
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
    def __init__(self, server: ForkServer, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server = server

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code, or that of a kill if the server died with it.

        Raises subprocess.TimeoutExpired.
        """
        if self.returncode is None:
            line = self._server.read_line(timeout)
            if line is None:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            self.returncode = int(line) if line else -signal.SIGKILL
        return self.returncode


class ForkServer:
    """The process that has imported torch, started by the first task.

    `folder` receives the files torch writes while it is imported.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._cwd: str | None = None
        self._unread = b""
        self._is_usable = True

    def fork(
        self,
        folder: Path,
        environment: Mapping[str, str],
        cwd: str | None,
        beat: Callable[[], None],
    ) -> ForkedProcess | None:
        """Fork a task's process, calling `beat` meanwhile; None if it has to be started
        normally.
        """
        common = {name: value for name, value in environment.items() if name not in OF_TASK}
        if self._process is not None and (common, cwd) != (self._environment, self._cwd):
            self.close()
        if self._process is None and self._is_usable:
            self._start(common, cwd, beat)
        process = self._process
        if process is None or process.stdin is None:
            return None
        request = {
            "folder": str(folder),
            "output": str(folder / OUTPUT),
            "environment": dict(environment),
        }
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self._give_up()
            return None
        pid = self._wait_for_answer(beat)
        if not pid:
            self._give_up()
            return None
        return ForkedProcess(self, int(pid))

    def _start(
        self, environment: dict[str, str], cwd: str | None, beat: Callable[[], None]
    ) -> None:
        self._environment, self._cwd, self._unread = environment, cwd, b""
        self._process = subprocess.Popen(
            shared_command("compileboard.collectors.bench.worker.forking:serve", str(os.getpid())),
            env={**environment, **list_cache_variables(self._folder)},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if self._wait_for_answer(beat) != b"ready":  # torch is not there, or has begun threads
            self._give_up()

    def _wait_for_answer(self, beat: Callable[[], None]) -> bytes | None:
        deadline_s = time.monotonic() + START_S
        try:
            while (line := self.read_line(STEP_S)) is None and time.monotonic() < deadline_s:
                beat()
        except BaseException:
            self.close()
            raise
        return line

    def _give_up(self) -> None:
        self.close()
        self._is_usable = False

    def read_line(self, timeout_s: float | None) -> bytes | None:
        """Return the server's next line, empty if the server has ended, None on timeout."""
        assert self._process is not None and self._process.stdout is not None
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
            if not select.select([descriptor], [], [], left_s)[0]:
                return None
            part = os.read(descriptor, 4096)
            if not part:
                return b""
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def close(self) -> None:
        """End the server and any task's process that it forked."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()
