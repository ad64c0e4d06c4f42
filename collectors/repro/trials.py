"""Run functions in forked children with time and memory limits, so that a crash affects nothing
else.

Each child has its own process group and folder, and returns a pickled value through a pipe. If this
process has initialised CUDA, which prevents forking, arguments are pickled to a process that was
forked before (`needs_fork_server`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

from compileboard.collectors.record.garbage import without_collections
from compileboard.collectors.record.memory import lift_memory_limit, limit_memory
from compileboard.collectors.record.program import end_with, read_tail, signal_group, signal_name
from compileboard.collectors.repro.repro import (
    OUT_OF_MEMORY,
    RAISED,
    SIGNAL,
    TIMED_OUT,
    NotRunnable,
)

OK = "ok"
DEFAULT_SECONDS = 120.0
MAX_TEXT_CHARS = 8_000  # Head and tail are kept of a longer message.
COMPILER = "torch._inductor.compile_fx"
_STEP_S = 0.05
_NO_ROOM = ("alloc", "out of memory", "cannot allocate", "memory exhausted")
_CHILDREN: set[int] = set()


@dataclass(frozen=True)
class TrialLimits:
    """Limits of one trial. `memory_bytes` is in addition to torch's own memory, or GPU memory if a
    GPU is used; None means a share of the free memory.
    """

    seconds: float = DEFAULT_SECONDS
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Outcome:
    status: str  # OK | RAISED | SIGNAL | TIMED_OUT | OUT_OF_MEMORY
    value: Any = None  # of OK
    errors: tuple[
        tuple[str, str], ...
    ] = ()  # of RAISED: type and message, outermost first, then its causes
    traceback: str | None = None
    signal: str | None = None  # of SIGNAL: SIGSEGV
    seconds: float = 0.0
    output: str = ""  # the end of what it printed

    @property
    def error_type(self) -> str | None:
        return self.errors[0][0] if self.errors else None

    @property
    def message(self) -> str:
        if self.errors:
            return f"{self.errors[0][0]}: {self.errors[0][1]}"
        return self.signal or self.status.replace("_", " ")

    def check(self) -> None:
        refused = next(
            (message for kind, message in self.errors if kind == NotRunnable.__name__), None
        )
        if refused is not None:
            raise NotRunnable(refused)


class ForkedRunner:
    def __init__(
        self,
        limits: TrialLimits,
        folder: Path,
        device: str = "cpu",
        probe_folder: str | None = None,
    ) -> None:
        self.limits = limits
        self.device = device
        self.has_inductor = False
        self._probe_folder = probe_folder
        self._folder = folder
        self._count = 0
        self._server: _ForkServer | None = None

    def load_inductor(self) -> None:
        with without_collections():
            import_module(COMPILER)
        if self.device == "cpu" and self._probe_folder is not None:
            _probe_processor(self._probe_folder)
        self.has_inductor = True

    def needs_fork_server(self) -> None:
        """Start the process from which later trials are forked. Call it before CUDA is
        initialised.
        """
        if self._server is None:
            self._server = _ForkServer(self)

    def run(
        self, function: Callable[..., Any], *arguments: Any, limits: TrialLimits | None = None
    ) -> Outcome:
        """Call a function in a child, and return its result or how the child ended.

        With a fork server, arguments are pickled; otherwise the child inherits them.
        """
        if self._server is not None:
            return self._server.run(function, arguments, limits or self.limits)
        return self.fork(function, arguments, limits or self.limits)

    def fork(
        self, function: Callable[..., Any], arguments: Sequence[Any], limits: TrialLimits
    ) -> Outcome:
        self._count += 1
        folder = self._folder / f"trial-{os.getpid()}-{self._count}"
        folder.mkdir(parents=True, exist_ok=True)
        reading, writing = Pipe(duplex=False)
        started_s = time.monotonic()
        sys.stdout.flush()
        sys.stderr.flush()
        driver, child = os.getpid(), os.fork()
        if child == 0:
            _run_child(driver, reading, writing, folder, limits, self.device, function, arguments)
        writing.close()
        _CHILDREN.add(child)
        try:
            with contextlib.suppress(OSError):
                os.setpgid(child, child)  # the child does so too, whichever is first
            body, status, is_late = _await_child(child, reading, started_s + limits.seconds)
        finally:
            reading.close()
            _end_trial(child)
        outcome = _read_outcome(
            body,
            status,
            is_late,
            time.monotonic() - started_s,
            read_tail(folder / "output.txt", MAX_TEXT_CHARS),
        )
        shutil.rmtree(folder, ignore_errors=True)
        return outcome


def _probe_processor(folder: str) -> None:
    """Make inductor detect the processor. This takes 11 s with an empty cache folder, 1 s with this
    one.
    """
    own = os.environ["TORCHINDUCTOR_CACHE_DIR"]
    with contextlib.suppress(Exception):  # otherwise each trial detects it
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        try:
            import_module("torch._inductor.cpu_vec_isa").pick_vec_isa()
        finally:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = own


def end_trials() -> None:
    """End every trial of this process. Safe in a signal handler."""
    for child in list(_CHILDREN):
        signal_group(child, signal.SIGKILL)


def _await_child(
    child: int, reading: Connection, deadline_s: float
) -> tuple[bytes | None, int | None, bool]:
    """Return a child's message, or its status if it ended without one, and whether it was late."""
    while (left_s := deadline_s - time.monotonic()) > 0:
        if reading.poll(min(left_s, _STEP_S)):
            with contextlib.suppress(EOFError, OSError):
                return reading.recv_bytes(), None, False
        # It has ended, but its children may still hold the pipe.
        elif not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) or reading.poll(
            0
        ):
            continue
        _, status = os.waitpid(child, 0)
        _CHILDREN.discard(child)
        return None, status, False
    return None, None, True


