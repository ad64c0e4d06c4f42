"""Run one side of a trial and record it as a run."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import DEVNULL

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.observe.trial_plan import (
    LOADED,
    PLAN_VARIABLE,
    SETTING_APPLIED,
    SETTING_FAILED,
    TrialPlan,
)
from compileboard.collectors.pipeline.live import Launch
from compileboard.collectors.runs.program import ProgramExit, run_program, signal_name
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.progress_line import progress_line
from compileboard.collectors.trials.calls import ProcessCalls, read_calls, read_notes
from compileboard.collectors.trials.patches import CannotTry
from compileboard.collectors.trials.program import RecordedProgram

STDOUT, STDERR = "stdout", "stderr"
_TAIL_BYTES = 20_000


@dataclass(frozen=True)
class Counts:
    compile_count: int
    graph_break_count: int
    recompile_count: int
    recompile_limit_count: int
    failure_count: int
    compile_us: int
    torch_version: str | None
    error: str | None = None


@dataclass(frozen=True)
class Execution:
    run_id: str
    folder: Path
    exit: ProgramExit
    counts: Counts
    calls: list[ProcessCalls]
    notes: list[tuple[str, str]]

    @property
    def exit_text(self) -> str:
        if self.exit.signal_number is not None:
            return signal_name(self.exit.signal_number)
        return f"exit code {self.exit.exit_code}"

    @property
    def has_ended_well(self) -> bool:
        return self.exit.signal_number is None and not self.exit.exit_code

    def list_notes(self, kind: str) -> list[str]:
        return [text for note_kind, text in self.notes if note_kind == kind]

    def find_missing(self, files: Mapping[str, str], settings: tuple[str, ...]) -> str | None:
        failed = self.list_notes(SETTING_FAILED)
        if failed:
            return f"the setting could not be made: {failed[0]}"
        applied, loaded = self.list_notes(SETTING_APPLIED), self.list_notes(LOADED)
        for statement in settings:
            if statement not in applied:
                return (
                    f"the setting was not made, for the program did not import torch: {statement}"
                )
        for path in files:
            if path not in loaded:
                return (
                    f"{os.path.basename(path)} was not imported by the program, so its patched "
                    "copy had no part in it "
                    "(only Python's import reads the copy)"
                )
        return None

    def describe_failure(self) -> str:
        if self.counts.error:
            return self.counts.error
        lines = [line for line in read_tail(self.folder / STDERR).splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else self.exit_text


def read_tail(path: Path) -> str:
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace")
    return ""


def execute(
    program: RecordedProgram,
    database: str,
    plan: TrialPlan,
    print_line: Callable[[str], None],
    *,
    name: str,
    tags: Mapping[str, str],
) -> Execution:
    """Run a program once; its output goes to files in the plan's folder.

    Raises CannotTry if it cannot be recorded, CannotRun if not started.
    """
    folder = Path(plan.folder)
    folder.mkdir(parents=True, exist_ok=True)
    own = {
        PLAN_VARIABLE: str(plan.write()),
        "PYTHONHASHSEED": program.environment.get("PYTHONHASHSEED", "0"),
        # Each side compiles everything: what the first one left would make the second one fast.
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TRITON_CACHE_DIR": str(folder / "cache" / "triton"),
    }
    config = RunConfig(
        name=name,
        tags=dict(tags),
        database=database,
        keep_source=program.keep_source,
        stack_room=program.has_stack_room or None,
    )
    launch = Launch(
        list(program.argv),
        config,
        {**program.environment, **own},
        print_line,
        cwd=str(program.folder),
        source="trial",
    )
    outcome = ProgramExit(None)
    try:
        outcome = _run(program, launch, folder)
    finally:
        launch.end(outcome)
        shutil.rmtree(folder / "cache", ignore_errors=True)
    if launch.recording.trouble is not None:
        raise CannotTry(f"the trial was run and could not be recorded: {launch.recording.trouble}")
    run_id = launch.manifest.run_id
    with closing(open_reader(database)) as connection:
        counts = read_counts(connection, run_id)
    return Execution(run_id, folder, outcome, counts, read_calls(folder), read_notes(folder))


def _run(program: RecordedProgram, launch: Launch, folder: Path) -> ProgramExit:
    with ExitStack() as stack:
        streams = {
            name: stack.enter_context((folder / name).open("wb")) for name in (STDOUT, STDERR)
        }
        progress = progress_line(os.environ)
        if progress:
            stack.enter_context(progress)
        show = progress.show if progress else None
        return run_program(
            list(program.argv),
            launch.environment,
            lambda: launch.step(show),
            cwd=str(program.folder),
            stdin=DEVNULL,
            **streams,
        )


def read_counts(connection: sqlite3.Connection, run_id: str) -> Counts:
    row = connection.execute(
        """
        select compile_count, graph_break_count, recompile_count, recompile_limit_count,
          failure_count, compile_us, torch_version
        from runs join run_totals on run_id = id
        where id = :id
        """,
        {"id": run_id},
    ).fetchone()
    if row is None:
        raise CannotTry(f"run {run_id} is not in the database")
    error = connection.execute(
        """
        select error_type, message from failures
        where run_id = :id and ended_program = 1
        order by time_us desc
        limit 1
        """,
        {"id": run_id},
    ).fetchone()
    counts = Counts(**dict(row))
    if error is None:
        return counts
    message = (error["message"] or "").strip().splitlines()
    return replace(
        counts,
        error=f"{error['error_type']}: {message[0]}"[:300] if message else error["error_type"],
    )
