"""Run a command under observation: `collectors run -- COMMAND`. The recorder is this process, beside the program's."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.record.command import default_name
from collectors.record.facts import program_folder
from collectors.record.group import GroupWatch
from collectors.record.manifest import Manifest
from collectors.record.opening import describe_run, joined_run_id, kept_words, make_spool, spool_folder
from collectors.record.recorder import Recorder
from collectors.record.recording import Recording

INJECT = Path(__file__).resolve().parent.parent / "observe" / "inject"
STEP_S = 0.2
# Passed on to the program, unless the terminal has already sent them to it as well.
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
SENT_BY_KERNEL = 0x80  # SI_KERNEL: a key on the terminal, which reaches the whole foreground group
NOT_FOUND, NOT_EXECUTABLE = 127, 126
TRACE_NAME = "trace"
AS_TYPED = "What follows `--` is a command as you would type it: -- python train.py"


@dataclass
class Request:
    """Say what to run and how to record it."""

    command: list[str]
    database: str = "compileboard.db"
    name: str | None = None
    suite: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    level: str = "light"
    keep_source: bool = True
    capture_env: tuple[str, ...] = ()
    quiet: bool = False
    stack_room: bool = False


@dataclass
class Outcome:
    """Say how the program ended: its exit code, or the signal that ended it."""

    exit_code: int | None
    signal_number: int | None = None


class CannotRun(Exception):
    """The program could not be started; `exit_code` is what a shell would give."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
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
        raise CannotRun(f"{word!r} is not executable. {AS_TYPED}", NOT_EXECUTABLE)
    raise CannotRun(f"there is no program {word!r}. {AS_TYPED}", NOT_FOUND)


def prepare(request: Request, environment: Mapping[str, str], cwd: str) -> tuple[Path, Manifest]:
    """Describe the run and make its spool folder.

    Raises: StoreError if that cannot be done; ValueError if the run's given id is none.
    """
    joined = joined_run_id(environment)
    manifest = describe_run(
        environment,
        argv=request.command,
        cwd=cwd,
        code_folder=program_folder(request.command, cwd),
        capture_env=request.capture_env,
        run_id=joined,
        database=os.path.abspath(request.database),
        name=request.name or default_name(kept_words(request.command, keep_source=request.keep_source)),
        suite=request.suite,
        tags=request.tags,
        level=request.level,
        keep_source=request.keep_source,
    )
    manifest.stack_room = request.stack_room
    folder = spool_folder(manifest, environment, shared=joined is not None)
    own = environment.get("TORCH_TRACE")  # the user's: left as it is, and read as well
    manifest.trace_folder = os.path.abspath(own) if own else None
    if request.level == "full" and not own:
        manifest.trace_folder = str(folder / TRACE_NAME)
    make_spool(folder, manifest)
    return folder, manifest


def child_environment(request: Request, environment: Mapping[str, str], run_id: str, folder: Path) -> dict[str, str]:
    """Return the program's environment: the caller's, and what arms the hooks."""
    entries = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry != str(INJECT)]
    path = os.pathsep.join([str(INJECT), *(entries if any(entries) else [])])
    child = {
        **environment,
        "PYTHONPATH": path,
        "COMPILEBOARD_RUN_ID": run_id,
        "COMPILEBOARD_SPOOL": str(folder),
        "COMPILEBOARD_DB": os.path.abspath(request.database),
        "COMPILEBOARD_LEVEL": request.level,
        "COMPILEBOARD_NO_SOURCE": "" if request.keep_source else "1",
        "COMPILEBOARD_CAPTURE_ENV": ",".join(request.capture_env),
        "COMPILEBOARD_STACK_ROOM": "1" if request.stack_room else "",
    }
    if request.level == "full":
        child.setdefault("TORCH_TRACE", str(folder / TRACE_NAME))
    return child


class Launch:
    """Start the program, record while it runs, and end as it ended."""

    def __init__(self, request: Request, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.request = request
        folder, self.manifest = prepare(request, environment, os.getcwd())
        self.recording = Recording(folder, self.manifest, say)
        self.environment = child_environment(request, environment, self.manifest.run_id, folder)

    def open(self) -> None:
        """Open the database, before anything is started or said.

        Raises: StoreError if it can never take this run; the run is then as if it had not been asked for.
        """
        self.recording.open()

    def run(self, show_progress: Callable[[Recorder], None] | None) -> Outcome:
        """Run the program to its end and record it.

        Raises: CannotRun if it cannot be started.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
        group = GroupWatch()
        try:
            program = self._start(mask)
            while program.poll() is None:
                received = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, STEP_S)
                if received is not None and _is_for_program(received, group) and program.poll() is None:
                    program.send_signal(received.si_signo)
                self.recording.step(show_progress)
        finally:
            group.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = program.returncode
        outcome = Outcome(code) if code >= 0 else Outcome(None, -code)
        self._finish(outcome)
        return outcome

    def _start(self, mask: set[int | signal.Signals]) -> subprocess.Popen[bytes]:
        def unblock() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        command = self.request.command
        try:
            return subprocess.Popen(command, env=self.environment, preexec_fn=unblock, close_fds=False)
        except FileNotFoundError:
            problem, code = f"there is no program {command[0]!r}, or not the interpreter it names", NOT_FOUND
        except PermissionError:
            problem, code = f"{command[0]!r} is not executable", NOT_EXECUTABLE
        except OSError as error:
            problem, code = f"{command[0]!r} cannot be started: {error.strerror}", NOT_EXECUTABLE
        self._finish(Outcome(code))
        raise CannotRun(f"{problem}. {AS_TYPED}", code)

    def _finish(self, outcome: Outcome) -> None:
        if outcome.signal_number is not None:
            self.recording.end("killed", signal=signal_name(outcome.signal_number))
        else:
            self.recording.end("finished" if outcome.exit_code == 0 else "failed", exit_code=outcome.exit_code)


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
