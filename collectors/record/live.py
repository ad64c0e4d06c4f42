"""Record a run from start to end: its spool, the spool's lock and the recorder that follows it.

Recording errors are reported once and never affect the program.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.record.facts import (
    current_folder,
    default_name,
    describe_run,
    joined_run_id,
    make_spool,
    program_folder,
    spool_folder,
    stored_command,
)
from compileboard.collectors.record.program import ProgramExit, signal_name
from compileboard.collectors.record.recorder import Recorder
from compileboard.collectors.record.sidecar import spawn_sidecar
from compileboard.collectors.record.spool import Manifest, lock_spool, writers_alive
from compileboard.collectors.store.connection import (
    BUSY_TIMEOUT_MS,
    StoreBusy,
    StoreError,
    StoreFull,
    describe_error,
    may_pass,
)

# For a database that another program holds: signals must be passed on in the meantime.
PATIENCE_MS = 200


class DatabaseUnusable(StoreError):
    """The database can never store this run."""


def open_recorder(
    folder: Path, manifest: Manifest, note: Callable[[StoreError], None]
) -> Recorder | None:
    """Open the database. A temporary error is passed to `note`, and the run stays in its spool.

    Raises StoreError if the database can never store this run.
    """
    recorder = None
    try:
        recorder = Recorder(folder, manifest, busy_timeout_ms=PATIENCE_MS)
        recorder.start()
        return recorder
    except StoreError as error:
        if recorder is not None:
            recorder.close()
        if not isinstance(error, (StoreBusy, StoreFull)):
            raise
        note(error)
        return None


class Recording:
    """The spool and recorder of a run. Call `step` while it runs and `end` once."""

    def __init__(self, folder: Path, manifest: Manifest, print_line: Callable[[str], None]) -> None:
        self.folder = folder
        self.manifest = manifest
        self.print_line = print_line
        self.recorder: Recorder | None = None
        self.trouble: str | None = None
        self._told: set[str] = set()  # reported troubles
        self.given_up = False  # trouble that no later step can fix
        self.lock: int | None = None
        try:
            self.lock = lock_spool(folder)
        except OSError as error:
            self._report_error(error)

    def open(self) -> None:
        """Open the database. After a temporary error the run stays in its spool.

        Raises DatabaseUnusable if it can never store this run; the spool is then removed.
        """
        try:
            self.recorder = open_recorder(self.folder, self.manifest, self._report_delay)
        except StoreError as error:
            self._release()
            shutil.rmtree(self.folder)
            raise DatabaseUnusable(str(error)) from error
        except Exception as error:
            self._report_error(error)

    def step(self, show_progress: Callable[[Recorder], None] | None = None) -> None:
        """Record new contents of the spool. Never raises."""
        if self.given_up:
            return
        try:
            if self.recorder is None:
                self.recorder = open_recorder(self.folder, self.manifest, self._report_delay)
            if self.recorder is not None:
                self.recorder.step()
                self.trouble = None
        except Exception as error:
            self._report_error(error)
        if show_progress and self.recorder is not None:
            with suppress(Exception):  # a closed terminal, or a busy database
                show_progress(self.recorder)

    def _print_error(self, words: str, *, at_end: bool = False) -> None:
        if (self.trouble is None or at_end) and words not in self._told:
            self._told.add(words)
            self.print_line(
                f"not recorded yet; the next command records it from {self.folder}: {words}"
            )
        self.trouble = words

    def _report_delay(self, error: StoreError) -> None:
        self._print_error(str(error))

    def _report_error(self, error: Exception) -> None:
        self._print_error(describe_error(error))
        self.given_up = not may_pass(error) and not isinstance(error, StoreError)
        if self.recorder is not None and not isinstance(error, StoreBusy):
            with suppress(Exception):
                # Reopened by the next step, which reads the spool from its beginning
                self.recorder.close()
            self.recorder = None

    def _release(self) -> None:
        if self.lock is not None:
            os.close(self.lock)
            self.lock = None

    def end(self, state: str, *, exit_code: int | None = None, signal: str | None = None) -> None:
        """Record how the run ended and report what is still unrecorded. Never raises."""
        self.manifest = self.manifest.end(state, read_clock_us(), exit_code, signal)
        if self.recorder is not None:
            self.recorder.manifest = self.manifest
        try:
            self.manifest.write(self.folder)
        except OSError as error:
            self.trouble = str(error)
        self.step()
        self._finish()
        self._release()
        if not self.folder.exists():
            if self.trouble is not None:
                self.print_line(
                    f"the spool {self.folder} was deleted; later records are lost: {self.trouble}"
                )
        elif self.trouble is not None:
            self._print_error(self.trouble, at_end=True)
        else:
            self._hand_over_to_sidecar()

    def _hand_over_to_sidecar(self) -> None:
        try:
            orphans = writers_alive(self.folder)
            if orphans:
                spawn_sidecar(self.folder)
                self.print_line(
                    f"{orphans} of the program's processes still run; they go on being recorded"
                )
        except OSError as error:
            self.print_line(
                f"what still runs of the program is recorded by the next command: {error}"
            )

    def _finish(self) -> None:
        recorder = self.recorder
        if recorder is None:
            return
        try:
            recorder.sink.set_busy_timeout(BUSY_TIMEOUT_MS)
            recorder.step()
            recorder.end()
            self.trouble = None
            recorder.discard_spool()
        except Exception as error:
            self.trouble = describe_error(error)
        self.folder = recorder.folder
        with suppress(Exception):
            recorder.close()


INJECT = Path(__file__).resolve().parent.parent / "observe" / "inject"
TRACE_NAME = "trace"


def prepare(
    command: list[str],
    config: RunConfig,
    environment: Mapping[str, str],
    cwd: str | None,
    source: str = "live",
) -> tuple[Path, Manifest]:
    joined, troubles = None, []
    try:
        joined = joined_run_id(environment)
    except ValueError as error:
        troubles.append(("bad_fact", f"{error}; the run has an id of its own"))
    manifest = describe_run(
        replace(
            config,
            name=config.name
            or default_name(stored_command(command, keep_source=config.keep_source)),
        ),
        environment,
        argv=command,
        cwd=cwd,
        code_folder=lambda: program_folder(command, cwd or os.curdir),
        run_id=joined,
        source=source,
        troubles=troubles,
    )
    folder = spool_folder(manifest, environment, shared=joined is not None)
    own = environment.get("TORCH_TRACE")  # the user's: unchanged, and read too
    if own or config.level == "full":
        manifest = replace(
            manifest, trace_folder=os.path.abspath(own) if own else str(folder / TRACE_NAME)
        )
    make_spool(folder, manifest)
    return folder, manifest


def child_environment(
    config: RunConfig, environment: Mapping[str, str], run_id: str, folder: Path
) -> dict[str, str]:
    entries = [
        entry
        for entry in environment.get("PYTHONPATH", "").split(os.pathsep)
        if entry != str(INJECT)
    ]
    path = os.pathsep.join([str(INJECT), *(entries if any(entries) else [])])
    child = {
        **environment,
        "PYTHONPATH": path,
        "COMPILEBOARD_RUN_ID": run_id,
        "COMPILEBOARD_SPOOL": str(folder),
        **config.to_environment(),
    }
    if config.level == "full":
        child.setdefault("TORCH_TRACE", str(folder / TRACE_NAME))
    if config.steps:
        child.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler logs its start on stderr
    return child


class Launch:
    def __init__(
        self,
        command: list[str],
        config: RunConfig,
        environment: Mapping[str, str],
        print_line: Callable[[str], None],
        *,
        cwd: str | None = None,
        source: str = "live",
    ) -> None:
        folder, self.manifest = prepare(
            command, config, environment, cwd or current_folder(), source
        )
        for _, trouble in self.manifest.troubles:
            print_line(trouble)
        self.recording = Recording(folder, self.manifest, print_line)
        self.recording.open()
        self.environment = child_environment(
            self.manifest, environment, self.manifest.run_id, folder
        )

    def end(self, outcome: ProgramExit) -> None:
        if outcome.signal_number is not None:
            self.recording.end("killed", signal=signal_name(outcome.signal_number))
        else:
            self.recording.end(
                "finished" if outcome.exit_code == 0 else "failed", exit_code=outcome.exit_code
            )
