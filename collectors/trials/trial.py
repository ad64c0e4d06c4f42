"""Run a program with and without fixes alternately, compare the executions and save the trials."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compileboard.collectors.contract.clock import read_clock_us
from compileboard.collectors.fixes.fix import LineEdit
from compileboard.collectors.observe.trial_plan import TrialPlan
from compileboard.collectors.record.program import CannotRun
from compileboard.collectors.record.spool import new_run_id
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard import Trial, save_trial
from compileboard.collectors.trials.comparison import TrialResult, compare_executions
from compileboard.collectors.trials.execution import (
    EXECUTION_NAME,
    Execution,
    execute,
    load_execution,
)
from compileboard.collectors.trials.patches import (
    CannotTry,
    PatchedFile,
    RecordedProgram,
    join_diffs,
    map_copies,
)

PrintLine = Callable[[str], None]
MAX_CHARACTERS = 200  # A longer command is shown truncated.
TAG = "trial"  # its value is `base` or `fix`
BASE = "base"


@dataclass(frozen=True)
class Candidate:
    """A change to try. `numbers` and `fingerprints` are those of the causes it fixes."""

    title: str
    files: tuple[PatchedFile, ...] = ()
    settings: tuple[str, ...] = ()
    fix_id: str | None = None
    numbers: tuple[int, ...] = ()
    fingerprints: tuple[str, ...] = ()
    edits: tuple[LineEdit, ...] = ()

    @property
    def words(self) -> str:
        noun = "fix" if len(self.numbers) == 1 else "fixes"
        numbers = ", ".join(map(str, self.numbers))
        return f"with {noun} {numbers}" if numbers else "with the fix"


class Stopped(Exception):
    """No further execution was started, because the user interrupted or the time limit was
    reached.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.is_interrupted = reason == "interrupted"


class Executions:
    """Executes a program with and without changes, each execution in a folder of its own.

    Executions that an earlier call left in the folder are loaded and not repeated.
    """

    def __init__(
        self,
        program: RecordedProgram,
        database: str,
        folder: Path,
        print_line: PrintLine,
        planned_count: int,
        budget_s: float | None = None,
    ) -> None:
        self.program = program
        self.database = database
        self.folder = folder
        self.print_line = print_line
        self.planned_count = planned_count
        self.count = self.earlier_count = 0
        self.started_us = read_clock_us()
        self._command = program.command
        if len(self._command) > MAX_CHARACTERS:
            self._command = f"{self._command[: MAX_CHARACTERS - 1]}…"
        self._ends_s = None if budget_s is None else time.monotonic() + budget_s
        self._longest_s = 0.0

    def load(self, key: str = BASE) -> list[Execution]:
        """Load the executions of earlier calls."""
        paths = sorted(self.folder.glob(f"{key}-*/{EXECUTION_NAME}"), key=_read_number)
        loaded = (load_execution(path.parent, self.database) for path in paths)
        executions = [execution for execution in loaded if execution is not None]
        self.earlier_count += len(executions)
        self._longest_s = max([self._longest_s, *(earlier.took_s for earlier in executions)])
        return executions

    def run(self, candidate: Candidate | None, key: str = "fix") -> Execution:
        """Execute the program, with the candidate's change if there is one.

        Raises Stopped if the execution is interrupted, or would not end within the time limit.
        """
        side = BASE if candidate is None else key
        folders = (self.folder / f"{side}-{number}" for number in itertools.count(1))
        folder = next(folder for folder in folders if not (folder / EXECUTION_NAME).exists())
        execution = self._execute(candidate, folder)
        self._longest_s = max(self._longest_s, execution.took_s)
        if candidate is None and self.count == 1:
            _warn_of_changes(self.program, execution, self.print_line)
        return execution

    def _execute(self, candidate: Candidate | None, folder: Path) -> Execution:
        ends_s = time.monotonic() + self._longest_s
        if self._ends_s is not None and self.count and ends_s > self._ends_s:
            raise Stopped("the time is used up")
        self.count += 1
        words = "as it is" if candidate is None else candidate.words
        of = f"{self.count} of {max(self.count, self.planned_count)}"
        left_s = self._longest_s * (self.planned_count - self.count + 1)
        left = f"; at most {left_s / 60:.0f} min left" if left_s >= 60 else ""
        self.print_line(f"running {self._command} {words} ({of}{left})")
        files = () if candidate is None else candidate.files
        plan = TrialPlan(
            str(folder),
            map_copies(files),
            () if candidate is None else candidate.settings,
            str(self.folder / "probe"),
        )
        try:
            execution = execute(
                self.program,
                self.database,
                plan,
                self.print_line,
                name=self.program.name,
                tags={TAG: BASE if candidate is None else "fix"},
                invocation=self.started_us,
                progress_prefix=f"{of}, {words}: ",
            )
        except CannotRun as error:
            raise CannotTry(f"{self._command} cannot be run: {error}") from None
        if execution.exit.is_interrupted:
            raise Stopped("interrupted")
        return execution

    def make_trial(
        self,
        candidate: Candidate,
        sides: tuple[Sequence[Execution], Sequence[Execution]],
        result: TrialResult,
        *,
        id: str | None = None,
        fingerprint: str | None = None,
        more: dict[str, Any] | None = None,
    ) -> Trial:
        base, new = sides
        return Trial(
            id=id or new_run_id(),
            run_id=self.program.run_id,
            base_run_id=base[0].run_id if base else None,
            new_run_id=new[0].run_id if new else None,
            fix_id=candidate.fix_id,
            cause_fingerprint=fingerprint,
            title=candidate.title,
            patch=join_diffs(candidate.files) if self.program.keep_source else None,
            settings=candidate.settings,
            outcome=result.outcome,
            summary=result.summary,
            started_us=self.started_us,
            ended_us=read_clock_us(),
            result={**result.to_json(), **(more or {})},
        )

    def save(self, trials: Sequence[Trial]) -> None:
        with closing(open_writer(self.database)) as connection:
            for trial in trials:
                save_trial(connection, trial)


