"""Start a program and decide which signals to forward to it.

`kill PID` must be forwarded; `kill -- -PGID` (test harnesses, `timeout`, Jupyter) has already
reached the program, and a second SIGINT would interrupt its cleanup. Linux does not tell the two
apart, so a `cat` in our process group blocks these signals: a signal that is pending there was sent
to the whole group.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NoReturn, Protocol

from compileboard.exit_codes import NOT_EXECUTABLE, NOT_FOUND
from compileboard.start import own_command

TAIL_BYTES = 20_000
END_TIMEOUT_S = 2.0
BEAT_S = 0.1


class Child(Protocol):
    pid: int

    def wait(self, timeout: float | None = None) -> int: ...


PR_SET_PDEATHSIG = 1  # of Linux's prctl

SETTLE_S = 0.01  # the kernel signals a group's processes one by one


class ProcessGroupWatch:
    def __init__(self) -> None:
        self._standing: subprocess.Popen[bytes] | None = None
        self._start()

    def _start(self) -> None:
        try:
            # It ends when its input is closed, however this process ends.
            self._standing = subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
            )
        except OSError:
            self._standing = None

    def was_sent_to_all(self, number: int) -> bool:
        if self._standing is None:
            return False
        time.sleep(SETTLE_S)
        pending = _pending_signals(self._standing.pid) >> (number - 1) & 1
        if pending:  # the signal stays pending, so start another one for the next
            self.close()
            self._start()
        return bool(pending)

    def close(self) -> None:
        if self._standing is not None:
            self._standing.kill()
            self._standing.communicate()
            self._standing = None


def _pending_signals(pid: int) -> int:
    try:
        lines = (
            Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
        )
    except OSError:
        return 0
    mask = 0
    for line in lines:
        if line.startswith(("SigPnd:", "ShdPnd:")):
            mask |= int(line.split()[1], 16)
    return mask


STEP_S = 0.2
_ENDING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
# Passed on to the program, unless the terminal has already sent them to it.
FORWARDED = {*_ENDING, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
SENT_BY_KERNEL = 0x80  # SI_KERNEL: a key on the terminal, which reaches the whole foreground group
AS_TYPED = "What follows `--` is a command as you would type it: -- python train.py"


@dataclass
class ProgramExit:
    exit_code: int | None
    signal_number: int | None = None
    is_interrupted: bool = (
        False  # a signal to end arrived in the meantime, whatever the program did with it
    )


class CannotRun(Exception):
    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(f"{message}. {AS_TYPED}")
        self.exit_code = exit_code


def hold_closed_streams() -> None:
    """Open /dev/null for closed standard streams, so that none of our files gets their number.

    The program still finds them closed, since Python closes its descriptors in a child.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def check_program(command: list[str], environment: Mapping[str, str]) -> None:
    """Raises CannotRun if the program does not exist or is not executable."""
    word = command[0]
    path = environment.get("PATH", os.defpath)
    if shutil.which(word, path=path):
        return
    paths = (
        [word]
        if os.path.dirname(word)
        else [os.path.join(folder, word) for folder in path.split(os.pathsep)]
    )
    if word and any(os.path.exists(candidate) for candidate in paths):
        raise CannotRun(f"{word!r} is not executable", NOT_EXECUTABLE)
    raise CannotRun(f"there is no program {word!r}", NOT_FOUND)


def end_as_interrupted() -> None:
    """Handle SIGTERM and SIGHUP like Ctrl-C: finished work is kept and children are terminated."""
    for number in _ENDING:
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


