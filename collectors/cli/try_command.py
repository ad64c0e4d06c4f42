"""`try`: run a recorded program again with a fix in a copy, and print the effect."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from compileboard.collectors.cli.common import (
    db_option,
    print_json,
    print_message,
    recover_earlier_runs,
)
from compileboard.collectors.fixes.titles import strip_ticks
from compileboard.collectors.store.connection import open_reader
from compileboard.collectors.terminal.values import (
    collector_command,
    dashboard_command,
    read_count,
    read_seconds,
)
from compileboard.command_line import Command, Option, Value
from compileboard.exit_codes import DONE, FAILED, INTERRUPTED, REFUSED

if TYPE_CHECKING:
    from compileboard.collectors.fixes.causes import Cause
    from compileboard.collectors.store.dashboard import Trial
    from compileboard.collectors.trials.all_fixes import FixTrialRunner, TriedCandidate
    from compileboard.collectors.trials.candidates import Candidates
    from compileboard.collectors.trials.comparison import TrialResult
    from compileboard.collectors.trials.patches import RecordedProgram
    from compileboard.collectors.trials.trial import Candidate

EXAMPLES = """\
Examples:
  %(prog)s 01JD --fix 1                       the first fix that the run's page names
  %(prog)s 01JD --fix 1 --apply               write it into your files, if it is better
  %(prog)s latest --all                       every fix alone, then those that helped together
  %(prog)s 01JD --cuda-graph 1                the first fix for CUDA graphs, on a GPU
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
    "--cuda-graph",
    metavar="N",
    type=Value(read_count),
    cls=Option,
    exclusive="fix",
    help="Number of the fix for CUDA graphs. Needs a GPU.",
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    cls=Option,
    exclusive="fix",
    help="Every fix alone, then those that helped together, three times a side.",
)
@click.option(
    "--apply",
    "is_written",
    is_flag=True,
    help="With --fix: write the fix into your files if the trial finds it better.",
)
@click.option("--yes", is_flag=True, help="With --apply: do not ask.")
@click.option(
    "--repeat",
    "repeat_count",
    type=Value(read_count),
    default=1,
    metavar="N",
    help="Runs a side. 3 judge times. Default: 1.",
)
@click.option(
    "--executions",
    "max_count",
    type=Value(read_count),
    default=10,
    metavar="N",
    help="With --all: run the program so often at most. Default: 10.",
)
@click.option(
    "--budget",
    "budget_s",
    type=Value(read_seconds),
    default=1800.0,
    metavar="SECONDS",
    help="With --all: start no run that would end later. Default: 1800.",
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
def try_fix(
    run: str, command: tuple[str, ...], db: str, keep: Path | None, every: bool, **options: Any
) -> int:
    """Run a recorded program again, unchanged and with a fix applied to a copy. Your files are not
    changed.
    """
    from compileboard.collectors.trials.patches import CannotTry

    recover_earlier_runs()
    database = os.path.abspath(db)
    limits = {name: options.pop(name) for name in ("max_count", "budget_s")}
    folder = keep
    try:
        if every:
            repeats = {"repeat_count": options["repeat_count"], "as_json": options["as_json"]}
            if options["is_written"]:
                raise CannotTry("--apply writes one fix; give its number: --fix N --apply")
            kept = keep and _make_folder(keep)
            return try_all(run, database, command=command, folder=kept, **limits, **repeats)
        folder = _make_folder(keep)
        return _try_one_fix(run, command, database, folder, keep is not None, **options)
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


def _try_one_fix(
    run: str,
    command: Sequence[str],
    database: str,
    folder: Path,
    is_kept: bool,
    *,
    fix: int | None,
    patch: str | None,
    cuda_graph: int | None,
    repeat_count: int,
    as_json: bool,
    is_written: bool,
    yes: bool,
) -> int:
    from compileboard.collectors.store.dashboard import list_trials
    from compileboard.collectors.trials.candidates import Candidates
    from compileboard.collectors.trials.patches import CannotTry, join_diffs
    from compileboard.collectors.trials.trial import Executions, run_trial

    if is_written:
        _confirm_changed_answer(fix, yes)
    verified = None
    with closing(open_reader(database)) as connection:
        # A patch is of one program, which a benchmark is only if its command is given.
        sources = ("live", "bench") if patch is None or command else ("live",)
        programs = _list_programs(connection, run, database, command, folder, sources)
        program, causes = next(
            (pair for pair in programs if any(cause.number == fix for cause in pair[1])),
            programs[0],
        )
        if patch is not None and program.source == "bench":
            raise CannotTry(
                f"run {program.run_id} is a benchmark of many models; a patch is tried on one "
                "program: name a run of one, or give its command after `--`"
            )
        if patch is not None:
            candidate = _read_patch(patch, program, folder)
        elif cuda_graph is not None:
            candidate = _pick_cudagraph_fix(connection, program, cuda_graph, folder)
        else:
            every = [cause for _, own in programs for cause in own]
            candidates = Candidates(causes, program, folder)
            candidate = _pick_fix(candidates, every, fix, database, is_written=is_written)
        if is_written:
            patch_text = join_diffs(candidate.files)
            verified = next(
                (
                    trial
                    for trial in list_trials(connection, program.run_id)
                    if trial.outcome == "improved" and trial.patch == patch_text
                    if not trial.settings
                ),
                None,
            )
    for warning in program.warnings:
        print_message(warning)
    if verified is not None:
        measured = f"{datetime.fromtimestamp(verified.ended_us / 1e6):%Y-%m-%d %H:%M}"
        print_message(f"verified on {measured}: {verified.summary}")
        return _apply_fix(candidate, yes)
    executions = Executions(program, database, folder, print_message, 2 * repeat_count)
    trial, result = run_trial(executions, candidate, repeat_count)
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
    if is_written and trial.outcome == "improved":
        return _apply_fix(candidate, yes)
    if is_written:
        print_message("nothing was written, for the trial did not find it better")
        return INTERRUPTED if trial.outcome == "interrupted" else FAILED
    return _EXIT_CODES.get(trial.outcome, FAILED)


def _pick_cudagraph_fix(
    connection: sqlite3.Connection, program: RecordedProgram, number: int, folder: Path
) -> Candidate:
    from compileboard.collectors.record.facts import gpu_facts
    from compileboard.collectors.store.cudagraph_reasons import list_cudagraph_reasons
    from compileboard.collectors.trials.cudagraph_candidates import list_cudagraph_fixes
    from compileboard.collectors.trials.patches import CannotTry

    if not gpu_facts(program.environment):
        raise CannotTry(
            "CUDA graphs are recorded on a GPU, and this machine has none that can be used; run "
            "`try --cuda-graph` where the program has one"
        )
    fixes = list_cudagraph_fixes(list_cudagraph_reasons(connection, program.run_id), program.roots)
    chosen = fixes[number - 1] if number <= len(fixes) else None
    if chosen is not None and chosen.edits:
        return chosen.make(program, folder)
    lines = [
        f"\n  --cuda-graph {place}  {strip_ticks(fix.title)}"
        f"{'' if fix.edits else ' - takes a person: use --patch'}"
        for place, fix in enumerate(fixes, start=1)
    ]
    wrong = f"there is no fix {number} for CUDA graphs" if chosen is None else "it takes a person"
    raise CannotTry(
        f"{wrong}; run {program.run_id} has {'these:' if lines else 'none'}{''.join(lines)}"
    )


def _confirm_changed_answer(fix: int | None, yes: bool) -> None:
    from compileboard.collectors.trials.patches import CannotTry

    if fix is None:
        raise CannotTry("--apply writes a fix of the run; give its number: --fix N --apply")
    if not yes and not (sys.stdin and sys.stdin.isatty()):
        raise CannotTry("--apply asks before it writes, and there is no terminal; add --yes")


def _apply_fix(candidate: Candidate, yes: bool) -> int:
    from compileboard.collectors.trials.patches import join_diffs, write_files

    print(join_diffs(candidate.files), end="", file=sys.stderr)
    names = ", ".join(str(file.path) for file in candidate.files)
    if not yes and not click.confirm(f"Write this into {names}?", err=True):
        print_message("nothing was written")
        return FAILED
    write_files(candidate.files)
    print_message(f"written: {names}")
    return DONE


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


def _list_programs(
    connection: sqlite3.Connection,
    run: str,
    database: str,
    command: Sequence[str],
    folder: Path | None = None,
    sources: Sequence[str] = ("live", "bench"),
) -> list[tuple[RecordedProgram, list[Cause]]]:
    """Return a run's program with its causes; for a benchmark, each model that has any.

    Raises CannotTry if there is no such run or its program cannot be started here.
    """
    from compileboard.collectors.record.spool import home
    from compileboard.collectors.store.large_runs import reopen_run_of_database
    from compileboard.collectors.store.run_causes import load_causes
    from compileboard.collectors.trials.patches import load_program

    program = load_program(connection, run, os.environ, command, sources)
    reopen_run_of_database(database, program.run_id)
    causes = load_causes(connection, program.run_id)
    if program.source != "bench":
        return [(program, causes)]
    from compileboard.collectors.bench.execution.model_programs import list_models
    from compileboard.collectors.cli.bench import list_tasks

    tasks = (folder or home(os.environ) / "trials" / program.run_id) / "tasks"
    can_try = [cause for cause in causes if cause.can_try and not cause.is_expected]
    models = list(list_models(connection, program, can_try, list_tasks(program), tasks))
    return models or [(program, causes)]


def _pick_fix(
    candidates: Candidates,
    causes: Sequence[Cause],
    number: int | None,
    database: str,
    *,
    is_written: bool,
) -> Candidate:
    """Choose a fix. `causes` are those of the run, `candidates` of one of its programs."""
    from compileboard.collectors.trials.patches import CannotTry

    candidate = candidates.pick_to_write(number) if is_written else candidates.pick(number)
    cause = next((cause for cause in causes if cause.number == number), None)
    if candidate is not None:
        if cause is not None and cause.automatic:
            print_message(
                f"the first advice of fix {number} takes a person; this is another of its options: "
                f"{strip_ticks(candidate.title)}"
            )
        return candidate
    wrong = (
        ""
        if number is None
        else f"there is no fix {number}; "
        if cause is None
        else f"{number} ({strip_ticks(cause.title)}) has nothing to fix; "
        if cause.is_expected
        else (
            f"fix {number} ({strip_ticks(cause.title)}) takes a person: make the change as a patch "
            "and use --patch; "
        )
    )
    raise CannotTry(f"{wrong}{_list_fixes(causes, candidates.program, database)}")


def try_all(
    run: str,
    database: str,
    *,
    command: Sequence[str] = (),
    folder: Path | None = None,
    max_count: int = 10,
    budget_s: float = 1800.0,
    repeat_count: int = 1,
    as_json: bool = False,
    file: TextIO | None = None,
) -> int:
    """Try each fix of a run alone, then all helpful ones together, and print the measurements.

    Raises CannotTry or StoreError.
    """
    from compileboard.collectors.record.spool import home
    from compileboard.collectors.trials.all_fixes import MIN_EXECUTIONS
    from compileboard.collectors.trials.patches import CannotTry

    if max_count < MIN_EXECUTIONS:
        raise CannotTry(
            f"--executions {max_count}: expected at least {MIN_EXECUTIONS}, which one fix takes"
        )
    ends_s = time.monotonic() + budget_s
    with closing(open_reader(database)) as connection:
        programs = _list_programs(connection, run, database, command, folder)
    run_id = programs[0][0].run_id
    root = home(os.environ) / "trials" / run_id
    tried: list[FixTrialRunner] = []
    for program, causes in programs:
        fixes = _try_program(
            program,
            causes,
            database,
            folder or root,
            max_count=max_count,
            budget_s=ends_s - time.monotonic(),
            repeat_count=repeat_count,
        )
        if fixes is None:
            continue
        tried.append(fixes)
        if not as_json:
            title = [f"{program.name}:"] if program.source == "bench" else []
            lines = _list_all(fixes, causes, _list_earlier(fixes, database))
            print("\n".join([*title, *lines]), file=file, flush=True)
        if fixes.stopped:
            break
    if not tried:
        raise CannotTry(_list_fixes((), programs[0][0], database))
    if as_json:
        bodies = [_all_to_json(fixes, _list_earlier(fixes, database)) for fixes in tried]
        print_json(bodies if programs[0][0].source == "bench" else bodies[0])
    show = collector_command("show", run_id, database=database)
    print_message(f"the run lists those that helped first, by the same numbers: {show}")
    stopped = tried[-1].stopped
    if all(fixes.is_complete for fixes in tried):
        if folder is None:
            shutil.rmtree(root, ignore_errors=True)
    else:
        words = ("try", run_id, "--all")
        why = str(stopped or f"{max_count} executions are done")
        print_message(f"{why}; go on with: {collector_command(*words, database=database)}")
    return INTERRUPTED if stopped and stopped.is_interrupted else DONE


def _try_program(
    program: RecordedProgram,
    causes: Sequence[Cause],
    database: str,
    root: Path,
    *,
    max_count: int,
    budget_s: float,
    repeat_count: int,
) -> FixTrialRunner | None:
    """Try the fixes of a program; None if it has none. Raises CannotTry or StoreError."""
    from compileboard.collectors.record.spool import lock_spool
    from compileboard.collectors.store.run_causes import list_source_lines
    from compileboard.collectors.trials.all_fixes import FixTrialRunner, find_session
    from compileboard.collectors.trials.candidates import Candidates
    from compileboard.collectors.trials.patches import CannotTry
    from compileboard.collectors.trials.trial import Executions

    with closing(open_reader(database)) as connection:
        names = {lines.file for lines in list_source_lines(connection, program.run_id)}
    names.update(word for word in program.argv if word.endswith(".py"))
    files = {(folder / name).resolve() for folder in program.roots for name in names}
    session = find_session(root, program.command, files)
    session.mkdir(parents=True, exist_ok=True)
    if lock_spool(session) is None:
        raise CannotTry(f"the fixes of run {program.run_id} are being tried already")
    candidates = Candidates(causes, program, session / "copies")
    choices = candidates.list_choices(print_message)
    if not choices and not any(session.glob("*.id")):  # nor any that an earlier call tried
        return None
    for warning in program.warnings:
        print_message(warning)
    executions = Executions(
        program,
        database,
        session,
        print_message,
        min(max_count, len(choices) * repeat_count + 6),
        budget_s,
    )
    fixes = FixTrialRunner(executions, choices, candidates.join, max_count, repeat_count)
    fixes.measure()
    return fixes


def _list_earlier(fixes: FixTrialRunner, database: str) -> list[Trial]:
    from compileboard.collectors.store.dashboard import list_trials

    with closing(open_reader(database)) as connection:
        return fixes.list_earlier(list_trials(connection, fixes.executions.program.run_id))


def _list_all(
    fixes: FixTrialRunner, causes: Sequence[Cause], earlier_trials: list[Trial]
) -> list[str]:
    executions = fixes.executions
    earlier = f", {executions.earlier_count} of earlier calls" if executions.earlier_count else ""
    lines = [
        f"executions: {executions.count}{earlier}, {len(fixes.bases)} of the program as it is",
        "",
    ]
    rows = [_make_row(tried) for tried in fixes.list_ordered()]
    for trial in earlier_trials:
        numbers = [c.number for c in causes if trial.cause_fingerprint in c.fingerprints]
        name = f"fix {numbers[0]}" if numbers else "fixes"
        output = trial.result.get("output", {}).get("text")
        text = output if output and trial.outcome == "different" else trial.summary
        rows.append((name, trial.outcome_label, f"{trial.title}: {text}"))
    rows += [(_name_candidate(candidate), "not tried", "") for candidate in fixes.untried]
    widths = [max(map(len, column)) for column in zip(*rows)][:2]
    for fix, label, summary in rows:
        lines.append(f"  {fix:<{widths[0]}}  {label:<{widths[1]}}  {summary}".rstrip())
    return lines


def _name_candidate(candidate: Candidate) -> str:
    numbers = ", ".join(map(str, candidate.numbers))
    return f"{'fix' if len(candidate.numbers) == 1 else 'fixes'} {numbers}"


def _make_row(tried: TriedCandidate) -> tuple[str, str, str]:
    from compileboard.collectors.store.dashboard import OUTCOME_LABELS

    assert tried.result is not None
    result, candidate = tried.result, tried.candidate
    verified = "Verified, takes longer" if tried.is_slower else "Verified"
    label = verified if tried.is_improved else OUTCOME_LABELS[result.outcome]
    different = result.output.describe() if result.outcome == "different" else ""
    return _name_candidate(candidate), label, f"{candidate.title}: {different or result.summary}"


def _all_to_json(fixes: FixTrialRunner, earlier_trials: list[Trial]) -> dict[str, Any]:
    return {
        "run": fixes.executions.program.run_id,
        "execution_count": fixes.executions.count,
        "earlier_count": fixes.executions.earlier_count,
        "stopped": str(fixes.stopped) if fixes.stopped else None,
        "untried": [list(candidate.numbers) for candidate in fixes.untried],
        "trials": [_to_json(trial) for trial in [*fixes.trials, *earlier_trials]],
    }


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
    from compileboard.collectors.trials.execution import MIN_CALLS

    rows = [
        (result.label(verdict), metric["text"], verdict.text)
        for verdict, metric in zip(result.verdicts, trial.result["metrics"])
    ]
    lines = [f"{strip_ticks(trial.title)}: {trial.outcome_label.lower()}", ""]
    if result.step_name is None:
        rows.append(
            (
                "Step",
                f"not measured: no function was called {MIN_CALLS + 1} times without compiling",
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
