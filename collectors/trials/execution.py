"""Run one side of a trial and record it as a run."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from compileboard.collectors.contract.run_config import RunConfig
from compileboard.collectors.observe.trial_plan import (
    CALLS_PREFIX,
    LOADED,
    NOTES_PREFIX,
    PLAN_VARIABLE,
    SETTING_APPLIED,
    SETTING_FAILED,
    TrialPlan,
)
from compileboard.collectors.record.live import Launch
from compileboard.collectors.record.program import ProgramExit, read_tail, run_program, signal_name
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.progress_line import progress_line
from compileboard.collectors.trials.patches import CannotTry, RecordedProgram

# After each call that compiled: allocations, autotuning, recording of CUDA graphs.
WARM_UP_CALLS = 2
MIN_CALLS = 3


@dataclass(frozen=True)
class Call:
    """A compiled call with its results, or a backward pass with the resulting gradients."""

    number: int
    name: str
    took_us: float
    has_compiled: bool
    is_random: bool
    values: list[list[Any]] | None
    is_backward: bool = False
    after_us: float | None = None  # How long the program runs until the thread's next call.
    frames: tuple[int, int] = (0, 0)  # that Dynamo tried to compile, and that it did

    @property
    def key(self) -> tuple[bool, int]:
        return self.is_backward, self.number


@dataclass(frozen=True)
class ProcessCalls:
    rank: str | None
    start_ns: int
    calls: list[Call]

    def list_steps(self) -> dict[str, list[float]]:
        """Return step times by function name, without warm-up steps if enough others remain.

        A step lasts from the start of a call that compiles nothing to the start of the next call.
        """
        warm: dict[str, list[float]] = {}
        settled: dict[str, list[float]] = {}
        since_compile: dict[str, int] = {}
        for call in self.calls:
            if call.is_backward:
                continue
            if call.has_compiled:
                since_compile[call.name] = 0
                continue
            since_compile[call.name] = since_compile.get(call.name, 0) + 1
            if call.after_us is None:
                continue
            step_us = call.took_us + call.after_us
            warm.setdefault(call.name, []).append(step_us)
            if since_compile[call.name] > WARM_UP_CALLS:
                settled.setdefault(call.name, []).append(step_us)
        return {
            name: settled[name] if len(settled.get(name, ())) >= MIN_CALLS else times
            for name, times in warm.items()
        }

    def count_frames(self) -> dict[str, tuple[int, int, int]]:
        """Return, for each function, its number of calls, compiled frames and graphs."""
        counts: dict[str, tuple[int, int, int]] = {}
        for call in self.calls:
            called, tried, compiled = counts.get(call.name, (0, 0, 0))
            counts[call.name] = called + 1, tried + call.frames[0], compiled + call.frames[1]
        return counts


def read_calls(folder: Path) -> list[ProcessCalls]:
    processes = []
    for path in folder.glob(f"{CALLS_PREFIX}*"):
        lines = list(_read_lines(path))
        if lines:
            head, *bodies = lines
            after_us = dict(body["since"] for body in bodies if "since" in body)
            calls = [
                Call(
                    body["backward" if "backward" in body else "call"],
                    body.get("name", ""),
                    body.get("us", 0.0),
                    body.get("compiled", False),
                    body.get("random", False),
                    body.get("value"),
                    "backward" in body,
                    after_us.get(body.get("call")),
                    tuple(body.get("frames", (0, 0))),
                )
                for body in bodies
                if "call" in body or "backward" in body
            ]
            processes.append(ProcessCalls(head.get("rank"), int(head.get("start_ns", 0)), calls))
    return sorted(processes, key=lambda process: (int(process.rank or 0), process.start_ns))


def read_notes(folder: Path) -> list[tuple[str, str]]:
    notes = [tuple(note) for path in folder.glob(f"{NOTES_PREFIX}*") for note in _read_lines(path)]
    return list(dict.fromkeys(notes))


def _read_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                yield json.loads(line)
            except ValueError:
                continue


def pick_step(
    base: Sequence[Sequence[ProcessCalls]], new: Sequence[Sequence[ProcessCalls]]
) -> tuple[str | None, bool]:
    """Return the function whose step times are compared, and whether the fix changed its graphs.

    It is the slowest function that every execution called without compiling. Functions that the fix
    changed are preferred.
    """
    totals: list[dict[str, float]] = []
    for processes in (*base, *new):
        side: dict[str, float] = {}
        for process in processes[:1]:  # ranks wait for each other: the first one's times are theirs
            for name, times in process.list_steps().items():
                if len(times) >= MIN_CALLS:
                    side[name] = sum(times)
        totals.append(side)
    if not totals:
        return None, False
    common = [name for name in totals[0] if all(name in side for side in totals)]
    old, came = (side[0][0].count_frames() if side and side[0] else {} for side in (base, new))
    # Called more or less often, it does another part of the program's work.
    changed = [name for name in common if old[name] != came[name] and old[name][0] == came[name][0]]
    step = max(changed or common, key=lambda name: totals[0][name], default=None)
    return step, bool(changed)


STDOUT, STDERR = "stdout", "stderr"
EXECUTION_NAME = "execution.json"


@dataclass(frozen=True)
class Counts:
    compile_count: int
    graph_break_count: int
    recompile_count: int
    recompile_limit_count: int
    failure_count: int
    compile_us: int
    torch_version: str | None
    cudagraph_rerecording_count: int = 0
    cudagraph_skip_count: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Execution:
    """One run of one side. `invocation` is the start time of the `try` command that ran it."""

    run_id: str
    folder: Path
    exit: ProgramExit
    counts: Counts
    calls: list[ProcessCalls]
    notes: list[tuple[str, str]]
    took_s: float = 0.0
    invocation: int = 0

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


def execute(
    program: RecordedProgram,
    database: str,
    plan: TrialPlan,
    print_line: Callable[[str], None],
    *,
    name: str,
    tags: Mapping[str, str],
    invocation: int,
    progress_prefix: str = "",
) -> Execution:
    """Run a program once. Its output goes to files in the plan's folder.

    Raises CannotTry if it cannot be recorded, CannotRun if it cannot be started.
    """
    folder = Path(plan.folder)
    shutil.rmtree(folder, ignore_errors=True)  # left by an execution that was interrupted
    folder.mkdir(parents=True)
    started_s = time.monotonic()
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
        outcome = _run(program, launch, folder, progress_prefix)
    finally:
        launch.end(outcome)
        shutil.rmtree(folder / "cache", ignore_errors=True)
    if launch.recording.trouble is not None:
        raise CannotTry(f"the trial was run and could not be recorded: {launch.recording.trouble}")
    run_id = launch.manifest.run_id
    with closing(open_reader(database)) as connection:
        counts = read_counts(connection, run_id)
    took_s = time.monotonic() - started_s
    if not outcome.is_interrupted:
        body = {
            "run_id": run_id,
            "took_s": took_s,
            "invocation": invocation,
            "exit": asdict(outcome),
        }
        (folder / EXECUTION_NAME).write_text(json.dumps(body), encoding="utf-8")
    return Execution(
        run_id, folder, outcome, counts, read_calls(folder), read_notes(folder), took_s, invocation
    )


def load_execution(folder: Path, database: str) -> Execution | None:
    """Load a finished execution; None if the folder has none or its run was deleted."""
    try:
        body = json.loads((folder / EXECUTION_NAME).read_text(encoding="utf-8"))
        with closing(open_reader(database)) as connection:
            counts = read_counts(connection, body["run_id"])
        outcome = ProgramExit(**body["exit"])
    except (OSError, ValueError):
        return None
    return Execution(
        body["run_id"],
        folder,
        outcome,
        counts,
        read_calls(folder),
        read_notes(folder),
        body["took_s"],
        body.get("invocation", 0),
    )


def _run(
    program: RecordedProgram, launch: Launch, folder: Path, progress_prefix: str
) -> ProgramExit:
    with ExitStack() as stack:
        streams = {
            name: stack.enter_context((folder / name).open("wb")) for name in (STDOUT, STDERR)
        }
        progress = progress_line(os.environ, progress_prefix)
        if progress:
            stack.enter_context(progress)
        show = progress.show if progress else None
        return run_program(
            list(program.argv),
            launch.environment,
            lambda: launch.recording.step(show),
            cwd=str(program.folder),
            stdin=DEVNULL,
            **streams,
        )


def read_counts(connection: sqlite3.Connection, run_id: str) -> Counts:
    row = connection.execute(
        """
        select compile_count, graph_break_count, recompile_count, recompile_limit_count,
          failure_count, compile_us, torch_version, cudagraph_rerecording_count,
          cudagraph_skip_count
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