def run_program(
    command: list[str], environment: Mapping[str, str], beat: Callable[[], None], **streams: Any
) -> ProgramExit:
    """Run a program to its end, repeatedly calling `beat`, which must not raise.

    `streams` are passed to subprocess.Popen. Raises CannotRun if the program cannot be started.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    group = ProcessGroupWatch()
    is_interrupted = False
    try:
        program = _start_program(command, environment, mask, group, streams)
        while program.poll() is None:
            received = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, STEP_S)
            is_interrupted |= received is not None and received.si_signo in _ENDING
            if received is not None and _must_forward(received, group) and program.poll() is None:
                program.send_signal(received.si_signo)
            beat()
    finally:
        group.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    code = program.returncode
    return ProgramExit(code if code >= 0 else None, -code if code < 0 else None, is_interrupted)


def _start_program(
    command: list[str],
    environment: Mapping[str, str],
    mask: set[int | signal.Signals],
    group: ProcessGroupWatch,
    streams: Mapping[str, Any],
) -> subprocess.Popen[bytes]:
    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(
            command, env=environment, preexec_fn=unblock, close_fds=False, **streams
        )
    except FileNotFoundError:
        raise CannotRun(
            f"there is no program {command[0]!r}, or not the interpreter it names", NOT_FOUND
        ) from None
    except PermissionError:
        raise CannotRun(f"{command[0]!r} is not executable", NOT_EXECUTABLE) from None
    except OSError as error:
        # Usually no process or descriptor is left: the program may still replace this one.
        group.close()
        unblock()
        _replace_process(command, environment, error)


def _replace_process(command: list[str], environment: Mapping[str, str], why: OSError) -> NoReturn:
    """Replace this process by the program; a later command records its spool. Raises CannotRun if
    the program cannot be started.
    """
    for number in (
        signal.SIGPIPE,
        signal.SIGXFSZ,
    ):  # Python ignores them, which a program would inherit
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, dict(environment))  # noqa: S606
    except OSError:
        raise CannotRun(
            f"{command[0]!r} cannot be started: {why.strerror}", NOT_EXECUTABLE
        ) from None


def _must_forward(received: signal.struct_siginfo, group: ProcessGroupWatch) -> bool:
    if received.si_signo == signal.SIGCHLD or received.si_code == SENT_BY_KERNEL:
        return False
    return not group.was_sent_to_all(received.si_signo)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to the process group that `pid` leads; do nothing if it no longer exists or
    may not be signalled.
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def start_session(
    command: Sequence[str], output: IO[bytes], stderr: int = subprocess.STDOUT, **words: Any
) -> subprocess.Popen[bytes]:
    """Start a process without input in a session of its own, which `end_group` ends."""
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=stderr,
        start_new_session=True,
        **words,
    )


def run_to_deadline(child: Child, deadline_s: float, beat: Callable[[], None]) -> bool:
    """Wait for a child, calling `beat` while it runs, then end its session. Return whether it was
    late.

    An interrupt ends the session too.
    """
    try:
        while time.monotonic() <= deadline_s:
            try:
                child.wait(timeout=BEAT_S)
                return False
            except subprocess.TimeoutExpired:
                beat()
        return True
    finally:
        end_group(child)


def end_group(child: Child) -> None:
    """End a child's whole session, including compilers it started. A second Ctrl-C ends only the
    wait.
    """
    try:
        signal_group(child.pid, signal.SIGTERM)
        child.wait(timeout=END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        signal_group(child.pid, signal.SIGKILL)
        child.wait()


def read_tail(path: Path, max_bytes: int = TAIL_BYTES) -> str:
    """Return the end of a child's output, or an empty string if there is none."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - max_bytes))
        return file.read().decode("utf-8", "replace")
    return ""


def end_with(parent: int) -> None:
    """Kill this process when its parent ends (Linux), since nothing would read the result."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)


def start_detached(module: str, *arguments: str) -> None:
    """Start one of our modules so that it outlives this process and its terminal. Raises
    OSError.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("COMPILEBOARD_SPOOL")
    }
    subprocess.Popen(
        own_command(module, *arguments),
        cwd="/",  # the program's folder may be removed
        env={**inherited, "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        close_fds=True,
    ).returncode = 0  # never waited for: it outlives us, and its Popen must not complain at exit


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end_like(outcome: ProgramExit) -> int:
    if outcome.signal_number is None:
        return outcome.exit_code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's own core dump is enough
    if outcome.signal_number != signal.SIGKILL:
        signal.signal(outcome.signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), outcome.signal_number)
    return 128 + outcome.signal_number