def _end_trial(child: int) -> None:
    signal_group(child, signal.SIGKILL)
    if child in _CHILDREN:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, 0)
        _CHILDREN.discard(child)


def _read_outcome(
    body: bytes | None,
    status: int | None,
    is_late: bool,
    seconds: float,
    output: str,
) -> Outcome:
    if is_late:
        return Outcome(TIMED_OUT, seconds=seconds, output=output)
    if body is not None:
        outcome: Outcome = pickle.loads(body)  # noqa: S301  of our own child
        return replace(outcome, seconds=seconds, output=output)
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        is_full = number == signal.SIGKILL or "bad_alloc" in output
        return Outcome(
            OUT_OF_MEMORY if is_full else SIGNAL,
            signal=signal_name(number),
            seconds=seconds,
            output=output,
        )
    code = os.waitstatus_to_exitcode(status) if status is not None else None
    return Outcome(
        RAISED,
        errors=(("SystemExit", f"it ended with exit code {code}"),),
        seconds=seconds,
        output=output,
    )


def _run_child(
    driver: int,
    reading: Connection,
    writing: Connection,
    folder: Path,
    limits: TrialLimits,
    device: str,
    function: Callable[..., Any],
    arguments: Sequence[Any],
) -> NoReturn:
    try:
        os.setpgid(0, 0)
        end_with(driver)
        reading.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # It would write of a crash into the file of the process that enabled it
        faulthandler.disable()
        _CHILDREN.clear()
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        outcome = _call_limited(function, arguments, limits, device)
        lift_memory_limit()
        try:
            body = pickle.dumps(outcome)
        except Exception as error:
            body = pickle.dumps(
                Outcome(RAISED, errors=(("PicklingError", f"its result cannot be sent: {error}"),))
            )
        writing.send_bytes(body)
    finally:
        os._exit(0)


def _call_limited(
    function: Callable[..., Any], arguments: Sequence[Any], limits: TrialLimits, device: str
) -> Outcome:
    try:
        _limit_memory(limits, device)
        return Outcome(OK, function(*arguments))
    except BaseException as error:
        lift_memory_limit()  # memory to describe the error
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        status = OUT_OF_MEMORY if is_memory_error(error) else RAISED
        return Outcome(status, errors=list_errors(error), traceback=shorten(text))


def _limit_memory(limits: TrialLimits, device: str) -> None:
    kind, _, number = device.partition(":")
    limit_memory(None if kind == "cuda" else limits.memory_bytes)
    if kind == "cuda" and limits.memory_bytes is not None:
        import torch

        index = int(number or 0)
        total_bytes = torch.cuda.get_device_properties(index).total_memory
        torch.cuda.set_per_process_memory_fraction(
            min(1.0, limits.memory_bytes / total_bytes), index
        )


def list_errors(error: BaseException) -> tuple[tuple[str, str], ...]:
    errors: list[tuple[str, str]] = []
    pending: list[BaseException | None] = [error]
    while pending and len(errors) < 10:
        current = pending.pop(0)
        if current is None:
            continue
        entry = (type(current).__name__, shorten(str(current)))
        if entry not in errors:
            errors.append(entry)
            pending += [
                getattr(current, "inner_exception", None),
                current.__cause__,
                current.__context__,
            ]
    return tuple(errors)


def shorten(text: str) -> str:
    half = MAX_TEXT_CHARS // 2
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:half]}\n…\n{text[-half:]}"


def is_memory_error(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error).lower()
    return (
        isinstance(error, (RuntimeError, OSError))
        and "memory" in text
        and any(word in text for word in _NO_ROOM)
    )


class _ForkServer:
    def __init__(self, runner: ForkedRunner) -> None:
        self._connection, theirs = Pipe()
        owner = os.getpid()
        if os.fork() == 0:
            self._connection.close()
            with contextlib.suppress(BaseException):
                end_with(owner)
                _run_fork_server(theirs, runner)
            os._exit(0)
        theirs.close()

    def run(
        self, function: Callable[..., Any], arguments: Sequence[Any], limits: TrialLimits
    ) -> Outcome:
        try:
            self._connection.send((_pickle_call((function, arguments)), limits))
            outcome: Outcome = self._connection.recv()
            return outcome
        except (EOFError, OSError):
            raise NotRunnable("the process that starts trials has ended") from None


def _run_fork_server(connection: Connection, runner: ForkedRunner) -> NoReturn:
    """Fork a trial for each request, until the driver closes the connection: an EOFError."""
    while True:
        body, limits = connection.recv()
        connection.send(runner.fork(_call_pickled, (body,), limits))


def _pickle_call(call: tuple[Callable[..., Any], Sequence[Any]]) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(call, buffer)  # preserves shared storage and devices
    return buffer.getvalue()


def _call_pickled(body: bytes) -> Any:
    import torch

    function, arguments = torch.load(io.BytesIO(body), weights_only=False)
    return function(*arguments)
