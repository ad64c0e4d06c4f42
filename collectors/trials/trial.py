"""Run a program with and without a fix in turns, compare and save the trial."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from compileboard.collectors.observe.trial_plan import TrialPlan
from compileboard.collectors.record.program import CannotRun
from compileboard.collectors.record.spool import new_run_id
from compileboard.collectors.store.connection import open_writer
from compileboard.collectors.store.dashboard import Trial, save_trial
from compileboard.collectors.trials.comparison import TrialResult, compare_executions
from compileboard.collectors.trials.execution import Execution, execute
from compileboard.collectors.trials.patches import (
    CannotTry,
    PatchedFile,
    RecordedProgram,
    describe_command,
    join_diffs,
    map_copies,
)

PrintLine = Callable[[str], None]
SIDES = ("base", "fix")  # the values of the tag that both runs of a trial have
TAG = "trial"


@dataclass(frozen=True)
class Candidate:
    title: str
    files: tuple[PatchedFile, ...] = ()
    settings: tuple[str, ...] = ()
    fix_id: str | None = None
    cause_fingerprint: str | None = None


def run_trial(
    program: RecordedProgram,
    candidate: Candidate,
    database: str,
    folder: Path,
    repeat_count: int,
    print_line: PrintLine,
) -> tuple[Trial, TrialResult]:
    """Run both sides in turns and save the trial, even if interrupted.

    Raises CannotTry or StoreError.
    """
    started_us = time.time_ns() // 1000
    copies = map_copies(candidate.files)
    sides: tuple[list[Execution], list[Execution]] = ([], [])
    with suppress(KeyboardInterrupt):
        _run_sides(program, candidate, database, folder, repeat_count, sides, print_line)
    result = compare_executions(*sides, copies, candidate.settings)
    trial = Trial(
        id=new_run_id(),
        run_id=program.run_id,
        base_run_id=sides[0][0].run_id if sides[0] else None,
        new_run_id=sides[1][0].run_id if sides[1] else None,
        fix_id=candidate.fix_id,
        cause_fingerprint=candidate.cause_fingerprint,
        title=candidate.title,
        patch=join_diffs(candidate.files) if program.keep_source else None,
        settings=candidate.settings,
        outcome=result.outcome,
        summary=result.summary,
        started_us=started_us,
        ended_us=time.time_ns() // 1000,
        result=result.to_json(),
    )
    with closing(open_writer(database)) as connection:
        save_trial(connection, trial)
    return trial, result


def _run_sides(
    program: RecordedProgram,
    candidate: Candidate,
    database: str,
    folder: Path,
    repeat_count: int,
    sides: tuple[list[Execution], list[Execution]],
    print_line: PrintLine,
) -> None:
    command = describe_command(program.argv)
    for number in range(repeat_count):
        for side, executions, words in zip(SIDES, sides, ("as it is", "with the fix")):
            times = f" ({number + 1} of {repeat_count})" if repeat_count > 1 else ""
            print_line(f"running {command} {words}{times}")
            plan = TrialPlan(
                str(folder / f"{side}-{number + 1}"),
                map_copies(candidate.files) if side == "fix" else {},
                candidate.settings if side == "fix" else (),
                str(folder / "probe"),
            )
            try:
                execution = execute(
                    program, database, plan, print_line, name=program.name, tags={TAG: side}
                )
            except CannotRun as error:
                raise CannotTry(f"{command} cannot be run: {error}") from None
            executions.append(execution)
            if execution.exit.is_interrupted:
                return
            if not number and side == "base":
                _warn_of_changes(program, execution, print_line)


def _warn_of_changes(program: RecordedProgram, base: Execution, print_line: PrintLine) -> None:
    for noun, recorded, now in (
        ("graph breaks", program.graph_break_count, base.counts.graph_break_count),
        ("recompiles", program.recompile_count, base.counts.recompile_count),
    ):
        if recorded != now:
            print_line(
                f"the recorded run has {recorded} {noun}, the program now {now}; compared is "
                "the program now"
            )
    if not base.counts.compile_count:
        print_line(
            "nothing was compiled; `compileboard-collect doctor` prints what can be recorded here"
        )
