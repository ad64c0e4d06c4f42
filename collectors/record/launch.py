"""Run a command under observation: `collectors run -- COMMAND`. The recorder is this process, beside the program's."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.read.spool import writers_alive
from collectors.record.facts import git_facts, gpu_facts, host_facts, program_folder
from collectors.record.home import new_run_id, spool_root
from collectors.record.manifest import Manifest
from collectors.record.recorder import Recorder, SpoolLock
from collectors.record.sidecar import spawn_sidecar
from collectors.scrub import scrub_argv, scrub_environment
from collectors.store.errors import StoreBusy, StoreError, StoreFull

INJECT = Path(__file__).resolve().parent.parent / "observe" / "inject"
STEP_S = 0.2
# Passed on to the program, unless the terminal has already sent them to it as well.
FORWARDED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2}
SENT_BY_KERNEL = 0x80  # SI_KERNEL: a key on the terminal, which reaches the whole foreground group
NOT_FOUND, NOT_EXECUTABLE = 127, 126
TRACE_NAME = "trace"


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


def default_name(command: list[str]) -> str:
    """Name a run after its script or module: train.py, torchrun's train.py, my.module."""
    for index, argument in enumerate(command):
        if argument.endswith(".py"):
            return os.path.basename(argument)
        if argument == "-m" and index + 1 < len(command):
            following = command[index + 1]
            if following not in ("torch.distributed.run", "torch.distributed.launch"):
                return following
    return os.path.basename(command[0])


def prepare(request: Request, environment: Mapping[str, str], cwd: str) -> tuple[Path, Manifest]:
    """Make the run's spool folder and describe the run."""
    run_id = new_run_id()
    joined = environment.get("COMPILEBOARD_RUN_ID")
    if joined and not environment.get("COMPILEBOARD_SPOOL"):
        run_id = joined  # nodes of one job share a run; inside an observed program a run is its own
    manifest = Manifest(
        run_id=run_id,
        database=os.path.abspath(request.database),
        name=request.name or default_name(request.command),
        started_us=time.time_ns() // 1000,
        suite=request.suite,
        tags=request.tags,
        level=request.level,
        keep_source=request.keep_source,
        argv=scrub_argv(request.command),
        cwd=cwd,
        recorder_process_id=uuid.uuid4().hex,
        git=git_facts(program_folder(request.command, cwd)),
        host=host_facts(),
        gpus=gpu_facts(environment),
        environment=scrub_environment(environment, request.capture_env),
    )
    folder = spool_root(environment) / (run_id if run_id != joined else f"{run_id}-{manifest.recorder_process_id[:8]}")
    if request.level == "full":
        manifest.trace_folder = environment.get("TORCH_TRACE") or str(folder / TRACE_NAME)
    try:
        folder.mkdir(parents=True, exist_ok=False, mode=0o700)
        manifest.write(folder)
    except OSError as error:
        raise StoreError(
            f"the spool folder {folder} cannot be made: {error.strerror}. Set COMPILEBOARD_HOME to a folder "
            "on a local disk that may be written."
        ) from error
    return folder, manifest


def child_environment(request: Request, environment: Mapping[str, str], run_id: str, folder: Path) -> dict[str, str]:
    """Return the program's environment: the caller's, and what arms the hooks."""
    path = os.pathsep.join([str(INJECT), *filter(None, [environment.get("PYTHONPATH")])])
    child = {
        **environment,
        "PYTHONPATH": path,
        "COMPILEBOARD_RUN_ID": run_id,
        "COMPILEBOARD_SPOOL": str(folder),
        "COMPILEBOARD_LEVEL": request.level,
        "COMPILEBOARD_NO_SOURCE": "" if request.keep_source else "1",
        "COMPILEBOARD_CAPTURE_ENV": ",".join(request.capture_env),
    }
    if request.level == "full":
        child.setdefault("TORCH_TRACE", str(folder / TRACE_NAME))
    return child


def open_recorder(folder: Path, manifest: Manifest, say: Callable[[str], None]) -> Recorder | None:
    """Open the database; a passing trouble is said and the run goes on into its spool.

    Raises: StoreError if the database can never take this run.
    """
    try:
        recorder = Recorder(folder, manifest)
        recorder.start()
        return recorder
    except (StoreBusy, StoreFull) as error:
        say(f"not recording yet: {error}")
        return None