def _read_number(path: Path) -> int:
    return int(path.parent.name.rpartition("-")[2])


def run_trial(
    executions: Executions, candidate: Candidate, repeat_count: int
) -> tuple[Trial, TrialResult]:
    """Run both sides alternately and save the trial, even if it is interrupted. Repeats that an
    interruption left incomplete do not count.

    Raises CannotTry or StoreError.
    """
    base: list[Execution] = []
    new: list[Execution] = []
    is_complete = False
    with suppress(KeyboardInterrupt, Stopped):
        for _ in range(repeat_count):
            base.append(executions.run(None))
            new.append(executions.run(candidate))
        if len(base) == 1 and compare(base, new, candidate).outcome == "different":
            # What differs between two executions of the program as it is was not lost.
            executions.print_line("the output differs; does it without the fix too?")
            base.append(executions.run(None))
        is_complete = True
        if compare(base, new, candidate).needs_repeats:
            executions.print_line("it took longer in one execution; twice more each")
            while len(new) < 3:
                pair = executions.run(None), executions.run(candidate)
                base.append(pair[0])
                new.append(pair[1])
    result = compare(base, new if is_complete else [], candidate)
    fingerprint = next(iter(candidate.fingerprints), None)
    trial = executions.make_trial(candidate, (base, new), result, fingerprint=fingerprint)
    executions.save([trial])
    return trial, result


def compare(
    base: Sequence[Execution], new: Sequence[Execution], candidate: Candidate
) -> TrialResult:
    return compare_executions(base, new, map_copies(candidate.files), candidate.settings)


def _warn_of_changes(program: RecordedProgram, base: Execution, print_line: PrintLine) -> None:
    for noun, recorded, now in (
        ("graph breaks", program.graph_break_count, base.counts.graph_break_count),
        ("recompiles", program.recompile_count, base.counts.recompile_count),
    ):
        if recorded not in (None, now):
            print_line(
                f"the recorded run had {recorded} {noun}, the program now has {now}; "
                "the comparison uses the program as it is now"
            )
    if not base.counts.compile_count:
        print_line(
            "nothing was compiled; `compileboard-collect doctor` prints what can be recorded here"
        )
