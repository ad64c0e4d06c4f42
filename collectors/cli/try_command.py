"""`try`: run a recorded program again with a fix in a copy, and print the effect."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from compileboard.collectors.cli.common import db_option, pick_up, print_json, print_message
from compileboard.collectors.fixes.titles import strip_ticks
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.values import collector_command, dashboard_command, read_count
from compileboard.command_line import Command, Option, Value
from compileboard.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED

if TYPE_CHECKING:
    from compileboard.collectors.fixes.causes import Cause
    from compileboard.collectors.store.dashboard import Trial
    from compileboard.collectors.trials.comparison import TrialResult
    from compileboard.collectors.trials.patches import RecordedProgram
    from compileboard.collectors.trials.trial import Candidate

EXAMPLES = """\
Examples:
  %(prog)s 01JD --fix 1                       the first fix that the run's page names
  %(prog)s 01JD --patch fix.patch             a change of your own, as `git diff` writes it
  git diff | %(prog)s 01JD --patch -          what you have changed; the base has it too, \
so stash it first
  %(prog)s 01JD --fix 1 --repeat 3            three times each, so that times can be judged
  %(prog)s 01JD --fix 1 -- python train.py --token "$TOKEN"
"""
_EXIT_CODES = {"improved": DONE, "unchanged": DONE, "interrupted": INTERRUPTED}


@click.command("try", cls=Command, epilog=EXAMPLES)
@db_option
@click.option(
    "--fix",
    metavar="N",
    type=Value(read_count),
    cls=Option,
    exclusive="fix",
    help="Number of the fix.",
)
@click.option(
    "--patch",
    metavar="FILE",
    cls=Option,
    exclusive="fix",
    help=(
        "Unified diff to apply instead; paths from the run's folder or its repository. - is "
        "standard input."
    ),
)
@click.option(
    "--repeat",
    "repeat_count",
    type=Value(read_count),
    default=1,
    metavar="N",
    help="Runs a side. 3 judge times. Default: 1.",
)
@click.option(
    "--keep",
    metavar="FOLDER",
    type=click.Path(path_type=Path),
    help="Keep the patch, the patched copies and both outputs here.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.argument(
    "run", metavar="RUN", help="Run's ID, as much of its start as is unique, or latest."
)
@click.argument(
    "command",
    nargs=-1,
    type=click.UNPROCESSED,
    metavar="[-- COMMAND ...]",
    help="Command, if not as recorded.",
)
def try_fix(run: str, command: tuple[str, ...], db: str, keep: Path | None, **options: Any) -> int:
    """Run a recorded program again, as it is and with a fix applied to a copy; your files stay as
    they are.
    """
    from compileboard.collectors.trials.patches import CannotTry

    pick_up()
    folder = keep
    try:
        folder = _make_folder(keep)
        return _try(run, command, os.path.abspath(db), folder, keep is not None, **options)
    except CannotTry as error:
        print_message(str(error))
        return REFUSED
    finally:
        if keep is None and folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _make_folder(keep: Path | None) -> Path:
    from compileboard.collectors.trials.patches import CannotTry

    if keep is None:
        return Path(tempfile.mkdtemp(prefix="compileboard-try-"))
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise CannotTry(f"{keep} is not empty; give --keep a new folder")
    return keep.resolve()


def _try(
    run: str,
    command: Sequence[str],
    database: str,
    folder: Path,
    is_kept: bool,
    *,
    fix: int | None,
    patch: str | None,
    repeat_count: int,
    as_json: bool,
) -> int:
    from compileboard.collectors.trials.patches import load_program
    from compileboard.collectors.trials.trial import run_trial

    with closing(open_reader(database)) as connection:
        program = load_program(connection, run, os.environ, command)
        if patch is not None:
            candidate = _read_patch(patch, program, folder)
        else:
            from compileboard.collectors.store.large_runs import reopen_in
            from compileboard.collectors.store.run_causes import load_causes

            reopen_in(database, program.run_id)
            candidate = _pick_fix(
                load_causes(connection, program.run_id), fix, program, folder, database
            )
    for warning in program.warnings:
        print_message(warning)
    trial, result = run_trial(program, candidate, database, folder, repeat_count, print_message)
    if is_kept:
        print_message(f"kept in {folder}")
    if as_json:
        print_json(_to_json(trial))
    else:
        print(_to_text(trial, result))
        print_message(
            f"see it with: {dashboard_command('serve', database=database)}  (page "
            f"/runs/{trial.run_id})"
        )
    return _EXIT_CODES.get(trial.outcome, FAILED)


def _read_patch(patch: str, program: RecordedProgram, folder: Path) -> Candidate:
    from compileboard.collectors.trials.patches import CannotTry, apply_patch
    from compileboard.collectors.trials.trial import Candidate

    try:
        text = sys.stdin.read() if patch == "-" else Path(patch).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CannotTry(f"the patch {patch} cannot be read: {error}") from None
    files = apply_patch(text, program.roots, folder)
    names = ", ".join(file.name for file in files)
    return Candidate(f"{'Patch' if patch == '-' else Path(patch).name} of {names}", tuple(files))


def _pick_fix(
    causes: Sequence[Cause],
    number: int | None,
    program: RecordedProgram,
    folder: Path,
    database: str,
) -> Candidate:
    from compileboard.collectors.trials.patches import CannotTry, apply_edits
    from compileboard.collectors.trials.trial import Candidate

    cause = next((cause for cause in causes if cause.number == number), None)
    suggested = (
        next((fix for fix in cause.fixes if fix.edits or fix.settings), None) if cause else None
    )
    if cause is None or suggested is None:
        wrong = (
            ""
            if number is None
            else f"there is no fix {number}; "
            if cause is None
            else f"{number} ({strip_ticks(cause.title)}) has nothing to fix; "
            if cause.is_expected
            else (
                f"fix {number} ({strip_ticks(cause.title)}) takes a person: make the change as a "
                "patch and use --patch; "
            )
        )
        raise CannotTry(f"{wrong}{_list_fixes(causes, program, database)}")
    recorded = {}
    if cause.code is not None:
        first_line, file = cause.code.first_line, cause.code.file
        recorded = {
            (file, first_line + offset): line for offset, line in enumerate(cause.code.lines)
        }
    if cause.file and cause.line and cause.source_line:
        recorded[cause.file, cause.line] = cause.source_line
    files = apply_edits(suggested.edits, recorded, program.roots, folder)
    return Candidate(
        suggested.title, tuple(files), suggested.settings, suggested.fix.id, cause.fingerprint
    )


def _list_fixes(causes: Sequence[Cause], program: RecordedProgram, database: str) -> str:
    numbers = [
        f"\n  --fix {cause.number}  {strip_ticks(cause.title)}"
        for cause in causes
        if any(fix.edits or fix.settings for fix in cause.fixes)
    ]
    if not numbers:
        show = collector_command("try", program.run_id, "--patch", "FILE", database=database)
        return (
            f"run {program.run_id} has no fix that can be tried by itself; try a change of "
            f"your own: {show}"
        )
    return f"run {program.run_id} has these:{''.join(numbers)}"


def _to_json(trial: Trial) -> dict[str, Any]:
    return {
        "run": trial.run_id,
        "base_run": trial.base_run_id,
        "new_run": trial.new_run_id,
        "title": trial.title,
        "fix": trial.fix_id,
        "cause": trial.cause_fingerprint,
        "outcome": trial.outcome,
        "summary": trial.summary,
        "settings": trial.settings,
        "patch": trial.patch,
        **trial.result,
    }


def _to_text(trial: Trial, result: TrialResult) -> str:
    from compileboard.collectors.trials.execution import FEWEST_CALLS

    rows = [
        (result.label(verdict), metric["text"], verdict.text)
        for verdict, metric in zip(result.verdicts, trial.result["metrics"])
    ]
    lines = [f"{strip_ticks(trial.title)}: {trial.outcome_label.lower()}", ""]
    if result.step_name is None:
        rows.append(
            (
                "Step",
                f"not measured: no function was called {FEWEST_CALLS} times without compiling",
                "",
            )
        )
    if result.verdicts and trial.outcome not in ("failed", "not_applied"):
        widths = [max(len(row[column]) for row in rows if row[2]) for column in (0, 1)]
        lines += [
            f"  {label:<{widths[0]}}  {text:<{widths[1]}}  {basis}".rstrip()
            for label, text, basis in rows
        ]
        lines += [f"  {'Output':<{widths[0]}}  {result.output.describe()}", ""]
    if result.base_failure is not None:
        lines += [f"  The program fails without the fix too: {result.base_failure}", ""]
    if result.failure is not None and result.failure_text:
        lines += [*(f"  | {line}" for line in result.failure_text.splitlines()[-12:]), ""]
    runs = [
        f"{name} {run_id}"
        for name, run_id in (("base", trial.base_run_id), ("fix", trial.new_run_id))
        if run_id
    ]
    lines += [f"  Runs: {', '.join(runs)}"] if runs else []
    return "\n".join([*lines, f"  {trial.summary}"])