class Launch:
    """Start the program, record while it runs, and end as it ended."""

    def __init__(self, request: Request, environment: Mapping[str, str], say: Callable[[str], None]) -> None:
        self.request = request
        self.say = say
        self.folder, self.manifest = prepare(request, environment, os.getcwd())
        self.lock = SpoolLock(self.folder)
        self.lock.take()
        self.environment = child_environment(request, environment, self.manifest.run_id, self.folder)
        self.recorder: Recorder | None = None
        self.trouble: str | None = None

    def run(self, show_progress: Callable[[Recorder], None] | None) -> Outcome:
        """Run the program to its end and record it.

        Raises: StoreError before the program is started; CannotRun if it cannot be.
        """
        self._open_or_clean_up()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED | {signal.SIGCHLD})
        try:
            program = self._start(mask)
            while program.poll() is None:
                received = signal.sigtimedwait(FORWARDED | {signal.SIGCHLD}, STEP_S)
                if received is not None and _is_for_program(received) and program.poll() is None:
                    program.send_signal(received.si_signo)
                self._step(show_progress)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = program.returncode
        outcome = Outcome(code) if code >= 0 else Outcome(None, -code)
        self._finish(outcome)
        return outcome

    def _open_or_clean_up(self) -> None:
        try:
            self.recorder = open_recorder(self.folder, self.manifest, self.say)
        except StoreError:
            _remove_empty_spool(self.folder)
            raise

    def _start(self, mask: set[int | signal.Signals]) -> subprocess.Popen[bytes]:
        def unblock() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        command = self.request.command
        try:
            return subprocess.Popen(command, env=self.environment, preexec_fn=unblock, close_fds=False)
        except FileNotFoundError:
            problem, code = f"there is no program {command[0]!r}", NOT_FOUND
        except PermissionError:
            problem, code = f"{command[0]!r} is not executable", NOT_EXECUTABLE
        except OSError as error:
            problem, code = f"{command[0]!r} cannot be started: {error.strerror}", NOT_EXECUTABLE
        self._finish(Outcome(code))
        raise CannotRun(f"{problem}. What follows `--` is a command as you would type it: -- python train.py", code)

    def _step(self, show_progress: Callable[[Recorder], None] | None) -> None:
        """Record what is there. Whatever goes wrong with that is said once and is never the program's trouble."""
        try:
            if self.recorder is None:
                self.recorder = open_recorder(self.folder, self.manifest, lambda _: None)
            if self.recorder is not None:
                self.recorder.step()
                self.trouble = None
                if show_progress:
                    show_progress(self.recorder)
        except (StoreError, OSError) as error:
            if self.trouble is None:
                self.say(f"not recorded yet: {error}")
            self.trouble = str(error)

    def _finish(self, outcome: Outcome) -> None:
        manifest = self.manifest
        manifest.ended_us = time.time_ns() // 1000
        manifest.exit_code = outcome.exit_code
        if outcome.signal_number is not None:
            manifest.signal, manifest.state = signal_name(outcome.signal_number), "killed"
        else:
            manifest.state = "finished" if outcome.exit_code == 0 else "failed"
        try:
            manifest.write(self.folder)
        except OSError as error:
            self.trouble = str(error)
        self._step(None)
        if self.recorder is not None:
            try:
                self.recorder.end()
            except StoreError as error:
                self.trouble = str(error)
        orphans = writers_alive(self.folder)
        if self.trouble is None and not orphans and self.recorder is not None:
            self.recorder.discard_spool()
        if self.recorder is not None:
            self.recorder.close()
        self.lock.release()
        if self.trouble is not None:
            self.say(f"the run is kept in {self.folder} and the next command records it: {self.trouble}")
        elif orphans:
            self.say(f"{orphans} of the program's processes still run; they go on being recorded")
            spawn_sidecar(self.folder)


def _is_for_program(received: signal.struct_siginfo) -> bool:
    return received.si_signo != signal.SIGCHLD and received.si_code != SENT_BY_KERNEL


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


def _remove_empty_spool(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
