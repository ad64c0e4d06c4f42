"""Start a program, wait for it, pass signals on to it, and end as it ended: with Python alone."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from compileboard.collectors.record.group import GroupWatch

STEP_S = 0.2
# Passed on to the program, unless the terminal has already sent them to it as well.
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
SENT_BY_KERNEL = 0x80  # SI_KERNEL: a key on the terminal, which reaches the whole foreground group
NOT_FOUND, NOT_EXECUTABLE = 127, 126
AS_TYPED = "What follows `--` is a command as you would type it: -- python train.py"


@dataclass
class Outcome:
    """Say how the program ended: its exit code, or the signal that ended it."""

    exit_code: int | None
    signal_number: int | None = None


class CannotRun(Exception):
    """The program could not be started; `exit_code` is what a shell would give."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(f"{message}. {AS_TYPED}")
        self.exit_code = exit_code


def check_program(command: list[str], environment: Mapping[str, str]) -> None:
    """Find the program as exec will, before a run is made of it.

    Raises: CannotRun if it is not there or may not be executed.
    """
    word = command[0]
    path = environment.get("PATH", os.defpath)
    if shutil.which(word, path=path):
        return
    places = [word] if os.path.dirname(word) else [os.path.join(folder, word) for folder in path.split(os.pathsep)]
    if word and any(os.path.exists(place) for place in places):
        raise CannotRun(f"{word!r} is not executable", NOT_EXECUTABLE)
    raise CannotRun(f"there is no program {word!r}", NOT_FOUND)


def run_program(command: list[str], environment: Mapping[str, str], beat: Callable[[], None]) -> Outcome:
    """Run a program to its end; call `beat` again and again meanwhile, which must not raise.

    Raises: CannotRun if it cannot be started.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
    group = GroupWatch()
    try:
        program = _start(command, environment, mask, group)
        while program.poll() is None:
            received = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, STEP_S)
            if received is not None and _is_for_program(received, group) and program.poll() is None:
                program.send_signal(received.si_signo)
            beat()
    finally:
        group.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    code = program.returncode
    return Outcome(code) if code >= 0 else Outcome(None, -code)


def _start(
    command: list[str], environment: Mapping[str, str], mask: set[int | signal.Signals], group: GroupWatch
) -> subprocess.Popen[bytes]:
    def unblock() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    try:
        return subprocess.Popen(command, env=environment, preexec_fn=unblock, close_fds=False)
    except FileNotFoundError:
        raise CannotRun(f"there is no program {command[0]!r}, or not the interpreter it names", NOT_FOUND) from None
    except PermissionError:
        raise CannotRun(f"{command[0]!r} is not executable", NOT_EXECUTABLE) from None
    except OSError as error:  # no further process or descriptor for us, most of all: it may still be had in our place
        group.close()
        unblock()
        _become(command, environment, error)


def _become(command: list[str], environment: Mapping[str, str], why: OSError) -> NoReturn:
    """Give this process to the program; what it writes into its spool is recorded by the next command.

    Raises: CannotRun if it cannot be started in any way.
    """
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a program would inherit that
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, dict(environment))  # noqa: S606
    except OSError:
        raise CannotRun(f"{command[0]!r} cannot be started: {why.strerror}", NOT_EXECUTABLE) from None


def _is_for_program(received: signal.struct_siginfo, group: GroupWatch) -> bool:
    """Tell whether a signal has to be passed on: one from the terminal or to the group has reached the program."""
    if received.si_signo == signal.SIGCHLD or received.si_code == SENT_BY_KERNEL:
        return False
    return not group.was_sent_to_all(received.si_signo)


def signal_name(number: int) -> str:
    """Name a signal: SIGTERM, or its number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def end_like(outcome: Outcome) -> int:
    """End as the program ended: return its exit code, or die of the signal it died of."""
    if outcome.signal_number is None:
        return outcome.exit_code or 0
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program's own core dump is enough
    if outcome.signal_number != signal.SIGKILL:
        signal.signal(outcome.signal_number, signal.SIG_DFL)
    os.kill(os.getpid(), outcome.signal_number)
    return 128 + outcome.signal_number
